"""Check that toolkits, compute capabilities, GPU products, their peaks and Xid codes agree."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from compatgate.catalog.references import Check, Context, Problem
from compatgate.core.facts.nvidia import GpuPeaks, PeakKind
from compatgate.core.versions import format_parts


def series_has_architectures(context: Context) -> Iterator[Problem]:
    """Check that every toolkit series has a row with its targets."""
    table = context.facts.arch
    for series in {toolkit.version.major_minor for toolkit in context.facts.cuda_driver.toolkits}:
        if format_parts(series) not in table.toolkits:
            yield Problem(
                "series-has-architectures",
                f"cuda_arch_support {format_parts(series)}",
                "the toolkit is in cuda_driver and has no row here",
            )


def targets_match_capabilities(context: Context) -> Iterator[Problem]:
    """Check that toolkits target a capability exactly from its first to its last toolkit."""
    table = context.facts.arch
    for toolkit in table.toolkits.values():
        for name, fact in table.capabilities.items():
            last = fact.last_toolkit or toolkit.cuda
            expected = fact.first_toolkit <= toolkit.cuda <= last
            if expected != (fact.capability in toolkit.sass):
                yield Problem(
                    "targets-match-capabilities",
                    f"cuda_arch_support {format_parts(toolkit.cuda)} {name}",
                    "listed" if not expected else "not listed",
                )
        for pair in toolkit.sass:
            if format_parts(pair) not in table.capabilities:
                yield Problem(
                    "targets-match-capabilities",
                    f"cuda_arch_support {format_parts(toolkit.cuda)} {format_parts(pair)}",
                    "no fact on this capability",
                )


def target_bounds(context: Context) -> Iterator[Problem]:
    """Check that the stated lowest and highest targets equal those of the list."""
    for row in context.documents["cuda_arch_support"]["toolkits"]:
        targets = context.facts.arch.toolkits[row["cuda"]].sass
        if (row["sass_min"], row["sass_max"]) != (
            format_parts(targets[0]),
            format_parts(targets[-1]),
        ):
            yield Problem(
                "target-bounds",
                f"cuda_arch_support {row['cuda']}",
                f"{row['sass_min']} to {row['sass_max']} is not its list",
            )


def tegra_and_families(context: Context) -> Iterator[Problem]:
    """Check that Tegra parts and families are known; a Tegra part is alone in its family."""
    table = context.facts.arch
    known = {fact.capability for fact in table.capabilities.values()}
    for pair in (*table.tegra, *(p for family in table.families for p in family)):
        if pair not in known:
            yield Problem("tegra-and-families", format_parts(pair), "no fact on this capability")
    for family in table.families:
        if len(family) > 1 and set(family) & set(table.tegra):
            yield Problem(
                "tegra-and-families", format_parts(family[0]), "a Tegra part shares its family"
            )


def gpu_matches_capability(context: Context) -> Iterator[Problem]:
    """Check that a product's first and last branch and toolkit equal those of its capability."""
    table, branches = context.facts.arch, context.facts.driver_branches.branches
    rows = {row["name"]: row for row in context.documents["gpus"]["gpus"]}
    for name, gpu in context.facts.gpus.gpus.items():
        fact = table.capabilities.get(format_parts(gpu.capability))
        if fact is None:
            yield Problem(
                "gpu-matches-capability",
                f"gpus {name}",
                f"capability {format_parts(gpu.capability)} is unknown",
            )
            continue
        if gpu.last_branch != fact.last_branch:
            yield Problem(
                "gpu-matches-capability",
                f"gpus {name} last branch",
                f"{gpu.last_branch}, its capability says {fact.last_branch}",
            )
        first = rows.get(name, {}).get("first_toolkit")
        if first and first != format_parts(fact.first_toolkit):
            yield Problem(
                "gpu-matches-capability",
                f"gpus {name} first toolkit",
                f"{first}, its capability says {format_parts(fact.first_toolkit)}",
            )
        expected = [b.branch for b in branches.values() if b.cuda == fact.first_toolkit]
        if gpu.first_branch and expected and gpu.first_branch not in expected:
            yield Problem(
                "gpu-matches-capability",
                f"gpus {name} first branch",
                f"{gpu.first_branch}, CUDA {format_parts(fact.first_toolkit)} came with"
                f" {' or '.join(map(str, expected))}",
            )


def precision_rows(context: Context) -> Iterator[Problem]:
    """Check that each known capability has a row of number formats, and bounds of memory."""
    table = context.facts.precision
    for name, fact in context.facts.arch.capabilities.items():
        if table.of(fact.capability) is None:
            yield Problem("precision-rows", f"precision {name}", "the capability has no row")
    for name, gpu in context.facts.gpus.gpus.items():
        if gpu.memory and gpu.memory.least > gpu.memory.most:
            what = f"{gpu.memory.least:g} GB at least and {gpu.memory.most:g} at most"
            yield Problem("precision-rows", f"gpus {name}", what)


_FORMATS_BY_WIDTH: tuple[PeakKind, ...] = ("tf32", "fp16", "bf16", "fp8")
"""Formats in order of width: a narrower one is never slower on tensor cores."""


def peak_order(context: Context) -> Iterator[Problem]:
    """Check that tf32 is no faster than fp16, fp16 equals bf16, and bf16 is no faster than fp8."""
    for name, peaks in context.facts.gpu_peaks.gpus.items():
        known = [
            (kind, value) for kind in _FORMATS_BY_WIDTH if (value := peaks.of(kind)) is not None
        ]
        for (wide, slow), (narrow, fast) in pairwise(known):
            if slow > fast:
                what = f"{wide} {slow:g} is more than {narrow} {fast:g}"
                yield Problem("peak-order", f"gpu_peaks {name}", what)
        if peaks.fp16 and peaks.bf16 and peaks.fp16 != peaks.bf16:
            what = f"fp16 {peaks.fp16:g} and bf16 {peaks.bf16:g} differ"
            yield Problem("peak-order", f"gpu_peaks {name}", what)


def peak_formats(context: Context) -> Iterator[Problem]:
    """Check that the GPU's tensor cores have the format of each peak."""
    for name, peaks in context.facts.gpu_peaks.gpus.items():
        gpu = context.facts.gpus.gpus.get(name)
        row = context.facts.precision.of(gpu.capability) if gpu else None
        for kind in _FORMATS_BY_WIDTH:
            lacks = row is not None and row.complete and kind not in row.computes
            if gpu and peaks.of(kind) is not None and lacks:
                shown = ".".join(map(str, gpu.capability))
                what = f"capability {shown} has no {kind} on tensor cores"
                yield Problem("peak-formats", f"gpu_peaks {name}", what)


def peak_dense(context: Context) -> Iterator[Problem]:
    """Check dense rates: about half of the printed sparse rate, exactly half where halved."""
    known = context.facts.gpu_peaks.gpus
    for record in context.documents["gpu_peaks"]["gpus"]:
        name, printed = record["name"], record.get("with_sparsity") or {}
        for kind in record.get("halved") or ():
            if kind not in printed:
                what = f"{kind} was halved, but the printed sparse rate is missing"
                yield Problem("peak-dense", f"gpu_peaks {name}", what)
        for kind, sparse in printed.items():
            yield from _check_dense(known[name], kind, sparse, kind in (record.get("halved") or ()))


def _check_dense(peaks: GpuPeaks, kind: PeakKind, sparse: float, halved: bool) -> Iterator[Problem]:
    dense = peaks.of(kind)
    off = abs(dense - sparse / 2) if dense is not None else sparse
    if off > (1e-9 if halved else 0.02 * sparse):
        shown = "missing" if dense is None else f"{dense:g}"
        what = f"{kind} is {shown}, but the printed sparse rate is {sparse:g}"
        yield Problem("peak-dense", f"gpu_peaks {peaks.name}", what)


def xid_units(context: Context) -> Iterator[Problem]:
    """Check that each unit of the decode table has a known code, and unique bits since R575."""
    table = context.facts.xid
    seen: dict[tuple[int, int], str] = {}
    for unit in table.nvlink:
        subject = f"xid nvlink5[xid={unit.xid},unit={'/'.join(unit.names)}]"
        if unit.xid not in table.by_xid:
            yield Problem("xid-units", subject, "no Xid has this code")
        other = seen.setdefault((unit.xid, unit.v2), subject)
        if other != subject:
            yield Problem("xid-units", subject, f"has the bits of {other}")


CHECKS: tuple[Check, ...] = (
    series_has_architectures,
    targets_match_capabilities,
    target_bounds,
    tegra_and_families,
    gpu_matches_capability,
    precision_rows,
    peak_order,
    peak_formats,
    peak_dense,
    xid_units,
)
