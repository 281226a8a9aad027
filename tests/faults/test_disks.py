"""Doors in the files of SQLite: a log that is deleted, and disks that are full.

As in `test_faults`, each answered question is in the log exactly once afterwards, and the audit
chain is intact.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from fault_load import STACKS, Load, load_on, missing_decisions, outage, settle
from serving import Server
from staging import until

from compatgate.service.app import open_rooms
from compatgate.service.gate.decisions.service import read_decision_lines

StartServer = Callable[..., Server]
_MIB = 2**20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few megabytes; skips where none may be mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", str(folder)]
    if os.getuid() != 0 or subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("no file system can be mounted here")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _fill(filler: Path, left: int = 0) -> None:
    """Take all the room except some bytes; without any left, down to the last page."""
    found = os.statvfs(filler.parent)
    with suppress(OSError), filler.open("wb", buffering=0) as stream:
        if left:
            os.posix_fallocate(stream.fileno(), 0, found.f_bavail * found.f_frsize - left)
        while not left:
            stream.write(b"\0" * 4096)


def _delete(log: Path) -> None:
    log.unlink()


def _move(log: Path) -> None:
    log.rename(log.with_name("elsewhere"))


def _replace(log: Path) -> None:
    _move(log)
    log.touch()


def _truncate(database: Path, _: Path) -> None:
    os.truncate(f"{database}-wal", 0)


def _shorten(database: Path, _: Path) -> None:
    os.truncate(f"{database}-wal", 32 + 4 * (24 + 4096))  # header and four pages: more is in use


def _put_back(database: Path, older: Path) -> None:
    """Overwrite file and log with older copies; whoever has them open sees the copies."""
    _copy(older, database)


def _copy(database: Path, to: Path) -> None:
    for end in ("", "-wal"):
        Path(f"{to}{end}").write_bytes(Path(f"{database}{end}").read_bytes())


def _is_degraded(server: Server) -> bool:
    """Ask often enough to meet each process."""
    return all("degraded" in server.ask("GET", "/readyz").json() for _ in range(10))


@pytest.mark.parametrize("lose", [_truncate, _shorten, _put_back])
def test_the_end_of_the_log_is_cut_off(
    tmp_path: Path, start_server: StartServer, lose: Callable[[Path, Path], None]
) -> None:
    """What it held is gone, which a verification says; later answers wait in the spool."""
    path, older = tmp_path / "gate.db", tmp_path / "older.db"
    server = start_server(str(path))
    _copy(path, older)
    with load_on([server]) as load:
        lose(path, older)
        load.wait_for_answers(degraded=True)
        until(lambda: _is_degraded(server), 20)  # each process has looked
        noticed = len(load.seen.answers)
        load.wait_for_answers()
        server.kill()
    problems = _verify(path)
    assert any("changed or missing (link" in one for one in problems), problems
    again = start_server(str(path))
    later = {one.name for one in load.seen.answers[noticed:]}
    deadline = time.monotonic() + 40
    while later - _logged(path):
        assert time.monotonic() < deadline
        time.sleep(0.5)
    assert again.ask("GET", "/readyz").status == 200
    assert "degraded" not in again.ask("GET", "/readyz").json()
    again.stop()
    assert set(problems) <= set(_verify(path)), "nothing that is stored later hides the loss"


@pytest.mark.parametrize("lose", [_truncate, _put_back])
def test_the_log_is_cut_off_and_every_process_is_killed_at_once(
    tmp_path: Path, start_server: StartServer, lose: Callable[[Path, Path], None]
) -> None:
    path, older = tmp_path / "gate.db", tmp_path / "older.db"
    server = start_server(str(path))
    _copy(path, older)
    with load_on([server], threads=1):
        pass
    assert _verify(path) == []
    server.ask("POST", "/api/v1/gate", {"target": "prod-a100", "stack": STACKS["denied"]})
    lose(path, older)
    server.kill()
    time.sleep(0.3)  # the kernel ends them all
    assert [one for one in _verify(path) if "changed or missing (link" in one]


def _verify(path: Path) -> list[str]:
    rooms = open_rooms(str(path), overlays=[])
    try:
        return list(rooms.chain.verify().problems)
    finally:
        rooms.close()


def _logged(path: Path) -> set[str]:
    rooms = open_rooms(str(path), overlays=[])
    try:
        with rooms.gate.database.reading() as session:
            return {str(line[7]) for line in read_decision_lines(session)}
    finally:
        rooms.close()


@pytest.mark.parametrize(
    ("name", "lose"),
    [
        ("gate.db-wal", _delete),
        ("gate.db-wal", _move),
        ("gate.db-wal", _replace),
        ("gate.db-shm", _delete),
    ],
)
def test_the_log_is_lost_and_every_process_is_killed(
    tmp_path: Path, start_server: StartServer, name: str, lose: Callable[[Path], None]
) -> None:
    path = tmp_path / "gate.db"
    server = start_server(str(path))
    with load_on([server]) as load:
        lose(tmp_path / name)
        load.wait_for_answers(degraded=True)
        assert server.ask("GET", "/readyz").json()["degraded"]["reason"].startswith("the file")
        time.sleep(1.5)  # each process has looked
        server.kill()
    again = start_server(str(path))
    settle(str(path), load.seen)
    again.stop()


def test_the_disk_is_full(disk: Path, start_server: StartServer) -> None:
    path = disk / "gate.db"
    server = start_server(str(path), "--spool-size", "8m")
    filler = disk / "filler"
    with load_on([server]) as load:
        outage(load, lambda: _fill(filler), filler.unlink)
    settle(str(path), load.seen)  # a stop leaves what waits in the spool
    server.stop()


def test_the_disk_has_little_room_left(disk: Path, start_server: StartServer) -> None:
    """The log never takes the room that the file needs for the pages of the log."""
    path = disk / "gate.db"
    server = start_server(str(path), "--spool-size", "8m")
    _fill(disk / "filler", left=4 * _MIB)
    with load_on([server], threads=6) as load:
        largest = _watch_log(load, Path(f"{path}-wal"), 900)
        load.wait_for_answers(degraded=False)
    assert largest < 3 * _MIB
    settle(str(path), load.seen)
    server.stop()


def _watch_log(load: Load, log: Path, count: int) -> int:
    """Wait for answers, and return the largest size of the log meanwhile."""
    largest, enough = 0, len(load.seen.answers) + count
    while len(load.seen.answers) < enough:
        load.wait_for_answers(5)
        with suppress(FileNotFoundError):
            largest = max(largest, log.stat().st_size)
    return largest


@pytest.mark.parametrize("size", ["64k", "64m"], ids=["full", "without room for it"])
def test_the_disks_of_database_and_spool_are_full_at_once(
    disk: Path, start_server: StartServer, size: str
) -> None:
    """Nothing is answered that is not stored, and the chain of a new writer is not broken."""
    path, filler = disk / "gate.db", disk / "filler"
    server = start_server(str(path), "--state", str(disk / "state"), "--spool-size", size)
    with load_on([server], threads=6) as load:
        _fill(filler)
        while load.seen.refusals["503"] < 20:
            time.sleep(0.05)
        time.sleep(1.0)  # deliveries are tried meanwhile
        filler.unlink()
        load.wait_for_answers(degraded=False)
    server.stop()  # anchors the chain of each process
    assert missing_decisions(str(path), load.seen) == set()
