"""Past months in files: verified alone, sealed by the chain, and removed without breaking it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import text
from zstandard import ZstdCompressor, ZstdDecompressor

from compatgate.errors import BadInput, Conflict, DamagedContent, Unavailable
from compatgate.kit.database.database import Database
from compatgate.service.audit import retention
from compatgate.service.audit.archive import verify_archive
from compatgate.service.audit.retention import Archived, Retention
from compatgate.service.audit.service import History
from compatgate.service.gate.batch_store import DecisionWriter, Delivery
from compatgate.service.gate.batches import WriterChain
from compatgate.service.gate.decider import NewDecision
from compatgate.service.gate.repository import read_decision_lines

BEGAN = datetime(2026, 8, 30, 12, tzinfo=UTC)
OCTOBER = date(2026, 10, 1)
Command = Callable[..., tuple[int, str, str]]


class Writer:
    """A process that logged decisions, one batch a day."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._chain = WriterChain()

    def log(self, *days: int, verdict: int = 1, count: int = 2) -> None:
        """Log batches that were decided so many days after the first one."""
        with closing(DecisionWriter(self._database)) as writer:
            for day in days:
                made = self._make(day, verdict, count)
                writer.write([made])
                self._chain.take(made.batch)

    def _make(self, day: int, verdict: int, count: int) -> Delivery:
        at = BEGAN + timedelta(days=day)
        bodies = {f"vd_{verdict}": json.dumps({"id": f"vd_{verdict}", "decided_at": str(at)})}
        decisions = [
            NewDecision(
                f"vd_{verdict}", at, "prod", "pass", True, 1, f"i:{day}.{number}", "ci", "rest", 5
            )
            for number in range(count)
        ]
        return Delivery(self._chain.make(decisions, bodies), bodies)


@pytest.fixture
def logged(database: Database) -> Database:
    """Two writers, from August to November; one ends in August."""
    one, other = Writer(database), Writer(database)
    one.log(0)
    other.log(0, verdict=2)
    one.log(3, 20, 35, 70)
    one.log(40, verdict=3)
    return database


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def archive(database: Database, folder: Path, *, drop: bool = True) -> list[Archived]:
    return list(Retention(database, "test").archive(OCTOBER, folder, drop=drop))


def images(database: Database) -> list[str]:
    with database.reading() as session:
        return [line[7] for line in read_decision_lines(session)]


def verdicts(database: Database) -> list[str]:
    with database.reading() as session:
        return list(session.execute(text("SELECT id FROM verdicts ORDER BY id")).scalars())


def change(path: Path, edit: Callable[[list[str]], list[str]]) -> None:
    """Edit the lines of an archive."""
    lines = ZstdDecompressor().stream_reader(path.read_bytes()).read().decode().splitlines()
    path.write_bytes(ZstdCompressor().compress("\n".join(edit(lines)).encode() + b"\n"))


def test_each_month_is_a_file_that_verifies_alone(logged: Database, folder: Path) -> None:
    done = archive(logged, folder, drop=False)
    assert [Path(one.path).name for one in done] == [
        "decisions-2026-08.jsonl.zst",
        "decisions-2026-09.jsonl.zst",
    ]
    for one in done:
        again = verify_archive(Path(one.path))
        assert again.ok, again.problems
        assert again.sha256 == one.report.sha256
        assert oct(Path(one.path).stat().st_mode & 0o777) == "0o600"
    assert [one.report.tail.decisions for one in done] == [4, 4]
    assert len(images(logged)) == 14
    assert History(logged).verify().ok


def test_what_is_archived_is_removed_and_the_chain_stays_whole(
    logged: Database, folder: Path
) -> None:
    before = History(logged).verify()
    removed = [one.removed for one in archive(logged, folder)]
    assert removed == [4, 4]
    assert [image.partition(".")[0] for image in images(logged)] == ["i:35"] * 2 + ["i:70"] * 2 + [
        "i:40"
    ] * 2
    assert verdicts(logged) == ["vd_1", "vd_3"]
    for full in (True, False):
        report = History(logged).verify(full=full, expected_head=before.head)
        assert report.ok, report.problems
        assert report.decisions == before.decisions


def test_a_writer_goes_on_while_and_after_its_decisions_are_removed(
    logged: Database, folder: Path
) -> None:
    writer = Writer(logged)
    writer.log(1, 2)
    over = threading.Event()

    def log() -> None:
        day = 100
        while not over.is_set():
            writer.log(day)
            day += 1

    thread = threading.Thread(target=log)
    thread.start()
    archive(logged, folder)
    over.set()
    thread.join()
    writer.log(50)
    report = History(logged).verify()
    assert report.ok, report.problems


def test_a_second_call_archives_what_is_new(logged: Database, folder: Path) -> None:
    archive(logged, folder)
    assert archive(logged, folder) == []
    later = list(Retention(logged, "test").archive(date(2026, 11, 1), folder, drop=True))
    assert [Path(one.path).name for one in later] == ["decisions-2026-10.jsonl.zst"]
    assert verify_archive(Path(later[0].path)).ok
    assert History(logged).verify().ok


def test_decisions_that_a_spool_delivered_late_are_in_a_later_file(
    logged: Database, folder: Path
) -> None:
    archive(logged, folder)
    Writer(logged).log(1)
    done = list(Retention(logged, "test").archive(date(2026, 12, 1), folder, drop=True))
    assert sum(one.removed for one in done) == 8
    assert images(logged) == []
    assert History(logged).verify().ok


def test_what_was_interrupted_goes_on(
    logged: Database, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "_DECISIONS_PER_STEP", 3)
    calls = iter([None])

    def stop(_: float) -> None:
        if next(calls, "over") == "over":
            raise KeyboardInterrupt

    monkeypatch.setattr(retention.time, "sleep", stop)
    with pytest.raises(KeyboardInterrupt):
        archive(logged, folder)
    assert History(logged).verify().ok
    monkeypatch.undo()
    archive(logged, folder)
    assert len(images(logged)) == 6
    assert History(logged).verify().ok


def test_changed_decisions_are_neither_archived_nor_removed(logged: Database, folder: Path) -> None:
    with logged.writing() as session:
        session.execute(text("UPDATE decisions SET allowed = NOT allowed WHERE image = 'i:3.0'"))
    with pytest.raises(Conflict, match="was changed"):
        archive(logged, folder)
    assert "i:3.0" in images(logged)


def test_a_folder_that_cannot_be_written_removes_nothing(logged: Database, folder: Path) -> None:
    with pytest.raises(Unavailable, match="cannot write"):
        archive(logged, folder / "missing")
    assert len(images(logged)) == 14


EDITS: dict[str, tuple[Callable[[list[str]], list[str]], str]] = {
    "a decision": (lambda lines: [s.replace('"prod"', '"test"', 1) for s in lines], "was changed"),
    "a batch": (lambda lines: [*lines[:2], *lines[3:]], "does not follow"),
    "a verdict": (lambda lines: [s.replace("decided_at", "decided_On") for s in lines], "vd_"),
    "a verdict is missing": (
        lambda lines: [s for s in lines if not s.startswith('{"verdict"')],
        "is missing",
    ),
    "the numbers": (
        lambda lines: [*lines[:-1], lines[-1].replace(":", ":1")],
        "states other numbers",
    ),
    "a line": (lambda lines: [*lines[:-1], "{}", lines[-1]], "line"),
}


@pytest.mark.parametrize("name", EDITS)
def test_a_change_of_the_file_shows(logged: Database, folder: Path, name: str) -> None:
    path = Path(archive(logged, folder)[name != "a verdict"].path)
    edit, told = EDITS[name]
    change(path, edit)
    report = verify_archive(path)
    assert not report.ok
    assert any(pattern in "\n".join(report.problems) for pattern in told.split("|"))


def test_a_file_that_is_cut_or_no_archive_is_one_error(logged: Database, folder: Path) -> None:
    path = Path(archive(logged, folder)[0].path)
    content = path.read_bytes()
    for cut in (content[: len(content) // 2], content[:-30] + b"x" * 30):
        path.write_bytes(cut)
        with pytest.raises((BadInput, DamagedContent)):
            verify_archive(path)
    path.write_text("decisions")
    with pytest.raises(DamagedContent, match="is damaged"):
        verify_archive(path)
    with pytest.raises(BadInput, match="cannot read"):
        verify_archive(folder / "none")


def test_the_command_archives_and_verifies(
    logged: Database, folder: Path, command: Command
) -> None:
    url = logged.url.render_as_string(hide_password=False)
    arguments = ("audit", "archive", "--before", "2026-10", "--to", str(folder), "--drop")
    status, out, _ = command(*arguments, "--database", url, "--format", "json")
    assert status == 0
    done = json.loads(out)
    assert [(one["month"], one["removed"]) for one in done] == [("2026-08", 4), ("2026-09", 4)]
    status, out, _ = command("audit", "verify", "--archive", done[0]["path"])
    assert (status, out.startswith("intact: 2026-08, 2 batches, 4 decisions")) == (0, True)
    status, out, _ = command("audit", "verify", "--archive", done[0]["path"], "--database", url)
    assert (status, f"sealed by link {done[0]['link']}" in out) == (0, True)
    change(Path(done[0]["path"]), lambda lines: [s.replace('"prod"', '"test"') for s in lines])
    status, out, _ = command("audit", "verify", "--archive", done[0]["path"])
    assert (status, out.startswith("NOT INTACT")) == (1, True)
    status, out, _ = command("audit", "verify", "--archive", done[0]["path"], "--database", url)
    assert (status, "no link of the audit chain seals this file" in out) == (1, True)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--before", "soon", "--to", "."), "--before"),
        (("--older-than", "much", "--to", "."), "--older-than"),
        (("--before", "2026-10", "--to", "/nowhere"), "--to"),
    ],
)
def test_a_bad_option_is_named(
    command: Command, tmp_path: Path, options: tuple[str, ...], told: str
) -> None:
    database = str(tmp_path / "gate.db")
    status, _, errors = command("audit", "archive", *options, "--database", database)
    assert status == 2
    assert told in errors
