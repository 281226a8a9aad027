"""Published peaks are of GPUs that are known, dense, and in an order that hardware has."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from compatgate.catalog.checks import Check, Context, Problem
from compatgate.core.facts.peaks import GpuPeaks, PeakKind

_NARROWER: tuple[PeakKind, ...] = ("tf32", "fp16", "bf16", "fp8")
"""Narrower formats are never slower on tensor cores."""
_FIRST: dict[PeakKind, tuple[int, int]] = {
    "tf32": (8, 0),
    "fp16": (7, 0),
    "bf16": (8, 0),
    "fp8": (8, 9),
}
"""Compute capability from which tensor cores have a format."""


def peak_names(context: Context) -> Iterator[Problem]:
    """A peak is of a product, by its canonical name."""
    for name in context.facts.gpu_peaks.gpus:
        if name not in context.facts.gpus.gpus:
            yield Problem("peak-names", f"gpu_peaks {name}", "there is no such product in gpus")


def peak_order(context: Context) -> Iterator[Problem]:
    """tf32 is not faster than fp16, that not than bf16 (they are alike), nor that than fp8."""
    for name, peaks in context.facts.gpu_peaks.gpus.items():
        known = [(kind, value) for kind in _NARROWER if (value := peaks.of(kind)) is not None]
        for (wide, slow), (narrow, fast) in pairwise(known):
            if slow > fast:
                what = f"{wide} {slow:g} is more than {narrow} {fast:g}"
                yield Problem("peak-order", f"gpu_peaks {name}", what)
        if peaks.fp16 and peaks.bf16 and peaks.fp16 != peaks.bf16:
            what = f"fp16 {peaks.fp16:g} and bf16 {peaks.bf16:g} differ"
            yield Problem("peak-order", f"gpu_peaks {name}", what)


def peak_formats(context: Context) -> Iterator[Problem]:
    """A peak is of a format that the GPU's tensor cores have."""
    for name, peaks in context.facts.gpu_peaks.gpus.items():
        gpu = context.facts.gpus.gpus.get(name)
        for kind, first in _FIRST.items():
            if gpu and peaks.of(kind) is not None and gpu.capability < first:
                shown = ".".join(map(str, gpu.capability))
                what = f"capability {shown} has no {kind} on tensor cores"
                yield Problem("peak-formats", f"gpu_peaks {name}", what)


def peak_dense(context: Context) -> Iterator[Problem]:
    """A rate is about half of what is printed with sparsity, and exactly where it was halved."""
    known = context.facts.gpu_peaks.gpus
    for record in context.documents["gpu_peaks"]["gpus"]:
        name, printed = record["name"], record.get("with_sparsity") or {}
        for kind in record.get("halved") or ():
            if kind not in printed:
                what = f"{kind} was halved, and what is printed is missing"
                yield Problem("peak-dense", f"gpu_peaks {name}", what)
        for kind, sparse in printed.items():
            yield from _dense(known[name], kind, sparse, kind in (record.get("halved") or ()))


def _dense(peaks: GpuPeaks, kind: PeakKind, sparse: float, halved: bool) -> Iterator[Problem]:
    dense = peaks.of(kind)
    off = abs(dense - sparse / 2) if dense is not None else sparse
    if off > (1e-9 if halved else 0.02 * sparse):
        shown = "missing" if dense is None else f"{dense:g}"
        what = f"{kind} is {shown}, with sparsity {sparse:g} is printed"
        yield Problem("peak-dense", f"gpu_peaks {peaks.name}", what)


CHECKS: tuple[Check, ...] = (peak_names, peak_order, peak_formats, peak_dense)
