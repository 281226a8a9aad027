"""Pieces made ahead of their use, in a thread: fetching, hashing and decompressing release the GIL.

At most `DEPTH` pieces wait, so that memory stays small, and so does what is fetched without need.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from queue import Empty, Full, Queue

DEPTH = 4
"""Pieces that wait."""
PATIENCE_S = 2.0
"""Seconds to wait for the thread's end; one that waits for a socket ends with the socket."""
_LOOK_S = 0.1


class _End:
    """The last thing in the queue: why there is no more."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


@contextmanager
def ahead(pieces: Iterable[bytes]) -> Iterator[Iterator[bytes]]:
    """Iterate over pieces that a thread makes; leaving stops the thread.

    What the pieces raise is raised where the next one is asked for.
    """
    queue: Queue[bytes | _End] = Queue(DEPTH)
    stop = threading.Event()
    thread = threading.Thread(
        target=_work, args=(pieces, queue, stop), name="compatgate-layer", daemon=True
    )
    thread.start()
    try:
        yield _taken(queue)
    finally:
        stop.set()
        _empty(queue)
        thread.join(PATIENCE_S)


def _work(pieces: Iterable[bytes], queue: Queue[bytes | _End], stop: threading.Event) -> None:
    error: BaseException | None = None
    try:
        for piece in pieces:
            if not _put(queue, piece, stop):
                return
    except BaseException as raised:
        error = raised
    _put(queue, _End(error), stop)


def _put(queue: Queue[bytes | _End], item: bytes | _End, stop: threading.Event) -> bool:
    """Whether the item is wanted still."""
    while not stop.is_set():
        try:
            queue.put(item, timeout=_LOOK_S)
        except Full:
            continue
        return True
    return False


def _empty(queue: Queue[bytes | _End]) -> None:
    """Make room, so that the thread sees at once that it should stop."""
    try:
        while True:
            queue.get_nowait()
    except Empty:
        return


def _taken(queue: Queue[bytes | _End]) -> Iterator[bytes]:
    while not isinstance(piece := queue.get(), _End):
        yield piece
    if piece.error is not None:
        raise piece.error
