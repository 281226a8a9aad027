"""Read what a workload needs of a GPU: number formats that it computes in, and memory.

The text form is ``fp8+60GiB``; the JSON form ``{"precision": ["fp8"], "memory": "60GiB"}``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from msgspec import Struct

from compatgate.core.near_names import near_names
from compatgate.errors import BadInput

PRECISIONS: tuple[str, ...] = (
    *("fp16", "bf16", "tf32", "fp8", "fp6", "fp4", "mxfp8", "mxfp4", "nvfp4"),
    *("int8", "int4", "fp64-tensor"),
)
"""Number formats that a workload can need; `precision.yaml` says which GPU has which."""
_UNITS = {
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
_SIZE = re.compile(r"(\d{1,7}(?:\.\d{1,3})?) ?([A-Za-z]*)")
_BY_LETTERS = {unit.lower(): unit for unit in _UNITS}
_KEYS = ("precision", "memory")
_EXAMPLE = 'like fp8+60GiB, or {"precision": ["fp8"], "memory": "60GiB"}'


class Size(Struct, frozen=True):
    """A size of memory: as written, and in bytes."""

    text: str
    size: int


class Needs(Struct, frozen=True):
    """What a workload needs of each GPU that it runs on.

    Attributes:
        precision: number formats, in the order of `PRECISIONS`.
        memory: memory of one GPU or MIG slice; None: not stated.
    """

    precision: tuple[str, ...] = ()
    memory: Size | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the form that requests and answers carry."""
        body: dict[str, Any] = {}
        if self.precision:
            body["precision"] = list(self.precision)
        if self.memory:
            body["memory"] = self.memory.text
        return body

    def to_text(self) -> str:
        """Return the text form, ``fp8+60GiB``."""
        return "+".join([*self.precision, *([self.memory.text] if self.memory else [])])

    def join(self, other: Needs | None) -> Needs:
        """Return what both need: all formats, and the larger memory."""
        if other is None:
            return self
        sizes = [one for one in (self.memory, other.memory) if one]
        return Needs(
            _sort({*self.precision, *other.precision}),
            max(sizes, key=lambda one: one.size, default=None),
        )


def parse_needs(value: Any) -> Needs:
    """Read needs in their text or JSON form.

    Raises:
        BadInput: an unknown key, format or unit, or nothing at all; ``field`` begins with
            ``needs``.
    """
    if isinstance(value, Needs):
        return value
    if isinstance(value, str):
        return _read_text(value)
    if not isinstance(value, Mapping):
        raise BadInput("must be an object", field="needs", value=value, hint=_EXAMPLE)
    for key in value:
        if key not in _KEYS:
            hint = f"known: {', '.join(_KEYS)}"
            raise BadInput("unknown key", field=f"needs.{key}", value=value[key], hint=hint)
    memory = value.get("memory")
    return _make_needs(
        _read_precisions(value.get("precision", ())),
        None if memory is None else read_size(memory),
        value,
    )


def _read_text(text: str) -> Needs:
    items = [item.strip() for item in text.split("+")]
    sizes = [item for item in items if item[:1].isdigit()]
    if len(sizes) > 1:
        hint = "state one size: that of one GPU"
        raise BadInput("states two sizes of memory", field="needs", value=text, hint=hint)
    named = [item for item in items if item not in sizes]
    return _make_needs(_read_precisions(named), read_size(sizes[0]) if sizes else None, text)


def _make_needs(precision: tuple[str, ...], memory: Size | None, value: Any) -> Needs:
    if not precision and memory is None:
        raise BadInput("states nothing", field="needs", value=value, hint=_EXAMPLE)
    return Needs(precision, memory)


def _read_precisions(value: Any) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or len(value) > len(PRECISIONS):
        hint = 'like ["fp8"]'
        raise BadInput("must be a list of formats", field="needs.precision", value=value, hint=hint)
    return _sort({_read_precision(name) for name in value})


def _read_precision(name: Any) -> str:
    clean = name.strip().lower().replace("_", "-") if isinstance(name, str) else ""
    if clean in PRECISIONS:
        return clean
    near = near_names(clean, PRECISIONS, most=1) if clean else []
    meant = f"did you mean {near[0]}? " if near else ""
    raise BadInput(
        f"{name!r} is not a number format" if isinstance(name, str) else "must be text",
        field="needs.precision",
        value=name,
        hint=f"{meant}one of {', '.join(PRECISIONS)}",
    )


def read_size(value: Any) -> Size:
    """Read a size of memory: ``60GiB`` (2**30 bytes each), ``80GB`` (10**9).

    Raises:
        BadInput: no number with one of these units, or nothing.
    """
    if not isinstance(value, str):
        hint = "a number with its unit, like 60GiB or 80GB"
        raise BadInput("must be text", field="needs.memory", value=value, hint=hint)
    match = _SIZE.fullmatch(value.strip())
    unit = _BY_LETTERS.get(match[2].lower()) if match else None
    if match is None or unit is None:
        hint = "a number with its unit: GiB is 2**30 bytes, GB is 10**9; also MiB, MB, TiB, TB"
        raise BadInput("is not a size of memory", field="needs.memory", value=value, hint=hint)
    size = int(Fraction(match[1]) * _UNITS[unit])
    if size <= 0:
        hint = "like 60GiB"
        raise BadInput("must be more than nothing", field="needs.memory", value=value, hint=hint)
    return Size(f"{match[1]}{unit}", size)


def _sort(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(names, key=PRECISIONS.index))


def format_size(size: float) -> str:
    """Format bytes as ``79.6 GiB``."""
    return f"{size / 2**30:.1f}".removesuffix(".0") + " GiB"
