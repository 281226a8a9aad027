"""A shared object that passes as a stream tells what it needs, opens, asks for and carries."""

from __future__ import annotations

import io
import struct

import pytest
from gpu_binaries import make_entry, make_fatbin
from wheels import make_shared_object

from compatgate.core.facts.records import TorchAbi
from compatgate.discovery.wheels import stream_windows
from compatgate.discovery.wheels.members import read_library
from compatgate.errors import BadInput

UNIT = make_fatbin(make_entry("sass", 80), make_entry("ptx", 90))
OTHER = make_fatbin(make_entry("sass", 80), make_entry("sass", 90, "a"))


def read(data: bytes, opened: list[bool] | None = None):
    def opener(reader, /, *, whole):
        if opened is not None:
            opened.append(whole)
        reader(io.BytesIO(data))

    return read_library("pkg/x.so", len(data), opener, "x.so")


def library(data: bytes):
    reading = read(data)
    found, complete = reading.library, reading.complete
    assert complete
    return found


def test_it_counts_translation_units_of_each_architecture():
    found = library(make_shared_object(code=UNIT + OTHER + OTHER))
    assert found.sass == {"sm_80": 3, "sm_90a": 2}
    assert found.ptx == {"compute_90": 1}
    assert (found.units, found.ptx_isa) == (3, "8.4")
    assert found.profiles == {"sm_80+sm_90a": 2, "sm_80+compute_90": 1}
    assert found.code_of_units == ((("sm_80", "sm_90a"), 2), (("sm_80", "compute_90"), 1))


def test_units_of_the_same_code_need_no_profiles():
    found = library(make_shared_object(code=UNIT + UNIT))
    assert found.profiles == {}
    assert found.code_of_units == ((("sm_80", "compute_90"), 2),)


def test_relocatable_objects_count_once_as_what_they_are_linked_to():
    linked = make_fatbin(make_entry("sass", 80))
    found = library(make_shared_object(code=linked, relocatable=UNIT + UNIT))
    assert (found.sass, found.ptx, found.units) == ({"sm_80": 1}, {"compute_90": 1}, 1)
    assert found.code_of_units == ((("sm_80", "compute_90"), 1),)


def test_relocatable_code_that_not_every_object_brought_does_not_count():
    linked = make_fatbin(make_entry("sass", 80))
    found = library(make_shared_object(code=linked, relocatable=UNIT + OTHER))
    assert (found.sass, found.ptx) == ({"sm_80": 1}, {})


def test_it_needs_what_the_linker_must_find_but_the_systems_own():
    needs = ["libcudart.so.12", "libc10.so", "libc.so.6", "libstdc++.so.6", "ld-linux-x86-64.so.2"]
    found = library(make_shared_object(soname="libx.so.1", needs=needs))
    assert found.soname == "libx.so.1"
    assert found.needs == ("libcudart.so.12", "libc10.so")


def test_it_may_open_the_gpu_libraries_that_its_data_names():
    data = (
        b"\0libcudnn.so.9\0libpng16.so.16\0/usr/lib/libcuda.so.1\0libcudart.so.12\0xlibnccl.so.2\0"
    )
    found = library(make_shared_object(needs=["libcudart.so.12"], data=data))
    assert found.opens == ("libcudnn.so.9",)


def test_a_name_on_the_border_of_two_reads_is_found(monkeypatch):
    data = bytes(262144 - 5) + b"libcudnn.so.9\0"
    for shift in range(0, 4200, 173):
        found = library(make_shared_object(data=b"x" * shift + data))
        assert found.opens == ("libcudnn.so.9",)


def test_it_asks_for_symbols_of_a_version_by_the_library_that_defines_them():
    asked = [
        ("__nvJitLinkCreate_12_4", "libnvJitLink.so.12"),
        ("__nvJitLinkAddData_12_4", "libnvJitLink.so.12"),
        ("__nvJitLinkComplete_12_10", "libnvJitLink.so.12"),
        ("cudaMalloc", "libcudart.so.12"),
    ]
    found = library(make_shared_object(needs=["libnvJitLink.so.12"], undefined=asked))
    assert found.symbols == {"libnvJitLink.so.12": ("12_4", "12_10")}
    assert found.defines == ()


def test_it_defines_symbols_of_versions():
    names = ["__nvJitLinkCreate_12_0", "__nvJitLinkCreate_12_4", "nvJitLinkVersion"]
    found = library(make_shared_object(soname="libnvJitLink.so.12", defined=names))
    assert found.defines == ("12_0", "12_4")
    assert found.symbols == {}


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["_ZN3c106detail14torchCheckFailEPKcS2_jRKNSt7__cxx1112basic_stringIcE"], True),
        (["_ZN3c106detail14torchCheckFailEPKcS2_jRKSs"], False),
        (["_ZNK2at10TensorBase8is_cudaEv"], None),
    ],
)
def test_symbols_of_torch_tell_its_abi(names, expected):
    abi = library(make_shared_object(undefined=[(n, "") for n in [*names, "cudaMalloc"]])).torch
    assert (abi.stable, abi.cxx11, abi.symbols) == (False, expected, 1)
    assert len(abi.digest) == 16


def test_symbols_that_a_library_defines_itself_are_not_asked_of_torch():
    found = library(make_shared_object(defined=["_ZN3c104warnEv"], undefined=[("memcpy", "")]))
    assert found.torch is None


def test_the_stable_abi_of_torch_is_c():
    found = library(make_shared_object(undefined=[("aoti_torch_empty_strided", "")]))
    assert found.torch == TorchAbi(stable=True)


def test_two_builds_that_ask_for_other_symbols_have_other_digests():
    one = library(make_shared_object(undefined=[("_ZN3c104warnEv", ""), ("_ZN2at4addEv", "")]))
    two = library(make_shared_object(undefined=[("_ZN3c105warn2Ev", ""), ("_ZN2at4addEv", "")]))
    same = library(make_shared_object(undefined=[("_ZN2at4addEv", ""), ("_ZN3c104warnEv", "")]))
    assert one.torch.digest == same.torch.digest != two.torch.digest


def test_tables_far_from_both_ends_are_read_in_a_second_pass(monkeypatch):
    monkeypatch.setattr(stream_windows, "HEAD", 4096)
    monkeypatch.setattr(stream_windows, "TAIL", 4096)
    # the names of sections stay: they are behind `behind`, within the tail
    data = make_shared_object(
        needs=["libcudart.so.12"], front=b"\1" * 300_000, behind=b"\2" * 300_000, code=UNIT
    )
    opened: list[bool] = []
    reading = read(data, opened)
    found, complete = reading.library, reading.complete
    assert complete
    assert found.needs == ("libcudart.so.12",)
    assert opened[0] is True
    assert not any(opened[1:])


def test_code_is_found_where_the_names_of_sections_stand_far_from_the_end(monkeypatch):
    monkeypatch.setattr(stream_windows, "HEAD", 4096)
    monkeypatch.setattr(stream_windows, "TAIL", 4096)
    stray = b"\x50\xed\x55\xba\1\0\x10\0" + b"\xff" * 64  # in a compiler's own data
    data = make_shared_object(data=stray, needs=["libcuda.so.1"])
    table = int.from_bytes(data[40:48], "little")
    moved = data[:table] + bytes(3 * 1024 * 1024) + data[table:]
    moved = moved[:40] + (table + 3 * 1024 * 1024).to_bytes(8, "little") + moved[48:]
    reading = read(moved)
    found, complete = reading.library, reading.complete
    assert complete
    assert (found.sass, found.needs) == ({}, ("libcuda.so.1",))


@pytest.mark.parametrize("data", [b"", b"M", b"INPUT(libx.so.1)\n", b"\xcf\xfa\xed\xfe" * 20])
def test_what_is_no_elf_file_carries_nothing(data):
    assert read(data) is None


def test_a_truncated_file_is_an_error():
    with pytest.raises(BadInput, match="damaged"):
        read(make_shared_object(code=UNIT)[:-80])


def test_a_table_of_which_only_the_beginning_was_kept_is_read_in_a_second_pass(monkeypatch):
    names = [(f"_ZN2at4op{n}Ev", "") for n in range(2000)]
    data = make_shared_object(needs=["libc10.so"], undefined=names, behind=b"\2" * 300_000)
    monkeypatch.setattr(stream_windows, "HEAD", data.index(b"_ZN2at4op1000Ev"))
    monkeypatch.setattr(stream_windows, "TAIL", 4096)
    reading = read(data)
    found, complete = reading.library, reading.complete
    assert complete
    assert found.torch.symbols == 2000


def test_a_dynamic_section_that_the_program_headers_name_needs_no_second_pass(monkeypatch):
    monkeypatch.setattr(stream_windows, "HEAD", 300_000)
    monkeypatch.setattr(stream_windows, "TAIL", 4096)
    data = make_shared_object(needs=["libcudart.so.12"], front=b"\1" * 8192, behind=b"\2" * 700_000)
    # the section is moved behind the first bytes that are kept, and a program header names it
    table = int.from_bytes(data[40:48], "little")
    start = data.index((1).to_bytes(8, "little") + (1).to_bytes(8, "little"))
    dynamic, place = data[start : start + 32], 400_000
    header = struct.pack("<II6Q", 2, 6, place, 0, 0, 32, 32, 8)
    moved = bytearray(data)
    moved[place : place + 32] = dynamic
    moved[64 : 64 + 56] = header  # in `front`, where nothing is read
    moved[32:40] = (64).to_bytes(8, "little")
    moved[56:58] = (1).to_bytes(2, "little")
    at = moved.index(start.to_bytes(8, "little") + (32).to_bytes(8, "little"), table)
    moved[at : at + 8] = place.to_bytes(8, "little")
    opened: list[bool] = []
    reading = read(bytes(moved), opened)
    found, complete = reading.library, reading.complete
    assert complete
    assert found.needs == ("libcudart.so.12",)
    assert opened == [True]
