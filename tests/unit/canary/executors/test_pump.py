"""What is read in a thread: it comes in order, with its end or its error, and can be given up."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator

import pytest

from compatgate.background import BackgroundReader


def nothing() -> None:
    """Nobody has to be hung up on."""


def broken() -> Iterator[int]:
    yield 1
    raise OSError("the other side went away")


def test_items_come_in_order_and_then_their_end() -> None:
    pump = BackgroundReader((number for number in range(1000)), nothing)
    assert [pump.get(5.0) for _ in range(1001)] == [*range(1000), None]


def test_what_breaks_the_reading_is_raised_after_what_was_read() -> None:
    pump = BackgroundReader(broken(), nothing)
    assert pump.get(5.0) == 1
    with pytest.raises(OSError, match="went away"):
        pump.get(5.0)


def test_a_reading_that_waits_is_hung_up_on_and_closed() -> None:
    hung_up, closed = threading.Event(), threading.Event()

    def waiting() -> Iterator[int]:
        try:
            hung_up.wait(5.0)
            yield 1
        finally:
            closed.set()

    pump = BackgroundReader(waiting(), hung_up.set)
    with pytest.raises(queue.Empty):
        pump.get(0.01)
    pump.close()
    assert closed.wait(5.0)


def test_nobody_who_fetches_no_more_keeps_the_thread() -> None:
    closed = threading.Event()

    def endless() -> Iterator[int]:
        try:
            while True:
                yield 1
        finally:
            closed.set()

    pump = BackgroundReader(endless(), nothing)
    assert pump.get(5.0) == 1
    pump.close()
    assert closed.wait(5.0)
