"""PTX and cubins that stand alone."""

from __future__ import annotations

import io
import struct

import pytest

from compatgate.discovery.gpucode import read_gpu_code
from compatgate.errors import BadInput

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
