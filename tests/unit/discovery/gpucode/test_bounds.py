"""Memory stays bounded, whatever the file's size; nothing but our own errors comes out."""

from __future__ import annotations

import io
import struct
import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatgate.discovery.gpucode import read_gpu_code
from compatgate.errors import BadInput, CompatgateError

MIB = 1024 * 1024
_FILLER = b"\x5a" * MIB


class _Long:
    """A stream of an ELF file with very much constant data before its end."""

    def __init__(self, head: bytes, filler: int, tail: bytes) -> None:
        self.parts = [io.BytesIO(head), filler, io.BytesIO(tail)]

    def read(self, size: int, /) -> bytes:
        while self.parts:
            part = self.parts[0]
            if isinstance(part, int):
                taken = min(part, size)
                self.parts[0] = part - taken
                data = _FILLER[:taken]
            else:
                data = part.read(size)
            if data:
                return data
            self.parts.pop(0)
        return b""


def _peak(function) -> tuple[object, float]:
    tracemalloc.start()
    try:
        result = function()
        return result, tracemalloc.get_traced_memory()[1] / MIB
    finally:
        tracemalloc.stop()


@pytest.fixture(scope="module")
def large(elf, fatbin, entry) -> tuple[bytes, int, bytes]:
    """A library of 3 GiB: its beginning, the length of its middle, and its end."""
    kept, more = 4096, 3 * 1024 * MIB
    whole = bytearray(elf(DOTtext=b"\xc3" * 99, DOTnv_fatbin=fatbin(entry(payload=bytes(kept)))))
    read_gpu_code(io.BytesIO(bytes(whole)))  # what is imported for it takes no memory later
    fat = whole.index(b"\x50\xed\x55\xba")
    (table,) = struct.unpack_from("<Q", whole, 40)
    _grow(whole, more, 40, fat + 8, fat + 16 + 8, table + 2 * 64 + 32, table + 3 * 64 + 24)
    return bytes(whole[: fat + 80 + kept]), more, bytes(whole[fat + 80 + kept :])


def _grow(data: bytearray, more: int, *places: int) -> None:
    for place in places:
        struct.pack_into("<Q", data, place, struct.unpack_from("<Q", data, place)[0] + more)


def test_a_library_of_3_gib_is_skipped_through(large, tmp_path):
    head, more, tail = large
    path = tmp_path / "large.so"
    with path.open("wb") as file:
        file.write(head)
        file.seek(more, io.SEEK_CUR)
        file.write(tail)
    code, peak = _peak(lambda: read_gpu_code(path))
    assert [a.name for a in code.arch] == ["sm_80"]
    assert peak < 4


def test_a_stream_of_3_gib_is_read_in_a_few_mebibytes(large):
    head, more, tail = large
    size = len(head) + more + len(tail)
    code, peak = _peak(lambda: read_gpu_code(_Long(head, more, tail), size=size, name="large"))
    assert [a.name for a in code.arch] == ["sm_80"]
    assert peak < 8


def test_a_stream_of_much_else_is_searched_in_a_few_mebibytes(elf, fatbin, entry):
    whole = elf(DOTtext=b"\x5a" * 4096, DOTnv_fatbin=fatbin(entry("sass", 90)))
    more = 256 * MIB
    data = bytearray(whole)
    (table,) = struct.unpack_from("<Q", data, 40)
    _grow(data, more, 40, table + 64 + 32, table + 2 * 64 + 24, table + 3 * 64 + 24)
    stream = _Long(bytes(data[:128]), more, bytes(data[128:]))
    code, peak = _peak(lambda: read_gpu_code(stream, size=len(data) + more, name="large"))
    assert [a.name for a in code.arch] == ["sm_90"]
    assert peak < 8


def test_millions_of_empty_fatbinaries_are_refused_early(fatbin):
    with pytest.raises(BadInput, match="more than 200000 entries"):
        read_gpu_code(io.BytesIO(fatbin() * 300_000))


@given(data=st.data())
def test_damage_anywhere_gives_an_answer_or_an_error_that_explains_itself(
    data, elf, fatbin, entry, archive, stream
):
    code = elf(
        DOTtext=b"\xc3" * 64,
        DOTnv_fatbin=fatbin(entry("sass", 80), entry("ptx", 90)) + fatbin(entry("sass", 90, "a")),
        __nv_relfatbin=fatbin(entry("lto", 80)),
    )
    whole = bytearray(data.draw(st.sampled_from([code, archive(a=code, b=code), fatbin(entry())])))
    places = st.integers(0, len(whole) - 1)
    for place, value in data.draw(st.lists(st.tuples(places, st.integers(0, 255)), max_size=12)):
        whole[place] = value
    cut = data.draw(st.one_of(st.just(len(whole)), places))
    answers = []
    for file in (io.BytesIO(bytes(whole[:cut])), stream(bytes(whole[:cut]))):
        try:
            answers.append(read_gpu_code(file, size=cut).entries)
        except CompatgateError as error:
            answers.append(error.problem)
    assert all(answer or answer == () for answer in answers)


@given(
    st.binary(max_size=400), st.sampled_from([b"\x7fELF\2\1\1", b"!<arch>\n", b"\x50\xed\x55\xba"])
)
def test_noise_behind_a_magic_number_is_refused_or_empty(noise, magic):
    for data in (noise, magic + noise):
        with suppress(CompatgateError):
            assert read_gpu_code(io.BytesIO(data)).arch == ()
