"""Judge a step against its baselines, and offer its values to learn from.

`list_samples` writes the values as the lines of the protocol, for `canary judge`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from compatgate.canary.engine import BaselineKey, Baselines
from compatgate.canary.judge.baseline import find_family
from compatgate.canary.judge.result import Samples
from compatgate.canary.judge.workload import WorkloadJudgement, judge_reports
from compatgate.canary.peaks import find_doubts, find_shares
from compatgate.canary.run import Report, StepResult, merge_reports
from compatgate.canary.workload import Workload
from compatgate.core.facts import Facts
from compatgate.errors import BadInput

NO_GPU_SKU = "cpu"
_LEARNABLE_OUTCOMES = ("ok", "improvement", "no-baseline")


def _find_obstacle(step: StepResult) -> str:
    """Return why none of a step's values may be learned from; "" if some may.

    Pairs that did not pass forbid it, whatever the stored baselines say.
    """
    if step.judgement is None:
        return step.reason or f"it ended {step.outcome}"
    judged = msgspec.convert(step.judgement, WorkloadJudgement)
    sound = step.outcome == "passed" or step.outcome == judged.outcome == "inconclusive"
    return "" if sound else step.reason or f"it ended {step.outcome}"


def _list_learnable(step: StepResult) -> dict[str, str]:
    """Return the metrics whose values may be learned from, with a person's reason for them, or "".

    A metric is learned by itself, and one that is open only if pairs passed. Improbably good values
    need a reason. A metric without a baseline may be learned: the first runs make one.
    """
    if _find_obstacle(step):
        return {}
    judged = msgspec.convert(step.judgement, WorkloadJudgement)
    return {
        metric.name: metric.explained
        for metric in judged.metrics
        if not metric.doubt
        and (
            metric.outcome in _LEARNABLE_OUTCOMES
            or (step.outcome == "passed" and metric.outcome != "regression")
        )
    }


class BaselineJudge:
    """Judge of one host, by its SKU (None without GPUs) and by the published peaks, if given."""

    def __init__(self, baselines: Baselines, sku: str | None, facts: Facts | None = None) -> None:
        self._baselines = baselines
        self._sku = sku or NO_GPU_SKU
        self._facts = facts

    def judge(
        self, workload: Workload, reports: Sequence[Report], suite: int = 0, *, explained: str = ""
    ) -> WorkloadJudgement:
        """Judge all executions of a step together.

        Each metric of the ``suite`` may raise a false alarm. ``explained`` is why a person accepts
        improbably good values; "" if nobody does.
        """
        ground = self._ground(workload, reports[-1])
        if ground is None:
            return WorkloadJudgement("inconclusive", "a reported version cannot be read")
        baselines = self._baselines.approved(ground) if workload.metrics else {}
        doubts = {}
        if facts := self._facts:
            report = merge_reports(reports)
            shares = find_shares(workload.metrics, report, facts.gpus, facts.gpu_peaks)
            doubts = find_doubts(shares)
        return judge_reports(
            workload.metrics,
            list(workload.checks),
            reports,
            baselines,
            doubts,
            dict.fromkeys(workload.metrics, explained),
            suite=suite,
        )

    def offer(self, run: str, workload: Workload, step: StepResult) -> None:
        """Offer the values of each metric that is neither worse, nor open, nor doubtful."""
        learnable = _list_learnable(step) if workload.metrics and step.report else {}
        report = msgspec.convert(step.report, Report) if learnable else Report()
        ground = self._ground(workload, report) if learnable else None
        if ground is None:
            return
        # Repeats lie in one session, so that they differ less than runs do: the first one counts.
        runs = msgspec.convert(step.judgement, WorkloadJudgement).runs
        known = [
            Samples(
                metric.name,
                metric.unit,
                (metric.values[: max(len(metric.values) // runs, 1)],),
                explained=learnable[metric.name],
            )
            for metric in report.metrics
            if metric.name in learnable
        ]
        if known:
            self._baselines.offer(ground, workload.metrics, f"{run}:{step.name}", known)

    def _ground(self, workload: Workload, report: Report) -> BaselineKey | None:
        try:
            family = find_family(report.env.versions if report.env else {})
        except BadInput:
            return None
        return BaselineKey(workload.content, self._sku, family)


_DEVICE = ("name", "memory_bytes", "compute_capability", "mig")
"""Members of a GPU that name no single device."""


def list_samples(run: str, steps: Iterable[StepResult]) -> dict[str, Any]:
    """Return a file for each step that measured soundly, and why the others have none."""
    samples, refused = [], []
    for step in steps:
        report = Report() if step.report is None else msgspec.convert(step.report, Report)
        if step.report is None:
            why = step.reason or "its output is no longer stored"
        elif report.env is None:
            why = "it printed no env line, so the loaded components are unknown"
        else:
            why = report.own_fault or next(iter(report.problems), "") or _find_obstacle(step)
        if why:
            refused.append({"step": step.name, "reason": why})
            continue
        lines = (msgspec.json.encode(line).decode() + "\n" for line in _list_lines(report))
        file = {"name": f"{run}_{step.name}.jsonl", "workload": step.workload}
        samples.append({**file, "step": step.name, "text": "".join(lines)})
    return {"samples": samples, "refused": refused}


def _list_lines(report: Report) -> Iterator[dict[str, Any]]:
    if env := report.env:
        gpus = [
            {name: value for name in _DEVICE if (value := getattr(device, name)) is not None}
            for device in env.gpus
        ]
        known = {"driver": env.driver, "gpus": gpus, "versions": env.versions}
        yield {"type": "env", **known, **env.other}
    for metric in report.metrics:
        yield {"type": "metric", **msgspec.to_builtins(metric)}
    for check in report.checks:
        line = {"type": "check", "name": check.name, "ok": check.ok, "message": check.message}
        yield line | ({"skipped": True} if check.skipped else {})
