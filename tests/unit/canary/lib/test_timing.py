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

    def seconds(
        self, call: Callable[[], object], look: Callable[[], object] | None = None
    ) -> float:
        before = self.calls
        call()
        done = self.calls - before
        if look:
            look()
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
    options = SimpleNamespace(device="cpu", warmup=2, repetitions=3, value_ms=None)
    times = timing.repeat(_count(clock), clock, options, calls=1)
    assert times.warmup == [1, 2, 3]
    assert times.values == [4, 5, 6]
    assert (times.conditions, times.settled) == ({}, None)


@pytest.mark.parametrize(("falls", "settled", "warm"), [(0.5, True, 12), (0.98, False, 40)])
def test_on_a_gpu_the_warm_up_goes_on_until_values_are_steady_or_time_is_up(
    timing: ModuleType, monkeypatch: pytest.MonkeyPatch, falls: float, settled: bool, warm: int
) -> None:
    monkeypatch.setattr(timing.time, "monotonic", lambda: len(taken) * 15 / 40)
    taken: list[float] = []

    def value(look: Callable[[], object]) -> float:
        look()
        taken.append(1 + falls ** len(taken))
        return taken[-1]

    options = SimpleNamespace(device="cuda", warmup=2, repetitions=3)
    times = timing.measure(value, options)
    assert (times.settled, len(times.warmup)) == (settled, warm)
    assert times.values == taken[warm:]
    none = timing.measure(value, SimpleNamespace(device="cuda", warmup=0, repetitions=1))
    assert (none.settled, none.warmup) == (None, [])


def test_a_clock_that_moves_is_not_steady(timing: ModuleType) -> None:
    assert timing.is_steady([1.0] * 6, [None] * 6)
    assert timing.is_steady([1.0] * 6, [300, 900, 1980, 1980, 1965, 1980])
    assert not timing.is_steady([1.0] * 6, [1980, 1980, 1980, 1980, 1935, 1980])
    assert not timing.is_steady([1.0] * 5)


def test_conditions_stand_beside_the_values_and_not_the_warm_up(
    timing: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = iter({"sm_mhz": 1900 + n, "watts": 600.5, "limits": ["heat"]} for n in range(5))
    monkeypatch.setattr(timing.conditions, "read", lambda: next(rows))
    options = SimpleNamespace(device="cpu", warmup=2, repetitions=2, value_ms=1)
    times = timing.repeat(lambda: None, timing.WallClock(), options)
    timing.report("time", "ms", times._replace(settled=False), timing.milliseconds)
    line = json.loads(capsys.readouterr().out)
    wanted = {"sm_mhz": [1902, 1903], "watts": [600.5] * 2, "limits": [["heat"]] * 2}
    assert line["conditions"] == {**wanted, "settled": False}


def test_what_comes_before_each_call_is_not_timed(timing: ModuleType) -> None:
    clock = timing.WallClock()
    said: list[str] = []
    ticks = iter(range(100))
    timing.time.perf_counter, kept = lambda: next(ticks), timing.time.perf_counter
    try:
        took = clock.apart(lambda: said.append("call"), 3, lambda: said.append("before"))
    finally:
        timing.time.perf_counter = kept
    assert said == ["before", "call"] * 3
    assert took == 3


def test_short_calls_are_timed_together(timing: ModuleType) -> None:
    clock = Ticks(always=0.0001)
    options = SimpleNamespace(device="cuda", warmup=0, repetitions=2, value_ms=None)
    times = timing.repeat(_count(clock), clock, options)
    assert clock.calls == 2 + 2 * 2000
    assert times.values == pytest.approx([0.0001, 0.0001])


def test_events_around_each_call_leave_out_what_comes_before(timing: ModuleType) -> None:
    now = [0]
    open_events: list[int] = []

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            open_events.append(1)

        def record(self) -> None:
            self.at = now[0]

        def synchronize(self) -> None:
            del open_events[:]

        def elapsed_time(self, end: Event) -> int:
            return end.at - self.at

    def takes(milliseconds: int) -> Callable[[], None]:
        def call() -> None:
            now[0] += milliseconds

        return call

    clock = timing.TorchClock(SimpleNamespace(cuda=SimpleNamespace(Event=Event)))
    looked: list[int] = []
    seconds = clock.apart(takes(3), 600, takes(40), lambda: looked.append(now[0]))
    assert seconds == pytest.approx(600 * 0.003)
    assert (looked, open_events) == ([600 * 43], [])
    assert clock.seconds(takes(7), lambda: looked.append(0)) == pytest.approx(0.007)


@pytest.mark.parametrize(
    ("seconds", "calls"), [(1.0, 1), (0.2, 1), (0.1, 2), (1e-9, 100_000), (0.0, 100_000)]
)
def test_calls_of_one_value_are_bounded(timing: ModuleType, seconds: float, calls: int) -> None:
    assert timing.calls_for(seconds, 0.2) == calls


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
