"""Compare what a workload needs with a GPU, each fact with its source, and propose other GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.changes import MAX_PER_KIND
from compatgate.core.gpu_code import find_run_mode
from compatgate.core.gpus import mig_profiles, resolve_gpu, split_profile
from compatgate.core.needs import Needs, Size, format_size
from compatgate.core.parts import Candidate
from compatgate.core.versions import format_parts
from compatgate.core.vgpus import compact, parse_vgpu_name

if TYPE_CHECKING:
    from compatgate.core.facts import Facts
    from compatgate.core.facts.nvidia import Gpu, Pair, Source
    from compatgate.core.rule_context import RuleContext


_GB, _GIB = 10**9, 2**30
_QUERY = "nvidia-smi --query-gpu=memory.total"


class Unmet(Struct, frozen=True):
    """A need that a GPU does not surely meet."""

    kind: Literal["precision", "memory"]
    certain: bool  # the GPU cannot; False: that is not known
    message: str
    have: str
    need: str
    source: Source | None = None  # the fact that decided; None: there is none

    @property
    def excludes(self) -> bool:
        """Tell whether the GPU cannot, by a fact that somebody published or measured."""
        return self.certain and self.source is not None and self.source.confidence != "derived"


class MemoryBounds(Struct, frozen=True):
    """The least and the most memory of a GPU or MIG slice, in bytes."""

    least: float
    most: float
    source: Source


def find_unmet(needs: Needs, gpu: Gpu, facts: Facts) -> list[Unmet]:
    """Return the needs that a GPU does not surely meet; empty when it meets all."""
    found = list(_unmet_formats(needs, gpu, facts))
    if needs.memory and (unmet := _unmet_memory(needs.memory, gpu, facts)):
        found.append(unmet)
    return found


def _unmet_formats(needs: Needs, gpu: Gpu, facts: Facts) -> Iterator[Unmet]:
    table = facts.precision if needs.precision else None
    row = table.of(gpu.capability) if table else None
    shown = f"{gpu.sku} ({format_parts(gpu.capability)})" if gpu.product else gpu.sku
    for name in needs.precision if table else ():
        assert table is not None  # noqa: S101 - there are formats
        title, need = table.precisions[name].title, ", ".join(table.computing(name))
        if row and name in row.computes:
            continue
        if row is None or not row.complete:
            message = f"whether {shown} computes in {title} is not in the facts"
            yield Unmet("precision", False, message, gpu.sku, title)
            continue
        message = f"{shown} does not compute in {title}"
        if instead := table.precisions[name].instead:
            message += f"; what works without it: {instead}"
        need = f"{title}: capability {need}"
        yield Unmet("precision", True, message, gpu.sku, need, row.source)


def _unmet_memory(need: Size, gpu: Gpu, facts: Facts) -> Unmet | None:
    bounds = find_memory(gpu, facts)
    if bounds is None:
        message = f"the memory of {gpu.sku} is not known; the workload needs {need.text}"
        return Unmet("memory", False, message, gpu.sku, need.text)
    if need.size <= bounds.least:
        return None
    most = format_size(bounds.most)
    have = f"{gpu.sku}, {most}"
    if need.size > bounds.most:
        message = f"{gpu.sku} has {most} at most; the workload needs {need.text}"
        return Unmet("memory", True, message, have, need.text, bounds.source)
    message = f"{gpu.sku} has between {format_size(bounds.least)} and {most}, so whether it has "
    message += f"the {need.text} that the workload needs is not known; {_QUERY} shows it"
    return Unmet("memory", False, message, have, need.text, bounds.source)


def find_memory(gpu: Gpu, facts: Facts) -> MemoryBounds | None:
    """Return the bounds of a GPU's or slice's memory; None where they are not known."""
    if gpu.mig:
        profile, _ = split_profile(gpu.mig)
        if profile is None or not profile.memory:
            return None
        table, most = facts.precision, profile.memory * _GIB
        return MemoryBounds(most * table.slice_share, most, gpu.source or table.slice_source)
    if gpu.memory is None:
        return None
    return MemoryBounds(gpu.memory.least * _GB, gpu.memory.most * _GIB, gpu.memory.source)


def other_gpu(context: RuleContext, fits: Callable[[Gpu], bool]) -> Iterator[Candidate]:
    """Yield GPUs that fit: of the target's other pools, then the nearest products."""
    seen: set[str] = set()
    for pool in context.target.pools:
        if pool.gpu and pool.gpu.sku not in seen and fits(pool.gpu):
            seen.add(pool.gpu.sku)
            change: dict[str, Any] = {"gpu": pool.gpu.sku}
            if pool.driver and pool.driver != context.driver:
                change["driver"] = pool.driver.text
            yield Candidate(change, f"run it on pool {pool.name} ({pool.gpu.sku})")
    own = context.pool.gpu
    slices = [replace(own, mig=one) for one in mig_profiles(own)] if own and own.mig else []
    parts = ([gpu for gpu in slices if fits(gpu)][:2], _larger_vgpus(context, fits))
    for gpu in chain(*parts, _nearest_gpus(context, fits)[:MAX_PER_KIND]):
        if gpu.sku not in seen:
            yield from _move_to_gpu(context, gpu)


def _move_to_gpu(context: RuleContext, gpu: Gpu) -> Iterator[Candidate]:
    """Move to a GPU; with its first driver and its code where the question lacks them."""
    change: dict[str, Any] = {"gpu": gpu.sku}
    said = f"use {gpu.sku}"
    codes = context.stack.arch
    if codes is not None and not find_run_mode(codes, gpu.capability, context.facts.arch):
        own = f"sm_{gpu.capability[0]}{gpu.capability[1]}"
        change["arch"] = [*(code.name for code in codes), own]
        said += f", built for {own} as well"
    yield Candidate(change, said)
    first = context.facts.driver_branches.branches.get(gpu.first_branch or 0)
    if first and first.first and context.driver and context.driver < first.first:
        both = {**change, "driver": f">={first.first}"}
        yield Candidate(both, f"{said}, with driver {first.first} or newer")


def _larger_vgpus(context: RuleContext, fits: Callable[[Gpu], bool]) -> list[Gpu]:
    """Return types of the same board and series that fit; empty where the pool has no vGPU."""
    own, table = context.pool.gpu, context.facts.gpus
    name = parse_vgpu_name(own.vgpu.lower()) if own and own.vgpu else None
    kind = table.vgpus.get(compact(name.prefix)) if name else None
    if name is None or kind is None or name.slices:
        return []
    prefix = kind.prefix.replace(" ", "-")
    sizes = kind.memory.get(name.series, ())
    found = (resolve_gpu(f"{prefix}-{size}{name.series}", table) for size in sizes)
    return [gpu for gpu in found if fits(gpu)][:2]


def _nearest_gpus(context: RuleContext, fits: Callable[[Gpu], bool]) -> list[Gpu]:
    """Return products of the pool's segment that fit, older ones last, one of each size."""
    own = context.pool.gpu
    if own is None:
        return []
    found: dict[tuple[Pair, float], Gpu] = {}
    products = sorted(context.facts.gpus.gpus.values(), key=_order_gpu)
    for gpu in sorted(products, key=lambda gpu: gpu.capability < own.capability):
        suits = gpu.segment == own.segment and gpu.cpu in (None, context.pool.cpu)
        if suits and gpu.memory and fits(gpu):
            found.setdefault(_order_gpu(gpu), gpu)
    return list(found.values())


def _order_gpu(gpu: Gpu) -> tuple[Pair, float]:
    return (gpu.capability, gpu.memory.least if gpu.memory else 0)
