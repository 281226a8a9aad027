"""Turn operations into methods of both clients, with lists page by page."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeVar, overload

from compatgate.kit.http.schemas import Page

if TYPE_CHECKING:
    from compatgate.client.request import Request

P = ParamSpec("P")
A = TypeVar("A")
T = TypeVar("T")


class Blocking:
    """The interface of a client whose methods return answers."""

    @abstractmethod
    def send(self, request: Request[A]) -> A:
        """Return the answer to a request."""

    @abstractmethod
    def items(self, request: Request[Page[T]]) -> Items[T]:
        """Return a list."""

    @abstractmethod
    def lines(self, request: Request[str]) -> Iterator[str]:
        """Return the lines of an answer as they arrive."""


class Awaiting:
    """The interface of a client whose methods return awaitables."""

    @abstractmethod
    async def send(self, request: Request[A]) -> A:
        """Return the answer to a request."""

    @abstractmethod
    def items(self, request: Request[Page[T]]) -> AsyncItems[T]:
        """Return a list."""

    @abstractmethod
    def lines(self, request: Request[str]) -> AsyncIterator[str]:
        """Return the lines of an answer as they arrive."""


class _Described(Generic[P]):
    """A function that makes a request of its arguments; also ``Client.show_run.request``."""

    _how = "send"

    def __init__(self, request: Callable[P, Any]) -> None:
        self.request = request
        self.__doc__ = request.__doc__

    def _bound(self, client: Any) -> Any:
        how, make = getattr(client, self._how), self.request

        def call(*args: P.args, **kwargs: P.kwargs) -> Any:
            return how(make(*args, **kwargs))

        return update_wrapper(call, make)


class Operation(_Described[P], Generic[P, A]):
    """An operation with one answer."""

    request: Callable[P, Request[A]]

    def __init__(self, request: Callable[P, Request[A]]) -> None:
        super().__init__(request)

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: Blocking, owner: type) -> Callable[P, A]: ...
    @overload
    def __get__(self, client: Awaiting, owner: type) -> Callable[P, Coroutine[Any, Any, A]]: ...
    def __get__(self, client: Blocking | Awaiting | None, owner: type) -> Any:
        return self if client is None else self._bound(client)


class Listing(_Described[P], Generic[P, T]):
    """An operation that returns a list in pages."""

    _how = "items"
    request: Callable[P, Request[Page[T]]]

    def __init__(self, request: Callable[P, Request[Page[T]]]) -> None:
        super().__init__(request)

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: Blocking, owner: type) -> Callable[P, Items[T]]: ...
    @overload
    def __get__(self, client: Awaiting, owner: type) -> Callable[P, AsyncItems[T]]: ...
    def __get__(self, client: Blocking | Awaiting | None, owner: type) -> Any:
        return self if client is None else self._bound(client)


class Reading(_Described[P]):
    """An operation that streams text by line."""

    _how = "lines"
    request: Callable[P, Request[str]]

    def __init__(self, request: Callable[P, Request[str]]) -> None:
        super().__init__(request)

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: Blocking, owner: type) -> Callable[P, Iterator[str]]: ...
    @overload
    def __get__(self, client: Awaiting, owner: type) -> Callable[P, AsyncIterator[str]]: ...
    def __get__(self, client: Blocking | Awaiting | None, owner: type) -> Any:
        return self if client is None else self._bound(client)


SIZE = 500
"""Items per page of an iteration."""


class Items(Generic[T]):
    """The items of a list; iteration requests one page at a time.

    Args:
        client: the client.
        request: request for a page, with filters.
    """

    def __init__(self, client: Blocking, request: Request[Page[T]]) -> None:
        self._client = client
        self._request = request

    def page(self, cursor: str | None = None, *, size: int | None = None) -> Page[T]:
        """Return one page: the first, or the one at a cursor.

        Args:
            cursor: cursor of the page, ``next`` of the page before.
            size: maximum number of items, 1 to 1000; None: the gate's default.
        """
        return self._client.send(self._request.where(cursor=cursor, limit=size))

    def pages(self, *, size: int = SIZE) -> Iterator[Page[T]]:
        """Yield every page."""
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
    """The items of a list for ``async for``; see `Items`."""

    def __init__(self, client: Awaiting, request: Request[Page[T]]) -> None:
        self._client = client
        self._request = request

    async def page(self, cursor: str | None = None, *, size: int | None = None) -> Page[T]:
        """Return one page; see `Items.page`."""
        return await self._client.send(self._request.where(cursor=cursor, limit=size))

    async def pages(self, *, size: int = SIZE) -> AsyncIterator[Page[T]]:
        """Yield every page."""
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
