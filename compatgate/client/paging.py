"""Lists, page after page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

from compatgate.wire.matrix import Page

if TYPE_CHECKING:
    from compatgate.client.operation import Awaiting, Blocking
    from compatgate.client.request import Request

T = TypeVar("T")
SIZE = 500
"""Items of a page, where they are iterated."""


class Items(Generic[T]):
    """The items of a list; iterating asks for a page at a time, as far as it goes.

    Args:
        client: that asks.
        request: of a page, filtered.
    """

    def __init__(self, client: Blocking, request: Request[Page[T]]) -> None:
        self._client = client
        self._request = request

    def page(self, cursor: str | None = None, *, size: int | None = None) -> Page[T]:
        """One page: the first, or the one that ``next`` of the page before names.

        Args:
            cursor: of the page.
            size: at most so many items, 1 to 1000; the gate's own choice if left out.
        """
        return self._client.send(self._request.where(cursor=cursor, limit=size))

    def pages(self, *, size: int = SIZE) -> Iterator[Page[T]]:
        """Every page."""
        cursor: str | None = None
        while True:
            page = self.page(cursor, size=size)
            yield page
            if (cursor := page.next) is None:
                return

    def __iter__(self) -> Iterator[T]:
        for page in self.pages():
            yield from page.items


class AsyncItems(Generic[T]):
    """The items of a list, to be iterated with ``async for``; as `Items`."""

    def __init__(self, client: Awaiting, request: Request[Page[T]]) -> None:
        self._client = client
        self._request = request

    async def page(self, cursor: str | None = None, *, size: int | None = None) -> Page[T]:
        """One page; see `Items.page`."""
        return await self._client.send(self._request.where(cursor=cursor, limit=size))

    async def pages(self, *, size: int = SIZE) -> AsyncIterator[Page[T]]:
        """Every page."""
        cursor: str | None = None
        while True:
            page = await self.page(cursor, size=size)
            yield page
            if (cursor := page.next) is None:
                return

    async def __aiter__(self) -> AsyncIterator[T]:
        async for page in self.pages():
            for item in page.items:
                yield item
