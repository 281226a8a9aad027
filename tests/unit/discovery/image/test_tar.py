"""Archives from streams: every form that tar writes, and what is hostile."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatgate.discovery.image.tar import BLOCK, ByteFeed, read_members
from compatgate.errors import DamagedContent

LONG = "/".join(["folder-with-a-long-name"] * 20) + "/file"


def archive(fill, form: int = tarfile.PAX_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as tar:
        fill(tar)
    return buffer.getvalue()


def put(tar: tarfile.TarFile, path: str, data: bytes = b"", **more: object) -> None:
    member = tarfile.TarInfo(path)
    member.size = len(data)
    for name, value in more.items():
        setattr(member, name, value)
    tar.addfile(member, io.BytesIO(data))


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


def read(data: bytes, size: int = 1000) -> list[tuple[str, str, bytes]]:
    found = []
    for member, content in read_members(ByteFeed(pieces(data, size))):
        found.append((member.path, member.kind, content.read_all(10**9) or b""))
    return found


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
@pytest.mark.parametrize("size", [1, 100, 512, 10_000])
def test_files_of_every_format_are_read(form: int, size: int) -> None:
    path = LONG if form != tarfile.USTAR_FORMAT else "a" * 45 + "/" + "b" * 50

    def fill(tar: tarfile.TarFile) -> None:
        put(tar, "./usr/lib/", type=tarfile.DIRTYPE)
        put(tar, path, b"x" * 700)
        put(tar, "empty")
        put(tar, "link", type=tarfile.SYMTYPE, linkname="usr/lib")
        put(tar, "second", type=tarfile.LNKTYPE, linkname=f"/{path}")

    assert read(archive(fill, form), size) == [
        ("usr/lib", "dir", b""),
        (path, "file", b"x" * 700),
        ("empty", "file", b""),
        ("link", "symlink", b""),
        ("second", "hardlink", b""),
    ]


def test_a_hard_link_names_its_file() -> None:
    data = archive(lambda tar: put(tar, "b", type=tarfile.LNKTYPE, linkname=f"./{LONG}"))
    assert [m.link for m, _ in read_members(ByteFeed([data]))] == [LONG]


@pytest.mark.parametrize(
    ("path", "clean"),
    [
        ("./a/b", "a/b"),
        ("/a//b/", "a/b"),
        ("../../etc/passwd", "etc/passwd"),
        ("a/../../b", "b"),
        ("a/./b", "a/b"),
        ("a/.b", "a/.b"),
        ("...", "..."),
    ],
)
def test_paths_are_those_in_the_image(path: str, clean: str) -> None:
    data = archive(lambda tar: put(tar, path, b"x"))
    assert read(data)[0][0] == clean


def test_a_size_beyond_the_header_s_digits_is_read() -> None:
    member = tarfile.TarInfo("big")
    member.size = 9 * 1024**3
    for form in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
        feed = ByteFeed([member.tobuf(form)])
        assert next(read_members(feed))[0].size == member.size


def test_content_that_is_not_read_is_passed_over() -> None:
    def fill(tar: tarfile.TarFile) -> None:
        put(tar, "a", b"x" * 5000)
        put(tar, "b", b"y" * 10)

    seen = {}
    for member, content in read_members(ByteFeed(pieces(archive(fill), 700))):
        seen[member.path] = content.read(3)
    assert seen == {"a": b"xxx", "b": b"yyy"}


def test_content_that_is_too_large_is_not_taken() -> None:
    data = archive(lambda tar: put(tar, "a", b"x" * 5000))
    assert [c.read_all(4999) for _, c in read_members(ByteFeed([data]))] == [None]


def test_an_archive_that_ends_within_a_file_is_damaged() -> None:
    data = archive(lambda tar: put(tar, "a", b"x" * 5000))
    for end in (BLOCK + 100, BLOCK + 4999):
        with pytest.raises(DamagedContent, match="ends within a"):
            read(data[:end])
    with pytest.raises(DamagedContent, match="ends within a header"):
        read(data[:100])


def test_a_wrong_checksum_is_damaged() -> None:
    data = bytearray(archive(lambda tar: put(tar, "a", b"x")))
    data[0] ^= 1
    with pytest.raises(DamagedContent, match="is no tar archive at byte 0"):
        read(bytes(data))


def test_an_extended_header_does_not_decide_how_much_memory_is_used() -> None:
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 2**31
    with pytest.raises(DamagedContent, match="an extended header of 2147483648 bytes"):
        read(header.tobuf(tarfile.USTAR_FORMAT))


def test_a_negative_size_is_damaged() -> None:
    header = bytearray(tarfile.TarInfo("x").tobuf(tarfile.USTAR_FORMAT))
    header[124:136] = b"\xff" * 12
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    with pytest.raises(DamagedContent, match="file of -1 bytes"):
        read(bytes(header))


@given(st.binary(max_size=2000))
def test_any_bytes_are_an_archive_or_damaged(data: bytes) -> None:
    try:
        read(data)
    except DamagedContent:
        return


@given(st.data())
def test_a_damaged_archive_never_crashes(data: st.DataObject) -> None:
    def fill(tar: tarfile.TarFile) -> None:
        put(tar, LONG, b"x" * 600)
        put(tar, "b", b"y" * 10)

    whole = bytearray(archive(fill))
    for _ in range(data.draw(st.integers(1, 5))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        read(bytes(whole))
    except DamagedContent:
        return


def test_attributes_of_the_overlay_file_system_are_refused() -> None:
    def fill(tar: tarfile.TarFile) -> None:
        member = tarfile.TarInfo("a")
        member.type, member.pax_headers = (
            tarfile.DIRTYPE,
            {"SCHILY.xattr.trusted.overlay.opaque": "y"},
        )
        tar.addfile(member)

    with pytest.raises(DamagedContent, match="attributes of the overlay file system"):
        read(archive(fill))


@pytest.mark.parametrize("records", [b"9 path=a", b"9 path=a\0\n", b"path=a\n", b"99 path=a\n"])
def test_a_damaged_pax_header_is_refused(records: bytes) -> None:
    member = tarfile.TarInfo("x")
    member.type, member.size = tarfile.XHDTYPE, len(records)
    block = member.tobuf(tarfile.USTAR_FORMAT) + records + bytes(-len(records) % BLOCK)
    with pytest.raises(DamagedContent, match="damaged pax header"):
        read(block + archive(lambda tar: put(tar, "a", b"x")))
