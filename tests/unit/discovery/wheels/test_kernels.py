"""Files of GPU code in a wheel are counted one by one while they are few, else by folder."""

from __future__ import annotations

import io

from gpu_binaries import make_archive, make_elf, make_entry, make_fatbin
from wheels import make_wheel

from compatgate.core.facts.records import Library
from compatgate.discovery.wheels.archive import Archive
from compatgate.discovery.wheels.members import FEW_FILES, MAX_LINES, group_kernels, read_kernels

PTX = (
    b"//\n// Cuda compilation tools, release 12.6, V12.6.85\n//\n"
    b".version 8.5\n.target sm_90a\n.address_size 64\n"
)


class Bytes(io.BytesIO):
    @property
    def size(self) -> int:
        return len(self.getbuffer())

    def plan(self, end: int) -> None:
        pass


def measured(path: str, data: bytes) -> Library | None:
    archive = Archive(Bytes(make_wheel({path: data})), "pkg-1.0-py3-none-any.whl")
    (member,) = [m for m in archive.members if m.filename == path]
    return read_kernels(archive, member).library


def test_ptx_that_stands_alone_records_its_toolkit():
    found = measured("pkg/k.ptx", PTX)
    assert (found.ptx, found.units) == ({"compute_90a": 1}, 1)
    assert (found.ptx_isa, found.ptx_cuda) == ("8.5", "12.6")


def test_a_fatbinary_and_a_static_library_are_counted():
    unit = make_fatbin(make_entry("sass", 80), make_entry("ptx", 90))
    assert measured("pkg/k.fatbin", unit + unit).sass == {"sm_80": 2}
    static = make_archive(a=make_elf(DOTnv_fatbin=unit), b=make_elf(DOTnv_fatbin=unit))
    assert measured("pkg/libk.a", static).units == 2


def test_code_in_a_static_library_that_no_section_of_it_names_does_not_count():
    unit = make_fatbin(make_entry("sass", 80))
    big = b"\1" * 3 * 1024 * 1024
    assert measured("pkg/libk.a", make_archive(a=make_elf(DOTdata=unit, DOTbig=big))) is None


def test_what_is_only_named_like_code_holds_nothing():
    assert measured("pkg/notes.o", b"an ordinary text") is None
    assert measured("pkg/empty.a", b"!<arch>\n") is None


def cubin(path: str, arch: str = "sm_90a") -> Library:
    return Library(path, sass={arch: 1}, units=1)


def test_few_files_are_listed_one_by_one():
    files = [cubin(f"pkg/k{n}.cubin") for n in range(FEW_FILES)]
    assert group_kernels(files) == files


def test_many_files_of_a_folder_are_one_line():
    files = [cubin(f"pkg/k{n}.cubin") for n in range(30)] + [cubin("pkg/x.cubin", "sm_100a")]
    found = group_kernels([*files, Library("pkg/lib.so", needs=("libcuda.so.1",))])
    assert found == [
        Library(
            "pkg/*.cubin",
            sass={"sm_100a": 1, "sm_90a": 30},
            units=31,
            profiles={"sm_90a": 30, "sm_100a": 1},
        )
    ]


def test_thousands_of_folders_are_put_together_until_they_can_be_read():
    files = [cubin(f"pkg/cubins/{n:x}/{m}/k.cubin") for n in range(300) for m in range(3)]
    files += [Library(f"pkg/ptx/{n}/k.ptx", ptx={"compute_90": 1}, units=1) for n in range(60)]
    found = group_kernels(files)
    assert len(found) <= MAX_LINES
    assert {library.path for library in found} >= {"pkg/ptx/*.ptx"}
    assert sum(library.sass.get("sm_90a", 0) for library in found) == 900
