"""Warm-up comes first and is kept apart; a value spans enough calls to be timed."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import ModuleType, SimpleNamespace

import pytest

Load = Callable[[str], ModuleType]


class Ticks:
    """A clock on which every call takes one second more than the one before, or always as long."""

    def __init__(self, always: float | None = None) -> None:
        self.calls, self._always = 0, always

    def seconds(self, call: Callable[[], object]) -> float:
        before = self.calls
        call()
        done = self.calls - before
        return done * (self._always or self.calls)


@pytest.fixture
def timing(shared: Load) -> ModuleType:
    return shared("canary_timing")


def _count(clock: Ticks) -> Callable[[], None]:
    def call() -> None:
        clock.calls += 1

    return call


def test_the_first_calls_are_warm_up_and_the_rest_in_order(timing: ModuleType) -> None:
    clock = Ticks()
    options = SimpleNamespace(warmup=2, repetitions=3)
    times = timing.repeat(_count(clock), clock, options, calls=1)
    assert times.warmup == [1, 2, 3]
    assert times.values == [4, 5, 6]


def test_short_calls_are_timed_together(timing: ModuleType) -> None:
    clock = Ticks(always=0.0001)
    options = SimpleNamespace(warmup=0, repetitions=2)
    times = timing.repeat(_count(clock), clock, options)
    assert clock.calls == 2 + 2 * 20
    assert times.values == pytest.approx([0.0001, 0.0001])


@pytest.mark.parametrize(
    ("seconds", "calls"), [(1.0, 1), (0.002, 1), (0.001, 2), (1e-9, 1000), (0.0, 1000)]
)
def test_calls_of_one_value_are_bounded(timing: ModuleType, seconds: float, calls: int) -> None:
    assert timing.calls_for(seconds) == calls


def test_a_wall_clock_waits_for_what_is_under_way(timing: ModuleType) -> None:
    said: list[str] = []
    clock = timing.WallClock(lambda: said.append("settled"))
    assert clock.seconds(lambda: said.append("called")) >= 0
    assert said == ["settled", "called", "settled"]


def test_times_are_reported_in_the_metrics_unit(
    timing: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    times = timing.Times([0.5, 0.25], [1.0])
    timing.report("speed", "GB/s", times, timing.per_second(2))
    timing.report("time", "ms", times, timing.milliseconds)
    speed, time = map(json.loads, capsys.readouterr().out.splitlines())
    assert (speed["values"], speed["warmup"]) == ([4, 8], [2])
    assert (time["values"], time["unit"]) == ([500, 250], "ms")
