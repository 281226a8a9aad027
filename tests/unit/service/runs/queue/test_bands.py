"""A run's metrics beside the approved baseline and beside earlier runs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from compatgate.canary.judge.baseline import learn
from compatgate.canary.judge.result import Samples
from compatgate.canary.run import Env, Metric, Report
from compatgate.canary.workload import MetricSpec
from compatgate.service.runs.evidence.baselines import BaselineRow
from compatgate.service.runs.queue.models import PastStep
from compatgate.web.pages.run_inspection import (
    baseline_bands,
    family_of_report,
    metric_history,
)

WHEN = datetime(2026, 11, 21, 12, tzinfo=UTC)
FAMILY = "cuda-12.4"


def row(number: int, workload: str, metric: str = "step", unit: str = "ms") -> BaselineRow:
    values = tuple(100.0 + i for i in range(41))
    samples = [("run_0:gemm-0", Samples(metric, unit, (values,)))]
    learnt = learn(workload, "L4", FAMILY, metric, MetricSpec(unit, "lower"), samples)
    return BaselineRow(
        id=number, workload=workload, sku="L4", family=FAMILY, metric=metric, version=1,
        state="approved", body=msgspec.to_builtins(learnt), decided_at=WHEN,
    )  # fmt: skip


def test_a_band_holds_nine_of_ten_values_in_the_runs_unit() -> None:
    found = baseline_bands([row(1, "gemm@aaa")], "gemm", None, [Metric("step", "s", (0.1,))])
    band = found["step"]
    assert (band.low, band.middle, band.high) == pytest.approx((0.102, 0.12, 0.138))
    assert (band.n, band.runs, band.baseline) == (41, 1, 1)


def test_the_same_content_comes_before_a_newer_baseline_of_another() -> None:
    rows = [row(2, "gemm@bbbbbbbbbbbb"), row(1, "gemm@aaaaaaaaaaaa")]
    digest = "sha256:aaaaaaaaaaaa0000"
    mine = baseline_bands(rows, "gemm", digest, [Metric("step", "ms", ())])["step"]
    assert (mine.baseline, mine.same) == (1, True)
    another = baseline_bands(rows, "gemm", "sha256:cc", [Metric("step", "ms", ())])["step"]
    assert (another.baseline, another.same) == (2, False)


def test_another_workload_or_unit_gives_no_band() -> None:
    assert not baseline_bands([row(1, "conv@a")], "gemm", None, [Metric("step", "ms", ())])
    assert not baseline_bands([row(1, "gemm@a")], "gemm", None, [Metric("step", "GB/s", ())])


def step(run: str, minutes: int, values: tuple[float, ...], unit: str = "ms", **more: Any) -> Any:
    env = Env(versions=more.get("versions", {"cuda": "12.4.1"}))
    report = Report(env, (Metric("step", unit, values),))
    body = {"report": msgspec.to_builtins(report), "judgement": None}
    return PastStep(run, "passed", WHEN + timedelta(minutes=minutes), body)


def test_history_is_oldest_first_in_the_newest_runs_unit() -> None:
    past = [step("run_2", 2, (2.0, 2.0)), step("run_1", 1, (0.001, 0.001), "s")]
    points = metric_history(past, FAMILY)["step"]
    assert [(p.run, p.middle) for p in points] == [("run_1", 1.0), ("run_2", 2.0)]


def test_other_families_and_steps_without_a_report_are_left_out() -> None:
    nothing = PastStep("run_4", "error", WHEN, {"report": None})
    past = [step("run_3", 3, (1.0,), versions={"cuda": "12.8"}), nothing, step("run_1", 1, ())]
    assert metric_history(past, FAMILY) == {}


def test_a_family_that_cannot_be_told_has_no_history() -> None:
    report = Report(Env(versions={"cuda": "twelve"}))
    assert family_of_report(report) is None
    assert metric_history([step("run_1", 1, (1.0,))], None) == {}
