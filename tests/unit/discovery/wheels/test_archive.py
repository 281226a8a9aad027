"""The zip file that a wheel is: agreement with itself, and bounds against hostile ones."""

from __future__ import annotations

import io
import random
import struct
import zipfile
import zlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wheels import make_shared_object, make_wheel

from compatgate.discovery.wheels.archive import Archive, WheelLimits, parse_wheel_name
from compatgate.discovery.wheels.byte_files import LARGEST_READ
from compatgate.errors import BadInput, CompatgateError, DamagedContent

NAME = "pkg-1.0-py3-none-any.whl"
TABLE, LOCAL = b"PK\1\2", b"PK\3\4"


class Bytes(io.BytesIO):
    """A wheel in memory, which counts what is asked for."""

    largest = 0

    @property
    def size(self) -> int:
        return len(self.getbuffer())

    def plan(self, end: int) -> None:
        pass

    def read(self, size: int | None = -1, /) -> bytes:
        self.largest = max(self.largest, size or 0)
        return super().read(size)


def opened(data: bytes, **limits: int) -> Archive:
    return Archive(Bytes(data), NAME, WheelLimits(**limits))


def read_all(archive: Archive) -> None:
    archive.check_sizes(archive.members)
    for member in archive.members:
        archive.read_member(member, lambda file: None)


def patched(data: bytes, path: str, field: int, form: str, value: int) -> bytes:
    """The wheel with a number changed in the table's entry of a member."""
    place = data.index(TABLE)
    while data[place + 46 :][: len(path)] != path.encode():
        place = data.index(TABLE, place + 4)
    at = place + field
    return data[:at] + struct.pack(form, value) + data[at + struct.calcsize(form) :]


def test_it_tells_what_the_wheel_says_of_itself():
    data = make_wheel({}, name="My_Pkg", version="1.0+cu128", requires=["torch==2.9.0", "numpy"])
    identity = opened(data).identity
    assert (identity.package, identity.version) == ("my-pkg", "1.0+cu128")
    assert identity.requires == ("torch==2.9.0", "numpy")
    assert identity.requires_python == ">=3.9"


def test_a_requirement_that_is_stated_twice_is_one():
    data = make_wheel({}, requires=["protobuf", "numpy", "protobuf"])
    assert opened(data).identity.requires == ("protobuf", "numpy")


def test_a_member_that_record_denies_is_refused():
    good = make_wheel({"pkg/a.so": b"a" * 2000}, stored=True)
    place = good.index(b"a" * 2000)
    bad = good.replace(b"a" * 2000, b"b" * 2000)
    crc = struct.pack("<I", zlib.crc32(b"b" * 2000))
    bad = bad.replace(struct.pack("<I", zlib.crc32(b"a" * 2000)), crc)
    assert bad[place : place + 4] == b"bbbb"
    read_all(opened(good))
    with pytest.raises(DamagedContent, match="RECORD"):
        read_all(opened(bad))


def test_a_member_of_another_content_than_its_crc_is_refused():
    data = make_wheel({"pkg/a.so": b"a" * 2000}, stored=True, record=False)
    with pytest.raises(BadInput, match="damaged"):
        read_all(opened(data.replace(b"a" * 2000, b"b" * 2000)))


def test_a_zip_bomb_is_refused_before_it_is_read():
    bomb = make_wheel({"pkg/a.so": bytes(70 * 1024 * 1024)})
    assert len(bomb) < 100_000
    with pytest.raises(BadInput, match=r"compressed to .* a compression bomb"):
        read_all(opened(bomb))


def test_a_bomb_that_states_a_small_size_ends_at_that_size():
    bomb = make_wheel({"pkg/a.so": bytes(70 * 1024 * 1024)}, record=False)
    lying = patched(bomb, "pkg/a.so", 24, "<I", 4096)
    passed = 0

    def count(file) -> None:
        nonlocal passed
        while data := file.read(1 << 16):
            passed += len(data)

    archive = opened(lying)
    with pytest.raises(BadInput):
        archive.read_member(archive.members[0], count)
    assert passed <= 4096


def test_a_member_that_ends_before_its_size_is_refused():
    data = make_wheel({"pkg/a.so": random.Random(1).randbytes(5000)}, record=False)
    with pytest.raises(BadInput):
        read_all(opened(patched(data, "pkg/a.so", 24, "<I", 9000)))


def test_members_that_overlap_are_refused():
    data = make_wheel({"pkg/a.so": b"a" * 5000, "pkg/b.so": b"b" * 5000}, stored=True)
    first = data.index(LOCAL)
    second = patched(data, "pkg/b.so", 42, "<I", first + 10)
    with pytest.raises(BadInput, match="overlap"):
        opened(second)


def test_a_member_that_would_end_behind_the_wheel_is_refused():
    data = make_wheel({"pkg/a.so": b"a" * 5000}, stored=True)
    with pytest.raises(BadInput, match=r"end|overlap"):
        opened(patched(data, "pkg/a.so", 20, "<I", 50_000_000))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_members_of_one_name_are_refused():
    buffer = io.BytesIO(make_wheel({}))
    with zipfile.ZipFile(buffer, "a") as wheel:
        wheel.writestr("pkg/a.so", b"one")
        wheel.writestr("pkg/a.so", b"two")
    with pytest.raises(BadInput, match="two files of one name"):
        opened(buffer.getvalue())


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"members": 3}, "4 files"),
        ({"member": 4000}, "5000 bytes .max 4000"),
        ({"total": 8000}, "bytes of libraries"),
    ],
)
def test_what_is_taken_from_a_wheel_is_bounded(limits, message):
    data = make_wheel({"pkg/a.so": b"a" * 5000, "pkg/b.so": b"b" * 5000})
    with pytest.raises(BadInput, match=message):
        read_all(opened(data, **limits))


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_methods_that_no_wheel_uses_are_refused(method):
    buffer = io.BytesIO(make_wheel({}))
    with zipfile.ZipFile(buffer, "a", method) as wheel:
        wheel.writestr("pkg/a.so", b"a" * 5000)
    with pytest.raises(BadInput, match="compressed by method"):
        read_all(opened(buffer.getvalue()))


def test_what_has_no_metadata_is_no_wheel():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a.so", b"a")
    with pytest.raises(BadInput, match="not a wheel"):
        opened(buffer.getvalue())


@pytest.mark.parametrize("data", [b"", b"PK\5\6" + bytes(18), b"x" * 5000])
def test_what_is_no_zip_file_is_refused(data):
    with pytest.raises(BadInput):
        opened(data)


def test_a_name_that_is_no_wheels_is_refused():
    assert parse_wheel_name("My_Pkg-1.0+cu128-py3-none-any.whl") == ("my-pkg", "1.0+cu128")
    with pytest.raises(BadInput, match="not the file name of a wheel"):
        parse_wheel_name("pkg.whl")


SAMPLES = [
    make_wheel({"pkg/a.so": make_shared_object(needs=["libcudart.so.12"]), "pkg/b.py": b"x = 1"}),
    make_wheel({"pkg/a.so": b"\x7fELF" + bytes(3000)}, stored=True),
]


@given(
    seed=st.integers(0, 2**32),
    field=st.sampled_from([8, 10, 16, 20, 24, 28, 30, 32, 42, 46]),
    value=st.sampled_from([0, 1, 8, 0x7F, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFE, 0xFFFFFFFF]),
)
def test_whatever_the_table_says_there_is_a_result_or_an_error_of_ours(seed, field, value):
    chance = random.Random(seed)
    data = bytearray(chance.choice(SAMPLES))
    places = [i for i in range(len(data) - 50) if data[i : i + 4] in (TABLE, LOCAL, b"PK\5\6")]
    at = chance.choice(places) + field
    data[at : at + 4] = struct.pack("<I", value)
    file = Bytes(bytes(data))
    with suppress(CompatgateError):
        archive = Archive(file, NAME)
        read_all(archive)
    assert file.largest <= LARGEST_READ
