"""Pieces made ahead, in a thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from compatgate.discovery.image.layer import DEPTH, read_ahead
from compatgate.errors import DamagedContent


def threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name == "compatgate-layer"]


def test_pieces_come_whole_and_in_order():
    pieces = [bytes([n]) * n for n in range(100)]
    with read_ahead(pieces) as made:
        assert list(made) == pieces
    assert not threads()


def test_an_error_comes_behind_the_pieces_before_it():
    def broken() -> Iterator[bytes]:
        yield b"one"
        raise DamagedContent("it ends early")

    with read_ahead(broken()) as made:
        assert next(made) == b"one"
        with pytest.raises(DamagedContent, match="it ends early"):
            next(made)


def test_only_a_few_pieces_are_made_before_they_are_asked_for():
    count = 0
    seen = threading.Event()

    def endless() -> Iterator[bytes]:
        nonlocal count
        while True:
            count += 1
            if count == DEPTH + 1:
                seen.set()
            yield b"x"

    with read_ahead(endless()) as made:
        assert seen.wait(10)
        assert count == DEPTH + 1
        next(made)
    assert count <= DEPTH + 3


def test_leaving_early_ends_the_thread():
    with read_ahead(iter(lambda: b"x", b"")) as made:
        next(made)
    assert not threads()


def test_leaving_with_an_error_ends_the_thread_and_keeps_the_error():
    def read() -> None:
        with read_ahead(iter(lambda: b"x", b"")):
            raise ValueError("elsewhere")

    with pytest.raises(ValueError, match="elsewhere"):
        read()
    assert not threads()
