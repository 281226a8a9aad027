"""Batches of decisions: one chain for each writer, stored once, and kept through migrations."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from compatgate.core.performance import sha256
from compatgate.kit.database import tables
from compatgate.kit.database.database import Database
from compatgate.kit.database.sqlite import WriterTurn
from compatgate.service.audit import chain as audit
from compatgate.service.audit.chain import AuditLog
from compatgate.service.gate.decisions import batches, service
from compatgate.service.gate.decisions import service as decisions
from compatgate.service.gate.decisions.batch_store import DecisionWriter, Delivery, ForkedChain
from compatgate.service.gate.decisions.batches import DecisionBatch, WriterChain
from compatgate.service.gate.questions.decider import NewDecision
from compatgate.service.recovery.verification import AuditChain

BEGAN = datetime(2026, 11, 3, 9, tzinfo=UTC)
BODY = '{"id":"vd_%d","verdict":"pass"}'


def _decision(number: int, verdict: int = 1) -> NewDecision:
    at = BEGAN + timedelta(seconds=number)
    return NewDecision(f"vd_{verdict}", at, "prod", "pass", True, 1, None, str(number), "test", 5)


def _make(chain: WriterChain, *numbers: int, verdict: int = 1) -> Delivery:
    bodies = {f"vd_{verdict}": BODY % verdict}
    return Delivery(chain.make([_decision(n, verdict) for n in numbers], bodies), bodies)


@pytest.fixture
def writer(database: Database) -> DecisionWriter:
    return DecisionWriter(database)


def _store(writer: DecisionWriter, chain: WriterChain, *numbers: int) -> DecisionBatch:
    made = _make(chain, *numbers)
    writer.write([made])
    chain.take(made.batch)
    return made.batch


def test_a_batch_is_stored_once_however_often_it_comes(
    database: Database, writer: DecisionWriter
) -> None:
    chain = WriterChain()
    first = _make(chain, 1, 2)
    writer.write([first])
    writer.write([first, first])
    chain.take(first.batch)
    second = _make(chain, 3)
    writer.write([first, second, first])
    writer.close()
    with database.reading() as session:
        asked = session.execute(text("SELECT asked_by FROM decisions")).scalars().all()
    assert Counter(asked) == {"1": 1, "2": 1, "3": 1}
    report = AuditChain(database).verify()
    assert (report.ok, report.batches, report.decisions) == (True, 2, 3), report.problems


def test_another_batch_of_the_same_number_is_refused(
    database: Database, writer: DecisionWriter
) -> None:
    chain = WriterChain()
    writer.write([_make(chain, 1)])
    with pytest.raises(ForkedChain, match="batch 1 of writer"):
        writer.write([_make(chain, 2)])
    writer.close()
    assert AuditChain(database).verify().decisions == 1


def test_writers_that_bring_the_same_verdict_differ_in_its_body(
    database: Database, writer: DecisionWriter
) -> None:
    one, other = WriterChain(), WriterChain()
    writer.write([_make(one, 1)])
    later = {"vd_1": '{"id":"vd_1","verdict":"pass","decided_at":"later"}'}
    writer.write([Delivery(other.make([_decision(2)], later), later)])
    writer.close()
    report = AuditChain(database).verify()
    assert report.ok, report.problems
    with database.reading() as session:
        assert decisions.find_verdict(session, "vd_1") == BODY % 1


def test_a_writer_that_died_is_anchored_by_another(
    database: Database, writer: DecisionWriter
) -> None:
    dead, alive = WriterChain(), WriterChain()
    last = _store(writer, dead, 1)
    mine = _store(writer, alive, 2)
    writer.close()
    with database.writing() as session:
        batches.append_anchor(session)
    link = AuditLog(database).list_audit(action=batches.ACTION).items[0]
    assert link.detail["writers"] == {
        last.writer: [1, last.hash],
        mine.writer: [1, mine.hash],
    }
    with database.writing() as session:
        batches.append_anchor(session)
    assert len(AuditLog(database).list_audit().items) == 1, "nothing new, no link"


def _count_since(session: Session, since: datetime) -> int:
    edges = (since, since + timedelta(days=1))
    (bar,) = service.count_bars(session, edges, target="prod").bars
    return bar.allowed


def test_what_was_delivered_late_counts_from_when_it_was_decided(
    database: Database, writer: DecisionWriter
) -> None:
    direct, late = WriterChain(), WriterChain()
    _store(writer, direct, 1000)
    _store(writer, direct, 2000)
    delayed = _make(late, *range(1500, 1520))
    writer.write([Delivery(delayed.batch, delayed.bodies, late=True)])
    writer.close()
    with database.reading() as session:
        since = BEGAN + timedelta(seconds=1400)
        assert service.find_first_since(session, since) == 2000
        assert _count_since(session, since) == 21
        after = BEGAN + timedelta(seconds=1510)
        assert _count_since(session, after) == 11
        assert service.find_first_since(session, BEGAN + timedelta(hours=1)) is None


def _store_as_0006_does(database: Database) -> None:
    rest = (None, "old", "rest", 7)
    lines = [
        [number, "vd_old", f"2026-11-01T00:00:0{number}.000000Z", None, "pass", True, 0, *rest]
        for number in (1, 2, 3)
    ]
    names = ("id", *NewDecision.__struct_fields__)
    insert = f"INSERT INTO decisions ({', '.join(names)}) VALUES (:{', :'.join(names)})"
    content = batches.encode_values(lines)
    detail = {"first": 1, "count": 3, "sha256": sha256(content)}
    detail["verdicts"] = {"vd_old": sha256(b'{"id":"vd_old"}')}
    with database.writing() as session:
        session.execute(
            text("INSERT INTO verdicts (id, body) VALUES ('vd_old', :body)"),
            {"body": '{"id":"vd_old"}'},
        )
        session.execute(text(insert), [dict(zip(names, line, strict=True)) for line in lines])
        made = "INSERT INTO tokens (id, name, digest, scopes, created_at, created_by) VALUES"
        session.execute(
            text(f"{made} ('tk_1', 'ci', 'abc', 'gate', :at, 'ada')"),
            {"at": "2026-11-01T00:00:00.000000Z"},
        )
        said = {"id": "tk_1", "scopes": ["gate"]}
        for action, told in (("token.create", said), ("decisions", detail)):
            audit.append(session, at=BEGAN, actor="gate", action=action, subject="ci", detail=told)


def test_each_anchor_has_what_was_stored_since_the_one_before(
    database: Database, writer: DecisionWriter
) -> None:
    chain, found = WriterChain(), []
    for number in (1, 2):
        _store(writer, chain, number)
        made = _store(writer, chain, number + 10)
        with database.writing() as session:
            batches.append_anchor(session)
        found.append({made.writer: [made.sequence, made.hash]})
    writer.close()
    links = AuditLog(database).list_audit(action=batches.ACTION).items
    assert [link.detail["writers"] for link in links] == found[::-1]
    report = AuditChain(database).verify()
    assert report.ok, report.problems
    assert report.unanchored == 0


def test_an_anchor_of_a_chain_that_had_just_begun_is_no_problem(database: Database) -> None:
    """Versions before this one wrote such anchors after both disks had been full."""
    detail = {"writers": {"begun": [0, "0" * 64]}}
    with database.writing() as session:
        audit.append(
            session, at=BEGAN, actor="gate", action=batches.ACTION, subject="x", detail=detail
        )
    assert AuditChain(database).verify().ok


def test_a_log_of_0006_still_verifies_and_goes_on(empty_url: str) -> None:
    with closing(Database.open(empty_url)) as database:
        tables.migrate_schema(database, "0006")
        _store_as_0006_does(database)
        tables.migrate_schema(database)
        assert AuditChain(database).verify().ok
        writer, chain = DecisionWriter(database), WriterChain()
        _store(writer, chain, 5, 6)
        _store(writer, chain, 7)
        writer.close()
        report = AuditChain(database).verify()
        assert report.ok, report.problems
        assert (report.decisions, report.batches, report.tokens) == (6, 2, 1)
        newer = AuditChain(database).verify(full=False)
        assert (newer.ok, newer.decisions, newer.checked_decisions) == (True, 6, 0)
        with database.writing() as session:
            session.execute(text("UPDATE tokens SET scopes = 'admin'"))
        assert AuditChain(database).verify().problems == ["token tk_1: was changed"]


def test_an_older_replica_may_log_decisions_during_the_upgrade(
    database: Database, writer: DecisionWriter
) -> None:
    chain = WriterChain()
    _store(writer, chain, 1, 2)
    _link_as_0006_does(database, 1002)
    _store(writer, chain, 3)
    _link_as_0006_does(database, 2001)
    writer.close()
    report = AuditChain(database).verify()
    assert (report.ok, report.decisions, report.batches) == (True, 7, 2), report.problems
    again = AuditChain(database).verify(full=False)
    assert (again.ok, again.decisions) == (True, 7), again.problems
    with database.writing() as session:
        session.execute(text("UPDATE decisions SET asked_by = 'x' WHERE id = 2002"))
    problems = AuditChain(database).verify().problems
    assert [one.split(" (")[0] for one in problems] == [
        "decisions 2001 to 2002: changed or missing"
    ]


def _link_as_0006_does(database: Database, first: int) -> None:
    rest = (None, "pass", True, 0, None, "old", "rest", 7)
    lines = [[first + n, "vd_1", f"2026-11-03T09:00:0{n}.000000Z", *rest] for n in (0, 1)]
    names = ("id", *NewDecision.__struct_fields__)
    insert = f"INSERT INTO decisions ({', '.join(names)}) VALUES (:{', :'.join(names)})"
    content = batches.encode_values(lines)
    detail = {"first": first, "count": 2, "sha256": sha256(content)}
    with database.writing() as session:
        session.execute(text(insert), [dict(zip(names, line, strict=True)) for line in lines])
        audit.append(
            session, at=BEGAN, actor="gate", action="decisions", subject="old", detail=detail
        )


def test_a_downgrade_keeps_the_decisions_and_their_links(empty_url: str) -> None:
    with closing(Database.open(empty_url)) as database:
        tables.migrate_schema(database, "0006")
        _store_as_0006_does(database)
        tables.migrate_schema(database)
        writer, chain = DecisionWriter(database), WriterChain()
        for number in (10, 20):
            _store(writer, chain, number, number + 1)
        writer.close()
        assert tables.migrate_schema(database, "0006") == "0006"
        if database.is_sqlite:  # it notes batches, which 0006 does not know
            os.unlink(f"{database.url.database}-turn")
        with database.reading() as session:
            rows = session.execute(text("SELECT id, asked_by FROM decisions ORDER BY id")).all()
            body = session.execute(text("SELECT body FROM verdicts WHERE id = 'vd_1'")).scalar()
        assert rows[3:] == [(4, "10"), (5, "11"), (6, "20"), (7, "21")]
        assert body == BODY % 1
        tables.migrate_schema(database)
        report = AuditChain(database).verify()
        assert (report.ok, report.decisions, report.batches) == (True, 7, 0), report.problems


def test_a_writer_that_waits_for_its_turn_lets_others_store(database: Database) -> None:
    """On PostgreSQL no lock spans writers: an open transaction of one does not stop another."""
    if database.is_sqlite:
        pytest.skip("SQLite knows one writer")
    stuck, free = DecisionWriter(database), DecisionWriter(database)
    with stuck._transaction() as cursor:
        stuck._store(cursor, [_make(WriterChain(), 1, verdict=1)])
        with WriterTurn(database):
            free.write([_make(WriterChain(), 2, verdict=2)])
    free.close()
    stuck.close()
    assert AuditChain(database).verify().decisions == 2
