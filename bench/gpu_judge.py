"""What the judge says of the runs of bench/gpu.py: equal ones are left alone, seeded ones found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec
from gpu_plan import Seeded
from gpu_run import Ran
from msgspec import Struct, to_builtins
from msgspec.structs import replace

from compatgate.canary.engine.conclude import ExecutionEnd, conclude_step
from compatgate.canary.judge.baseline import learn
from compatgate.canary.judge.result import MetricJudgement, Samples
from compatgate.canary.judge.workload import WorkloadJudgement, judge_reports
from compatgate.canary.run import Report
from compatgate.canary.workload import Workload
from compatgate.errors import BadInput

Word = Literal["as expected", "flagged", "missed", "no effect", "inconclusive", "failed"]
"""``flagged``: an equal run called a regression; ``missed``: a seeded one was not found, though
what it is about changed beyond the tolerance; ``no effect``: it did not change that much."""


class Said(Struct, frozen=True):
    """What became of one run.

    Attributes:
        words: one line for people.
        found: metrics and checks that were called worse.
        judgement: the judge's own, as plain data; None where nothing could be judged.
    """

    workload: str
    label: str
    kind: str
    word: Word
    words: str
    found: tuple[str, ...] = ()
    judgement: dict[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        body: dict[str, Any] = to_builtins(self)
        return body


def prepared(workload: Workload, device: str, few: int | None) -> Workload:
    """The workload as it is judged here: without a GPU none is asked for; fewer values where so."""
    specs = {
        name: replace(spec, repetitions=min(spec.repetitions, few or spec.repetitions))
        for name, spec in workload.metrics.items()
    }
    return replace(workload, metrics=specs, gpus=0 if device == "cpu" else workload.gpus)


def judge_runs(
    workload: Workload,
    ran: Sequence[Ran],
    reports: Mapping[str, Report],
    seeded: Mapping[str, Seeded],
    notes: Mapping[str, str] | None = None,
) -> list[Said]:
    """Judge the runs of one workload; those of kind ``baseline`` make what others are held to.

    A baseline's values count also where a check of it failed, which is said: the next run of a
    program that is wrong here may still be slower. That check is then not asked of others.

    Args:
        workload: as `prepared`.
        ran: its runs.
        reports: what each printed, by label.
        seeded: by name.
        notes: what programs that did not get far said last, by label.
    """
    notes = notes or {}
    first = [one for one in ran if one.kind == "baseline"]
    said = [_ended(workload, one, reports[one.label], notes.get(one.label, "")) for one in first]
    accepted = [(one.label, reports[one.label]) for one in first if not one.exit]
    broken = {check.name for _, report in accepted for check in report.checks if not check.ok}
    checks = {name: says for name, says in workload.checks.items() if name not in broken}
    judging, learnt = replace(workload, checks=checks), _learnt(workload, accepted)
    for one in ran:
        if one.kind != "baseline":
            report, note = reports[one.label], notes.get(one.label, "")
            kept = tuple(check for check in report.checks if check.name not in broken)
            report = replace(report, checks=kept)
            said.append(_judge(judging, one, report, learnt, seeded.get(one.label), note))
    return said


def _ended(workload: Workload, one: Ran, report: Report, note: str) -> Said:
    """How a run ended that nothing is held against."""
    verdict = conclude_step(workload, ExecutionEnd("exited", one.exit), report)
    words = verdict.reason or "ran to the end, checks hold"
    word: Word = "as expected" if verdict.outcome == "passed" else "failed"
    word = "inconclusive" if verdict.outcome == "inconclusive" else word
    return Said(one.workload, one.label, one.kind, word, f"{words}: {note}" if note else words)


def _learnt(workload: Workload, accepted: Sequence[tuple[str, Report]]) -> dict[str, Samples]:
    found = {}
    for name, spec in workload.metrics.items():
        offered = [
            (label, Samples(name, metric.unit, (metric.values,)))
            for label, report in accepted
            for metric in report.metrics
            if metric.name == name
        ]
        try:
            found[name] = learn(workload.name, "here", "here", name, spec, offered).samples
        except BadInput:
            continue
    return found


def _judge(
    workload: Workload,
    one: Ran,
    report: Report,
    baselines: Mapping[str, Samples],
    seeded: Seeded | None,
    note: str,
) -> Said:
    verdict = conclude_step(workload, ExecutionEnd("exited", one.exit), report)
    why = dict.fromkeys(seeded.slower if seeded else (), "made slower on purpose")
    judged = judge_reports(
        workload.metrics, list(workload.checks), [report], baselines, explained=why
    )
    worse = [m.name for m in judged.metrics if m.outcome == "regression"]
    worse += dict.fromkeys(check.name for check in judged.checks if not check.ok)
    ended = verdict.outcome if verdict.outcome != "passed" else ""
    if ended and not (seeded and set(worse) & set(seeded.slower)):
        return _ended(workload, one, report, note)
    if seeded is None:
        word, words = _equal(judged, worse)
    else:
        word, words = _hunted(judged, worse, seeded)
    return Said(
        one.workload, one.label, one.kind, word, words, tuple(worse), msgspec.to_builtins(judged)
    )


def _equal(judged: WorkloadJudgement, worse: Sequence[str]) -> tuple[Word, str]:
    if worse:
        return "flagged", judged.reason
    if judged.outcome == "inconclusive":
        return "inconclusive", judged.reason
    return "as expected", judged.reason


def _hunted(judged: WorkloadJudgement, worse: Sequence[str], seeded: Seeded) -> tuple[Word, str]:
    found = [name for name in seeded.slower if name in worse]
    changes = {m.name: m for m in judged.metrics if m.name in seeded.slower}
    shown = ", ".join(_change(changes[name]) if name in changes else name for name in found)
    if found and (not seeded.every or len(found) == len(seeded.slower)):
        beside = [name for name in worse if name not in seeded.slower]
        also = f"; also {', '.join(beside)}" if beside else ""
        return "as expected", f"found: {shown}{also}"
    left = [changes[name] for name in seeded.slower if name in changes and name not in found]
    moved = [metric for metric in left if _moved(metric)]
    listed = ", ".join(map(_change, moved or left)) or "nothing that it is about was measured"
    known = bool(left) and all(metric.numbers for metric in left)
    word: Word = "missed" if moved else "no effect" if known else "inconclusive"
    return word, listed + (f"; found: {shown}" if found else "")


def _moved(metric: MetricJudgement) -> bool:
    """Whether the middle is worse by more than what is tolerated."""
    if metric.numbers is None:
        return False
    ratio = metric.numbers.ratio
    longer = ratio if metric.better == "lower" else 1 / ratio if ratio > 0 else float("inf")
    return longer > 1 + metric.tolerance


def _change(metric: MetricJudgement) -> str:
    if metric.numbers is None:
        return f"{metric.name} ({metric.reason})"
    return f"{metric.name} x {metric.numbers.ratio:.3g}"
