"""Measurements as a share of what the GPU's vendor publishes as its peak. Pure.

A check of ours, never the judge's: nothing is passed or failed by it. A share above one means that
the program does less than it says, or that the GPU is not what it is taken for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, to_builtins

from compatgate.canary.judge.statistics import median
from compatgate.canary.judge.units import conversion
from compatgate.canary.run import Device, Metric, Report
from compatgate.canary.workload import MetricSpec
from compatgate.core.facts.nvidia import GpuPeaks, Gpus, PeakKind, Peaks, unit_of
from compatgate.core.gpus import resolve_gpu
from compatgate.errors import BadInput

_ROUNDED = 0.005
"""Published figures are rounded: as much above one is still one."""


DOUBT = "more than is published is implausible: does the program do all of its work?"


class Share(Struct, frozen=True):
    """A metric beside the published peak.

    Attributes:
        median: of the values measured, in ``unit``; so is ``peak``.
        kind: which peak.
        gpu: that it is published of.
        share: of the peak, 0.62 for 62 %.
        implausible: more than the peak: not to be believed.
        source: of the peak, as facts have it.
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

    @property
    def words(self) -> str:
        """``612 TFLOP/s, 62 % of the published bf16 peak of H200-SXM5, 989.5 TFLOP/s``."""
        what = "memory" if self.kind == "memory" else f"dense {self.kind}"
        of = f"the published {what} peak of {self.gpu}, {self.peak:.4g} {self.unit}"
        said = f"{self.median:.4g} {self.unit}, {percent(self.share)} of {of}"
        return f"{said}; {DOUBT}" if self.implausible else said

    def to_json(self) -> dict[str, Any]:
        """Return plain data, the words beside it."""
        return {**to_builtins(self), "words": self.words}


def shares(
    metrics: Mapping[str, MetricSpec], report: Report, gpus: Gpus, peaks: Peaks
) -> tuple[Share, ...]:
    """Every metric that names a peak, where one is published of the GPU that the process saw.

    None of a MIG slice, of a GPU that cannot be told, or of several GPUs that differ.

    Args:
        metrics: as the workload declares them.
        report: of an execution.
        gpus: to tell the GPU by its name.
        peaks: published ones.
    """
    if report.env is None or not any(spec.peak for spec in metrics.values()):
        return ()
    known = peaks.gpus.get(_product(report.env.gpus, gpus) or "")
    if known is None:
        return ()
    found = [_share(metric, metrics.get(metric.name), known) for metric in report.metrics]
    return tuple(share for share in found if share)


def percent(share: float) -> str:
    """``62 %``, ``8.4 %``."""
    return f"{100 * share:.0f} %" if share >= 0.0995 else f"{100 * share:.1f} %"


def _share(metric: Metric, spec: MetricSpec | None, known: GpuPeaks) -> Share | None:
    if spec is None or spec.peak is None or not metric.values:
        return None
    published, factor = known.of(spec.peak), conversion(unit_of(spec.peak), metric.unit)
    if published is None or factor is None:
        return None
    middle, peak = median(metric.values), published * factor
    share = middle / peak
    return Share(
        metric=metric.name,
        unit=metric.unit,
        median=middle,
        kind=spec.peak,
        gpu=known.name,
        peak=peak,
        share=share,
        implausible=not share <= 1 + _ROUNDED,
        source=known.source.to_json(),
    )


def _product(devices: Sequence[Device], gpus: Gpus) -> str | None:
    """Return the one product that all devices are, whole."""
    if any(device.mig for device in devices):
        return None
    try:
        found = [resolve_gpu(device.name, gpus) for device in devices]
    except BadInput:
        return None
    names = {gpu.name for gpu in found}
    whole = all(gpu.product and not gpu.mig for gpu in found)
    return names.pop() if len(names) == 1 and whole else None
