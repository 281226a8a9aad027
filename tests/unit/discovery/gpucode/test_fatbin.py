"""What the headers of fatbinaries say, and what is refused.

PTX and cubins that stand alone.
"""

from __future__ import annotations

import io
import struct

import pytest

from compatgate.discovery.gpucode import read_gpu_code
from compatgate.errors import BadInput


def _read(data: bytes):
    return read_gpu_code(io.BytesIO(data), name="x")


def test_an_entry_names_its_kind_its_architecture_and_its_ptx_isa(entry, fatbin):
    code = _read(fatbin(entry("sass", 80), entry("ptx", 90, isa=(8, 4)), entry("lto", 89)))
    assert [(e.kind, e.name, e.ptx_isa) for e in code.entries] == [
        ("sass", "sm_80", None),
        ("ptx", "compute_90", "8.4"),
        ("lto", "lto_89", None),
    ]


@pytest.mark.parametrize(
    ("arch", "suffix", "name"), [(90, "a", "sm_90a"), (100, "f", "sm_100f"), (121, "", "sm_121")]
)
def test_flags_tell_architecture_and_family_specific_code(arch, suffix, name, entry, fatbin):
    assert [a.name for a in _read(fatbin(entry("sass", arch, suffix))).arch] == [name]


@pytest.mark.parametrize("flag", [0x1000, 0x2000, 0x8000])
def test_each_flag_of_compression_is_known(flag, entry, fatbin):
    assert _read(fatbin(entry(flags=flag))).entries[0].compressed


def test_code_that_is_not_compressed_is_not_said_to_be(entry, fatbin):
    assert not _read(fatbin(entry())).entries[0].compressed


def test_fatbinaries_that_follow_one_another_are_regions(entry, fatbin):
    data = fatbin(entry("sass", 80)) + fatbin(entry("sass", 90))
    assert [(e.name, e.region) for e in _read(data).entries] == [("sm_80", 0), ("sm_90", 1)]


def test_offsets_are_those_of_the_headers_in_the_file(entry, fatbin):
    data = fatbin(entry("sass", 80), entry("sass", 90))
    offsets = [e.offset for e in _read(data).entries]
    assert [data[o : o + 2] for o in offsets] == [b"\2\0", b"\2\0"]
    assert offsets == [16, 16 + 96]


def test_an_empty_fatbinary_has_no_code(fatbin):
    assert _read(fatbin()).arch == ()


def test_concatenated_entries_are_listed_one_by_one(entry, fatbin):
    index = entry("sass", 80, payload=b"") + entry("sass", 90, "a", payload=b"")
    header = 64 + 8 + len(index)
    whole = bytearray(entry("0x100", 0, flags=0x8000, payload=b"", header=header, size=40))
    struct.pack_into("<I", whole, 20, 64)
    whole += struct.pack("<II", 2, 8 + len(index)) + index + bytes(40)
    code = _read(fatbin(bytes(whole)))
    assert [(e.name, e.compressed) for e in code.entries] == [("sm_80", True), ("sm_90a", True)]


def test_an_index_that_promises_more_entries_than_it_holds_is_damage(entry, fatbin):
    whole = bytearray(entry("0x100", 0, payload=b"", header=64 + 8 + 64, size=0))
    struct.pack_into("<I", whole, 20, 64)
    whole += struct.pack("<II", 9, 72) + entry(payload=b"")
    with pytest.raises(BadInput, match="too small for 9 entries"):
        _read(fatbin(bytes(whole)))


@pytest.mark.parametrize("size", [33, 1 << 20, 1 << 40, (1 << 64) - 1])
def test_an_entry_larger_than_its_fatbinary_is_refused_with_its_offset(size, entry, fatbin):
    with pytest.raises(BadInput, match="at byte 16: an entry of 64") as error:
        _read(fatbin(entry(size=size)))
    assert error.value.value == 16


@pytest.mark.parametrize("header", [0, 8, 63, 1 << 31])
def test_an_entry_with_an_impossible_header_is_refused(header, entry, fatbin):
    with pytest.raises(BadInput, match="does not fit"):
        _read(fatbin(entry(header=header)))


def test_a_fatbinary_larger_than_its_file_is_refused(entry, fatbin):
    with pytest.raises(BadInput, match="would end at byte 1016, behind what holds it"):
        _read(fatbin(entry(), size=1000))


def test_an_unknown_version_kind_or_architecture_is_refused_and_named(entry, fatbin):
    with pytest.raises(BadInput, match="version 7"):
        _read(fatbin(entry(), version=7))
    with pytest.raises(BadInput, match="kind 0x40"):
        _read(fatbin(entry("0x40")))
    with pytest.raises(BadInput, match="architecture 70000"):
        _read(fatbin(entry(arch=70000)))


def test_more_entries_than_any_library_has_are_refused(entry, fatbin):
    many = entry(payload=b"") * 200_001
    with pytest.raises(BadInput, match="more than 200000 entries"):
        _read(fatbin(many))


@pytest.mark.parametrize("data", [b"", b"M" + bytes(100), b"hello world", bytes(4096)])
def test_something_else_is_refused(data):
    with pytest.raises(BadInput, match=r"is (empty|not an ELF or PE file)"):
        _read(data)


def test_old_fatbinaries_are_named(fatbin):
    with pytest.raises(BadInput, match="CUDA 3 and before"):
        _read(bytes.fromhex("015ae51e") + bytes(60))


_PTX = """\
//
// Cuda compilation tools, release 12.4, V12.4.131
//
.version 8.4
.target sm_90a, texmode_independent
.address_size 64
"""


def _cubin(abi: int, flags: int, note: bytes = b"") -> bytes:
    head = bytearray(64)
    head[:9] = b"\x7fELF\x02\x01\x01\x33" + bytes([abi])
    struct.pack_into("<HH", head, 16, 2, 190)
    struct.pack_into("<Q", head, 40, 64)
    struct.pack_into("<I", head, 48, flags)
    return bytes(head) + note


def test_ptx_names_its_isa_its_target_and_its_toolkit():
    entry = read_gpu_code(io.BytesIO(_PTX.encode())).entries[0]
    assert (entry.name, entry.ptx_isa, entry.cuda) == ("compute_90a", "8.4", "12.4")


def test_ptx_without_a_target_is_not_ptx():
    with pytest.raises(BadInput):
        read_gpu_code(io.BytesIO(b".version 8.4\n"))


@pytest.mark.parametrize(
    ("abi", "flags", "name"),
    [
        (7, 0x500550, "sm_80"),
        (7, 0x5A0D5A, "sm_90a"),
        (8, 0x6005A04, "sm_90"),
        (8, 0x6007902, "sm_121"),
    ],
)
def test_the_flags_of_a_cubin_name_its_architecture(abi, flags, name):
    assert read_gpu_code(io.BytesIO(_cubin(abi, flags))).entries[0].name == name


def test_the_note_of_a_cubin_tells_family_specific_code_and_its_toolkit():
    note = b"ptxas\0Cuda compilation tools, release 13.5, V13.5.37\0-arch sm_100f -m 64 \0"
    entry = read_gpu_code(io.BytesIO(_cubin(8, 0x6006402, note))).entries[0]
    assert (entry.name, entry.cuda) == ("sm_100f", "13.5")


def test_a_cubin_that_ends_before_its_section_headers_is_truncated():
    data = bytearray(_cubin(8, 0x6005A04))
    struct.pack_into("<Q", data, 40, 9999)
    with pytest.raises(BadInput, match="section headers should begin at byte 9999"):
        read_gpu_code(io.BytesIO(bytes(data)))
