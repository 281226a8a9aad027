"""Published peaks of GPUs, from ``gpu_peaks.yaml``."""

from __future__ import annotations

from compatgate.catalog.build.read import Record, of
from compatgate.core.facts.peaks import PEAK_KINDS, GpuPeaks, Peaks


def gpu_peaks(document: Record) -> Peaks:
    """Peaks by the GPU's canonical name."""
    return Peaks({record["name"]: _peaks(record) for record in document["gpus"]})


def _peaks(record: Record) -> GpuPeaks:
    figures = {name: record.get(_field(name)) for name in (*PEAK_KINDS, "nvlink", "pcie")}
    known = {name: float(value) for name, value in figures.items() if value is not None}
    return GpuPeaks(record["name"], of(record), note=record.get("note") or "", **known)


def _field(name: str) -> str:
    return f"{name}_gb_s" if name in ("memory", "nvlink", "pcie") else f"{name}_tflops"
