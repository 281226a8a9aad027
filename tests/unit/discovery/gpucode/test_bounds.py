"""Memory stays bounded, whatever the file's size; nothing but our own errors comes out."""

from __future__ import annotations

import io
import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatgate.discovery.gpucode import read_gpu_code
from compatgate.errors import BadInput, CompatgateError

MIB = 1024 * 1024


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
                data = b"\x5a" * taken
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


def test_a_large_stream_is_read_in_a_few_mebibytes(elf, fatbin, entry):
    payload = 192 * MIB
    whole = elf(DOTnv_fatbin=fatbin(entry("sass", 90, payload=bytes(payload))))
    cut = 4096
    stream = _Long(whole[:cut], payload - 8192, whole[cut + payload - 8192 :])
    size = len(whole)
    del whole
    code, peak = _peak(lambda: read_gpu_code(stream, size=size, name="large"))
    assert [a.name for a in code.arch] == ["sm_90"]
    assert peak < 12


def test_a_file_of_several_gigabytes_is_skipped_through(tmp_path, fatbin, entry):
    size = 5 * 1024**3
    path = tmp_path / "large.fatbin"
    first = fatbin(entry("sass", 80, payload=b"", size=size), size=size + 64)
    with path.open("wb") as file:
        file.write(first)
        file.seek(size, io.SEEK_CUR)
        file.write(fatbin(entry("ptx", 90)))
    code, peak = _peak(lambda: read_gpu_code(path))
    assert [a.name for a in code.arch] == ["sm_80", "compute_90"]
    assert peak < 4


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
