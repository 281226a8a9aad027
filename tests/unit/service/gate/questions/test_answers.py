"""Answers that are given again: the same id, a new moment."""

from __future__ import annotations

import gc
from collections.abc import Callable
from datetime import datetime

import msgspec
import pytest
from msgspec.structs import replace

from compatgate.core.evaluate import format_moment
from compatgate.core.rule import Verdict
from compatgate.service.gate.questions.decider import Answer

LATER = "2026-11-21T12:30:00.000Z"


@pytest.fixture
def verdict(ask: Callable[..., Verdict]) -> Verdict:
    return ask("driver=535.104.05,gpu=L4", "cuda=12.4,arch=sm_80", image='x"decided_at":"y')


def test_an_answer_at_another_moment_differs_in_that_moment_only(verdict: Verdict) -> None:
    answer = Answer.of(verdict)
    again = answer.at(LATER)
    assert again.verdict == replace(verdict, decided_at=LATER)
    body = msgspec.json.decode(again.body)
    assert body == {**verdict.to_json(), "decided_at": LATER}
    assert msgspec.json.decode(answer.body) == verdict.to_json()


def test_the_moment_is_written_as_the_evaluation_writes_it(verdict: Verdict) -> None:
    moment = datetime.fromisoformat(verdict.decided_at)
    assert format_moment(moment) == verdict.decided_at


def test_what_is_kept_of_an_answer_is_nothing_for_the_garbage_collector(verdict: Verdict) -> None:
    """Thousands are kept; walking them again and again would hold up whoever asks meanwhile."""
    answer = Answer.of(verdict)
    assert verdict.findings
    parts = (answer, verdict, verdict.checked, *verdict.findings)
    assert [part for part in parts if gc.is_tracked(part)] == []
