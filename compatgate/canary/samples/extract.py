"""Extract samples from a stored run, and check that a sample says what it claims. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from datetime import UTC
from typing import Any

import msgspec
from msgspec import Struct

from compatgate import version
from compatgate.canary import protocol
from compatgate.canary.engine.baseline_judge import (
    NO_GPU_SKU,
    find_learning_obstacle,
)
from compatgate.canary.engine.conclude import (
    ExecutionEnd,
    Expectation,
    Mismatch,
    compare,
    conclude_step,
    measure,
)
from compatgate.canary.judge.baseline import find_family, find_learning_problem
from compatgate.canary.peaks import find_shares
from compatgate.canary.run import Env, Origin, Report, StepResult
from compatgate.canary.samples.sample import (
    MOMENT,
    Sample,
    SampleHead,
    format_sample,
    read_sample_head,
    read_sample_report,
)
from compatgate.canary.workload import Workload
from compatgate.core.facts import Facts
from compatgate.core.facts.nvidia import Gpus
from compatgate.core.gpus import resolve_gpu
from compatgate.core.stack import Stack
from compatgate.documents.sources import Problems, Source
from compatgate.errors import BadInput

_OUTDATED_REASON = (
    "it was recorded by an older version that did not store the data of a sample; run it again"
)
_USABLE_OUTCOMES = ("passed", "inconclusive")


class RefusedStep(Struct, frozen=True):
    """A step without a sample, with the reason."""

    step: str
    reason: str


class ExtractedSamples(Struct, frozen=True):
    """Result of an extraction."""

    samples: tuple[Sample, ...]
    refused: tuple[RefusedStep, ...]

    def list_files(self) -> dict[str, Any]:
        """Return samples as plain data, each with the file next to its workload."""
        files = [
            {
                "name": sample.head.file_name,
                "workload": sample.head.workload,
                "step": sample.head.step,
                "text": format_sample(sample),
            }
            for sample in self.samples
        ]
        return {"samples": files, "refused": msgspec.to_builtins(self.refused)}


class FinishedRun(Struct, frozen=True):
    """A finished run, as far as its samples depend on it."""

    id: str
    state: str
    reason: str
    stack: Stack
    steps: tuple[StepResult, ...]


def extract_samples(
    run: FinishedRun,
    workloads: Mapping[str, Workload],
    facts: Facts,
    *,
    step: str | None = None,
    note: str = "",
) -> ExtractedSamples:
    """Extract samples from a run, unless something speaks against them.

    ``step`` None extracts all steps.
    """
    why = _run_problem(run, workloads, facts.gpus)
    made = {
        result.name: why or _sample(run, result, workloads.get(result.workload), facts, note)
        for result in run.steps
        if step in (None, result.name)
    }
    return ExtractedSamples(
        tuple(found for found in made.values() if isinstance(found, Sample)),
        tuple(RefusedStep(name, found) for name, found in made.items() if isinstance(found, str)),
    )


def _run_problem(run: FinishedRun, workloads: Mapping[str, Workload], gpus: Gpus) -> str:
    """Return why a run must not count: it did not measure what it was to test; "" if it did."""
    if run.state not in _USABLE_OUTCOMES:
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
        compare(measure(envs, gpus), Expectation(run.stack, None if sku == NO_GPU_SKU else sku))
    except Mismatch as mismatch:
        return str(mismatch)
    return ""


def sample_from_output(
    printed: bytes, workload: Workload, facts: Facts, *, seed: int, measured_at: str, note: str = ""
) -> Sample:
    """Return a sample of a program's output on a machine without a gate, marked as development.

    The run ended at ``measured_at``, UTC, to the second.
    """
    report = protocol.read_report([printed], workload)
    env = report.env
    why = _report_problem(report)
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
        made = _make_sample(
            run, result, workload, report, facts, measured_at=measured_at, note=note
        )
        if isinstance(made, Sample):
            return made
        why = made
    raise BadInput(f"cannot become a sample: {why}", field=workload.name)


def _sample(
    run: FinishedRun, result: StepResult, workload: Workload | None, facts: Facts, note: str
) -> Sample | str:
    """Return the sample of a step, or why it has none."""
    if result.origin is None or result.finished_at is None:
        return result.reason if result.outcome not in _USABLE_OUTCOMES else _OUTDATED_REASON
    if result.report is None:
        return result.reason or "its output is no longer stored"
    if workload is None or workload.digest != result.origin.digest:
        return f"{result.workload} has changed since the run, or is gone; run it again"
    report = msgspec.convert(result.report, Report)
    if why := _report_problem(report) or find_learning_obstacle(result):
        return why
    at = result.finished_at.astimezone(UTC).strftime(MOMENT)
    return _make_sample(run.id, result, workload, report, facts, measured_at=at, note=note)


def _report_problem(report: Report) -> str:
    """Return why a report proves nothing; "" if it does."""
    if report.env is None:
        return "it printed no env line, so the loaded components are unknown"
    return report.own_fault or next(iter(report.problems), "")


def _make_sample(
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
        family = find_family(report.env.versions)
    except BadInput as error:
        return error.detail
    head = SampleHead(
        type="sample",
        workload=workload.name,
        digest=workload.digest,
        seed=result.seed,
        sku=result.origin.sku,
        family=family,
        measured_at=measured_at,
        executor=result.origin.executor,
        development=result.origin.development,
        compatgate=version(),
        run=run,
        step=result.name,
        note=note,
    )
    # The sample as its file will be read: what reading would reject is no sample.
    source, problems = Source(head.file_name, format_sample(Sample(head, report))), Problems()
    read_head = read_sample_head(source, problems)
    read_report = read_sample_report(source, workload, problems)
    if read_head is None or len(problems):
        return "; ".join(problem.problem for problem in problems)
    read = Sample(read_head, read_report)
    return "; ".join(find_doubts(read, workload, facts)) or read


def find_doubts(sample: Sample, workload: Workload, facts: Facts) -> list[str]:
    """Return everything that speaks against a sample of the workload as it is now."""
    verdict = conclude_step(workload, ExecutionEnd("exited", 0), sample.report)
    if verdict.outcome != "passed":
        return [verdict.reason]
    assert sample.report.env is not None  # noqa: S101 - else it had not passed
    unlearnable = [
        f"{samples.name}: {why}"
        for samples in sample.values()
        if (why := find_learning_problem(samples, workload.metrics[samples.name]))
    ]
    # Nobody should start a baseline from values above the published peak.
    shares = find_shares(workload.metrics, sample.report, facts.gpus, facts.gpu_peaks)
    return [
        *unlearnable,
        *_head_contradictions(sample.head, sample.report.env, workload, facts.gpus),
        *(f"{share.metric}: {share.words}" for share in shares if share.implausible),
    ]


def find_stale_reason(head: SampleHead, workload: Workload) -> str:
    """Return why the sample belongs to another program; "" if it belongs to this one."""
    if head.digest == workload.digest:
        return ""
    then, now = (digest.removeprefix("sha256:")[:12] for digest in (head.digest, workload.digest))
    return f"{workload.name} has changed since: measured was {head.workload}@{then}, it is @{now}"


def _head_contradictions(
    head: SampleHead, env: Env, workload: Workload, gpus: Gpus
) -> Iterator[str]:
    """Yield differences between the head and the env line in GPU or stack."""
    try:
        seen = measure([env], gpus).sku
        known = NO_GPU_SKU if head.sku == NO_GPU_SKU else resolve_gpu(head.sku, gpus).sku
        family = find_family(env.versions)
    except (Mismatch, BadInput) as error:
        yield str(error)
        return
    if known != head.sku:
        yield f"sku {head.sku} is written differently in the facts: {known}"
    if seen is not None and seen != head.sku:
        yield f"sku is {head.sku}, but the env line shows {seen}"
    if seen is None and workload.gpus:
        yield "the env line names no GPU"
    if family != head.family:
        yield f"family is {head.family}, but the env line shows {family}"
