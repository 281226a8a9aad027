"""Derive a value when an object is first asked for it, and keep it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class lazy_property(Generic[T]):  # noqa: N801 - used as a decorator, as `property`
    """As `functools.cached_property`, without a lock.

    Before Python 3.12 that one takes a lock of the class: a thread that derives something makes all
    others wait that derive the same of other objects. Here two threads that ask the same object at
    the same time may both derive the value; it is the same one.
    """

    def __init__(self, derive: Callable[[Any], T]) -> None:
        self._derive = derive
        self._name = derive.__name__
        self.__doc__ = derive.__doc__

    @overload
    def __get__(self, instance: None, owner: type[Any]) -> lazy_property[T]: ...
    @overload
    def __get__(self, instance: object, owner: type[Any]) -> T: ...
    def __get__(self, instance: object | None, owner: type[Any]) -> lazy_property[T] | T:
        if instance is None:
            return self
        value = instance.__dict__[self._name] = self._derive(instance)
        return value
