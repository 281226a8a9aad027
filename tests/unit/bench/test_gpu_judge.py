"""What is said of equal runs and of those that were made slower on purpose."""

from __future__ import annotations

import random

from gpu_judge import Said, judge_runs
from gpu_plan import Kind, Seeded
from gpu_run import Ran
from msgspec.structs import replace

from compatgate.canary.run import Check, Device, Env, Metric, Report
from compatgate.canary.workload import ImageSpec, MetricSpec, Workload

WORKLOAD = Workload(
    "gemm",
    "multiplies",
    ("true",),
    ImageSpec(inside=True),
    gpus=1,
    metrics={name: MetricSpec("TFLOP/s", "higher") for name in ("tf32", "fp16")},
    checks={"right": "it is right"},
)
OFF = Seeded("tf32-off", "gemm", ("cuda",), ("tf32",), "TF32 is off", handicap="x", every=True)


def ran(kind: Kind, label: str, exit_: int = 0) -> Ran:
    return Ran("gemm", kind, label, [], {}, exit_, 1.0, "2026-11-21T12:00:00+00:00", "sha256:0")


def report(seed: int, tf32: float = 400.0, *, right: bool = True) -> Report:
    draw = random.Random(seed)
    metrics = [
        Metric(name, "TFLOP/s", tuple(level * draw.gauss(1, 0.005) for _ in range(30)))
        for name, level in (("tf32", tf32), ("fp16", 800.0))
    ]
    env = Env("580.95.05", (Device("NVIDIA H200"),))
    return Report(env, tuple(metrics), (Check("right", right),))


def judged(*pairs: tuple[Ran, Report]) -> dict[str, Said]:
    runs = [one for one, _ in pairs]
    said = judge_runs(WORKLOAD, runs, {one.label: what for one, what in pairs}, {"tf32-off": OFF})
    return {one.label: one for one in said}


BASE = [(ran("baseline", f"baseline-{n}"), report(n)) for n in (1, 2)]


def test_an_equal_run_is_left_alone() -> None:
    assert judged(*BASE, (ran("equal", "equal"), report(3)))["equal"].word == "as expected"


def test_an_equal_run_that_became_slower_is_flagged() -> None:
    said = judged(*BASE, (ran("equal", "equal"), report(3, 300.0)))["equal"]
    assert (said.word, said.found) == ("flagged", ("tf32",))


def test_a_regression_that_was_made_is_found() -> None:
    said = judged(*BASE, (ran("seeded", "tf32-off"), report(3, 60.0)))["tf32-off"]
    assert said.word == "as expected"
    assert said.words.startswith("found: tf32 x 0.1")


def test_one_that_had_no_effect_is_told_from_one_that_was_missed() -> None:
    said = judged(*BASE, (ran("seeded", "tf32-off"), report(3)))["tf32-off"]
    assert said.word == "no effect"
    noisy = [(one, with_tf32(what, 400, 0.2)) for one, what in BASE]
    said = judged(*noisy, (ran("seeded", "tf32-off"), with_tf32(report(3), 370, 0.2)))["tf32-off"]
    assert said.word == "missed"
    assert said.words.startswith("tf32 x 0.9")


def test_too_few_values_are_no_answer() -> None:
    few = with_tf32(report(3), 60, 0.01, count=10)
    assert judged(*BASE, (ran("seeded", "tf32-off"), few))["tf32-off"].word == "inconclusive"


def with_tf32(what: Report, level: float, noise: float, count: int = 30) -> Report:
    draw = random.Random(level)
    values = tuple(level * draw.gauss(1, noise) for _ in range(count))
    return replace(what, metrics=(Metric("tf32", "TFLOP/s", values), what.metrics[1]))


def test_a_check_that_fails_from_the_first_is_said_and_not_asked_of_others() -> None:
    wrong = (ran("baseline", "baseline-1"), report(1, right=False))
    slower = (ran("seeded", "tf32-off"), report(4, 60.0, right=False))
    said = judged(wrong, (ran("equal", "equal"), report(3, right=False)), slower)
    assert (said["baseline-1"].word, said["equal"].word) == ("failed", "as expected")
    assert "check right failed" in said["baseline-1"].words
    assert said["tf32-off"].found == ("tf32",)


def test_a_check_that_fails_later_is_flagged() -> None:
    said = judged(*BASE, (ran("equal", "equal"), report(3, right=False)))["equal"]
    assert (said.word, said.words) == ("failed", "check right failed")


def test_without_a_baseline_nothing_is_as_expected() -> None:
    crashed = (ran("baseline", "baseline-1", 1), Report())
    said = judge_runs(
        WORKLOAD,
        [crashed[0], ran("equal", "equal")],
        {"baseline-1": crashed[1], "equal": report(3)},
        {},
        {"baseline-1": "RuntimeError: no kernel image"},
    )
    assert said[0].words == "ended with status 1: RuntimeError: no kernel image"
    assert said[1].word == "inconclusive"


def test_a_run_that_crashed_is_never_what_was_expected() -> None:
    crashed = judged(*BASE, (ran("seeded", "tf32-off", 139), report(3)))["tf32-off"]
    assert crashed.word == "failed"
    assert "SIGSEGV" in crashed.words
