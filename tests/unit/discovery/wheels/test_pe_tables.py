"""A library of Windows that passes as a stream tells what it needs, opens, asks for and carries."""

from __future__ import annotations

import io
import struct

import pytest
from gpu_binaries import make_entry, make_fatbin
from pe_files import make_dll

from compatgate.core.facts.records import TorchAbi
from compatgate.discovery.wheels import library_tables, stream_windows
from compatgate.discovery.wheels.members import read_library, read_open_library
from compatgate.discovery.wheels.names import hash_symbol
from compatgate.errors import BadInput

UNIT = make_fatbin(make_entry("sass", 80), make_entry("ptx", 90))
CHECK = "?torchCheckFail@detail@c10@@YAXPEBD0I0@Z"
ADD = "?add@Tensor@at@@QEBA?AV12@AEBV12@@Z"


def read(data: bytes, opened: list[bool] | None = None):
    def opener(reader, /, *, whole):
        if opened is not None:
            opened.append(whole)
        reader(io.BytesIO(data))

    return read_library("pkg/x.dll", len(data), opener, "x.dll")


def library(data: bytes):
    reading = read(data)
    assert reading.complete
    return reading.library


def test_it_needs_what_the_loader_must_find_but_the_systems_own():
    system = ["KERNEL32.dll", "MSVCP140.dll", "VCRUNTIME140_1.dll", "python312.dll"]
    system += ["api-ms-win-crt-heap-l1-1-0.dll", "ADVAPI32.dll"]
    needs = ["cudart64_12.dll", "cublasLt64_12.dll", "cudnn64_9.dll", "zlib1.dll"]
    data = make_dll(name="x.dll", imports=[(name, ["f"]) for name in [*system, *needs]], code=UNIT)
    found = library(data)
    assert found.needs == tuple(needs)
    assert found.soname == "x.dll"
    assert (found.sass, found.ptx, found.units) == ({"sm_80": 1}, {"compute_90": 1}, 1)


def test_a_library_that_exports_nothing_has_no_name():
    assert library(make_dll(imports=[("cudart64_12.dll", ["f"])])).soname is None


def test_an_open_file_tells_the_same_as_a_stream():
    data = make_dll(name="x.dll", imports=[("c10.dll", [CHECK])], exports=["f"], code=UNIT)
    opened = read_open_library("pkg/x.dll", io.BytesIO(data), len(data), "x.dll")
    assert opened == read(data)


def test_it_may_open_the_gpu_libraries_that_its_data_names():
    data = b"\0cudnn64_9.dll\0zlib1.dll\0C:\\cuda\\nvrtc64_120_0.dll\0cudart64_12.dll\0"
    wide = "\0cublas64_12.dll\0user32.dll\0".encode("utf-16-le")
    found = library(
        make_dll(imports=[("CUDART64_12.dll", ["cudaFree"])], data=data + bytes(8) + wide)
    )
    assert found.needs == ("CUDART64_12.dll",)
    assert found.opens == ("cublas64_12.dll", "cudnn64_9.dll")


@pytest.mark.parametrize("encoding", ["ascii", "utf-16-le"])
def test_a_name_on_the_border_of_two_reads_is_found(encoding):
    name = "\0cudnn64_9.dll\0".encode(encoding)
    for shift in range(0, 4200, 173):
        found = library(make_dll(front=b"x" * shift, data=bytes(262_100) + name))
        assert found.opens == ("cudnn64_9.dll",)


def test_it_asks_for_symbols_of_a_version_by_the_library_that_defines_them():
    asked = ["__nvJitLinkCreate_12_4", "__nvJitLinkAddData_12_10", "nvJitLinkVersion"]
    found = library(make_dll(imports=[("nvJitLink_120_0.dll", asked), ("cudart64_12.dll", ["f"])]))
    assert found.symbols == {"nvJitLink_120_0.dll": ("12_4", "12_10")}
    assert found.defines == ()


def test_it_defines_symbols_of_versions():
    names = ["__nvJitLinkCreate_12_0", "__nvJitLinkCreate_12_4", "nvJitLinkVersion"]
    found = library(make_dll(name="nvJitLink_120_0.dll", exports=names))
    assert (found.defines, found.symbols) == (("12_0", "12_4"), {})


def test_symbols_of_torch_are_those_that_its_libraries_have_to_define():
    imports = [
        ("c10.dll", [CHECK]),
        ("torch_cpu.dll", [ADD, "??_7TypeMeta@caffe2@@6B@"]),
        ("MSVCP140.dll", ["?good@ios_base@std@@QEBA_NXZ"]),
        ("mine.dll", ["?call@mine@at@@YAXXZ"]),
    ]
    reading = read(make_dll(imports=imports, exports=["?own@c10@@YAXXZ", "PyInit_x"]))
    abi = reading.library.torch
    assert (abi.stable, abi.cxx11, abi.symbols) == (False, None, 3)
    assert len(abi.digest) == 16
    assert reading.torch.asks == {CHECK.encode(), ADD.encode(), b"??_7TypeMeta@caffe2@@6B@"}
    assert reading.torch.defines == {hash_symbol(b"?own@c10@@YAXXZ")}


def test_two_builds_that_ask_for_other_symbols_have_other_digests():
    one = library(make_dll(imports=[("c10.dll", [CHECK]), ("torch_cpu.dll", [ADD])]))
    same = library(make_dll(imports=[("torch_cpu.dll", [ADD]), ("c10.dll", [CHECK])]))
    two = library(make_dll(imports=[("c10.dll", [CHECK.replace("Fail", "Fail2"), ADD])]))
    assert one.torch.digest == same.torch.digest != two.torch.digest


def test_the_stable_abi_of_torch_is_c():
    found = library(make_dll(imports=[("torch_cpu.dll", ["aoti_torch_empty_strided"])]))
    assert found.torch == TorchAbi(stable=True)


def test_symbols_that_have_a_number_alone_are_passed_over():
    data = make_dll(imports=[("c10.dll", [CHECK, ADD])])
    thunk = data.index(b"\0\0" + CHECK.encode()) - 1024 + 4096
    place = data.index(struct.pack("<Q", thunk))
    by_number = data[:place] + struct.pack("<Q", 1 << 63 | 7) + data[place + 8 :]
    assert library(by_number).torch.symbols == 1


def test_tables_are_kept_wherever_the_headers_say_that_they_are(monkeypatch):
    monkeypatch.setattr(stream_windows, "HEAD", 4096)
    monkeypatch.setattr(stream_windows, "TAIL", 4096)
    opened: list[bool] = []
    reading = read(
        make_dll(
            imports=[("cudart64_12.dll", ["f"])],
            front=b"\1" * 900_000,
            more={".rsrc": b"\2" * 900_000},
        ),
        opened,
    )
    assert reading.complete
    assert reading.library.needs == ("cudart64_12.dll",)
    assert opened == [True]


def test_names_before_the_tables_are_read_in_a_second_pass(monkeypatch):
    monkeypatch.setattr(stream_windows, "HEAD", 4096)
    monkeypatch.setattr(stream_windows, "TAIL", 4096)
    front = b"cudart64_13.dll\0".rjust(8192, b"\1") + b"\1" * 400_000
    data = make_dll(imports=[("cudart64_12.dll", ["f"])], front=front, more={"x": bytes(9000)})
    old = data.index(b"cudart64_12.dll") - 1024 + 4096
    new = data.index(b"cudart64_13.dll") - 1024 + 4096
    moved = data.replace(struct.pack("<I", old), struct.pack("<I", new))
    opened: list[bool] = []
    reading = read(moved, opened)
    assert reading.complete
    assert reading.library.needs == ("cudart64_13.dll",)
    assert opened == [True, False]


def test_names_that_delvewheel_put_into_other_sections_are_read_in_a_second_pass():
    names = b"cudart64_12-0fa7eb79.dll\0c10.dll\0"
    imports = [("cudart64_12.dll", ["f"]), ("cudnn64_9.dll", ["f"]), ("c10_.dll", [CHECK])]
    data = make_dll(imports=imports, code=UNIT, more={".pdata": bytes(64) + names})
    for old, new in ((b"cudart64_12.dll", b"cudart64_12-"), (b"c10_.dll", b"c10.dll")):
        place = data.index(names) + names.index(new)
        section = len(data) - 512  # .pdata, the last one; its address is two pages behind
        address = struct.pack("<I", 3 * 4096 + place - section)
        data = data.replace(struct.pack("<I", data.index(old) - 1024 + 4096), address)
    opened: list[bool] = []
    reading = read(data, opened)
    assert reading.complete
    assert reading.library.needs == ("cudart64_12-0fa7eb79.dll", "cudnn64_9.dll", "c10.dll")
    assert reading.library.torch.symbols == 1
    assert opened == [True] or opened == [True, False]


def test_a_library_of_32_bits_links_against_no_cuda():
    found = library(make_dll(imports=[("cudart32_65.dll", ["f"])], wide=False))
    assert (found.needs, found.soname) == ((), None)


def _with_table(data: bytes, number: int, address: int) -> bytes:
    place = 64 + 24 + 112 + 8 * number
    return data[:place] + struct.pack("<I", address) + data[place + 4 :]


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("address", [1, 0xFFFFFFF0, 4096 * 300])
def test_a_table_that_is_nowhere_is_damage(number, address):
    data = make_dll(name="x.dll", imports=[("cudart64_12.dll", ["f"])], exports=["g"])
    with pytest.raises(BadInput, match="no table is at address"):
        read(_with_table(data, number, address))


def test_a_section_of_tables_that_does_not_fit_is_damage():
    data = bytearray(make_dll(imports=[("cudart64_12.dll", ["f"])]))
    struct.pack_into("<I4xI", data, 64 + 24 + 240 + 8, 1 << 30, 1 << 30)
    with pytest.raises(BadInput, match="no table is at address"):
        read(bytes(data))


def test_names_that_are_nowhere_are_damage():
    data = make_dll(imports=[("cudart64_12.dll", ["f"])])
    old = struct.pack("<I", data.index(b"cudart64_12.dll") - 1024 + 4096)
    with pytest.raises(BadInput, match="point to address 0x7ffffff0, outside of the file"):
        read(data.replace(old, struct.pack("<I", 0x7FFFFFF0)))


def test_a_name_without_an_end_is_damage():
    data = make_dll(imports=[("cudart64_12.dll", ["f"])], data=b"x" * 400)
    start = data.index(b"cudart64_12.dll")
    with pytest.raises(BadInput, match="has no end"):
        read(data[:start] + b"x" * (len(data) - start))


def test_more_exports_than_ordinals_are_damage():
    data = make_dll(name="x.dll", exports=["g"])
    place = data.index(struct.pack("<III", 1, 1, 1)) + 8
    many = data[:place] + struct.pack("<I", 0xFFFFFFFF) + data[place + 4 :]
    with pytest.raises(BadInput, match="4294967295 exported names"):
        read(many)


def test_endless_imports_are_damage(monkeypatch):
    monkeypatch.setattr(library_tables, "MAX_PE_LIBRARIES", 8)
    monkeypatch.setattr(library_tables, "MAX_PE_SYMBOLS", 8)
    many = [(f"a{n}.dll", ["f"]) for n in range(9)]
    with pytest.raises(BadInput, match="more than 8 imported libraries"):
        read(make_dll(imports=many))
    with pytest.raises(BadInput, match="more than 8 symbols"):
        read(make_dll(imports=[("c10.dll", [f"?f{n}@c10@@" for n in range(9)])]))


def test_tables_larger_than_are_read_leave_the_library_open(monkeypatch):
    monkeypatch.setattr(library_tables, "LARGEST_PE_TABLES", 1000)
    reading = read(make_dll(imports=[("cudart64_12.dll", ["f"])], data=bytes(2000), code=UNIT))
    assert not reading.complete
    assert reading.library.sass == {"sm_80": 1}
