"""ELF files and archives: what is in which section counts how, seeking and streaming alike."""

from __future__ import annotations

import io
import struct
import tarfile
from collections.abc import Callable

import pytest

from compatgate.discovery.gpucode import GpuCode, read_gpu_code
from compatgate.errors import BadInput

Read = Callable[[bytes], GpuCode]


@pytest.fixture(params=["a file that can seek", "a stream"])
def read(request, stream) -> Read:
    opened = io.BytesIO if request.param.startswith("a file") else stream
    return lambda data: read_gpu_code(opened(data), size=len(data), name="x.so")


def _names(code: GpuCode) -> list[str]:
    return [a.name for a in code.arch]


def test_code_of_several_translation_units_is_united(read, elf, fatbin, entry):
    data = fatbin(entry("sass", 80)) + bytes(8) + fatbin(entry("ptx", 90), entry("sass", 86))
    code = read(elf(DOTtext=b"\xc3" * 333, DOTnv_fatbin=data))
    assert _names(code) == ["sm_80", "sm_86", "compute_90"]
    assert {e.region for e in code.entries} == {0, 1}


def test_a_file_without_gpu_code_has_none(read, elf):
    assert read(elf(DOTtext=b"\xc3" * 333)) == GpuCode()


def test_fatbinaries_in_constant_data_are_not_the_programs_kernels(read, elf, fatbin, entry):
    data = elf(DOTrodata=fatbin(entry("sass", 70)), DOTnv_fatbin=fatbin(entry("sass", 80)))
    assert _names(read(data)) == ["sm_80"]
    assert _names(read(elf(DOTrodata=fatbin(entry("sass", 70))))) == []


def test_code_in_a_section_of_another_name_is_found_when_wrappers_point_to_it(
    read, elf, fatbin, entry
):
    wrapper = struct.pack("<IIQQ", 0x466243B1, 1, 0, 0)
    data = elf(DOTgpu=fatbin(entry("sass", 70)), DOTnvFatBinSegment=wrapper)
    assert _names(read(data)) == ["sm_70"]


def test_code_is_found_without_section_headers(read, elf, fatbin, entry):
    data = bytearray(elf(DOTnv_fatbin=fatbin(entry("sass", 80))))
    struct.pack_into("<Q", data, 40, 0)
    struct.pack_into("<HH", data, 60, 0, 0)
    assert _names(read(bytes(data))) == ["sm_80"]


def test_relocatable_code_of_an_object_counts(read, elf, fatbin, entry):
    code = read(elf(__nv_relfatbin=fatbin(entry("sass", 80), entry("ptx", 80))))
    assert all(e.relocatable for e in code.entries)
    assert _names(code) == ["sm_80", "compute_80"]


def test_in_a_linked_file_relocatable_code_counts_where_every_object_brought_it(
    read, elf, fatbin, entry
):
    objects = fatbin(entry("sass", 80), entry("ptx", 80)) + fatbin(
        entry("sass", 90), entry("ptx", 80)
    )
    code = read(elf(DOTnv_fatbin=fatbin(entry("sass", 75)), __nv_relfatbin=objects))
    assert _names(code) == ["sm_75", "compute_80"]


def test_link_time_code_is_listed_and_does_not_run(read, elf, fatbin, entry):
    code = read(elf(__nv_relfatbin=fatbin(entry("lto", 80))))
    assert [e.name for e in code.entries] == ["lto_80"]
    assert _names(code) == []


def test_bytes_in_a_code_section_that_are_no_fatbinary_are_damage(read, elf, fatbin, entry):
    good = fatbin(entry("sass", 80))
    for data in (b"\x11" * 128 + good, good + b"\x11" * 128, good + b"\x11" * 128 + good):
        with pytest.raises(BadInput, match="expected a fatbinary"):
            read(elf(DOTnv_fatbin=data))


def test_a_damaged_fatbinary_is_not_passed_over(read, elf, fatbin, entry):
    data = fatbin(entry("sass", 80)) + fatbin(entry(size=1 << 50))
    with pytest.raises(BadInput, match="does not fit"):
        read(elf(DOTnv_fatbin=data))


def test_every_truncation_is_an_error_that_names_a_place(read, elf, fatbin, entry):
    whole = elf(DOTtext=b"\xc3" * 99, DOTnv_fatbin=fatbin(entry("sass", 80), entry("ptx", 80)))
    for length in range(len(whole)):
        with pytest.raises(BadInput) as error:
            read(whole[:length])
        assert error.value.field == "x.so"
        assert isinstance(error.value.value, int)


def test_a_stream_that_ends_before_its_size_is_truncated(stream, elf, fatbin, entry):
    whole = elf(DOTnv_fatbin=fatbin(entry()))
    with pytest.raises(BadInput, match="the file"):
        read_gpu_code(stream(whole[:-1]), size=len(whole), name="x.so")


def test_section_headers_that_are_none_are_damage(read, elf, fatbin, entry):
    whole = elf(DOTnv_fatbin=fatbin(entry()))
    with pytest.raises(BadInput, match="section headers"):
        read(whole[:64] + b"\x11" * 8 + whole[64:])


def test_sections_that_overlap_are_not_read_over_and_over(elf, fatbin, entry):
    data = bytearray(elf(DOTnv_fatbin=fatbin(entry()), __nv_relfatbin=bytes(8)))
    table = struct.unpack_from("<Q", data, 40)[0]
    struct.pack_into("<QQ", data, table + 2 * 64 + 24, 0, len(data))
    with pytest.raises(BadInput, match="overlap"):
        read_gpu_code(io.BytesIO(bytes(data)))


def test_members_of_an_archive_are_told_apart(read, elf, fatbin, entry, archive):
    one = elf(DOTnv_fatbin=fatbin(entry("sass", 80)))
    two = elf(DOTtext=b"\xc3" * 5, __nv_relfatbin=fatbin(entry("ptx", 90)))
    code = read(archive(one=one, text=b"hello", two=two))
    assert [(e.member, e.name) for e in code.entries] == [
        ("one.o", "sm_80"),
        ("two.o", "compute_90"),
    ]


def test_a_member_larger_than_its_archive_is_refused(read, elf, archive):
    whole = archive(one=elf(DOTtext=b"x"))
    with pytest.raises(BadInput, match="member"):
        read(whole[:-9])


def test_a_thin_archive_is_refused_with_what_to_do(read):
    with pytest.raises(BadInput, match="thin archive"):
        read(b"!<thin>\n" + bytes(60))


def test_a_file_object_is_read_from_its_position(elf, fatbin, entry):
    file = io.BytesIO(b"other" + elf(DOTnv_fatbin=fatbin(entry("sass", 80))))
    file.seek(5)
    assert _names(read_gpu_code(file)) == ["sm_80"]


@pytest.mark.parametrize("mode", ["w|", "w|gz"])
def test_members_of_a_tar_stream_are_read_as_they_pass(mode, elf, fatbin, entry):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode=mode) as tar:
        for arch in (80, 90):
            data = elf(DOTtext=bytes(99_999), DOTnv_fatbin=fatbin(entry("sass", arch)))
            member = tarfile.TarInfo(f"{arch}.so")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    packed.seek(0)
    found = []
    with tarfile.open(fileobj=packed, mode="r|*") as tar:
        for member in tar:
            file = tar.extractfile(member)
            found += _names(read_gpu_code(file, size=member.size, stream=True))
    assert found == ["sm_80", "sm_90"]
