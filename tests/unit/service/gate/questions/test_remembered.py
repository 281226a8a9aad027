"""What is kept for a question, and never longer than it holds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from compatgate.core.facts import Facts
from compatgate.core.matrix import Matrix
from compatgate.service.gate.questions.decider import SnapshotCache
from compatgate.service.matrix.snapshots.snapshot import Snapshot

NOON = datetime(2026, 11, 21, 12, 10, tzinfo=UTC)


@pytest.fixture
def snapshot(facts: Facts) -> Snapshot:
    return Snapshot(1, facts, Matrix(1))


@pytest.fixture
def kept() -> SnapshotCache[str]:
    return SnapshotCache(len)


@pytest.mark.parametrize(
    ("valid_until", "ends"),
    [
        (None, "13:00"),
        ("2026-11-21", "13:00"),
        ("2026-11-22T00:00:00Z", "13:00"),
        ("2026-11-21T12:30:00Z", "12:30"),
        ("2026-11-21T13:30:00+01:00", "12:30"),
        ("2026-11-21T12:05:00Z", "13:00"),
    ],
)
def test_a_value_holds_to_the_end_of_the_hour_or_to_a_time_that_it_rests_on(
    kept: SnapshotCache[str],
    snapshot: Snapshot,
    valid_until: str | None,
    ends: str,
) -> None:
    end = datetime.fromisoformat(f"2026-11-21T{ends}:00+00:00")
    kept.put(b"q", snapshot, "a", valid_until, NOON)
    assert kept.get(b"q", snapshot, end - timedelta(milliseconds=1)) == "a"
    assert kept.get(b"q", snapshot, end) is None


def test_a_value_belongs_to_its_snapshot_and_question(
    kept: SnapshotCache[str], snapshot: Snapshot, facts: Facts
) -> None:
    now = datetime.now(UTC)
    kept.put(b"q", snapshot, "a", None, now)
    assert kept.get(b"q ", snapshot, now) is None
    assert kept.get(b"q", Snapshot(1, facts, Matrix(1)), now) is None
    kept.put(b"q", snapshot, "a", None, now)
    kept.clear()
    assert kept.get(b"q", snapshot, now) is None


def test_what_was_asked_for_longest_ago_is_forgotten_first(snapshot: Snapshot) -> None:
    kept: SnapshotCache[str] = SnapshotCache(len, size=2)
    now = datetime.now(UTC)
    kept.put(b"a", snapshot, "1", None, now)
    kept.put(b"b", snapshot, "2", None, now)
    kept.get(b"a", snapshot, now)
    kept.put(b"c", snapshot, "3", None, now)
    assert [kept.get(q, snapshot, now) for q in (b"a", b"b", b"c")] == ["1", None, "3"]


def test_nothing_is_kept_for_a_very_long_question(
    kept: SnapshotCache[str], snapshot: Snapshot
) -> None:
    question = b" " * 100_000
    kept.put(question, snapshot, "a", None, NOON)
    assert kept.get(question, snapshot, NOON) is None


def test_large_values_drop_others_by_their_bytes(snapshot: Snapshot) -> None:
    kept: SnapshotCache[str] = SnapshotCache(len, most_bytes=100_000)
    now = datetime.now(UTC)
    for number in range(100):
        kept.put(b"%d" % number, snapshot, "x" * 4000, None, now)
    held = [number for number in range(100) if kept.get(b"%d" % number, snapshot, now)]
    assert held == list(range(77, 100))
