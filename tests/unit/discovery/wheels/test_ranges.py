"""A file on a server is read in ranges; a broken connection is made anew, a lie is refused."""

from __future__ import annotations

import contextlib
import hashlib
import random
import time
from urllib.parse import urlsplit

import pytest
from wheel_server import wheel_server

from compatgate.discovery.registry.limits import Deadline, ImageOptions
from compatgate.discovery.registry.transport import Transport
from compatgate.discovery.wheels import byte_files
from compatgate.discovery.wheels.byte_files import HashedFile, LocalFile, RangeFile, RetryPolicy
from compatgate.discovery.wheels.index import PackageIndex
from compatgate.errors import BadInput, DamagedContent, NotFound, RegistryTimeout, Unavailable

CONTENT = random.Random(7).randbytes(3_000_000)
QUICK = RetryPolicy(attempts=3, seconds=0.01)


@pytest.fixture
def server():
    with wheel_server() as served:
        served.add("x.whl", CONTENT)
        yield served


@pytest.fixture
def transport():
    with Deadline(30) as deadline, Transport(ImageOptions(), deadline) as opened:
        yield opened


@pytest.fixture
def remote(server, transport):
    def make(name="x.whl", **options) -> RangeFile:
        return RangeFile(transport, server.address(name), name, patience=QUICK, **options)

    return make


def test_jumps_and_runs_give_the_bytes_of_the_file(server, remote):
    file = remote()
    assert file.size == len(CONTENT)
    chance = random.Random(3)
    for _ in range(60):
        start = chance.randrange(len(CONTENT) + 10)
        count = chance.choice((0, 1, 50, 5_000, 300_000))
        file.seek(start)
        assert file.read(count) == CONTENT[start : start + count]
        assert file.tell() == min(start + count, max(start, len(CONTENT)))
    file.seek(-100, 2)
    assert file.read() == CONTENT[-100:]


def test_a_small_part_costs_a_small_part(server, remote):
    file = remote()
    file.seek(1_000_000)
    file.read(100)
    assert server.sent < 700_000


def test_what_is_read_in_order_is_asked_for_once(server, remote):
    file = remote()
    file.plan(len(CONTENT))
    while file.read(10_000):
        pass
    assert len(server.asked) == 2  # the size, and all of it


def test_a_connection_that_is_cut_goes_on_where_it_was(server, remote):
    server.cut_after = 400_000
    file = remote()
    file.plan(len(CONTENT))
    assert b"".join(iter(lambda: file.read(200_000), b"")) == CONTENT
    assert server.sent < len(CONTENT) + 400_000


def test_a_connection_that_is_cut_without_a_byte_ends_in_one_line(server, remote):
    file = remote()
    server.cut_after = 0
    with pytest.raises(Unavailable) as caught:
        file.read(1000)
    assert caught.value.detail.startswith("x.whl: ")
    assert "byte 0 of 3000000" in caught.value.detail
    assert "\n" not in caught.value.detail
    assert len(server.asked) == 1 + QUICK.attempts


@pytest.mark.parametrize(
    ("lie", "message"),
    [
        ("start", "asked for bytes"),
        ("total", "asked for bytes"),
        ("status", "answers a range with status 200"),
        ("etag", "changed on the server while it was read"),
        ("encoded", "compressed the file although"),
    ],
)
def test_a_server_that_lies_is_not_believed(server, remote, lie, message):
    file = remote()
    server.lie = lie
    with pytest.raises(DamagedContent, match=message):
        file.read(1000)


def test_an_endless_body_is_left_at_the_end_of_the_range(server, remote):
    file = remote()
    server.lie = "endless"
    file.plan(500_000)
    found = b""
    with contextlib.suppress(
        DamagedContent
    ):  # the surplus may come with the last bytes of the range
        while len(found) < 500_000:
            found += file.read(500_000 - len(found))
    assert CONTENT[:500_000].startswith(found)
    assert server.sent < 5_000_000


def test_a_body_that_drips_ends_at_the_deadline(server):
    server.lie = "drip"
    start = time.monotonic()
    with Deadline(1.5) as deadline, Transport(ImageOptions(), deadline) as transport:
        file = RangeFile(transport, server.address("x.whl"), "x.whl", patience=QUICK)
        file.plan(len(CONTENT))
        with pytest.raises(RegistryTimeout):
            file.read(len(CONTENT))
    assert time.monotonic() - start < 6


def test_a_size_that_the_index_denies_is_refused(remote):
    with pytest.raises(DamagedContent, match="3000000 bytes, the index states 17"):
        remote(size=17)


def test_a_small_file_of_a_server_without_ranges_is_read_from_memory(server, remote):
    server.ranges = False
    file = remote()
    file.seek(5_000)
    assert file.read(20) == CONTENT[5_000:5_020]


def test_a_large_file_of_a_server_without_ranges_is_refused(server, remote, monkeypatch):
    monkeypatch.setattr(byte_files, "WHOLE", 1_000_000)
    server.ranges = False
    with pytest.raises(BadInput, match="does not answer range requests"):
        remote()


def test_a_file_that_is_not_there_is_not_found(remote):
    with pytest.raises(NotFound):
        remote("other.whl")


def test_a_read_is_bounded(remote, monkeypatch):
    monkeypatch.setattr(byte_files, "LARGEST_READ", 1_000)
    file = remote()
    with pytest.raises(ValueError, match="bytes is too large"):
        file.read(2_000)


def test_all_bytes_are_hashed_once_whatever_is_read(server, remote):
    file = HashedFile(remote())
    file.seek(-50, 2)
    file.read(50)
    file.begin()
    for start, count in ((10, 100), (1_000_000, 70_000), (1_070_000, 5), (500, 20), (1_200_000, 1)):
        file.seek(start)
        assert file.read(count) == CONTENT[start : start + count]
    assert file.finish() == hashlib.sha256(CONTENT).hexdigest()


def test_a_file_here_is_read_and_hashed_as_well(tmp_path):
    path = tmp_path / "x.whl"
    path.write_bytes(CONTENT)
    file = HashedFile(LocalFile(str(path)))
    file.begin()
    file.seek(2_000_000)
    assert file.read(9) == CONTENT[2_000_000:2_000_009]
    assert file.finish() == hashlib.sha256(CONTENT).hexdigest()
    with pytest.raises(NotFound):
        LocalFile(str(tmp_path / "y.whl"))
    with pytest.raises(BadInput):
        LocalFile(str(tmp_path))


@pytest.mark.parametrize("listed", [True, False])
def test_a_place_leads_to_the_hosts_on_its_list_alone(server, listed):
    with wheel_server() as store:
        store.add("x.whl", CONTENT)
        server.moved_to = store.url
        options = ImageOptions(leads=frozenset({urlsplit(store.url).netloc} if listed else ()))
        refused = pytest.raises(Unavailable, match="not among the hosts of its place")
        expected = contextlib.nullcontext() if listed else refused
        with Deadline(30) as deadline, Transport(options, deadline) as opened, expected:
            file = RangeFile(opened, server.address("x.whl"), "x.whl", patience=QUICK)
            file.seek(1_000_000)
            assert file.read(10) == CONTENT[1_000_000:1_000_010]
        assert bool(store.asked) is listed


@pytest.mark.parametrize("named", [True, False])
def test_an_index_lists_no_files_on_hosts_that_its_place_does_not_name(server, transport, named):
    server.add("my_pkg-1.0-py3-none-any.whl", b"x")
    server.files_at = "https://elsewhere.example/files"
    hosts = frozenset({"elsewhere.example"} if named else ())
    index = PackageIndex([server.index], transport, hosts=hosts)
    assert len(index.files(server.index, "my-pkg")) == named
