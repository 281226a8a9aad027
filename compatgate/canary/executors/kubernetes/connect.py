"""The connection to a cluster's API server, through the official client."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec

from compatgate.canary.executors.kubernetes import library
from compatgate.canary.executors.kubernetes.errors import Busy, pause_after, translated
from compatgate.canary.hosts import Host, Kubernetes
from compatgate.errors import BadInput

TIMEOUT_S = (10, 30)
"""For a connection and for an answer."""
_SILENT_S = 900
"""That a stream may be silent: its other end may be gone without a word."""
_PAUSES = (0.5, 1.0, 2.0, 4.0)
"""Between tries of a request that the server could not answer just then."""


class Cluster:
    """Connects when it is first needed, and again after the connection was dropped.

    Args:
        host: whose cluster it is.
        sleep: waits between two tries.
    """

    def __init__(self, host: Host, sleep: Callable[[float], None] = time.sleep) -> None:
        self.host = host
        self.settings = host.kubernetes or Kubernetes()
        self._sleep = sleep
        self._lock = threading.Lock()
        self._client: Any = None
        self._apis: dict[str, Any] = {}

    @property
    def namespace(self) -> str:
        """Where everything is made."""
        return self.settings.namespace

    @property
    def where(self) -> str:
        """The host and its namespace, for messages."""
        return f"{self.host.name} (namespace {self.namespace})"

    def ask(self, api: str, operation: str, *args: Any, **params: Any) -> dict[str, Any]:
        """Ask for one thing in the namespace, and again where the server cannot answer just now.

        Every request that is made here may be made twice: what is created has a name that is
        taken then, and what is deleted is gone.

        Args:
            api: ``batch`` or ``core``.
            operation: of the client, such as ``read_namespaced_job``.
            args: before the namespace.
            params: further ones.

        Raises:
            Missing, Taken: there is none; its name is taken.
            Infrastructure: the server does not answer, or cannot now.
            CompatgateError: it refuses.
        """
        for pause in (*_PAUSES, None):
            try:
                with translated(self):
                    response = self._call(api, operation, args, params, TIMEOUT_S)
                    body: dict[str, Any] = msgspec.json.decode(response.data)
                    return body
            except Busy as error:
                wait = pause_after(error, pause)
                if wait is None:
                    raise
                self._sleep(wait)
        raise AssertionError("the last try returns or raises")

    def open(self, api: str, operation: str, *args: Any, **params: Any) -> Any:
        """Open a stream: the answer of urllib3, its body not read.

        Raises:
            ApiException, urllib3.exceptions.HTTPError: for `translated`, which is around it.
        """
        return self._call(api, operation, args, params, (TIMEOUT_S[0], _SILENT_S))

    def close(self) -> None:
        """Drop the connection; the next request reads the credentials anew."""
        with self._lock:
            client, self._client = self._client, None
            self._apis.clear()
        if client is not None:
            client.close()

    def _call(
        self, api: str, operation: str, args: Any, params: dict[str, Any], timeout: Any
    ) -> Any:
        method = getattr(self._api(api), operation)
        return method(
            *args[:1],
            self.namespace,
            *args[1:],
            **params,
            _preload_content=False,
            _request_timeout=timeout,
        )

    def _api(self, name: str) -> Any:
        with self._lock:
            if name not in self._apis:
                module = library.client()
                self._client = self._client or self._connect(module)
                make = {"batch": module.BatchV1Api, "core": module.CoreV1Api}[name]
                self._apis[name] = make(self._client)
            return self._apis[name]

    def _connect(self, module: Any) -> Any:
        from kubernetes import config
        from urllib3.util.retry import Retry

        settings = self.settings
        configuration = module.Configuration()
        try:
            if settings.in_cluster:
                config.load_incluster_config(client_configuration=configuration)
            else:
                config.load_kube_config(
                    config_file=settings.kubeconfig,
                    context=settings.context,
                    client_configuration=configuration,
                    persist_config=False,
                )
        except (config.ConfigException, OSError, ValueError, KeyError, TypeError) as error:
            what = " ".join(str(error).split())
            raise BadInput(
                f"there is no way to the cluster of {self.host.name}: {what}",
                field="host.kubernetes",
                value=settings.context or settings.kubeconfig,
                hint="name kubeconfig and context, or in_cluster = true for a worker that is a pod",
            ) from None
        # What is tried again, and for how long, is decided in `ask`.
        configuration.retries = Retry(total=0, respect_retry_after_header=False)
        configuration.connection_pool_maxsize = 4 * self.host.slots + 4
        return module.ApiClient(configuration)
