"""Cache values within a limit of bytes, so that no sequence of questions fills the memory."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")
MIB = 1024 * 1024
_ENTRY_BYTES = 200
"""Bytes that an entry takes besides its key and its value."""


class BoundedCache(Generic[K, V]):
    """A cache of limited size, for any number of threads; drops what was used longest ago.

    Args:
        most_bytes: the estimated size of all entries.
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
        """Store a value, unless it alone would take more than a sixteenth of the cache.

        Args:
            key: names the value.
            value: to store.
            size: estimated bytes of key and value.
        """
        size += _ENTRY_BYTES
        if size > self._most_bytes // 16:
            self.drop(key)
            return
        with self._lock:
            self._forget(key)
            self._entries[key] = (value, size)
            self.size += size
            while self.size > self._most_bytes or self._has_too_many():
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

    def _has_too_many(self) -> bool:
        return self._most_entries is not None and len(self._entries) > self._most_entries

    def __len__(self) -> int:
        return len(self._entries)
