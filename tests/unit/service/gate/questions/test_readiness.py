"""Readiness: one check at a time, with a deadline; its result is given to others for a moment."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from compatgate.errors import Unavailable
from compatgate.service.gate.questions import readiness
from compatgate.service.gate.questions.readiness import Readiness


class _Database:
    """Counts checks; stalls, or fails, when told to."""

    def __init__(self) -> None:
        self.checks = 0
        self.answers = threading.Event()
        self.answers.set()
        self.error: Exception | None = None

    def check(self) -> dict[str, Any]:
        self.checks += 1
        assert self.answers.wait(30)
        if self.error:
            raise self.error
        return {"check": self.checks}


@pytest.fixture
def database() -> _Database:
    return _Database()


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> Callable[[float, float], None]:
    def hurry(deadline: float, reused: float) -> None:
        monkeypatch.setattr(readiness, "DEADLINE_SECONDS", deadline)
        monkeypatch.setattr(readiness, "REUSED_SECONDS", reused)

    return hurry


def test_a_result_is_given_to_others_for_a_moment(
    database: _Database, hurried: Callable[[float, float], None]
) -> None:
    ready = Readiness(database.check)
    assert [ready.state() for _ in range(3)] == [{"check": 1}] * 3
    hurried(2.0, 0.0)
    assert ready.state() == {"check": 2}


def test_an_error_is_given_to_others_and_ends_with_its_cause(
    database: _Database, hurried: Callable[[float, float], None]
) -> None:
    ready = Readiness(database.check)
    database.error = Unavailable("the database does not answer: disk full")
    for _ in range(3):
        with pytest.raises(Unavailable, match="disk full"):
            ready.state()
    assert database.checks == 1
    database.error = None
    hurried(2.0, 0.0)
    assert ready.state() == {"check": 2}


def test_a_defect_of_the_check_is_not_ready_either(database: _Database) -> None:
    database.error = KeyError("schema")
    with pytest.raises(Unavailable, match="schema"):
        Readiness(database.check).state()


def test_a_stalled_database_is_asked_once_and_nobody_waits_longer_than_the_deadline(
    database: _Database, hurried: Callable[[float, float], None]
) -> None:
    hurried(0.1, 0.0)
    ready = Readiness(database.check)
    database.answers.clear()
    problems: list[str] = []

    def ask() -> None:
        with pytest.raises(Unavailable) as caught:
            ready.state()
        problems.append(caught.value.problem)

    threads = [threading.Thread(target=ask) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    ask()
    assert len(problems) == 21
    assert {"recording a decision takes longer than 0.1 seconds"} == set(problems)
    assert database.checks == 1
    assert sum(thread.name == "readiness" for thread in threading.enumerate()) == 1
    database.answers.set()
    hurried(10, 0.0)  # a slow machine answers, too
    deadline = time.monotonic() + 10
    while database.checks == 1 and time.monotonic() < deadline:
        time.sleep(0.01)
        ready.state()
    assert ready.state()["check"] > 1
