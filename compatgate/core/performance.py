"""Replace two parts of the standard library that cost threads or start-up too much.

`lazy_property` derives a value at first use, without a lock. `sha256` digests small texts:
`hashlib` loads OpenSSL, and start-up of the command line is counted in milliseconds; the module
below it does not. Where OpenSSL is loaded it is several times faster, but releases the
interpreter's lock for more than 2047 bytes at once: among many threads, getting the lock back
costs more than the digest.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
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


_CHUNK = 2047


def sha256(data: bytes) -> str:
    """Return the hexadecimal digest."""
    digest = _load_openssl()() if "hashlib" in sys.modules else _load_builtin()()
    for start in range(0, len(data), _CHUNK):
        digest.update(data[start : start + _CHUNK])
    return str(digest.hexdigest())


@cache
def _load_openssl() -> Callable[[], Any]:
    from hashlib import sha256

    return sha256


@cache
def _load_builtin() -> Callable[[], Any]:
    for module in ("_sha2", "_sha256"):  # from Python 3.12 on, and before
        try:
            found: Callable[[], Any] = __import__(module).sha256
        except (ImportError, AttributeError):
            continue
        return found
    return _load_openssl()


def combine_digests(digests: dict[str, str]) -> str:
    """Return one digest of several named digests, in any order."""
    lines = "".join(f"{name} {digest}\n" for name, digest in sorted(digests.items()))
    return sha256(lines.encode())
