"""Connect to a cluster's API server through the official client, and translate its errors.

An error says whether another attempt may succeed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import msgspec

from compatgate.background import BackgroundReader
from compatgate.canary.executors.jobs import find_innermost_cause
from compatgate.canary.hosts import Host, Kubernetes
from compatgate.errors import (
    BadInput,
    CompatgateError,
    Forbidden,
    InfrastructureError,
    NotFound,
    quote_error,
)
from compatgate.kit import kubernetes
from compatgate.kit.kubernetes import (
    RETRY_PAUSES,
    ClusterAccess,
    ServerBusy,
    api_client,
    explain_refusal,
    refusal_text,
    retry_request,
)

TIMEOUT_S = (10, 30)
"""Timeout of a connection and of an answer."""
_SILENT_S = 900
"""Maximum silence of a stream: its other end may be gone without notice."""
_PAUSES = RETRY_PAUSES


class Cluster:
    """Connection that opens at its first use, and again after it was dropped."""

    def __init__(self, host: Host, sleep: Callable[[float], None] = time.sleep) -> None:
        self.host = host
        self.settings = host.kubernetes or Kubernetes("default")
        self._sleep = sleep
        self._lock = threading.Lock()
        self._client: Any = None
        self._apis: dict[str, Any] = {}

    @property
    def namespace(self) -> str:
        """Return the namespace of every object."""
        return self.settings.namespace

    @property
    def where(self) -> str:
        """Return the host and its namespace, for messages."""
        return f"{self.host.name} (namespace {self.namespace})"

    def ask(self, api: str, operation: str, *args: Any, **params: Any) -> dict[str, Any]:
        """Send a request about the namespace; repeat it while the server is unavailable.

        Repeating is safe: an object that was created has a name that is taken then, and a deleted
        object is gone. The operation is a method of the client, such as ``read_namespaced_job``.
        """

        def once() -> dict[str, Any]:
            with translate_errors(self):
                response = self._call(api, operation, args, params, TIMEOUT_S)
                body: dict[str, Any] = msgspec.json.decode(response.data)
                return body

        return retry_request(once, _PAUSES, self._sleep)

    def open(self, api: str, operation: str, *args: Any, **params: Any) -> Any:
        """Open a stream: a response of urllib3 with its body unread."""
        return self._call(api, operation, args, params, (TIMEOUT_S[0], _SILENT_S))

    def close(self) -> None:
        """Drop the connection; the next request reads the credentials again."""
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
                module = kubernetes.kubernetes_client()
                self._client = self._client or self._connect(module)
                make = {"batch": module.BatchV1Api, "core": module.CoreV1Api}[name]
                self._apis[name] = make(self._client)
            return self._apis[name]

    def _connect(self, module: Any) -> Any:
        settings = self.settings
        access = ClusterAccess(settings.kubeconfig, settings.context, settings.in_cluster)
        return api_client(module, access, self._refused, 4 * self.host.slots + 4)

    def _refused(self, what: str) -> BadInput:
        return BadInput(
            f"the cluster of {self.host.name} cannot be reached: {what}",
            field="host.kubernetes",
            value=self.settings.context or self.settings.kubeconfig,
            hint="set kubeconfig and context, or in_cluster = true for a worker in a pod",
        )


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


MANIFESTS_HINT = "the Helm chart makes the role of the worker (worker.enabled)"


@contextmanager
def translate_errors(cluster: Cluster) -> Iterator[None]:
    """Translate the errors of a request."""
    from urllib3.exceptions import HTTPError

    refused = kubernetes.kubernetes_client().ApiException
    try:
        yield
    except refused as error:
        raise _translate_refusal(error, cluster) from error
    except (HTTPError, OSError, EOFError, msgspec.DecodeError) as error:
        raise ServerBusy(
            f"the cluster of {cluster.where} does not answer: {find_innermost_cause(error)}",
            field="host",
            value=cluster.host.name,
            hint="check that its API server runs and that the worker can reach it",
        ) from error


def _translate_refusal(error: Any, cluster: Cluster) -> CompatgateError:
    what = refusal_text(error)
    at = f"the cluster of {cluster.where}"
    match error.status:
        case 404 if what.startswith("namespaces "):
            hint = "create the namespace, or set another one in [host.kubernetes]"
            problem = f"{at} does not have the namespace"
            return NotFound(problem, field="namespace", value=cluster.namespace, hint=hint)
        case 401:
            cluster.close()  # the token may have been renewed at its source
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
