"""Read items ahead of their use, in a thread and in bounded memory."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, suppress
from typing import Generic, TypeVar

T = TypeVar("T")
_WAIT_S = 0.5


class BackgroundReader(Generic[T]):
    """Queue of items that a thread reads, to be fetched with a timeout.

    Args:
        hang_up: ends a read that waits.
        most: number of items that wait to be fetched; reading pauses at this number.
    """

    def __init__(
        self,
        items: Generator[T],
        hang_up: Callable[[], None] = lambda: None,
        *,
        most: int = 256,
        name: str = "compatgate-pump",
    ) -> None:
        self._items = items
        self._hang_up = hang_up
        self._queue: queue.Queue[T | Exception | None] = queue.Queue(most)
        self._closed = False
        self._thread = threading.Thread(target=self._read, name=name, daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[T]:
        """Yield the items to their end, and raise the error that ended them."""
        while (item := self.get()) is not None:
            yield item

    def get(self, timeout: float | None = None) -> T | None:
        """Return the next item, None at the end; `queue.Empty` after ``timeout`` seconds."""
        item = self._queue.get(timeout=timeout)
        if isinstance(item, Exception):
            raise item
        return item

    def close(self, patience: float = 0.0) -> None:
        """Make the thread end, and wait for its end for ``patience`` seconds."""
        self._closed = True
        with suppress(Exception):
            self._hang_up()
        with suppress(queue.Empty):
            while True:
                self._queue.get_nowait()
        self._thread.join(patience)

    def _read(self) -> None:
        last: Exception | None = None
        try:
            with closing(self._items):
                for item in self._items:
                    self._put(item)
                    if self._closed:
                        break
        except Exception as error:
            last = error
        self._put(last)

    def _put(self, item: T | Exception | None) -> None:
        while not self._closed:
            with suppress(queue.Full):
                self._queue.put(item, timeout=_WAIT_S)
                return
