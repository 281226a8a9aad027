"""Connect to a cluster's API server through the official client, and translate its errors."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any

from compatgate.background import BackgroundReader
from compatgate.canary.executors import find_innermost_cause
from compatgate.canary.hosts import Host, Kubernetes
from compatgate.errors import (
    BadInput,
    CompatgateError,
    Forbidden,
    InfrastructureError,
    NotFound,
    quote_error,
)
from compatgate.kit.kubernetes import (
    ClusterAccess,
    ClusterApi,
    ServerBusy,
    explain_refusal,
    refusal_text,
)

TIMEOUT_S = (10, 30)
"""Timeout of a connection and of an answer."""
_SILENT_S = 900
"""Maximum silence of a stream: its other end may be gone without notice."""


MANIFESTS_HINT = "the Helm chart makes the role of the worker (worker.enabled)"


class Cluster(ClusterApi):
    """Connection that opens at its first use, and again after it was dropped.

    Repeating a request is safe: an object that was created has a name that is taken then, and a
    deleted object is gone.
    """

    def __init__(self, host: Host, sleep: Callable[[float], None] = time.sleep) -> None:
        self.host = host
        self.settings = settings = host.kubernetes or Kubernetes("default")
        super().__init__(
            ClusterAccess(settings.kubeconfig, settings.context, settings.in_cluster),
            sleep,
            timeout_s=TIMEOUT_S,
            connections=4 * host.slots + 4,
        )

    @property
    def namespace(self) -> str:
        """Return the namespace of every object."""
        return self.settings.namespace

    @property
    def where(self) -> str:
        """Return the host and its namespace, for messages."""
        return f"{self.host.name} (namespace {self.namespace})"

    def open(
        self,
        api: str,
        operation: str,
        *args: Any,
        timeout_s: tuple[float, float] = (TIMEOUT_S[0], _SILENT_S),
        **params: Any,
    ) -> Any:
        """Make a request about the namespace once, such as the start of a stream."""
        about = (*args[:1], self.namespace, *args[1:])
        return super().open(api, operation, *about, timeout_s=timeout_s, **params)

    def _refused(self, what: str) -> BadInput:
        return BadInput(
            f"the cluster of {self.host.name} cannot be reached: {what}",
            field="host.kubernetes",
            value=self.settings.context or self.settings.kubeconfig,
            hint="set kubeconfig and context, or in_cluster = true for a worker in a pod",
        )

    def _unreachable(self, error: Exception) -> CompatgateError:
        return ServerBusy(
            f"the cluster of {self.where} does not answer: {find_innermost_cause(error)}",
            field="host",
            value=self.host.name,
            hint="check that its API server runs and that the worker can reach it",
        )

    def _explain(self, error: Any) -> CompatgateError:
        what = refusal_text(error)
        at = f"the cluster of {self.where}"
        match error.status:
            case 404 if what.startswith("namespaces "):
                hint = "create the namespace, or set another one in [host.kubernetes]"
                problem = f"{at} does not have the namespace"
                return NotFound(problem, field="namespace", value=self.namespace, hint=hint)
            case 401:
                self.close()  # the token may have been renewed at its source
                return ServerBusy(
                    f"{at} does not accept the worker's credentials: {what}", hint="log in again"
                )
            case 403:
                if "exceeded quota" in what:
                    return InfrastructureError(f"{at} has no room: {what}")
                if "admission webhook" in what or "violates PodSecurity" in what:
                    return Forbidden(f"{at} does not admit the job: {what}")
                return Forbidden(f"{at} does not allow the request: {what}", hint=MANIFESTS_HINT)
            case 400 | 413 | 422:
                return BadInput(f"{at} refuses: {what}", field="host.kubernetes")
            case 0:
                return CompatgateError(
                    f"{at} cannot be trusted: {quote_error(error.reason)}", field="host"
                )
        return explain_refusal(error, at)


CHUNK_BYTES = 64 << 10
_MAX_LINE = 2 << 20
"""Maximum length of a line that is returned whole."""


def read_lines(response: Any) -> BackgroundReader[bytes]:
    """Return the body of a response line by line, each with its end.

    A last line without an end is returned only if the body ended properly.
    """
    return BackgroundReader(_read_chunks(response), response.shutdown)


def _read_chunks(response: Any) -> Generator[bytes]:
    try:
        buffer = bytearray()
        while data := response.read1(CHUNK_BYTES):
            buffer += data
            while (end := buffer.find(b"\n") + 1) or len(buffer) > _MAX_LINE:
                yield bytes(buffer[: end or _MAX_LINE])
                del buffer[: end or _MAX_LINE]
        if buffer:
            yield bytes(buffer)
    finally:
        with suppress(Exception):
            response.close()
