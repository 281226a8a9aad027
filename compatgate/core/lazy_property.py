"""Derive a value at first use, and store it in the object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class lazy_property(Generic[T]):  # noqa: N801 - used as a decorator, as `property`
    """A `functools.cached_property` without a lock.

    Before Python 3.12 `cached_property` takes a lock of the class: while one thread derives a
    value, threads that derive the same value of other objects wait. Here two threads that ask the
    same object at the same time may both derive the value; both values are equal.
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
