"""Samples out of a stored run. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC

import msgspec
from msgspec import Struct

from compatgate import __version__
from compatgate.canary import protocol
from compatgate.canary.engine.judging import NO_GPU_SKU, ground_of, unsettled
from compatgate.canary.engine.measured import Expected, Mismatch, compare, measure
from compatgate.canary.report import Report
from compatgate.canary.run import Origin, StepResult
from compatgate.canary.samples.lines import read_head, read_report, to_text
from compatgate.canary.samples.model import MOMENT, Sample, SampleHead
from compatgate.canary.samples.sound import doubts
from compatgate.canary.workload import Workload
from compatgate.core.facts import Facts, Gpus
from compatgate.core.stack import Stack
from compatgate.documents.problems import Problems
from compatgate.documents.sources import Source
from compatgate.errors import BadInput

_OLD = "it was recorded by a compatgate that did not keep what a sample says of it; run it again"
_USABLE = ("passed", "inconclusive")


class Refused(Struct, frozen=True):
    """A step that gives no sample, and why."""

    step: str
    reason: str


class Taken(Struct, frozen=True):
    """What a run gave."""

    samples: tuple[Sample, ...]
    refused: tuple[Refused, ...]


class Whole(Struct, frozen=True):
    """A run that has ended, as far as its samples depend on it.

    Attributes:
        stack: under test.
        steps: the last result of each.
    """

    id: str
    state: str
    reason: str
    stack: Stack
    steps: tuple[StepResult, ...]


def take(
    run: Whole,
    workloads: Mapping[str, Workload],
    facts: Facts,
    *,
    step: str | None = None,
    note: str = "",
) -> Taken:
    """Take what a run measured, where nothing speaks against it.

    Args:
        run: that has ended.
        workloads: by name, as they are now.
        facts: to read GPUs by.
        step: only this one of the run.
        note: kept with each sample.
    """
    wanted = [result for result in run.steps if step in (None, result.name)]
    if why := _unsound(run, workloads, facts.gpus):
        return Taken((), tuple(Refused(result.name, why) for result in wanted))
    samples: list[Sample] = []
    refused: list[Refused] = []
    for result in wanted:
        found = _sample(run, result, workloads.get(result.workload), facts, note)
        if isinstance(found, str):
            refused.append(Refused(result.name, found))
        else:
            samples.append(found)
    return Taken(tuple(samples), tuple(refused))


def _unsound(run: Whole, workloads: Mapping[str, Workload], gpus: Gpus) -> str:
    """Why nothing of the run may count: what it measured is not what was to be tested."""
    if run.state not in _USABLE:
        return f"the run ended {run.state}: {run.reason}"
    reports = [msgspec.convert(r.report, Report) for r in run.steps if r.report is not None]
    envs = [report.env for report in reports if report.env]
    skus = {
        result.origin.sku
        for result in run.steps
        if result.origin and (known := workloads.get(result.workload)) and known.gpus
    }
    sku = skus.pop() if len(skus) == 1 else None
    if not envs:
        return ""  # each step says why it measured nothing
    try:
        compare(measure(envs, gpus), Expected(run.stack, None if sku == NO_GPU_SKU else sku))
    except Mismatch as mismatch:
        return str(mismatch)
    return ""


def of_output(
    printed: bytes, workload: Workload, facts: Facts, *, seed: int, measured_at: str, note: str = ""
) -> Sample:
    """A sample of what a program printed on a machine without a gate: one for development.

    Args:
        printed: its standard output, whole.
        workload: as it was run, and is now.
        facts: to read GPUs by.
        seed: that it was run with.
        measured_at: when it ended, UTC, to the second.
        note: kept in the sample.

    Raises:
        BadInput: something speaks against it.
    """
    report = protocol.read_report([printed], workload)
    env = report.env
    why = _unread(report)
    if not why and env is not None:
        try:
            sku = measure([env], facts.gpus).sku or NO_GPU_SKU
        except Mismatch as mismatch:
            raise BadInput(str(mismatch), field=workload.name) from None
        step = f"{workload.name}-{seed}"
        result = StepResult(
            step,
            workload.name,
            seed,
            "passed",
            origin=Origin(workload.digest, sku, "process", development=True),
        )
        run = f"printed_{hashlib.sha256(printed).hexdigest()[:16]}"
        made = _made(run, result, workload, report, facts, measured_at=measured_at, note=note)
        if isinstance(made, Sample):
            return made
        why = made
    raise BadInput(f"gives no sample: {why}", field=workload.name)


def _sample(
    run: Whole, result: StepResult, workload: Workload | None, facts: Facts, note: str
) -> Sample | str:
    """The sample of a step, or why there is none."""
    if result.origin is None or result.finished_at is None:
        return result.reason if result.outcome not in _USABLE else _OLD
    if result.report is None:
        return result.reason or "what it printed is not kept any more"
    if workload is None or workload.digest != result.origin.digest:
        return f"{result.workload} is not what it was when it ran; run it as it is now"
    report = msgspec.convert(result.report, Report)
    if why := _unread(report) or unsettled(result):
        return why
    at = result.finished_at.astimezone(UTC).strftime(MOMENT)
    return _made(run.id, result, workload, report, facts, measured_at=at, note=note)


def _unread(report: Report) -> str:
    """Why a report says nothing for certain."""
    if report.env is None:
        return "it printed no env line, so what was loaded is not known"
    return report.own_fault or next(iter(report.problems), "")


def _made(
    run: str,
    result: StepResult,
    workload: Workload,
    report: Report,
    facts: Facts,
    *,
    measured_at: str,
    note: str,
) -> Sample | str:
    assert report.env is not None  # noqa: S101 - the callers have looked
    assert result.origin is not None  # noqa: S101
    try:
        ground = ground_of(workload, result.origin.sku, report.env.versions)
    except BadInput as error:
        return error.detail
    head = SampleHead(
        type="sample",
        workload=workload.name,
        digest=workload.digest,
        seed=result.seed,
        sku=ground.sku,
        family=ground.family,
        measured_at=measured_at,
        executor=result.origin.executor,
        development=result.origin.development,
        compatgate=__version__,
        run=run,
        step=result.name,
        note=note,
    )
    return _read_back(Sample(head, report), workload, facts)


def _read_back(sample: Sample, workload: Workload, facts: Facts) -> Sample | str:
    """The sample as its file will be read: nothing is written that would not be taken."""
    source = Source(sample.head.file_name, to_text(sample))
    problems = Problems()
    head, report = read_head(source, problems), read_report(source, workload, problems)
    if head is None or len(problems):
        return "; ".join(problem.problem for problem in problems)
    read = Sample(head, report)
    found = doubts(read, workload, facts)
    return "; ".join(found) if found else read
