"""Parse units of metrics: which convert into each other, and which direction is usually better."""

from __future__ import annotations

import re
from functools import lru_cache

from msgspec import Struct

from compatgate.canary.workload import Better


class Unit(Struct, frozen=True):
    """A unit as written.

    Attributes:
        dimension: units of the same dimension convert into each other.
        factor: factor to the dimension's base unit.
        better: direction that is usually better; None if it depends.
    """

    text: str
    dimension: str
    factor: float
    better: Better | None = None


_TIME = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "sec": 1.0,
    "second": 1.0,
    "seconds": 1.0,
    "min": 60.0,
    "minutes": 60.0,
    "h": 3600.0,
}
_PREFIXES = {
    "": 1.0,
    "k": 1e3,
    "K": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
    "Ki": 2.0**10,
    "Mi": 2.0**20,
    "Gi": 2.0**30,
    "Ti": 2.0**40,
}
_PREFIXED: dict[str, tuple[str, float, Better | None]] = {
    "B": ("bytes", 1.0, "lower"),
    "bytes": ("bytes", 1.0, "lower"),
    "B/s": ("bytes/s", 1.0, "higher"),
    "bit/s": ("bytes/s", 0.125, "higher"),
    "bps": ("bytes/s", 0.125, "higher"),
    "b/s": ("bytes/s", 0.125, "higher"),
    "FLOP/s": ("flop/s", 1.0, "higher"),
    "FLOPS": ("flop/s", 1.0, "higher"),
    "flop/s": ("flop/s", 1.0, "higher"),
    "flops": ("flop/s", 1.0, "higher"),
    "OP/s": ("op/s", 1.0, "higher"),
    "OPS": ("op/s", 1.0, "higher"),
    "Hz": ("frequency", 1.0, "higher"),
}
_PLAIN: dict[str, tuple[str, float, Better | None]] = {
    "": ("", 1.0, None),
    "1": ("number", 1.0, None),
    "%": ("number", 0.01, None),
    "ratio": ("number", 1.0, None),
    "count": ("count", 1.0, "lower"),
    "errors": ("count", 1.0, "lower"),
    "events": ("count", 1.0, "lower"),
    "W": ("power", 1.0, "lower"),
    "mW": ("power", 1e-3, "lower"),
    "kW": ("power", 1e3, "lower"),
    "J": ("energy", 1.0, "lower"),
    "mJ": ("energy", 1e-3, "lower"),
    "kJ": ("energy", 1e3, "lower"),
}
_PER = {"s": 1.0, "sec": 1.0, "second": 1.0, "min": 1 / 60, "minute": 1 / 60, "h": 1 / 3600}
_RATE = re.compile(r"([A-Za-z_]+)\s*(?:/|\bper\b)\s*([a-z]+)")
_ONE_NAME = {"it": "iteration", "its": "iteration", "iter": "iteration", "req": "request"}


@lru_cache(maxsize=256)
def parse_unit(text: str) -> Unit:
    """Read a unit.

    Case matters (``MB`` are bytes, ``Mb/s`` bits). An unknown unit is its own dimension, comparable
    only with itself.
    """
    name = text.strip()
    if name in _TIME:
        return Unit(name, "time", _TIME[name], "lower")
    if name in _PLAIN:
        return Unit(name, *_PLAIN[name])
    for end, (dimension, factor, better) in _PREFIXED.items():
        prefix = name.removesuffix(end)
        if prefix != name and prefix in _PREFIXES:
            return Unit(name, dimension, factor * _PREFIXES[prefix], better)
    rate = _RATE.fullmatch(name)
    if rate and rate[2] in _PER:
        things = rate[1].lower()
        things = _ONE_NAME.get(things, things.removesuffix("s"))
        return Unit(name, f"{things}/s", _PER[rate[2]], "higher")
    return Unit(name, f"'{name.casefold()}'", 1.0)


def conversion(source: str, target: str) -> float | None:
    """Return the factor from one unit to another; None if they do not convert."""
    one, other = parse_unit(source), parse_unit(target)
    if one.dimension != other.dimension:
        return None
    return 1.0 if one.factor == other.factor else one.factor / other.factor
