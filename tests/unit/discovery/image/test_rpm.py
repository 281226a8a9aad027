"""rpm databases in their two forms, written by rpm and Berkeley DB themselves."""

from __future__ import annotations

import contextlib
import lzma
import struct
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatgate.catalog import read_source
from compatgate.discovery.image import files
from compatgate.discovery.image.package_databases import LARGEST_RPM, rpm_packages
from compatgate.discovery.image.tar import ByteFeed, Content, Member
from compatgate.discovery.signals import observe_package, read_signals
from compatgate.errors import Unavailable

FOLDER = Path(__file__).parent / "databases"
FORMS = ("rpmdb.sqlite", "Packages", "Packages.big-endian", "Packages.on-page")
DATA = {name: lzma.decompress((FOLDER / f"{name}.xz").read_bytes()) for name in FORMS}
LISTED = {tuple(line.split()) for line in (FOLDER / "packages.txt").read_text().splitlines()}


def nothing() -> None:
    return


def packages(data: bytes) -> list[tuple[str, str]]:
    return list(rpm_packages(bytearray(data), nothing))


@pytest.mark.parametrize("name", FORMS)
def test_every_package_that_rpm_lists_is_read(name: str) -> None:
    found = packages(DATA[name])
    assert len(found) == len(set(found))
    assert set(found) == LISTED


@pytest.mark.parametrize("name", FORMS)
def test_the_components_in_it_are_found(name: str) -> None:
    member = Member("Packages", "file", len(DATA[name]), False)
    content = Content(ByteFeed([DATA[name][:1000], DATA[name][1000:]]), member)
    signals = read_signals(read_source("image_signals", overlays=[]))
    rows = files.read_package_database("rpm", content, signals, nothing)
    left: list[str] = []
    found = [observe_package(name, version, "Packages", signals, left) for name, version in rows]
    assert not left
    assert {o.component: o.version for o in found if o} == {
        "cuda": "12.4.127",
        "cudnn": "9.1.0.70+cu12",
        "nccl": "2.21.5+cu124",
        "cuda-compat": "12.4",
    }


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("part", [0.02, 0.5, 0.7])
def test_a_database_that_ends_early_is_not_read_in_part(name: str, part: float) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        packages(DATA[name][: int(len(DATA[name]) * part)])


def test_the_deadline_is_kept() -> None:
    def late() -> None:
        raise Unavailable("too late")

    with pytest.raises(Unavailable):
        list(rpm_packages(bytearray(DATA["Packages"]), late))


def test_a_chain_that_leads_in_a_circle_is_damage() -> None:
    data = bytearray(DATA["Packages"])
    overflow = [at for at in range(0, len(data), 4096) if data[at + 25] == 7]
    for at in overflow:
        struct.pack_into("<I", data, at + 16, at // 4096)  # the next page is the page itself
    with pytest.raises(ValueError, match="damaged"):
        packages(data)


def test_headers_that_share_their_pages_are_damage() -> None:
    data = bytearray(DATA["Packages"])
    first = b""
    for at in range(4096, len(data), 4096):
        if data[at + 25] == 13:
            for item in range(1, struct.unpack_from("<H", data, at + 20)[0], 2):
                place = at + struct.unpack_from("<H", data, at + 26 + 2 * item)[0]
                if data[place] == 3:
                    first = first or data[place + 4 : place + 12]
                    data[place + 4 : place + 12] = first
    with pytest.raises(ValueError, match="damaged"):
        packages(data)


@pytest.mark.parametrize(
    ("at", "value", "why"),
    [(16, 7, "version 7"), (20, 1000, "version 9"), (24, 1, "encrypted"), (26, 1, "checksums")],
)
def test_what_rpm_does_not_write_is_said(at: int, value: int, why: str) -> None:
    data = bytearray(DATA["Packages"])
    data[at : at + 2] = (
        struct.pack("<H", value) if at < 24 else bytes([value]) + data[at + 1 : at + 2]
    )
    with pytest.raises(ValueError, match=why):
        packages(data)


def test_a_database_of_suse_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"rpm's ndb format \(SUSE\)"):
        packages(b"RpmP" + bytes(5000))


@pytest.mark.parametrize("name", FORMS)
@given(data=st.data())
def test_a_damaged_database_gives_packages_or_says_so(name: str, data: st.DataObject) -> None:
    damaged = bytearray(DATA[name])
    for _ in range(data.draw(st.integers(1, 8))):
        near = data.draw(st.sampled_from([0, 24, 4096, len(damaged) - 64]))
        at = data.draw(st.integers(near, min(near + 300, len(damaged) - 1)))
        damaged[at] = data.draw(st.sampled_from([0, 1, 3, 7, 13, 0x7F, 0xFF]))
    start = time.monotonic()
    with contextlib.suppress(ValueError):
        assert len(packages(damaged)) <= 2 * len(LISTED)
    assert time.monotonic() - start < 5


def test_a_large_database_is_in_memory_once() -> None:
    size = LARGEST_RPM // 4
    piece = bytes(256 * 1024)
    member = Member("Packages", "file", size, False)
    content = Content(ByteFeed(piece for _ in range(size // len(piece))), member)
    tracemalloc.start()
    assert len(content.read_into_memory(LARGEST_RPM) or b"") == size
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.2 * size
