"""Compare what a workload needs with a GPU: number formats and memory, each with its source."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from compatgate.core.gpus import split_profile
from compatgate.core.needs import Needs, Size, format_size
from compatgate.core.versions import format_parts

if TYPE_CHECKING:
    from compatgate.core.facts import Facts
    from compatgate.core.facts.nvidia import Gpu, Source

_GB, _GIB = 10**9, 2**30
_QUERY = "nvidia-smi --query-gpu=memory.total"


class Unmet(Struct, frozen=True):
    """A need that a GPU does not surely meet.

    Attributes:
        kind: what is needed.
        certain: the GPU cannot; False: that is not known.
        message: one sentence.
        have: what the GPU has.
        need: what would do.
        source: the fact that decided; None: there is none.
    """

    kind: Literal["precision", "memory"]
    certain: bool
    message: str
    have: str
    need: str
    source: Source | None = None

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
    message = (
        f"{gpu.sku} has between {format_size(bounds.least)} and {most}, so whether it has the"
        f" {need.text} that the workload needs is not known; {_QUERY} shows it"
    )
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
