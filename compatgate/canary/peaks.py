"""Compute a measurement's share of the peak that the GPU's vendor publishes. Pure.

Values above the peak are inconclusive until a person explains them; other shares decide nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, to_builtins

from compatgate.canary.judge.prepare import find_conversion
from compatgate.canary.judge.statistics import median
from compatgate.canary.run import Device, Metric, Report
from compatgate.canary.workload import MetricSpec
from compatgate.core.facts.nvidia import GpuPeaks, Gpus, PeakKind, Peaks, unit_of
from compatgate.core.gpus import resolve_gpu
from compatgate.errors import BadInput

_ROUNDING = 0.005
"""Published figures are rounded, so a share this far above one still counts as one."""


DOUBT = (
    "a value above the published peak is implausible: check that the program does all of its work"
)


class PeakShare(Struct, frozen=True):
    """Measured share of a GPU's published peak; it is not used for judging.

    Attributes:
        median: of the measured values, in ``unit``; ``peak`` is in the same unit.
        share: share of the peak, 0.62 for 62 %.
        implausible: the value is above the peak, so it cannot be trusted.
        source: source of the peak, as in the facts.
        words: ``612 TFLOP/s, 62 % of the published bf16 peak of H200-SXM5, 989.5 TFLOP/s``.
    """

    metric: str
    unit: str
    median: float
    kind: PeakKind
    gpu: str
    peak: float
    share: float
    implausible: bool
    source: dict[str, Any]
    words: str


def find_shares(
    metrics: Mapping[str, MetricSpec], report: Report, gpus: Gpus, peaks: Peaks
) -> tuple[PeakShare, ...]:
    """Return a share for each metric that names a published peak of the observed GPU.

    Skip MIG slices, GPUs that are not known, and several GPUs that differ.
    """
    if report.env is None or not any(spec.peak for spec in metrics.values()):
        return ()
    known = peaks.gpus.get(_product(report.env.gpus, gpus) or "")
    if known is None:
        return ()
    results = [_make_share(metric, metrics.get(metric.name), known) for metric in report.metrics]
    return tuple(share for share in results if share)


def find_doubts(shares: Sequence[PeakShare]) -> dict[str, str]:
    """Return by metric why its values are implausible."""
    return {one.metric: _describe_excess(one.share) for one in shares if one.implausible}


def describe_excess(values: Sequence[float], peak: float) -> str:
    """Return why values above a peak in their unit are implausible; "" if they are not."""
    share = median(values) / peak if values else 0.0
    return "" if share <= 1 + _ROUNDING else _describe_excess(share)


def _describe_excess(share: float) -> str:
    return f"the candidate is at {percent(share)} of the published peak, which is implausible"


def percent(share: float) -> str:
    """Format a share as ``62 %`` or ``8.4 %``."""
    return f"{100 * share:.0f} %" if share >= 0.0995 else f"{100 * share:.1f} %"


def _make_share(metric: Metric, spec: MetricSpec | None, known: GpuPeaks) -> PeakShare | None:
    if spec is None or spec.peak is None or not metric.values:
        return None
    published, factor = known.of(spec.peak), find_conversion(unit_of(spec.peak), metric.unit)
    if published is None or factor is None:
        return None
    middle, peak = median(metric.values), published * factor
    share = middle / peak
    implausible = not share <= 1 + _ROUNDING
    what = "memory" if spec.peak == "memory" else f"dense {spec.peak}"
    of = f"the published {what} peak of {known.name}, {peak:.4g} {metric.unit}"
    words = f"{middle:.4g} {metric.unit}, {percent(share)} of {of}"
    return PeakShare(
        metric=metric.name,
        unit=metric.unit,
        median=middle,
        kind=spec.peak,
        gpu=known.name,
        peak=peak,
        share=share,
        implausible=implausible,
        source=to_builtins(known.source),
        words=f"{words}; {DOUBT}" if implausible else words,
    )


def _product(devices: Sequence[Device], gpus: Gpus) -> str | None:
    """Return the product of all devices; None if they differ, are unknown, slices or vGPUs."""
    if any(device.mig for device in devices):
        return None
    try:
        results = [resolve_gpu(device.name, gpus) for device in devices]
    except BadInput:
        return None
    names = {gpu.name for gpu in results}
    whole = all(gpu.product and not gpu.mig and not gpu.vgpu for gpu in results)
    return names.pop() if len(names) == 1 and whole else None
