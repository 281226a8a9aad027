"""Small rows of decisions: read as they were answered, old ones too, and through migrations."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import zstandard
from sqlalchemy import text

from compatgate.core.performance import sha256
from compatgate.kit.database import tables
from compatgate.kit.database.database import Database
from compatgate.service.gate.decisions import service as decisions
from compatgate.service.gate.decisions.batch_store import DecisionWriter, Delivery
from compatgate.service.gate.decisions.batches import WriterChain, decision_values
from compatgate.service.gate.questions.decider import NewDecision
from compatgate.service.recovery.retention import Retention
from compatgate.service.recovery.verification import AuditChain

BEGAN = datetime(2026, 8, 3, 9, tzinfo=UTC)
OLD, NEW = 1, 2
"""Which program stores a batch: of schema 0009, or this one."""


class Process:
    """A writer of one program or the other, one batch a call."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._chain = WriterChain()
        self._last = 0

    def log(self, program: int, *builds: str | None) -> None:
        """Log a decision about each build; its verdict is the build's."""
        made = [self._decide(build) for build in builds]
        bodies = {one.verdict_id: body_of(one.verdict_id) for one in made}
        batch = self._chain.make(made, bodies)
        if program == NEW:
            with closing(DecisionWriter(self._database)) as writer:
                writer.write([Delivery(batch, bodies)])
        else:
            self._store_as_0009_does(batch, made, bodies)
        self._chain.take(batch)

    def _decide(self, build: str | None) -> NewDecision:
        self._last += 1
        at = BEGAN + timedelta(seconds=self._last)
        verdict = id_of(build)
        return NewDecision(verdict, at, "prod", "pass", True, 1, build, str(self._last), "test", 5)

    def _store_as_0009_does(
        self, batch: Any, made: list[NewDecision], bodies: dict[str, str]
    ) -> None:
        claims = {key: sha256(body.encode()) for key, body in sorted(bodies.items())}
        names = ("id", *NewDecision.__struct_fields__)
        with self._database.writing() as session:
            last = session.execute(text("SELECT max(id) FROM decision_batches")).scalar() or 0
            row = {
                "id": last + 1,
                "writer": batch.writer,
                "sequence": batch.sequence,
                "count": batch.count,
                "at": batch.decided_at,
                "late": False,
                "verdicts": json.dumps(claims, separators=(",", ":")),
                "hash": bytes.fromhex(batch.hash),
            }
            session.execute(
                text(
                    "INSERT INTO decision_batches VALUES"
                    " (:id, :writer, :sequence, :count, :at, :late, :verdicts, :hash)"
                ),
                row,
            )
            for key, body in bodies.items():
                packed = zstandard.compress(body.encode())
                session.execute(
                    text(
                        "INSERT INTO verdicts (id, body, packed, batch) VALUES"
                        " (:id, '', :packed, :batch) ON CONFLICT (id) DO NOTHING"
                    ),
                    {"id": key, "packed": packed, "batch": last + 1},
                )
            for number, one in enumerate(made, (last + 1) * 1000):
                session.execute(
                    text(
                        f"INSERT INTO decisions ({', '.join(names)}) VALUES (:{', :'.join(names)})"
                    ),
                    dict(zip(names, (number, *decision_values(one)), strict=True)),
                )
            if not self._database.is_sqlite:
                follow = "SELECT setval('decision_batches_id_seq', :last)"
                session.execute(text(follow), {"last": last + 1})


def id_of(build: str | None) -> str:
    return f"vd_{sha256(str(build).encode())[:32]}"


def body_of(verdict: str) -> str:
    return json.dumps({"id": verdict, "findings": [], "decided_at": "2026-08-03T09:00:00Z"})


def show(database: Database) -> list[list[Any]]:
    with database.reading() as session:
        return list(decisions.read_decision_lines(session))


@pytest.fixture
def mixed(empty_url: str) -> Iterator[Database]:
    """Batches of both programs, in turn, on one database; verdicts that both gave."""
    with closing(Database.open(empty_url)) as database:
        tables.migrate_schema(database, "0009")
        one, other = Process(database), Process(database)
        one.log(OLD, "r/app:1", "r/app:2", "r/app:1")
        tables.migrate_schema(database)
        one.log(NEW, "r/app:1", "r/app:3", "r/app:3", None)
        other.log(OLD, "r/app:3", "r/app:4")
        one.log(NEW, "r/app:4", "r/app:2", None)
        yield database


BUILDS = ["1", "2", "1", "1", "3", "3", None, "3", "4", "4", "2", None]
IMAGES = [build and f"r/app:{build}" for build in BUILDS]


def test_a_decision_has_its_image_wherever_it_is_stored(mixed: Database) -> None:
    assert [line[7] for line in show(mixed)] == IMAGES
    with mixed.reading() as session:
        stored = session.execute(text("SELECT image FROM decisions ORDER BY id")).scalars().all()
        found = decisions.list_decisions(session, image="r/app:3").items
        one = decisions.show_decision(session, found[0].id)
        bodies = [decisions.find_verdict(session, id_of(image)) for image in IMAGES]
    of_its_verdict = [n for n, own in enumerate(stored) if own is None and IMAGES[n]]
    assert of_its_verdict == [4, 5]  # an old row of the verdict has no image to share
    assert [row.image for row in found] == ["r/app:3"] * 3
    assert one.image == "r/app:3"
    assert bodies == [body_of(id_of(image)) for image in IMAGES]
    report = AuditChain(mixed).verify()
    assert (report.ok, report.decisions, report.batches) == (True, 12, 4), report.problems


def test_no_image_is_not_the_image_of_the_verdict(database: Database) -> None:
    builds = ["r/app:1", None, "r/app:2", "r/app:1"]
    made = [
        NewDecision(id_of("x"), BEGAN, None, "pass", True, 1, build, "ci", "test", 5)
        for build in builds
    ]
    bodies = {id_of("x"): body_of(id_of("x"))}
    with closing(DecisionWriter(database)) as writer:
        writer.write([Delivery(WriterChain().make(made, bodies), bodies)])
    assert [line[7] for line in show(database)] == builds
    assert AuditChain(database).verify().ok
    tables.migrate_schema(database, "0009")
    tables.migrate_schema(database)
    assert [line[7] for line in show(database)] == builds


def test_a_downgrade_writes_rows_that_0009_reads(mixed: Database) -> None:
    before = show(mixed)
    assert tables.migrate_schema(mixed, "0009") == "0009"
    with mixed.reading() as session:
        images = session.execute(text("SELECT image FROM decisions ORDER BY id")).scalars().all()
        packed = session.execute(text("SELECT id, packed FROM verdicts")).all()
        claims = session.execute(text("SELECT verdicts FROM decision_batches")).scalars().all()
    assert images == IMAGES
    plain = zstandard.ZstdDecompressor()
    assert {row[0]: plain.decompress(bytes(row[1])).decode() for row in packed} == {
        id_of(image): body_of(id_of(image)) for image in IMAGES
    }
    assert {key for some in claims for key in json.loads(some)} == {row[0] for row in packed}
    tables.migrate_schema(mixed)
    assert show(mixed) == before
    report = AuditChain(mixed).verify()
    assert report.ok, report.problems


def test_rows_of_both_kinds_are_deleted_with_their_month(mixed: Database) -> None:
    verify = AuditChain(mixed).verify
    (done,) = Retention(mixed, verify, "test").delete(BEGAN.date().replace(month=9))
    assert (done.decisions, show(mixed)) == (len(IMAGES), [])
    assert verify().ok
