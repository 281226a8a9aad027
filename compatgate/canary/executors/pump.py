"""What comes as it comes: read in a thread, since a read cannot ask whether to stop."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator
from contextlib import closing, suppress
from typing import Generic, TypeVar

T = TypeVar("T")
_ROOM = 256
"""Items that may wait to be fetched; the reading waits for them then."""
_WAIT_S = 0.5


class Pump(Generic[T]):
    """Items that a thread reads, to be fetched with patience.

    Args:
        items: what is read; closed by the thread.
        hang_up: has a read that waits come back, whatever it then says.
    """

    def __init__(self, items: Generator[T], hang_up: Callable[[], None]) -> None:
        self._items = items
        self._hang_up = hang_up
        self._queue: queue.Queue[T | BaseException | None] = queue.Queue(_ROOM)
        self._closed = False
        threading.Thread(target=self._read, name="compatgate-pump", daemon=True).start()

    def get(self, timeout: float) -> T | None:
        """The next item; None at the end.

        Args:
            timeout: seconds.

        Raises:
            queue.Empty: nothing came in that time.
            Exception: as reading them.
        """
        item = self._queue.get(timeout=timeout)
        if isinstance(item, BaseException):
            raise item
        return item

    def close(self) -> None:
        """Have the thread end."""
        self._closed = True
        with suppress(Exception):
            self._hang_up()
        with suppress(queue.Empty):
            while True:
                self._queue.get_nowait()

    def _read(self) -> None:
        last: BaseException | None = None
        try:
            with closing(self._items):
                for item in self._items:
                    self._put(item)
                    if self._closed:
                        break
        except Exception as error:
            last = error
        self._put(last)

    def _put(self, item: T | BaseException | None) -> None:
        while not self._closed:
            with suppress(queue.Full):
                self._queue.put(item, timeout=_WAIT_S)
                return
