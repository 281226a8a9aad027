"""The spool's file: what is in it stays, what was torn is as if it had never been."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from compatgate.errors import Unavailable
from compatgate.service.gate.decisions.batch_store import Delivery
from compatgate.service.gate.decisions.batches import WriterChain
from compatgate.service.gate.decisions.spool import Spool, SpoolOptions
from compatgate.service.gate.questions.decider import NewDecision

SIZE = 64 * 1024
DATABASE = "postgresql://gate@db/gate"
AT = datetime(2026, 11, 3, 9, tzinfo=UTC)


class Batches:
    """Makes batches of one writer."""

    def __init__(self) -> None:
        self.chain = WriterChain()

    def make(self, who: str, body: str = "{}") -> Delivery:
        decision = NewDecision("vd_1", AT, None, "pass", True, 1, None, who, "test", 5)
        bodies = {"vd_1": body}
        made = self.chain.make([decision], bodies)
        self.chain.take(made)
        return Delivery(made, bodies, late=True)


@pytest.fixture
def batches() -> Batches:
    return Batches()


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    made = Spool(SpoolOptions(tmp_path, SIZE), DATABASE)
    yield made
    made.close()


def _path(folder: Path) -> Path:
    (found,) = folder.glob("*.spool")
    return found


def _left_by_the_dead(folder: Path, database: str = DATABASE) -> list[Delivery]:
    """What another process finds in the files that nobody uses."""
    found: list[Delivery] = []
    other = Spool(SpoolOptions(folder, SIZE), database)
    for file in other.others():
        found += file.scan()
        file.close()
    return found


def test_batches_come_out_in_order_as_they_went_in(spool: Spool, batches: Batches) -> None:
    put = [batches.make(name) for name in "abc"]
    for one in put:
        spool.append(one)
    assert (spool.batches, spool.oldest) == (3, AT)
    assert spool.peek(2) == put[:2]
    spool.delivered(2)
    assert spool.peek(9) == put[2:]
    assert spool.used
    spool.delivered(1)
    assert (spool.batches, spool.used, spool.oldest, spool.peek(9)) == (0, 0, None, [])


def test_a_file_that_its_process_uses_is_nobody_elses(
    spool: Spool, batches: Batches, tmp_path: Path
) -> None:
    spool.append(batches.make("a"))
    assert _left_by_the_dead(tmp_path) == []
    spool.close()
    assert [one.batch.lines[0][7] for one in _left_by_the_dead(tmp_path)] == ["a"]


def test_the_file_of_another_database_is_left_alone(
    spool: Spool, batches: Batches, tmp_path: Path
) -> None:
    spool.append(batches.make("a"))
    spool.close()
    assert _left_by_the_dead(tmp_path, "postgresql://gate@elsewhere/gate") == []
    assert len(_left_by_the_dead(tmp_path)) == 1


@pytest.mark.parametrize("lost", [1, 7, 9, 40])
def test_a_torn_last_record_is_cut_and_the_ones_before_stay(
    spool: Spool, batches: Batches, tmp_path: Path, lost: int
) -> None:
    put = [batches.make(name) for name in "abc"]
    for one in put:
        spool.append(one)
    end = spool.used + 32
    spool.close()
    with _path(tmp_path).open("r+b") as file:
        file.seek(end - lost)
        file.write(b"\0" * lost)
    assert _left_by_the_dead(tmp_path) == put[:2]


def test_a_damaged_record_does_not_hide_the_ones_after_it(
    spool: Spool, batches: Batches, tmp_path: Path
) -> None:
    put = []
    ends = []
    for name in "abc":
        put.append(batches.make(name))
        spool.append(put[-1])
        ends.append(spool.used + 32)
    spool.close()
    with _path(tmp_path).open("r+b") as file:
        file.seek(ends[0] + 20)
        file.write(b"XXXX")
    assert _left_by_the_dead(tmp_path) == [put[0], put[2]]


def test_old_records_mean_nothing_once_the_file_was_emptied(
    spool: Spool, batches: Batches, tmp_path: Path
) -> None:
    for name in "abc":
        spool.append(batches.make(name))
    spool.delivered(3)
    last = batches.make("d")
    spool.append(last)
    spool.close()
    assert _left_by_the_dead(tmp_path) == [last]


def test_a_full_spool_refuses_and_keeps_what_it_has(spool: Spool, batches: Batches) -> None:
    def fill() -> None:
        for _ in range(100):
            spool.append(batches.make("a", os.urandom(4000).hex()))

    with pytest.raises(Unavailable, match="the spool is full") as caught:
        fill()
    assert "--spool-size" in str(caught.value.hint)
    kept = spool.batches
    assert 5 < kept < 100
    assert len(spool.peek(100)) == kept


def test_a_disk_without_room_is_said(
    batches: Batches, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    spool = Spool(SpoolOptions(tmp_path, SIZE), DATABASE)
    with pytest.raises(Unavailable, match="No space left on device"):
        spool.append(batches.make("a"))
    assert not list(tmp_path.iterdir()), "nothing is left of a file that could not be made"


def test_a_deleted_file_is_made_anew_unless_decisions_are_in_it(
    spool: Spool, batches: Batches, tmp_path: Path
) -> None:
    spool.check()
    _path(tmp_path).unlink()
    put = batches.make("a")
    spool.append(put)
    assert _path(tmp_path).exists()
    _path(tmp_path).unlink()
    with pytest.raises(Unavailable, match="was deleted"):
        spool.append(batches.make("b"))
    assert spool.peek(9) == [put], "what was answered can still be delivered"


def test_what_is_no_spool_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.spool").write_text("not a spool")
    assert _left_by_the_dead(tmp_path) == []
    assert (tmp_path / "notes.spool").exists()


def test_only_its_owner_can_read_it(tmp_path: Path) -> None:
    spool = Spool(SpoolOptions(tmp_path / "made" / "here", SIZE), DATABASE)
    spool.check()
    assert _path(tmp_path / "made" / "here").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "made" / "here").stat().st_mode & 0o777 == 0o700
    spool.close()


@pytest.mark.parametrize("call", ["pwrite", "fdatasync"])
def test_what_comes_after_a_failure_to_empty_the_file_is_readable(
    spool: Spool, batches: Batches, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """The file's header may have either number: records with the other one would be lost."""

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "input/output error")

    spool.append(batches.make("a"))
    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        spool.delivered(1)
    after = batches.make("b")
    spool.append(after)
    spool.close()
    assert _left_by_the_dead(tmp_path) == [after]
