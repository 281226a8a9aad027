"""The API server of a cluster that is looked at, through the official client."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec

from compatgate.errors import BadInput, CompatgateError, Forbidden, Infrastructure
from compatgate.kubernetes import library
from compatgate.kubernetes.connect import PAUSES, Access, api_client, patiently
from compatgate.kubernetes.errors import TRY_AGAIN, Busy, Gone, Missing, Taken, busy, said
from compatgate.not_json import NOT_JSON

T = TypeVar("T")
PAGE = 500
_TIMEOUT_S = (10, 60)
_PAUSES = PAUSES
_LISTS = 3
"""Times that a list is begun anew when the server has forgotten where it was."""
_APIS = {"core": "CoreV1Api", "custom": "CustomObjectsApi"}


class Api:
    """Asks the API server, and again where it cannot answer just then.

    Args:
        access: how it is reached.
        sleep: waits between two tries.
    """

    def __init__(self, access: Access, sleep: Callable[[float], None] = time.sleep) -> None:
        self._access = access
        self._sleep = sleep
        self._client: Any = None

    def ask(self, api: str, operation: str, *args: Any, **params: Any) -> dict[str, Any]:
        """One request; every one that is made here may be made twice.

        Args:
            api: ``core`` or ``custom``.
            operation: of the client, such as ``list_node``.
            args: of the operation.
            params: further ones.

        Raises:
            Missing, Taken, Gone: there is none; it was changed meanwhile; a list must begin anew.
            Infrastructure: the server does not answer, or cannot now.
            CompatgateError: it refuses.
        """

        def once() -> dict[str, Any]:
            with _translated():
                method = getattr(self._api(api), operation)
                response = method(
                    *args, **params, _preload_content=False, _request_timeout=_TIMEOUT_S
                )
                body: dict[str, Any] = msgspec.json.decode(response.data)
                return body

        return patiently(once, _PAUSES, self._sleep)

    def listed(
        self,
        api: str,
        operation: str,
        *args: Any,
        keep: Callable[[dict[str, Any]], T | None],
        **params: Any,
    ) -> list[T]:
        """Every item of a list, page by page; all of it, or an error.

        Args:
            api: as `ask`.
            operation: as `ask`.
            args: as `ask`.
            keep: what is kept of an item; None: nothing.
            params: as `ask`.

        Raises:
            CompatgateError: as `ask`.
        """
        for attempt in range(_LISTS):
            try:
                return self._pages(api, operation, args, params, keep)
            except Gone:
                if attempt == _LISTS - 1:
                    raise
        raise AssertionError("the last try returns or raises")

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

    def _api(self, name: str) -> Any:
        module = library.client()
        self._client = self._client or api_client(module, self._access, self._refused)
        return getattr(module, _APIS[name])(self._client)

    def _refused(self, what: str) -> BadInput:
        return BadInput(
            f"there is no way to the cluster: {what}",
            field="--kubeconfig",
            value=self._access.kubeconfig,
            hint="name --kubeconfig and --context, or --in-cluster in a pod",
        )


@contextmanager
def _translated() -> Iterator[None]:
    from urllib3.exceptions import HTTPError

    refused = library.client().ApiException
    try:
        yield
    except refused as error:
        raise _refusal(error) from error
    except (HTTPError, OSError, EOFError, *NOT_JSON) as error:
        what = " ".join(str(error).split()) or type(error).__name__
        hint = "see that its API server runs and can be reached from here"
        raise Busy(f"the cluster does not answer: {what}", hint=hint) from error


def _refusal(error: Any) -> CompatgateError:
    what = said(error.body) or error.reason or "no reason given"
    match error.status:
        case 410:
            return Gone(what)
        case 404:
            return Missing(f"the cluster: {what}")
        case 409:
            return Taken(f"the cluster refuses: {what}")
        case 401:
            return Forbidden(f"the cluster does not know who asks: {what}", hint="log in again")
        case 403:
            hint = "'compatgate k8s manifests --nodes' and '--audit' print what must be allowed"
            return Forbidden(f"the cluster does not allow it: {what}", hint=hint)
        case 0:
            return CompatgateError(f"the cluster cannot be trusted: {error.reason}")
        case status if status in TRY_AGAIN:
            return busy(f"the cluster failed: {what}", error)
        case status if status < 500:
            return BadInput(f"the cluster refuses: {what}")
    return Infrastructure(f"the cluster failed: {error.status} {what}")
