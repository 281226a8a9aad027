"""Whether a sample says what it claims, and enough to learn from. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from compatgate.canary.engine.conclude_step import Ended, conclude_step
from compatgate.canary.engine.judging import NO_GPU_SKU
from compatgate.canary.engine.measured import Mismatch, measure
from compatgate.canary.judge.baseline import unusable
from compatgate.canary.judge.family import family_of
from compatgate.canary.peaks import shares
from compatgate.canary.report import Env
from compatgate.canary.samples.model import Sample, SampleHead
from compatgate.canary.workload import Workload
from compatgate.core.facts import Facts, Gpus
from compatgate.core.gpus import resolve_gpu
from compatgate.errors import BadInput


def doubts(sample: Sample, workload: Workload, facts: Facts) -> list[str]:
    """Everything that speaks against a sample of the workload as it is now.

    Args:
        sample: read by what the workload declares.
        workload: of the same digest.
        facts: GPUs, and what is published as their peaks.
    """
    verdict = conclude_step(workload, Ended("exited", 0), sample.report)
    if verdict.outcome != "passed":
        return [verdict.reason]
    assert sample.report.env is not None  # noqa: S101 - else it had not passed
    return [
        *_too_little(sample, workload),
        *_elsewhere(sample.head, sample.report.env, workload, facts.gpus),
        *_too_much(sample, workload, facts),
    ]


def stale(head: SampleHead, workload: Workload) -> str:
    """Why the sample is one of another program; "" where it is of this one."""
    if head.digest == workload.digest:
        return ""
    then, now = (digest.removeprefix("sha256:")[:12] for digest in (head.digest, workload.digest))
    return f"{workload.name} has changed since: measured was {head.workload}@{then}, it is @{now}"


def _too_little(sample: Sample, workload: Workload) -> Iterator[str]:
    for samples in sample.values():
        if why := unusable(samples, workload.metrics[samples.name]):
            yield f"{samples.name}: {why}"


def _too_much(sample: Sample, workload: Workload, facts: Facts) -> Iterator[str]:
    """A run may be looked at with such a value; nobody else should start from it."""
    if any(spec.peak for spec in workload.metrics.values()):
        for share in shares(workload.metrics, sample.report, facts.gpus, facts.gpu_peaks):
            if share.implausible:
                yield f"{share.metric}: {share.words}"


def _elsewhere(head: SampleHead, env: Env, workload: Workload, gpus: Gpus) -> Iterator[str]:
    """Where the head claims another GPU or stack than the env line shows."""
    try:
        seen = measure([env], gpus).sku
        known = NO_GPU_SKU if head.sku == NO_GPU_SKU else resolve_gpu(head.sku, gpus).sku
        family = family_of(env.versions)
    except (Mismatch, BadInput) as error:
        yield str(error)
        return
    if known != head.sku:
        yield f"sku {head.sku} is not as the facts spell it: {known}"
    if seen is not None and seen != head.sku:
        yield f"it says {head.sku}, but its env line shows {seen}"
    if seen is None and workload.gpus:
        yield "its env line names no GPU"
    if family != head.family:
        yield f"it says the family {head.family}, but its env line shows {family}"
