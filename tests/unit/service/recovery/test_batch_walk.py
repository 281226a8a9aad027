"""A verification seals what no open transaction can add to: batches that are ten minutes old."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from compatgate.kit import clock
from compatgate.kit.database import tables
from compatgate.kit.database.database import Database
from compatgate.service.gate.decisions.batch_store import DecisionWriter, Delivery
from compatgate.service.gate.decisions.batches import WriterChain
from compatgate.service.gate.questions.decider import NewDecision
from compatgate.service.recovery.verification import AuditChain


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    made = Database.open(str(tmp_path / "gate.db"))
    tables.migrate_schema(made)
    yield made
    made.close()


def log(database: Database, *moments: datetime, late: bool = False) -> None:
    """Log a batch of one decision for each moment, by one writer."""
    chain, body = WriterChain(), {"vd_1": json.dumps({"id": "vd_1"})}
    with closing(DecisionWriter(database)) as writer:
        for at in moments:
            decision = NewDecision("vd_1", at, "lab", "pass", True, 1, "i:1", "ci", "rest", 5)
            made = Delivery(chain.make([decision], body), body)
            writer.write([made])
            chain.take(made.batch)


def checked_again(database: Database) -> int:
    """Verify twice; return how many decisions the second verification reads."""
    history = AuditChain(database)
    assert history.verify().ok
    report = history.verify(full=False)
    assert report.ok
    assert report.since > 0, "the first one sealed what it read"
    return report.checked_decisions


@pytest.mark.parametrize(("age", "again"), [(9 * 60 + 30, 1), (10 * 60 + 30, 0)])
def test_a_batch_is_sealed_once_no_transaction_of_its_time_is_open(
    database: Database, age: float, again: int
) -> None:
    log(database, clock.now() - timedelta(seconds=age))
    assert checked_again(database) == again


def test_what_comes_after_a_recent_batch_is_read_again_whatever_its_age(
    database: Database,
) -> None:
    now = clock.now()
    log(database, now - timedelta(hours=2), now - timedelta(minutes=1), now - timedelta(minutes=20))
    assert checked_again(database) == 2
