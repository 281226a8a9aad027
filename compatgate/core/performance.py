"""Keep questions cheap: derive once, digest small texts, bound caches and comparisons of names.

`lazy_property` derives a value at first use, without a lock. `sha256` digests small texts:
`hashlib` loads OpenSSL, and start-up of the command line is counted in milliseconds; the module
below it does not. Where OpenSSL is loaded it is several times faster, but releases the
interpreter's lock for more than 2047 bytes at once: among many threads, getting the lock back
costs more than the digest.

`pause_garbage_collection` is for making many objects at once. `BoundedCache` holds values within a
limit of bytes, so that no sequence of questions fills the memory. `near_names` has a budget for
each request: comparing two names costs microseconds, a thousand wrong names against a hundred known
ones costs seconds. A hint that the budget cannot pay for is left out.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


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


@contextmanager
def pause_garbage_collection() -> Iterator[None]:
    """Run no garbage collection inside: each would walk all new objects and free none."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


MIB = 1024 * 1024
_ENTRY_BYTES = 200  # bytes that an entry takes besides its key and its value


class BoundedCache(Generic[K, V]):
    """A cache of limited size, for any number of threads; drops what was used longest ago.

    Args:
        most_entries: number of entries; None: only bytes count.

    Attributes:
        size: estimated bytes of all entries.
    """

    def __init__(self, most_bytes: int, most_entries: int | None = None) -> None:
        self._most_bytes = most_bytes
        self._most_entries = most_entries
        self._lock = threading.Lock()
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self.size = 0

    def get(self, key: K) -> V | None:
        """Return the value of a key; None if there is none."""
        with self._lock:
            found = self._entries.get(key)
            if found is None:
                return None
            self._entries.move_to_end(key)
            return found[0]

    def peek(self, key: K) -> V | None:
        """Return the value of a key, which stays as old as it was; takes no lock."""
        found = self._entries.get(key)
        return None if found is None else found[0]

    def put(self, key: K, value: V, size: int) -> None:
        """Store a value, unless it alone would take more than a sixteenth of the cache."""
        size += _ENTRY_BYTES
        if size > self._most_bytes // 16:
            self.drop(key)
            return
        with self._lock:
            self._forget(key)
            self._entries[key] = (value, size)
            self.size += size
            while self.size > self._most_bytes or (
                self._most_entries is not None and len(self._entries) > self._most_entries
            ):
                self.size -= self._entries.popitem(last=False)[1][1]

    def drop(self, key: K) -> None:
        """Remove a key, if it is there."""
        with self._lock:
            self._forget(key)

    def clear(self) -> None:
        """Remove every key."""
        with self._lock:
            self._entries.clear()
            self.size = 0

    def _forget(self, key: K) -> None:
        found = self._entries.pop(key, None)
        if found is not None:
            self.size -= found[1]

    def __len__(self) -> int:
        return len(self._entries)


MAX_COMPARISONS = 5000  # comparisons of names that one request pays for: some 50 ms
_MAX_LENGTH = 64  # characters of a name that is compared; a longer one is no slip of the hand
_MAX_NAMES = 5000  # names that are compared with one
_left: ContextVar[int | None] = ContextVar("comparisons_left", default=None)
"""Comparisons that the request of this thread may still make; None: there is no limit."""


def begin_budget(comparisons: int = MAX_COMPARISONS) -> None:
    """Start the budget of a request in this thread; a command has none."""
    _left.set(comparisons)


def end_budget() -> None:
    """End the budget of a request in this thread."""
    _left.set(None)


def near_names(
    name: str, known: Collection[str], *, most: int = 1, cutoff: float = 0.6
) -> list[str]:
    """Return the names nearest to one, best first; empty if none is near or the budget is spent.

    ``cutoff`` is the least similarity, from 0 to 1.
    """
    from difflib import get_close_matches

    if len(name) > _MAX_LENGTH or len(known) > _MAX_NAMES:
        return []
    left = _left.get()
    if left is not None:
        if left < len(known):
            return []
        _left.set(left - len(known))
    return get_close_matches(name, known, n=most, cutoff=cutoff)
