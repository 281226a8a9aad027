"""Libraries of Windows: the GPU code of their sections, seeking and streaming alike."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable

import pytest
from pe_files import HEADERS, make_dll, make_pe

from compatgate.discovery.gpucode import GpuCode, read_gpu_code
from compatgate.errors import BadInput

Read = Callable[[bytes], GpuCode]


@pytest.fixture(params=["a file that can seek", "a stream"])
def read(request, stream) -> Read:
    opened = io.BytesIO if request.param.startswith("a file") else stream
    return lambda data: read_gpu_code(opened(data), size=len(data), name="x.dll")


def _names(code: GpuCode) -> list[str]:
    return [a.name for a in code.arch]


def test_the_sections_of_gpu_code_are_found_by_their_cut_names(read, fatbin, entry):
    unit = fatbin(entry("sass", 80)) + bytes(8) + fatbin(entry("ptx", 90), entry("sass", 86))
    code = read(make_dll(code=unit, more={".reloc": b"\1" * 600}))
    assert _names(code) == ["sm_80", "sm_86", "compute_90"]
    assert code.units.count == 2


def test_a_library_without_gpu_code_has_none(read):
    assert read(make_dll(imports=[("KERNEL32.dll", ["Sleep"])])) == GpuCode()


def test_a_library_of_32_bits_is_read(read, fatbin, entry):
    assert _names(read(make_dll(code=fatbin(entry("sass", 30)), wide=False))) == ["sm_30"]


def test_fatbinaries_in_constant_data_are_not_the_programs_kernels(read, fatbin, entry):
    data = make_dll(front=fatbin(entry("sass", 70)), code=fatbin(entry("sass", 80)))
    assert _names(read(data)) == ["sm_80"]
    assert _names(read(make_dll(front=fatbin(entry("sass", 70)), data=b"\1"))) == []


def test_code_in_a_section_of_another_name_is_found_when_wrappers_point_to_it(read, fatbin, entry):
    wrapper = struct.pack("<IIQQ", 0x466243B1, 1, 0, 0)
    data = make_dll(wrappers=wrapper, more={".gpu": fatbin(entry("sass", 70))})
    assert _names(read(data)) == ["sm_70"]


def test_in_a_linked_library_relocatable_code_counts_where_every_object_brought_it(
    read, fatbin, entry
):
    objects = fatbin(entry("sass", 80), entry("ptx", 80)) + fatbin(entry("ptx", 80))
    data = make_dll(code=fatbin(entry("sass", 75)), relocatable=objects)
    code = read(data)
    assert _names(code) == ["sm_75", "compute_80"]
    assert code.units.count == 1


def test_what_a_linker_pads_a_section_with_is_no_code(read, fatbin, entry):
    data = make_dll(code=fatbin(entry("sass", 80)) + bytes(4000))
    assert _names(read(data)) == ["sm_80"]


def test_names_that_delvewheel_put_behind_the_code_are_no_code(read, fatbin, entry):
    names = bytes(40) + b"cudart64_12-0fa7eb792d3f.dll\0msvcp140-0fa7eb79.dll\0"
    assert _names(read(make_dll(code=fatbin(entry("sass", 80)) + names))) == ["sm_80"]
    with pytest.raises(BadInput, match="expected a fatbinary"):
        read(make_dll(code=fatbin(entry("sass", 80)) + b"x" * 600))


def test_sections_may_stand_in_any_order(read, fatbin, entry):
    data = make_pe(
        {
            ".nv_fatbin": fatbin(entry("sass", 80)),
            ".text": b"\xc3" * 5000,
            "__nv_relfatbin": fatbin(entry("sass", 80), entry("sass", 90)),
        }
    )
    assert _names(read(data)) == ["sm_80", "sm_90"]


@pytest.mark.parametrize("left", [3, 63, 70, 200, 330, HEADERS + 10])
def test_a_truncated_library_is_damaged(read, fatbin, entry, left):
    data = make_dll(code=fatbin(entry("sass", 80)))
    with pytest.raises(BadInput, match="damaged or truncated"):
        read(data[:left])


def test_a_stream_that_ends_before_its_size_is_damaged(stream, fatbin, entry):
    data = make_dll(code=fatbin(entry("sass", 80)), more={".rsrc": b"\1" * 4096})
    with pytest.raises(BadInput, match="the file ends within a PE file"):
        read_gpu_code(stream(data[:-512]), size=len(data))


_PE = 64
_SECTIONS = _PE + 24 + 240
_CODE = _SECTIONS + 40


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (60, struct.pack("<I", 0xFFFFFFF0), "its PE header should begin at byte"),
        (60, struct.pack("<I", 60_000), "ends within its PE headers"),
        (_PE, b"NE\0\0", "no PE header begins here"),
        (_PE + 6, struct.pack("<H", 0), "0 sections"),
        (_PE + 6, struct.pack("<H", 65535), "65535 sections"),
        (_PE + 24, struct.pack("<H", 0x107), "optional header of kind 0x107"),
        (_CODE + 8, struct.pack("<III", 1 << 31, 4096, 1 << 31), "should reach to byte"),
        (_CODE + 20, struct.pack("<I", 0xFFFF0000), "should reach to byte"),
        (_CODE + 20, struct.pack("<I", 64), "expected a fatbinary"),
    ],
)
def test_headers_that_lie_are_damage(read, fatbin, entry, place, value, message):
    data = bytearray(make_dll(data=b"\1", code=fatbin(entry("sass", 80))))
    data[place : place + len(value)] = value
    with pytest.raises(BadInput, match=message):
        read(bytes(data))


def test_sections_of_gpu_code_that_overlap_are_damage(read, fatbin, entry):
    unit = fatbin(entry("sass", 80, payload=b"\1" * 8000))
    data = bytearray(make_dll(data=b"\1", relocatable=unit, code=unit))
    first = struct.unpack_from("<II", data, _CODE + 16)
    struct.pack_into("<II", data, _CODE + 40 + 16, *first)
    with pytest.raises(BadInput, match="overlap"):
        read(bytes(data))
