"""What vendors publish as the most that a GPU can do; no rule reads it, measurements do."""

from __future__ import annotations

from typing import Literal, get_args

from msgspec import Struct

from compatgate.core.facts.common import Source

PeakKind = Literal["memory", "fp32", "tf32", "fp16", "bf16", "fp8"]
"""``memory``: bytes read and written a second; the others: dense operations a second."""
PEAK_KINDS: tuple[PeakKind, ...] = get_args(PeakKind)


class GpuPeaks(Struct, frozen=True):
    """Published peaks of a whole GPU; None: not found, or it has none.

    Attributes:
        memory: GB/s, of reads and writes together.
        fp32: TFLOP/s of the CUDA cores; the other precisions are dense rates of tensor cores.
        nvlink, pcie: GB/s, of both directions together.
    """

    name: str
    source: Source
    memory: float | None = None
    fp32: float | None = None
    tf32: float | None = None
    fp16: float | None = None
    bf16: float | None = None
    fp8: float | None = None
    nvlink: float | None = None
    pcie: float | None = None
    note: str = ""

    def of(self, kind: PeakKind) -> float | None:
        """One of the peaks, in the unit of `unit_of`."""
        value: float | None = getattr(self, kind)
        return value


class Peaks(Struct, frozen=True):
    """Table ``gpu_peaks``, by canonical name of the GPU."""

    gpus: dict[str, GpuPeaks]


def unit_of(kind: PeakKind) -> str:
    """The unit in which a peak is recorded."""
    return "GB/s" if kind == "memory" else "TFLOP/s"
