"""Read what a workload needs of a GPU: number formats that it computes in, features, and memory.

The text form is ``fp8+60GiB``; the JSON form ``["fp8", "60GiB"]``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from msgspec import Struct

from compatgate.core.components import check_count
from compatgate.core.performance import near_names
from compatgate.errors import BadInput

PRECISIONS: tuple[str, ...] = (
    *("fp16", "bf16", "tf32", "fp8", "fp6", "fp4", "mxfp8", "mxfp4", "nvfp4"),
    *("int8", "int4", "fp64-tensor"),
)
"""Number formats that a workload can need; `precision.yaml` says which GPU has which."""
FEATURES: tuple[str, ...] = (
    *("unified-memory", "nvlink-p2p", "pcie-p2p", "nvlink-multicast", "profiling"),
)
"""Features that a workload can need; `vgpu.yaml` says which vGPU has which."""
_UNITS = {"MB": 10**6, "GB": 10**9, "TB": 10**12, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_SIZE = re.compile(r"(\d{1,7}(?:\.\d{1,3})?) ?([A-Za-z]*)")
_BY_LETTERS = {unit.lower(): unit for unit in _UNITS}
_LONGEST = 40
_EXAMPLE = 'like fp8+60GiB, or ["fp8", "60GiB"]'


class Size(Struct, frozen=True):
    """A size of memory: as written, and in bytes."""

    text: str
    size: int


class Needs(Struct, frozen=True):
    """The requirements of a workload on each of its GPUs."""

    precision: tuple[str, ...] = ()
    memory: Size | None = None  # memory of one GPU or MIG slice; None: not stated
    features: tuple[str, ...] = ()

    def to_json(self) -> list[str]:
        """Return the form that requests and answers carry, ``["fp8", "60GiB"]``."""
        sizes = [self.memory.text] if self.memory else []
        return [*self.precision, *self.features, *sizes]

    def to_text(self) -> str:
        """Return the text form, ``fp8+60GiB``."""
        return "+".join(self.to_json())

    def join(self, other: Needs | None) -> Needs:
        """Return what both need: all formats, and the larger memory."""
        if other is None:
            return self
        sizes = [one for one in (self.memory, other.memory) if one]
        return Needs(
            _sort({*self.precision, *other.precision}, PRECISIONS),
            max(sizes, key=lambda one: one.size, default=None),
            _sort({*self.features, *other.features}, FEATURES),
        )


def parse_needs(value: Any) -> Needs:
    """Read needs in their text or JSON form."""
    items = value.split("+") if isinstance(value, str) else value
    if not isinstance(items, (list, tuple)) or not all(isinstance(one, str) for one in items):
        raise BadInput("must be a list of texts", field="needs", value=value, hint=_EXAMPLE)
    check_count(len(items), len(PRECISIONS) + len(FEATURES) + 1, "items", "needs")
    clean = [item.strip() for item in items]
    sizes = [read_size(item) for item in clean if item[:1].isdigit()]
    if len(sizes) > 1:
        hint = "state one size: that of one GPU"
        raise BadInput("has two sizes of memory", field="needs", value=value, hint=hint)
    named = {_read_name(item) for item in clean if not item[:1].isdigit()}
    if not (named or sizes):
        raise BadInput("must name at least one need", field="needs", value=value, hint=_EXAMPLE)
    size = sizes[0] if sizes else None
    return Needs(_sort(named, PRECISIONS), size, _sort(named, FEATURES))


def _read_name(name: str) -> str:
    clean = name.lower().replace("_", "-")
    if clean in PRECISIONS or clean in FEATURES:
        return clean
    near = near_names(clean[:_LONGEST], (*PRECISIONS, *FEATURES))
    meant = f"did you mean {near[0]}? " if near else ""
    raise BadInput(
        f"{name[:_LONGEST]!r} is neither a number format, a feature nor a size of memory",
        field="needs",
        value=name,
        hint=f"{meant}a size like 60GiB, or one of {', '.join((*PRECISIONS, *FEATURES))}",
    )


def read_size(value: str) -> Size:
    """Read a size of memory: ``60GiB`` (2**30 bytes each), ``80GB`` (10**9)."""
    match = _SIZE.fullmatch(value)
    unit = _BY_LETTERS.get(match[2].lower()) if match else None
    if match is None or unit is None:
        hint = "a number with its unit: GiB is 2**30 bytes, GB is 10**9; also MiB, MB, TiB, TB"
        what = f"{value[:_LONGEST]!r} is not a size of memory"
        raise BadInput(what, field="needs", value=value, hint=hint)
    size = int(Fraction(match[1]) * _UNITS[unit])
    if size <= 0:
        hint = "like 60GiB"
        raise BadInput("must be greater than 0", field="needs", value=value, hint=hint)
    return Size(f"{match[1]}{unit}", size)


def _sort(names: Iterable[str], order: tuple[str, ...]) -> tuple[str, ...]:
    found = set(names)
    return tuple(name for name in order if name in found)


def format_size(size: float) -> str:
    """Format bytes as ``79.6 GiB``."""
    return f"{size / 2**30:.1f}".removesuffix(".0") + " GiB"
