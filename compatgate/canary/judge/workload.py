"""Judge a workload's reports: checks first, then each metric against its baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from compatgate.canary.judge.history import PAIRS_NEEDED, has_history, judge_drift, judge_history
from compatgate.canary.judge.metric import judge_metric
from compatgate.canary.judge.prepare import find_conversion
from compatgate.canary.judge.result import JUDGE, MetricJudgement, Samples
from compatgate.canary.run import Check, Report
from compatgate.canary.workload import MetricSpec

Outcome = Literal["passed", "failed", "inconclusive"]


class WorkloadJudgement(Struct, frozen=True):
    """Judgement of one or several executions of a workload.

    Attributes:
        missing: data that would make it conclusive, a line each.
        more: additional repetitions that the candidate should give; 0 if they would not help.
        pairs: only pairs with a reference can answer: the baseline's runs differ too much.
        runs: executions that were judged together.
    """

    outcome: Outcome
    reason: str
    checks: tuple[Check, ...] = ()
    metrics: tuple[MetricJudgement, ...] = ()
    missing: tuple[str, ...] = ()
    more: int = 0
    pairs: bool = False
    runs: int = 1
    judge: str = JUDGE

    @property
    def explanation(self) -> str:
        """Return the reason, with what would make it conclusive."""
        if self.outcome != "inconclusive" or not self.missing:
            return self.reason
        more = f" (and {len(self.missing) - 1} more)" if len(self.missing) > 1 else ""
        return f"{self.reason}; needs {self.missing[0]}{more}"


def judge_reports(
    metrics: Mapping[str, MetricSpec],
    checks: Sequence[str],
    reports: Sequence[Report],
    baselines: Mapping[str, Samples],
    doubts: Mapping[str, str] | None = None,
    explained: Mapping[str, str] | None = None,
    suite: int = 0,
) -> WorkloadJudgement:
    """Judge the reports of one or several executions of a workload.

    Args:
        checks: declared names; every execution must have reported each.
        reports: reports of the executions, in order; their values are judged together.
        suite: number of metrics of the suite that the workload belongs to.
    """
    candidate = {
        name: samples for name in metrics if (samples := _merge_samples(name, reports)) is not None
    }
    reported = [check for report in reports for check in report.checks]
    unreported = [
        name
        for name in checks
        if not reports or not all(any(c.name == name for c in r.checks) for r in reports)
    ]
    judged = judge_samples(
        metrics, baselines, candidate, reported, unreported, doubts=doubts, explained=explained,
        suite=suite,
    )  # fmt: skip
    return replace(judged, runs=len(reports))


def judge_samples(
    metrics: Mapping[str, MetricSpec],
    baselines: Mapping[str, Samples],
    candidate: Mapping[str, Samples],
    checks: Sequence[Check] = (),
    unreported: Sequence[str] = (),
    *,
    doubts: Mapping[str, str] | None = None,
    explained: Mapping[str, str] | None = None,
    suite: int = 0,
) -> WorkloadJudgement:
    """Judge checks and samples; without either, the result is inconclusive.

    ``unreported`` are declared checks without a result.
    """
    judged = _judge_metrics(metrics, baselines, candidate, doubts or {}, explained or {}, suite)
    failed = list(dict.fromkeys(check for check in checks if not check.ok))
    regressed = [m for m in judged if m.outcome == "regression"]
    unsure = [m for m in judged if m.outcome in ("inconclusive", "no-baseline")]
    missing = [f"{m.name}: {m.missing}" for m in unsure if m.missing]
    missing += [f"check {name}: it was not reported" for name in unreported]
    more = 0
    for metric in unsure:
        have = len(candidate[metric.name].values) if metric.name in candidate else 0
        more = max(more, (metric.repetitions or have) - have)
    outcome: Outcome = "passed"
    if failed or regressed:
        outcome, more = "failed", 0
        reasons = [f"check {c.name} failed{f': {c.message}' if c.message else ''}" for c in failed]
        reasons += [f"{m.name}: {m.reason}" for m in regressed]
    elif unsure or unreported:
        outcome = "inconclusive"
        reasons = [f"{m.name}: {m.reason}" for m in unsure]
        reasons += [f"check {name} was not reported" for name in unreported]
    elif not judged and all(check.skipped for check in checks):
        outcome, reasons = "inconclusive", ["nothing was measured: no metric and no check"]
        missing = ["a workload that reports metrics or checks"]
    else:
        reasons = [_passed_text(checks, judged)]
    reason = "; ".join(reasons)
    pairs = outcome == "inconclusive" and any(m.missing == PAIRS_NEEDED for m in unsure)
    return WorkloadJudgement(
        outcome, reason, tuple(checks), judged, tuple(missing), 0 if pairs else more, pairs
    )


def _judge_metrics(
    metrics: Mapping[str, MetricSpec],
    baselines: Mapping[str, Samples],
    candidate: Mapping[str, Samples],
    doubts: Mapping[str, str],
    explained: Mapping[str, str],
    suite: int,
) -> tuple[MetricJudgement, ...]:
    """Judge metrics with a history together, and the others alone."""
    size = max(suite, len(metrics))
    learned = {
        name: spec
        for name, spec in metrics.items()
        if has_history(baselines.get(name), candidate.get(name))
    }
    known = judge_history(
        learned, baselines, candidate, suite=size, doubts=doubts, explained=explained
    )
    sound = {n: learned[n] for n, one in known.items() if one.outcome in ("ok", "improvement")}
    known |= judge_drift(sound, baselines, candidate, size)
    return tuple(
        known.get(name)
        or judge_metric(
            name,
            spec,
            baselines.get(name),
            candidate.get(name),
            doubt=doubts.get(name, ""),
            explained=explained.get(name, ""),
        )
        for name, spec in metrics.items()
    )


def _merge_samples(name: str, reports: Sequence[Report]) -> Samples | None:
    """Return a metric's values over executions, in the first one's unit; None without any."""
    results = [metric for report in reports for metric in report.metrics if metric.name == name]
    if not results:
        return None
    factors = [find_conversion(metric.unit, results[0].unit) for metric in results]
    unit = results[0].unit
    if None in factors:
        unit = ", ".join(dict.fromkeys(metric.unit for metric in results))
        factors = [1.0] * len(results)
    runs = (
        tuple(value * (factor or 1.0) for value in metric.values)
        for metric, factor in zip(results, factors, strict=True)
    )
    return Samples(name, unit, tuple(runs))


def _passed_text(checks: Sequence[Check], judged: Sequence[MetricJudgement]) -> str:
    def count(number: int, what: str, does: str) -> str:
        return f"1 {what} {does}s" if number == 1 else f"{number} {what}s {does}"

    better = [m.name for m in judged if m.outcome == "improvement"]
    held = sum(not check.skipped for check in checks)
    parts = [count(held, "check", "hold")] if held else []
    parts += [f"{len(checks) - held} skipped"] if held < len(checks) else []
    parts += [count(len(judged), "metric", "show") + " no regression"] if judged else []
    parts += [f"better: {', '.join(better)}"] if better else []
    return "; ".join(parts)
