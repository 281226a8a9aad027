"""Wheels that are measured beside the questions: few at a time, each once, not for ever."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from compatgate.core.facts.records import Record
from compatgate.core.package_finder import open_packages
from compatgate.core.stack import parse_stack
from compatgate.discovery.wheels.on_demand import MeasureResult
from compatgate.service.gate.questions import wheels
from compatgate.service.gate.questions.wheels import WheelMeasurer, WheelSettings

MEASURING = "its wheel is being measured: ask again"


class Index:
    """Stands in for what reads wheels: answers once the test lets it."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.open = threading.Event()
        self.transient = True

    def __call__(self, wanted, *_: object) -> MeasureResult:
        self.asked.append(wanted.package.name)
        self.open.wait(20)
        if wanted.package.name.startswith("none"):
            return MeasureResult(wanted, why="the index is away", transient=self.transient)
        return MeasureResult(wanted, Record(wanted.package.name, "1.0", "a.whl"), fresh=True)


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Index:
    stand_in = Index()
    monkeypatch.setattr(wheels, "find_or_measure_package", stand_in)
    return stand_in


@pytest.fixture
def told() -> list[Record]:
    return []


@pytest.fixture
def asking(facts, told) -> Callable:
    """Make something that asks about packages, by name: why each has no record."""

    def make(**settings):
        indexes = ("https://index.example/simple",)
        made = WheelMeasurer(WheelSettings(indexes, **settings), told.extend)

        def ask(*names: str) -> list[str]:
            stack = parse_stack(dict.fromkeys(names, "1.0"))
            missing = open_packages(stack, [("linux", "x86_64")], facts)
            why = made.ask(missing, facts).why
            return [why[f"{name}==1.0"] for name in names]

        return ask

    return make


def wait_for(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_question_does_not_wait_and_the_same_package_is_measured_once(index, asking, told):
    ask = asking()
    assert [ask("fast") for _ in range(3)] == [[MEASURING]] * 3
    index.open.set()
    wait_for(lambda: bool(told))
    assert index.asked == ["fast"]
    assert [record.package for record in told] == ["fast"]


def test_few_are_measured_at_a_time_and_few_wait(index, asking, told):
    ask = asking(at_once=2, waiting=3)
    assert ask("one", "two") == [MEASURING] * 2
    wait_for(lambda: len(index.asked) == 2)
    assert ask("three", "four", "five") == [MEASURING] * 3
    assert ask("six") == ["other wheels are being measured: ask again later"]
    assert len(index.asked) == 2
    index.open.set()
    wait_for(lambda: len(told) == 5)


def test_a_failure_is_said_and_tried_again_later_and_later(index, asking, monkeypatch):
    now = time.monotonic()
    monkeypatch.setattr(wheels.time, "monotonic", lambda: now)
    index.open.set()
    ask = asking(first_pause_s=10.0)
    ask("none")
    for tries, pause in enumerate((10, 20, 40), 1):
        while ask("none") == [MEASURING]:
            time.sleep(0.01)
        assert ask("none") == ["the index is away"]
        now += pause - 1
        assert ask("none") == ["the index is away"]
        assert len(index.asked) == tries
        now += 2
        assert ask("none") == [MEASURING]


def test_what_does_not_get_better_soon_is_tried_again_after_an_hour(index, asking, monkeypatch):
    now = time.monotonic()
    monkeypatch.setattr(wheels.time, "monotonic", lambda: now)
    index.open.set()
    index.transient = False
    ask = asking()
    while ask("none") == [MEASURING]:
        time.sleep(0.01)
    now += 3500
    assert ask("none") == ["the index is away"]
    now += 200
    assert ask("none") == [MEASURING]


def test_failures_that_are_remembered_are_bounded(index, asking, monkeypatch):
    monkeypatch.setattr(wheels, "_MAX_FAILURES", 1)
    index.open.set()
    ask = asking()
    for name in ("none-one", "none-two"):
        while ask(name) == [MEASURING]:
            time.sleep(0.01)
    assert ask("none-two") == ["the index is away"]
    assert ask("none-one") == [MEASURING]
