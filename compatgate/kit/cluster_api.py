"""Ask the API server of a cluster by operations of the official client, with retries.

`compatgate.kit.kubernetes` makes the connection, and names the errors.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec

from compatgate.errors import BadInput, CompatgateError, Forbidden, quote_error
from compatgate.kit import kubernetes
from compatgate.kit.kubernetes import (
    RETRY_HINT,
    RETRY_PAUSES,
    ClusterAccess,
    ServerBusy,
    VersionGone,
    api_client,
    explain_refusal,
    refusal_text,
    retry_request,
)
from compatgate.strict_json import DECODE_ERRORS

T = TypeVar("T")
PAGE = 500
_TIMEOUT_S = (10, 60)
_PAUSES = RETRY_PAUSES
_LISTS = 3
"""Maximum number of restarts of a list whose continuation expired."""
_APIS = {
    "admission": "AdmissionregistrationV1Api",
    "batch": "BatchV1Api",
    "core": "CoreV1Api",
    "custom": "CustomObjectsApi",
}


class ClusterApi:
    """A connection to the API server, which retries while the server is busy."""

    def __init__(
        self,
        access: ClusterAccess,
        sleep: Callable[[float], None] = time.sleep,
        *,
        pauses: Sequence[float] | None = None,
        timeout_s: tuple[float, float] = _TIMEOUT_S,
        connections: int | None = None,
    ) -> None:
        self._access = access
        self._sleep = sleep
        self._pauses = pauses
        self._timeout_s = timeout_s
        self._connections = connections
        self._lock = threading.Lock()
        self._client: Any = None

    def ask(self, api: str, operation: str, *args: Any, **params: Any) -> dict[str, Any]:
        """Make a request that can safely be repeated.

        ``api``: ``admission``, ``batch``, ``core`` or ``custom``; ``operation``: a method of the
        client, such as ``read_namespaced_job``.
        """

        def once() -> dict[str, Any]:
            with self.translating():
                response = self.open(api, operation, *args, timeout_s=self._timeout_s, **params)
                body: dict[str, Any] = msgspec.json.decode(response.data)
                return body

        pauses = _PAUSES if self._pauses is None else self._pauses
        return retry_request(once, pauses, self._sleep)

    def open(
        self, api: str, operation: str, *args: Any, timeout_s: tuple[float, float], **params: Any
    ) -> Any:
        """Make a request once; return urllib3's response with its body unread."""
        method = getattr(
            getattr(kubernetes.kubernetes_client(), _APIS[api])(self.connect()), operation
        )
        return method(*args, **params, _preload_content=False, _request_timeout=timeout_s)

    def listed(
        self,
        api: str,
        operation: str,
        *args: Any,
        keep: Callable[[dict[str, Any]], T | None],
        **params: Any,
    ) -> list[T]:
        """Return every item of a list, page by page, or raise."""
        for attempt in range(_LISTS):
            try:
                return self._pages(api, operation, args, params, keep)
            except VersionGone:
                if attempt == _LISTS - 1:
                    raise
        raise AssertionError("the last try returns or raises")

    def connect(self) -> Any:
        """Return the client; read the credentials first. The server is not asked."""
        with self._lock:
            if self._client is None:
                module = kubernetes.kubernetes_client()
                self._client = api_client(module, self._access, self._refused, self._connections)
            return self._client

    def close(self) -> None:
        """Drop the connection; the next request reads the credentials again."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    @contextmanager
    def translating(self) -> Iterator[None]:
        """Translate the errors of a request."""
        from urllib3.exceptions import HTTPError

        refused = kubernetes.kubernetes_client().ApiException
        try:
            yield
        except refused as error:
            raise self._explain(error) from error
        except (HTTPError, OSError, EOFError, *DECODE_ERRORS) as error:
            raise self._unreachable(error) from error

    def _pages(
        self,
        api: str,
        operation: str,
        args: tuple[Any, ...],
        params: dict[str, Any],
        keep: Callable[[dict[str, Any]], T | None],
    ) -> list[T]:
        found: list[T] = []
        more: dict[str, Any] = {}
        while True:
            page = self.ask(api, operation, *args, **params, **more, limit=PAGE)
            kept = (keep(item) for item in page.get("items") or () if isinstance(item, dict))
            found += [item for item in kept if item is not None]
            following = (page.get("metadata") or {}).get("continue")
            if not following:
                return found
            more = {"_continue": following}

    def _refused(self, what: str) -> BadInput:
        return BadInput(
            f"no connection to the cluster is configured: {what}",
            field="--kubeconfig",
            value=self._access.kubeconfig,
            hint="use --kubeconfig and --context, or --in-cluster in a pod",
        )

    def _unreachable(self, error: Exception) -> CompatgateError:
        what = quote_error(error)
        hint = "check that its API server runs and is reachable from here"
        return ServerBusy(f"the cluster does not answer: {what}", hint=hint)

    def _explain(self, error: Any) -> CompatgateError:
        what = refusal_text(error)
        match error.status:
            case 401:
                return Forbidden(
                    f"the cluster does not accept the credentials: {what}", hint="log in again"
                )
            case 403:
                hint = "apply the roles that the Helm chart makes (nodes.report, audit.enabled)"
                return Forbidden(f"the cluster does not allow it: {what}", hint=hint)
            case 0:
                return CompatgateError(
                    f"the cluster's certificate is not trusted: {quote_error(error.reason)}"
                )
            case status if status < 500 and status not in (404, 409, 410, *RETRY_HINT):
                return BadInput(f"the cluster refuses: {what}")
        return explain_refusal(error, "the cluster")
