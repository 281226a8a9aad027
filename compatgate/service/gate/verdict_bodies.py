"""Pack the JSON of verdicts for the database."""

from __future__ import annotations

import threading
from functools import cache

_LEVEL = 3
_MOST_BYTES = 256 * 1024 * 1024
"""Most bytes that a packed body may have: a damaged one must not fill the memory."""


def pack_body(body: str) -> bytes:
    """Return the JSON of a verdict, compressed."""
    return _tools().compressor.compress(body.encode())


def read_body(body: str, packed: bytes | None) -> str:
    """Return the JSON of a verdict as it was given.

    Args:
        body: column ``body``, which older programs filled.
        packed: column ``packed``.
    """
    if packed is None:
        return body
    return _tools().decompressor.decompress(packed, max_output_size=_MOST_BYTES).decode()


class _ThreadTools(threading.local):
    """A compressor and a decompressor for each thread: neither may be shared."""

    def __init__(self) -> None:
        from zstandard import ZstdCompressor, ZstdDecompressor  # not for every command

        self.compressor = ZstdCompressor(level=_LEVEL)
        self.decompressor = ZstdDecompressor()


@cache
def _tools() -> _ThreadTools:
    return _ThreadTools()
