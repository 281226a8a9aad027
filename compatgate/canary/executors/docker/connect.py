"""The connection to an engine: its local socket, TCP with TLS, or ssh."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from compatgate.canary.hosts import Host
from compatgate.errors import BadInput

TIMEOUT_S = 60
"""For an answer of the engine; streams (logs, pulls, builds) may be silent for longer."""


class Engine:
    """Connects when it is first needed, and again after the connection was dropped."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self._api: Any = None

    @property
    def where(self) -> str:
        """The host and its endpoint, for messages."""
        return f"{self.host.name} ({self.host.endpoint or 'the local engine'})"

    def api(self) -> Any:
        """The low-level client of the SDK, its version agreed with the engine.

        Raises:
            BadInput: the TLS files cannot be read; ssh is not installed.
            docker.errors.DockerException: the engine does not answer.
        """
        if self._api is None:
            self._api = self._connect()
        return self._api

    def close(self) -> None:
        """Drop the connection."""
        api, self._api = self._api, None
        if api is not None:
            api.close()

    def _connect(self) -> Any:
        # The SDK takes a quarter of a second to import; only workers need it.
        from docker import APIClient
        from docker.errors import TLSParameterError
        from docker.tls import TLSConfig
        from docker.utils import kwargs_from_env

        host = self.host
        if (host.endpoint or "").startswith("ssh://") and find_spec("paramiko") is None:
            raise BadInput(
                "an engine through ssh needs another package",
                field="endpoint",
                value=host.endpoint,
                hint="pip install 'compatgate[ssh]'",
            )
        try:
            settings = {"base_url": host.endpoint} if host.endpoint else kwargs_from_env()
            if host.tls:
                settings["tls"] = TLSConfig(
                    client_cert=(host.tls.cert, host.tls.key), ca_cert=host.tls.ca, verify=True
                )
        except (TLSParameterError, OSError) as error:
            raise BadInput(
                f"the TLS files of {host.name} are wrong: {error}", field="tls"
            ) from None

        class Client(APIClient):  # type: ignore[misc]
            # REQUESTS_CA_BUNDLE would take the place of the host's own authority, and proxies are
            # for the web.
            trust_env = property(lambda self: False, lambda self, value: None)

        # ssh through the program, so that the user's keys, agent and known hosts are used.
        return Client(version="auto", timeout=TIMEOUT_S, use_ssh_client=True, **settings)
