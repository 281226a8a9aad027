"""Connect to a Docker engine (socket, TLS or ssh), name its objects, and translate its errors."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from compatgate.canary.executors import Job, explain_start_error, find_innermost_cause
from compatgate.canary.hosts import Host
from compatgate.errors import (
    BadInput,
    CompatgateError,
    Conflict,
    InfrastructureError,
    NotFound,
    quote_error,
)
from compatgate.resources import install_hint

TIMEOUT_S = 60
"""Timeout of an engine's answer; streams (logs, pulls, builds) may be silent for longer."""


class Engine:
    """Connection that opens at its first use, and again after it was dropped."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self._api: Any = None

    @property
    def where(self) -> str:
        """Return the host and its endpoint, for messages."""
        local = os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
        return f"{self.host.name} ({self.host.endpoint or local})"

    def api(self) -> Any:
        """Return the SDK's low-level client, with the API version negotiated."""
        if self._api is not None:
            return self._api
        # The SDK takes a quarter of a second to import; only workers need it.
        from docker import APIClient
        from docker.errors import TLSParameterError
        from docker.tls import TLSConfig
        from docker.utils import kwargs_from_env

        host = self.host
        if (host.endpoint or "").startswith("ssh://") and find_spec("paramiko") is None:
            raise BadInput(
                "an engine over ssh needs an additional package",
                field="endpoint",
                value=host.endpoint,
                hint=install_hint("ssh"),
            )
        try:
            settings = {"base_url": host.endpoint} if host.endpoint else kwargs_from_env()
            if host.tls:
                settings["tls"] = TLSConfig(
                    client_cert=(host.tls.cert, host.tls.key), ca_cert=host.tls.ca, verify=True
                )
        except (TLSParameterError, OSError) as error:
            raise BadInput(
                f"the TLS files of {host.name} cannot be used: {quote_error(error)}", field="tls"
            ) from None

        class Client(APIClient):  # type: ignore[misc]
            # REQUESTS_CA_BUNDLE would replace the host's own authority, and proxies are for the
            # web.
            trust_env = property(lambda self: False, lambda self, value: None)

        # Use the ssh program, so that the user's keys, agent and known hosts apply.
        self._api = Client(version="auto", timeout=TIMEOUT_S, use_ssh_client=True, **settings)
        return self._api

    def close(self) -> None:
        """Drop the connection."""
        api, self._api = self._api, None
        if api is not None:
            api.close()


RUN = "dev.compatgate.run"
ATTEMPT = "dev.compatgate.attempt"
STEP = "dev.compatgate.step"


def container_name(job: Job) -> str:
    """Return the name of the job's container; an engine refuses a second one of that name."""
    return f"compatgate-{job.run}-{job.attempt}-{job.step}"


def job_labels(job: Job) -> dict[str, str]:
    """Return the labels of every object of the job."""
    return {RUN: job.run, ATTEMPT: str(job.attempt), STEP: job.step}


NO_TOOLKIT_HINT = (
    "install the NVIDIA Container Toolkit on it, run 'nvidia-ctk runtime configure "
    "--runtime=docker' and restart the engine"
)
NO_CDI_HINT = (
    "install the NVIDIA Container Toolkit on it and run 'nvidia-ctk cdi generate "
    "--output=/etc/cdi/nvidia.yaml'"
)
_NO_ACCESS = re.compile(
    r"pull access denied|manifest (?:for .* )?(?:unknown|not found)|not found|"
    r"repository does not exist|no matching manifest|unauthorized|denied:|name unknown|"
    r"no basic auth|authentication required"
)


@contextmanager
def translate_errors(engine: Engine) -> Iterator[Any]:
    """Yield the engine's client, and translate its errors."""
    from docker.errors import APIError, DockerException
    from requests.exceptions import RequestException
    from urllib3.exceptions import HTTPError

    try:
        yield engine.api()
    except APIError as error:
        what, kinds = explain_error(error), {409: Conflict, 400: BadInput}
        kind: type[CompatgateError] = kinds.get(error.status_code, InfrastructureError)
        does = "refuses" if error.status_code in kinds else "failed"
        raise kind(f"the engine of {engine.where} {does}: {what}") from error
    except (DockerException, RequestException, HTTPError, OSError, EOFError) as error:
        engine.close()
        raise InfrastructureError(
            f"the engine of {engine.where} does not answer: {find_innermost_cause(error)}",
            field="host",
            value=engine.host.name,
            hint="start the engine, and check that the worker may access it",
        ) from error


@contextmanager
def ignore_gone() -> Iterator[None]:
    """Ignore that an object is gone, has ended, or is in use or being removed."""
    from docker.errors import APIError

    try:
        yield
    except APIError as error:
        if error.status_code not in (404, 409):
            raise


@contextmanager
def translate_start_errors(program: str, host: str) -> Iterator[None]:
    """Translate errors of a container's start, when the engine notices missing GPUs or programs."""
    from docker.errors import APIError

    try:
        yield
    except APIError as error:
        what = explain_error(error)
        failure = explain_start_error(what, program, host)
        if "could not select device driver" in what and '"cdi"' not in what:
            problem = f"the engine of {host} has no GPUs to give: "
            problem += "the NVIDIA Container Toolkit is missing"
            failure = CompatgateError(problem, field="host", value=host, hint=NO_TOOLKIT_HINT)
        elif "CDI" in what or '"cdi"' in what:
            problem = f"the engine of {host} does not know the GPU by its CDI name: {what}"
            failure = CompatgateError(problem, field="host", value=host, hint=NO_CDI_HINT)
        if failure is not None:
            raise failure from error
        raise


def missing_image_error(reference: str, what: str) -> CompatgateError | None:
    """Return the error for a registry's answer; None if another attempt may succeed."""
    if not _NO_ACCESS.search(what):
        return None
    return NotFound(
        f"image {reference} not found: {what}",
        field="image",
        value=reference,
        hint="check the name; a private image needs 'docker login' for the worker's user",
    )


def explain_error(error: Any) -> str:
    """Return the engine's message in one line."""
    return quote_error(error.explanation or error)
