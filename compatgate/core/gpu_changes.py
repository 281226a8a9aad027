"""Propose other GPUs for a workload that needs more than a GPU has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from compatgate.core.changes import MAX_PER_KIND
from compatgate.core.gpu_runs import find_run_mode
from compatgate.core.gpus import mig_profiles, resolve_gpu
from compatgate.core.parts import Candidate
from compatgate.core.vgpus import compact, parse_vgpu_name

if TYPE_CHECKING:
    from compatgate.core.facts.nvidia import Gpu, Pair
    from compatgate.core.rule_context import RuleContext


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
    parts = (*_larger_slices(context, fits), *_larger_vgpus(context, fits))
    for gpu in (*parts, *_nearest_gpus(context, fits)[:MAX_PER_KIND]):
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


def _larger_slices(context: RuleContext, fits: Callable[[Gpu], bool]) -> list[Gpu]:
    """Return slices of the same product that fit; empty where the pool has no slice."""
    own = context.pool.gpu
    if own is None or own.mig is None:
        return []
    slices = (replace(own, mig=profile) for profile in mig_profiles(own))
    return [gpu for gpu in slices if fits(gpu)][:2]


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
