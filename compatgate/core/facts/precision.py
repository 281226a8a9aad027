"""Hold the number formats that each compute capability computes in."""

from __future__ import annotations

from msgspec import Struct

from compatgate.core.facts.nvidia import Pair, Source
from compatgate.core.versions import format_parts


class Precision(Struct, frozen=True):
    """A number format that a workload can need."""

    name: str
    title: str  # the name that people write, ``FP8``
    what: str  # what counts as computing in it
    instead: str  # what works on hardware that lacks it; empty: nothing is known
    source: Source


class CapabilityPrecision(Struct, frozen=True):
    """The formats that a compute capability computes in."""

    capability: Pair
    computes: tuple[str, ...]
    complete: bool  # a format that is not listed is missing; False: it is not known
    source: Source
    note: str = ""


class PrecisionTable(Struct, frozen=True):
    """Table ``precision``."""

    precisions: dict[str, Precision]
    by_capability: dict[str, CapabilityPrecision]  # rows by capability as text, ``8.9``; ascending
    slice_share: float  # least memory of a MIG slice, as a share of the GiB in its name
    slice_source: Source

    def of(self, capability: Pair) -> CapabilityPrecision | None:
        """Return the row of a capability; None when the facts do not have it."""
        return self.by_capability.get(format_parts(capability))

    def computing(self, name: str) -> list[str]:
        """Return the capabilities that compute in a format, ascending, as text."""
        return [text for text, row in self.by_capability.items() if name in row.computes]
