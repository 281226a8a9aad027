"""Answers that are given again: the same id, a new moment, and never longer than they hold."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from msgspec.structs import replace

from compatgate.core.facts import Facts
from compatgate.core.matrix import Matrix
from compatgate.core.verdict import Verdict
from compatgate.gate import answers
from compatgate.gate.answers import Answer, AnswerCache, shown_moment
from compatgate.gate.snapshot import Snapshot

NOON = datetime(2026, 11, 21, 12, 10, tzinfo=UTC)
LATER = "2026-11-21T12:30:00.000Z"


@pytest.fixture
def verdict(ask: Callable[..., Verdict]) -> Verdict:
    return ask("driver=535.104.05,gpu=L4", "cuda=12.4,arch=sm_80", image='x"decided_at":"y')


@pytest.fixture
def snapshot(facts: Facts) -> Snapshot:
    return Snapshot(1, facts, Matrix(1))


def test_an_answer_at_another_moment_differs_in_that_moment_only(verdict: Verdict) -> None:
    answer = Answer.of(verdict)
    again = answer.at(LATER)
    assert again.verdict == replace(verdict, decided_at=LATER)
    body = msgspec.json.decode(again.body)
    assert body == {**verdict.to_json(), "decided_at": LATER}
    assert msgspec.json.decode(answer.body) == verdict.to_json()


def test_the_moment_is_written_as_the_evaluation_writes_it(verdict: Verdict) -> None:
    moment = datetime.fromisoformat(verdict.decided_at)
    assert shown_moment(moment) == verdict.decided_at


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
def test_an_answer_holds_to_the_end_of_the_hour_or_to_a_time_that_it_rests_on(
    verdict: Verdict,
    snapshot: Snapshot,
    monkeypatch: pytest.MonkeyPatch,
    valid_until: str | None,
    ends: str,
) -> None:
    cache = AnswerCache()
    answer = Answer.of(replace(verdict, valid_until=valid_until))
    end = datetime.fromisoformat(f"2026-11-21T{ends}:00+00:00")
    cache.put(b"q", snapshot, answer, NOON)
    monkeypatch.setattr(answers.time, "time", (end - timedelta(milliseconds=1)).timestamp)
    assert cache.get(b"q", snapshot) is answer
    monkeypatch.setattr(answers.time, "time", end.timestamp)
    assert cache.get(b"q", snapshot) is None


def test_an_answer_belongs_to_its_snapshot_and_question(
    verdict: Verdict, snapshot: Snapshot, facts: Facts
) -> None:
    cache = AnswerCache()
    now = datetime.now(UTC)
    cache.put(b"q", snapshot, Answer.of(verdict), now)
    assert cache.get(b"q ", snapshot) is None
    assert cache.get(b"q", Snapshot(1, facts, Matrix(1))) is None
    cache.put(b"q", snapshot, Answer.of(verdict), now)
    cache.clear()
    assert cache.get(b"q", snapshot) is None


def test_the_cache_forgets_what_was_asked_longest_ago(
    verdict: Verdict, snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "_SIZE", 2)
    cache, answer, now = AnswerCache(), Answer.of(verdict), datetime.now(UTC)
    cache.put(b"a", snapshot, answer, now)
    cache.put(b"b", snapshot, answer, now)
    cache.get(b"a", snapshot)
    cache.put(b"c", snapshot, answer, now)
    assert [cache.get(q, snapshot) is not None for q in (b"a", b"b", b"c")] == [True, False, True]


def test_a_very_long_question_is_not_kept(verdict: Verdict, snapshot: Snapshot) -> None:
    cache = AnswerCache()
    question = b" " * 100_000
    cache.put(question, snapshot, Answer.of(verdict), datetime.now(UTC))
    assert cache.get(question, snapshot) is None
