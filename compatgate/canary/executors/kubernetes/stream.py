"""Lines of an answer that goes on."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from typing import Any

from compatgate.canary.executors.pump import Pump

CHUNK = 64 << 10
_LONGEST = 2 << 20
"""Of a line that is kept whole."""


def lines_of(response: Any) -> Pump[bytes]:
    """The body of a response line by line, each with its end.

    A last line without an end is given only if the body ended as it should.

    Args:
        response: of urllib3, its body not read.
    """
    return Pump(_read(response), response.shutdown)


def _read(response: Any) -> Generator[bytes]:
    try:
        yield from _lines(response)
    finally:
        with suppress(Exception):
            response.close()


def _lines(response: Any) -> Generator[bytes]:
    buffer = bytearray()
    while data := response.read1(CHUNK):
        buffer += data
        while (end := buffer.find(b"\n") + 1) or len(buffer) > _LONGEST:
            yield bytes(buffer[: end or _LONGEST])
            del buffer[: end or _LONGEST]
    if buffer:
        yield bytes(buffer)
