"""Turn the blocks of a paired run into samples, a judgement, and results of steps. Pure.

A block is one process; a workload with several seeds has several blocks an arm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from compatgate.canary.engine.steps import Step
from compatgate.canary.judge.noise import fit_noise
from compatgate.canary.judge.paired.blocks import (
    FIRST_LOOK,
    Arm,
    LogRatios,
    MetricPairs,
    Pair,
    PairedJudgement,
    PairedSamples,
    PairMedians,
    PairsState,
    compute_log_ratios,
    counts_events,
    find_refusal,
)
from compatgate.canary.judge.paired.suite import Knowledge, judge_pairs
from compatgate.canary.judge.prepare import find_conversion
from compatgate.canary.judge.statistics import median
from compatgate.canary.judge.workload import WorkloadJudgement
from compatgate.canary.run import Outcome, Report, StepResult, merge_reports
from compatgate.canary.workload import MetricSpec, Workload

ARMS: tuple[Arm, Arm] = ("A", "B")
ARM_NAMES: dict[Arm, str] = {"A": "reference", "B": "candidate"}


class ExecutedBlock(Struct, frozen=True):
    """A block that ended."""

    result: StepResult
    report: Report


class BlockRecord:
    """Blocks of a paired run, by step, pair and arm."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = tuple(steps)
        self._found: dict[tuple[str, int, Arm], ExecutedBlock] = {}

    def add(self, step: Step, result: StepResult) -> None:
        """Add a block; it replaces an earlier one at the same position."""
        place = result.block
        assert place is not None  # noqa: S101 - a block has a position
        report = msgspec.convert(result.report, Report) if result.report else Report()
        self._found[step.name, place.pair, place.arm] = ExecutedBlock(result, report)

    def has(self, step: Step, pair: int, arm: Arm) -> bool:
        """Return whether a block ended, whatever its outcome."""
        return (step.name, pair, arm) in self._found

    def blocks(self, step: Step, arm: Arm) -> list[ExecutedBlock]:
        """Return the blocks of a step and arm, in the order of pairs."""
        found = self._found
        places = sorted(place for place in found if (place[0], place[2]) == (step.name, arm))
        return [found[place] for place in places]

    def trouble(self, arm: Arm, step: Step | None = None) -> ExecutedBlock | None:
        """Return the first block of an arm that did not pass; None if all did."""
        steps = self.steps if step is None else (step,)
        blocks = (block for one in steps for block in self.blocks(one, arm))
        return next((block for block in blocks if block.result.outcome != "passed"), None)

    def complete(self, steps: Iterable[Step]) -> list[int]:
        """Return the pairs in which every step has both blocks, and all passed."""
        named = [step.name for step in steps]
        numbers = sorted({pair for _, pair, _ in self._found})
        passed = {k for k, block in self._found.items() if block.result.outcome == "passed"}
        return [p for p in numbers if all((n, p, arm) in passed for n in named for arm in ARMS)]

    def arm(self, steps: Iterable[Step], pair: int, arm: Arm) -> list[ExecutedBlock]:
        """Return the blocks of an arm in a complete pair, one for each step."""
        return [self._found[step.name, pair, arm] for step in steps]


def collect_samples(record: BlockRecord) -> dict[str, PairedSamples]:
    """Return the samples of complete pairs by ``WORKLOAD.METRIC``, in declared units."""
    results = {}
    for name, of_workload in groupby(record.steps, key=lambda step: step.workload.name):
        steps = list(of_workload)
        pairs = record.complete(steps)
        for metric, spec in steps[0].workload.metrics.items():
            made = []
            for pair in pairs:
                arms = (
                    tuple(
                        tuple(value * factor for value in one.values)
                        for block in record.arm(steps, pair, arm)
                        for one in block.report.metrics
                        if one.name == metric and one.values
                        if (factor := find_conversion(one.unit, spec.unit)) is not None
                    )
                    for arm in ARMS
                )
                made.append(Pair(pair, *arms))
            whole = tuple(pair for pair in made if pair.complete)
            results[f"{name}.{metric}"] = PairedSamples(f"{name}.{metric}", spec.unit, whole)
    return results


def list_metrics(steps: Iterable[Step]) -> dict[str, tuple[Workload, MetricSpec]]:
    """Return the declared metrics of a suite by ``WORKLOAD.METRIC``."""
    workloads = {step.workload.name: step.workload for step in steps}
    return {
        f"{name}.{metric}": (workload, spec)
        for name, workload in workloads.items()
        for metric, spec in workload.metrics.items()
    }


def learn_knowledge(
    steps: Iterable[Step], earlier: Sequence[PairsState], explained: str = ""
) -> dict[str, Knowledge]:
    """Return what earlier sessions of the same workload's content teach about noise.

    ``explained`` is why a person accepts an improbable improvement of this run.
    """
    results = {}
    for name, (workload, _) in list_metrics(steps).items():
        past = [state.metrics[name] for state in earlier if name in state.metrics]
        prior = fit_noise(
            LogRatios(one.ratios, one.step).noise
            for one in past
            if one.workload == workload.content and one.ratios
        )
        if prior or explained:
            results[name] = Knowledge(prior=prior, explained=explained)
    return results


def judge_record(record: BlockRecord, known: Mapping[str, Knowledge]) -> PairedJudgement:
    """Judge the complete pairs as a suite; a suite without metrics needs one pair."""
    metrics = {name: spec for name, (_, spec) in list_metrics(record.steps).items()}
    if metrics:
        return judge_pairs(metrics, collect_samples(record), known=known)
    if record.complete(record.steps):
        return PairedJudgement("passed", "no metric; both pass their checks", (), pairs=1)
    return PairedJudgement("inconclusive", "no pair is complete", (), more=1)


def describe_state(
    record: BlockRecord, judged: PairedJudgement, images: dict[Arm, str], single: Sequence[str]
) -> PairsState:
    """Return how the pairs stand."""
    declared = list_metrics(record.steps)
    metrics = {}
    for name, samples in collect_samples(record).items():
        workload, spec = declared[name]
        medians = tuple(
            PairMedians(
                pair.number,
                median([v for block in pair.reference for v in block]),
                median([v for block in pair.candidate for v in block]),
            )
            for pair in samples.pairs
        )
        ratios = LogRatios(())
        if not (counts_events(samples) or find_refusal(samples, spec.tolerance)):
            ratios = compute_log_ratios(samples)
        if medians:
            metrics[name] = MetricPairs(
                workload.content, samples.unit, medians, ratios.values, ratios.step
            )
    return PairsState(
        outcome=None if judged.more else judged.outcome,
        reason=judged.reason,
        done=judged.pairs,
        planned=judged.pairs + judged.more,
        images=images,
        judgement=judged,
        metrics=metrics,
        single=tuple(single),
    )


JudgeAlone = Callable[[Workload, Sequence[Report]], WorkloadJudgement]
"""Judge of the candidate alone, by stored baselines."""


def conclude_steps(
    record: BlockRecord, judged: PairedJudgement, reference: str, judge_alone: JudgeAlone
) -> list[StepResult]:
    """Return the result of each step: what the candidate did, and how it compares.

    The candidate's own failures come first. It passes only if the reference passed too, no metric
    of its workload regressed, none is open or implausible, and no baseline contradicts.
    """
    results = []
    for step in record.steps:
        blocks = record.blocks(step, "B")
        if not blocks:
            continue
        reports = [block.report for block in blocks]
        merged = replace(
            blocks[-1].result,
            name=step.name,
            report=msgspec.to_builtins(merge_reports(reports)),
            started_at=blocks[0].result.started_at,
            block=None,
        )
        if trouble := record.trouble("B", step):
            outcome, reason = _attribute(record, step, trouble.result, reference)
        else:
            alone = judge_alone(step.workload, reports)
            merged = replace(merged, judgement=msgspec.to_builtins(alone))
            outcome, reason = _compare(record, step, judged, reference)
            against = "; ".join(f"{m.name}: {m.doubt}" for m in alone.metrics if m.doubt)
            if alone.outcome == "failed":
                against = f"against its baseline: {alone.explanation}"
            if outcome == "passed" and against:
                outcome = "inconclusive"
                reason = f"no regression against the reference {reference}, but {against}"
        results.append(replace(merged, outcome=outcome, reason=reason))
    return results


def _attribute(
    record: BlockRecord, step: Step, candidate: StepResult, reference: str
) -> tuple[Outcome, str]:
    """Return the outcome of a candidate that did not pass: its fault if only the candidate did it.

    The reference of the same pair decides.
    """
    assert candidate.block is not None  # noqa: S101 - a block has a position
    reason = _locate(candidate)
    blocks = [block.result for block in record.blocks(step, "A")]
    same = [one for one in blocks if one.block and one.block.pair == candidate.block.pair]
    if not candidate.attributable or not same:
        return candidate.outcome, reason
    ended_well = same[0].exit_code == 0 and not same[0].attributable
    if ended_well and same[0].outcome in ("passed", "failed"):
        return "failed", f"{reason}; the reference {reference} ended well on the same GPU"
    return "inconclusive", f"{reason}; the reference {reference} too: {_locate(same[0])}"


def _locate(result: StepResult) -> str:
    place = result.block
    reason = result.reason or result.outcome
    return f"{reason} (pair {place.pair})" if place and place.pair > 1 else reason


def _compare(
    record: BlockRecord, step: Step, judged: PairedJudgement, reference: str
) -> tuple[Outcome, str]:
    if own := record.trouble("A", step):
        return "inconclusive", f"the reference {reference} did not pass: {_locate(own.result)}"
    other = record.trouble("B") or record.trouble("A")
    if other and not other.result.name.startswith(f"{step.name}-pair"):
        return "inconclusive", f"was not compared: {other.result.name} did not pass"
    mine = [m for m in judged.metrics if m.metric.partition(".")[0] == step.workload.name]
    outcomes: dict[str, Outcome] = {"regression": "failed", "inconclusive": "inconclusive"}
    for kind, outcome in outcomes.items():
        reasons = [
            f"{m.metric.partition('.')[2]}: "
            + m.reason.replace("the reference", f"the reference {reference}", 1)
            + (f"; needs {m.missing}" if m.missing else "")
            for m in mine
            if m.outcome == kind
        ]
        if reasons:
            return outcome, "; ".join(reasons)
    pairs = "1 pair" if judged.pairs == 1 else f"{judged.pairs} pairs"
    return "passed", f"no regression against {reference} in {pairs}"


def describe_progress(
    judged: PairedJudgement | None, pair: int, at_most: int, step: Step, arm: Arm
) -> str:
    """Return the current activity for people: the pair, the block, and the largest effect."""
    within = f"of {FIRST_LOOK}" if pair <= FIRST_LOOK else f"of at most {at_most}"
    doing = f"pair {pair} {within}: {step.name}, {ARM_NAMES[arm]}"
    known = [m for m in judged.metrics if m.effect is not None] if judged else []
    if not known:
        return doing
    most = max(known, key=lambda m: abs(m.effect or 0.0))
    return f"{doing}; so far {most.metric} {100 * (most.effect or 0.0):+.1f} %"
