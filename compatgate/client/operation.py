"""Operations as methods: described once, answered at once or awaited, by whoever sends them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeVar, overload

if TYPE_CHECKING:
    from compatgate.client.paging import AsyncItems, Items
    from compatgate.client.request import Request
    from compatgate.wire.matrix import Page

P = ParamSpec("P")
A = TypeVar("A")
T = TypeVar("T")


class Blocking:
    """A client whose methods return answers."""

    @abstractmethod
    def send(self, request: Request[A]) -> A:
        """The answer to a request."""

    @abstractmethod
    def items(self, request: Request[Page[T]]) -> Items[T]:
        """A list."""

    @abstractmethod
    def lines(self, request: Request[str]) -> Iterator[str]:
        """An answer line by line, as it comes."""


class Awaiting:
    """A client whose methods return what is to be awaited."""

    @abstractmethod
    async def send(self, request: Request[A]) -> A:
        """The answer to a request."""

    @abstractmethod
    def items(self, request: Request[Page[T]]) -> AsyncItems[T]:
        """A list."""

    @abstractmethod
    def lines(self, request: Request[str]) -> AsyncIterator[str]:
        """An answer line by line, as it comes."""


class _Described(Generic[P]):
    """What makes a request of arguments; also reached as ``Client.show_run.request``."""

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
    """One answer."""

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
    """A list, page after page."""

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
    """Text, line by line, as it comes."""

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
