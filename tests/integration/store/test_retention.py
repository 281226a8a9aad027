"""Past months are deleted once the log is verified, and the chain stays whole."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from compatgate.errors import Conflict
from compatgate.kit.database.database import Database
from compatgate.service.audit import chain as audit
from compatgate.service.audit.chain import AuditLog
from compatgate.service.gate.decisions.batch_store import DecisionWriter, Delivery
from compatgate.service.gate.decisions.batches import NUMBERS, WriterChain
from compatgate.service.gate.decisions.service import read_decision_lines
from compatgate.service.gate.questions.decider import NewDecision
from compatgate.service.recovery import retention
from compatgate.service.recovery.retention import DeletedMonth, Retention
from compatgate.service.recovery.verification import AuditChain

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


def delete(database: Database, before: date = OCTOBER) -> list[DeletedMonth]:
    return list(Retention(database, AuditChain(database).verify, "test").delete(before))


def images(database: Database) -> list[str]:
    with database.reading() as session:
        return [line[7] for line in read_decision_lines(session)]


def verdicts(database: Database) -> list[str]:
    with database.reading() as session:
        return list(session.execute(text("SELECT id FROM verdicts ORDER BY id")).scalars())


def test_past_months_are_deleted_and_the_chain_stays_whole(logged: Database) -> None:
    before = AuditChain(logged).verify()
    done = delete(logged)
    assert [(one.month, one.decisions) for one in done] == [("2026-08", 4), ("2026-09", 4)]
    assert [image.partition(".")[0] for image in images(logged)] == ["i:35"] * 2 + ["i:70"] * 2 + [
        "i:40"
    ] * 2
    assert verdicts(logged) == ["vd_1", "vd_3"]
    for full in (True, False):
        report = AuditChain(logged).verify(full=full, expected_head=before.head)
        assert report.ok, report.problems
        assert report.decisions == before.decisions
    links = AuditLog(logged).list_audit(action="decisions.delete").items
    assert [link.subject for link in links] == ["2026-09", "2026-08"]


def test_a_writer_goes_on_while_and_after_its_decisions_are_deleted(logged: Database) -> None:
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
    delete(logged)
    over.set()
    thread.join()
    writer.log(50)
    report = AuditChain(logged).verify()
    assert report.ok, report.problems


def test_a_second_call_deletes_what_is_new(logged: Database) -> None:
    delete(logged)
    assert delete(logged) == []
    assert [one.month for one in delete(logged, date(2026, 11, 1))] == ["2026-10"]
    assert AuditChain(logged).verify().ok


def test_decisions_that_a_spool_delivered_late_go_with_a_later_month(logged: Database) -> None:
    delete(logged)
    Writer(logged).log(1)
    done = delete(logged, date(2026, 12, 1))
    assert sum(one.decisions for one in done) == 8
    assert images(logged) == []
    assert AuditChain(logged).verify().ok


def test_what_was_interrupted_goes_on(logged: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "_DECISIONS_PER_STEP", 3)
    calls = iter([None])

    def stop(_: float) -> None:
        if next(calls, "over") == "over":
            raise KeyboardInterrupt

    monkeypatch.setattr(retention.time, "sleep", stop)
    with pytest.raises(KeyboardInterrupt):
        delete(logged)
    assert AuditChain(logged).verify().ok
    monkeypatch.undo()
    delete(logged)
    assert len(images(logged)) == 6
    assert AuditChain(logged).verify().ok


def test_nothing_is_deleted_of_a_log_that_does_not_verify(logged: Database) -> None:
    with logged.writing() as session:
        session.execute(text("UPDATE decisions SET allowed = NOT allowed WHERE image = 'i:3.0'"))
    with pytest.raises(Conflict, match=r"does not verify: .* changed"):
        delete(logged)
    assert len(images(logged)) == 14
    assert AuditLog(logged).list_audit(action="decisions.delete").items == ()


@pytest.mark.parametrize("removed", [False, True])
def test_what_an_older_release_archived_is_known(logged: Database, removed: bool) -> None:
    """Its link says that the decisions may be gone; they are deleted only when asked to."""
    with logged.writing() as session:
        query = "SELECT max(id) FROM decision_batches WHERE decided_at < '2026-09-01'"
        last = session.execute(text(query)).scalar()
        detail = {"month": "2026-08", "first": 1, "last": last, "sha256": "0"}
        audit.append(session, at=BEGAN, actor="old", action="decisions.archive",
                     subject="decisions-2026-08.jsonl.zst", detail=detail)  # fmt: skip
        if removed:
            gone = text("DELETE FROM decisions WHERE id < :end")
            session.execute(gone, {"end": (last + 1) * NUMBERS})
    report = AuditChain(logged).verify()
    assert report.ok, report.problems
    assert len(images(logged)) == (10 if removed else 14)
    months = ["2026-09"] if removed else ["2026-08", "2026-09"]
    assert [one.month for one in delete(logged)] == months
    assert AuditChain(logged).verify().ok


def test_the_command_says_what_it_deleted(logged: Database, command: Command) -> None:
    url = logged.url.render_as_string(hide_password=False)
    arguments = ("audit", "delete", "--before", "2026-10", "--database", url)
    status, out, _ = command(*arguments, "--format", "json")
    assert status == 0
    done = json.loads(out)
    assert [(one["month"], one["decisions"]) for one in done] == [("2026-08", 4), ("2026-09", 4)]
    assert command(*arguments)[1] == "no decisions before 2026-10-01 are left to delete\n"


@pytest.mark.parametrize(
    ("options", "told"),
    [(("--before", "soon"), "--before"), (("--older-than", "much"), "--older-than")],
)
def test_a_bad_option_is_named(
    command: Command, tmp_path: Path, options: tuple[str, ...], told: str
) -> None:
    database = str(tmp_path / "gate.db")
    status, _, errors = command("audit", "delete", *options, "--database", database)
    assert status == 2
    assert told in errors
