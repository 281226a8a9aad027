"""Bytes in order: searching them, and what is kept of a stream's end."""

from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st

from compatgate.discovery.gpucode.fatbin import FATBIN_MAGIC
from compatgate.discovery.gpucode.source import CHUNK, TAIL, Source


class Stream(io.BytesIO):
    """Gives at most so many bytes at a time."""

    def __init__(self, data: bytes, most: int) -> None:
        super().__init__(data)
        self._most = most

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(min(self._most, size if size and size > 0 else self._most))


def naive(data: bytes, base: int, start: int) -> int:
    at = data.find(FATBIN_MAGIC, start)
    while at >= 0 and (at - base) % 8:
        at = data.find(FATBIN_MAGIC, at + 1)
    return at


@given(
    pieces=st.lists(
        st.sampled_from(
            [FATBIN_MAGIC, FATBIN_MAGIC[:1], FATBIN_MAGIC[:3], b"\xed", b"\0", b"\0" * 7]
        )
    ),
    base=st.integers(0, 9),
    most=st.integers(1, 40),
)
def test_a_pattern_is_found_at_multiples_of_eight_bytes_however_the_stream_comes(
    pieces, base, most
):
    data = b"".join(pieces)
    base = min(base, len(data))
    source = Source(Stream(data, most), "data", size=len(data))
    source.skip(base, "the base")
    place = base
    while (expected := naive(data, base, place)) >= 0:
        assert source.find(FATBIN_MAGIC, len(data), base) is not None
        assert source.position == expected
        source.skip(1, "a byte")
        place = expected + 1
    assert source.find(FATBIN_MAGIC, len(data), base) is None


def test_a_pattern_across_two_windows_is_found():
    for before in range(CHUNK - 16, CHUNK + 16, 8):
        data = bytes(before) + FATBIN_MAGIC + bytes(64)
        source = Source(Stream(data, CHUNK), "data", size=len(data))
        assert source.find(FATBIN_MAGIC, None, 0) == 0
        assert source.position == before


def test_the_end_of_a_stream_is_kept_and_no_more():
    data = bytes(range(256)) * (3 * TAIL // 256)
    source = Source(Stream(data, 100_000), "data", size=len(data))
    source.skip(len(data), "all")
    start = len(data) - TAIL
    assert source.known(start, TAIL) == data[start:]
    assert source.known(start + 1000, 5) == data[start + 1000 : start + 1005]
    assert source.known(0, 10) == b""
