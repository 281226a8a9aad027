"""Ask the API server of a cluster by operations of the official client, with retries.

`compatgate.kit.kubernetes` makes the connection, and names the errors.
"""

from __future__ import annotations

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
    ) -> None:
        self._access = access
        self._sleep = sleep
        self._pauses = pauses
        self._timeout_s = timeout_s
        self._client: Any = None

    def ask(self, api: str, operation: str, *args: Any, **params: Any) -> dict[str, Any]:
        """Make a request; requests of this module can safely be repeated.

        ``api``: ``admission``, ``core`` or ``custom``.
        """

        def once() -> dict[str, Any]:
            with _translate_errors():
                self.connect()
                method = getattr(
                    getattr(kubernetes.kubernetes_client(), _APIS[api])(self._client), operation
                )
                response = method(
                    *args, **params, _preload_content=False, _request_timeout=self._timeout_s
                )
                body: dict[str, Any] = msgspec.json.decode(response.data)
                return body

        pauses = _PAUSES if self._pauses is None else self._pauses
        return retry_request(once, pauses, self._sleep)

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

    def connect(self) -> None:
        """Read the credentials; the server is not asked."""
        if self._client is None:
            self._client = api_client(kubernetes.kubernetes_client(), self._access, self._refused)

    def close(self) -> None:
        """Drop the connection."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

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


@contextmanager
def _translate_errors() -> Iterator[None]:
    from urllib3.exceptions import HTTPError

    refused = kubernetes.kubernetes_client().ApiException
    try:
        yield
    except refused as error:
        raise _refusal(error) from error
    except (HTTPError, OSError, EOFError, *DECODE_ERRORS) as error:
        what = quote_error(error)
        hint = "check that its API server runs and is reachable from here"
        raise ServerBusy(f"the cluster does not answer: {what}", hint=hint) from error


def _refusal(error: Any) -> CompatgateError:
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
