"""A layer's bytes decompressed as they come: gzip, zstd or none, in bounded memory.

Sources: RFC 1952 (gzip; members may follow each other), RFC 8878 (zstd; likewise frames),
opencontainers/image-spec ``layer.md``. What a layer's media type says is not asked: registries
hold gzip under every name, and the first bytes tell.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import IO, Protocol, cast

from compatgate.discovery.image.options import Limits
from compatgate.discovery.image.problems import damaged, too_large

PIECE = 256 * 1024
"""Most decompressed bytes at a time."""
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_SKIPPABLE = b"\x2a\x4d\x18"
_GZIP_WINDOW = 31  # zlib's number for gzip with the largest window


class Readable(Protocol):
    """Where bytes come from."""

    def read(self, size: int, /) -> bytes:
        """Up to ``size`` bytes; none at the end."""


class Budget:
    """Counts what layers decompress to, against a bomb.

    Attributes:
        unpacked: bytes of all layers so far.

    Args:
        check: called for every piece; raises when the time is over.
    """

    def __init__(self, limits: Limits, check: Callable[[], None] = lambda: None) -> None:
        self.limits = limits
        self.check = check
        self.unpacked = 0

    def take(self, count: int, unpacked: int, packed: int) -> None:
        """Count bytes of a layer that had ``packed`` bytes so far and ``unpacked`` decompressed.

        Raises:
            TooLarge: it is more than the limits allow.
        """
        limits = self.limits
        self.check()
        self.unpacked += count
        if self.unpacked > limits.unpacked:
            what = f"its layers decompress to more than the {limits.unpacked} bytes that are read"
            raise too_large(what)
        if unpacked > limits.ratio_from and unpacked > packed * limits.ratio:
            what = f"{packed} bytes of a layer decompress to {unpacked}: a decompression bomb"
            raise too_large(what)


class _Peeked:
    """A source whose first bytes were looked at."""

    def __init__(self, source: Readable) -> None:
        self._source = source
        self.count = 0
        self.head = b""
        while len(self.head) < 4 and (more := source.read(PIECE)):
            self.head += more
        self._first = self.head

    def read(self, size: int, /) -> bytes:
        data, self._first = self._first[:size], self._first[size:]
        data = data or self._source.read(size)
        self.count += len(data)
        return data


def decompressed(source: Readable, budget: Budget) -> Iterator[bytes]:
    """The content of a layer in pieces of at most `PIECE` bytes.

    Raises:
        Damaged: the compressed data contradict themselves or end early.
        TooLarge: the layer decompresses to more than the limits allow.
    """
    peeked = _Peeked(source)
    if peeked.head.startswith(_GZIP):
        pieces = _gunzip(peeked)
    elif peeked.head.startswith(_ZSTD) or peeked.head[1:4] == _SKIPPABLE:
        pieces = _unzstd(peeked, budget.limits.window)
    else:
        pieces = iter(lambda: peeked.read(PIECE), b"")
    unpacked = 0
    for piece in pieces:
        unpacked += len(piece)
        budget.take(len(piece), unpacked, peeked.count)
        yield piece


def _gunzip(source: Readable) -> Iterator[bytes]:
    member = zlib.decompressobj(_GZIP_WINDOW)
    try:
        while data := source.read(PIECE):
            while data:
                if member.eof:  # another member, or padding
                    data = data.lstrip(b"\0")
                    if not data:
                        break
                    member = zlib.decompressobj(_GZIP_WINDOW)
                yield member.decompress(data, PIECE)
                data = member.unused_data if member.eof else member.unconsumed_tail
        yield member.flush()
    except zlib.error as error:
        raise damaged(f"a layer's gzip data are damaged: {error}") from None
    if not member.eof:
        raise damaged("a layer's gzip data end early")


def _unzstd(source: Readable, window: int) -> Iterator[bytes]:
    import zstandard

    decompressor = zstandard.ZstdDecompressor(max_window_size=window)
    try:
        with decompressor.stream_reader(
            cast("IO[bytes]", source),  # all that it asks for is read(size)
            read_size=PIECE,
            read_across_frames=True,
        ) as reader:
            while piece := reader.read(PIECE):
                yield piece
    except zstandard.ZstdError as error:
        if "too much memory" in str(error).lower():
            what = f"a layer is compressed with a zstd window larger than {window} bytes"
            raise too_large(what) from None
        raise damaged(f"a layer's zstd data are damaged: {error}") from None
