"""Operations of the client by name: plain data in, plain data out."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from compatgate.client.operations import Operations

if TYPE_CHECKING:
    from compatgate.client import Client


class Plain:
    """Asks a gate at the other end of a client."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def _ask(self, operation: str, *args: Any, **named: Any) -> dict[str, Any]:
        asked: Any = getattr(Operations, operation)
        answer: dict[str, Any] = self._client.send(asked.request(*args, **named).plain())
        return answer

    def _list(self, operation: str, limit: int | None, **filters: Any) -> list[dict[str, Any]]:
        listing: Any = getattr(Operations, operation)
        items = iter(self._client.items(listing.request(**filters).plain()))
        return [*islice(items, limit)]
