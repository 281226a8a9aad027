"""Read the input of `compatgate canary judge --paired`: canary JSON lines with arm, pair and block.

The order of the lines is irrelevant: a block is found by its pair, arm and number.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from compatgate.canary.judge.measurements import (
    MAX_BYTES,
    read_check,
    read_statement,
    read_text,
    read_values,
)
from compatgate.canary.judge.paired.blocks import Arm, Block, Pair, PairedSamples
from compatgate.canary.judge.prepare import find_conversion
from compatgate.canary.run import Check
from compatgate.canary.workload import Better
from compatgate.errors import BadInput

MAX_PAIRS = 200
"""Maximum number of pairs in a file."""
MAX_METRICS = 2000
"""Maximum number of metrics in a file."""
_EXAMPLE = (
    'write lines such as {"type": "metric", "name": "step_time", "values": [1.2, 1.3], '
    '"unit": "ms", "arm": "A", "pair": 1, "block": 1}'
)


class PairedFile(Struct, frozen=True):
    """Content of a file of pairs.

    Attributes:
        stated: direction and tolerance that lines state, by metric.
        checks: checks of the candidate, and of lines without an arm.
    """

    metrics: dict[str, PairedSamples]
    stated: dict[str, tuple[Better | None, float | None]] = {}
    checks: tuple[Check, ...] = ()
    reference_checks: tuple[Check, ...] = ()


def read_pairs(data: bytes, *, source: str) -> PairedFile:
    """Read a file; lines that are no JSON objects are log."""
    if len(data) > MAX_BYTES:
        raise BadInput(f"is larger than the limit of {MAX_BYTES >> 20} MiB", field=source)
    collector = _Collector()
    for where, body in _list_members(data, source):
        if body.get("type") == "metric":
            collector.add_metric(body, where)
        elif body.get("type") == "check":
            collector.add_check(body, where)
    return collector.collect(source)


def _list_members(data: bytes, source: str) -> Iterator[tuple[str, dict[str, Any]]]:
    text = data.decode("utf-8", "replace").removeprefix("\ufeff")
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip().startswith("{"):
            where = f"{source}:{number}"
            try:
                body = json.loads(line)
            except (ValueError, RecursionError):
                raise BadInput(
                    "is not a JSON object", field=where, value=line.strip()[:60], hint=_EXAMPLE
                ) from None
            yield where, body


class _Collector:
    def __init__(self) -> None:
        self._blocks: dict[str, dict[tuple[int, Arm, int], list[tuple[float, str]]]] = {}
        self._units: dict[str, set[str]] = {}
        self._stated: dict[str, tuple[Better | None, float | None]] = {}
        self._checks: dict[Arm, list[Check]] = {"A": [], "B": []}

    def add_metric(self, body: Mapping[str, Any], where: str) -> None:
        name = read_text(body, "name", where)
        unit = read_text(body, "unit", where, default="")
        units = self._units.setdefault(name, {unit})
        other = next(iter(units))
        if find_conversion(unit, other) is None:
            raise BadInput(
                f"metric {name} is in {other or 'no unit'} and in {unit or 'no unit'}",
                field=f"{where}.unit",
                value=unit,
                hint="use one unit for all values of a metric",
            )
        units.add(unit)
        self._remember(name, read_statement(body, where), where)
        blocks = self._blocks.setdefault(name, {})
        if body.get("warmup") is not True:
            place = _read_number(body, "pair", where), _read_arm(body, where)
            block = blocks.setdefault((*place, _read_number(body, "block", where)), [])
            block += [(value, unit) for value in read_values(body, where)]

    def add_check(self, body: Mapping[str, Any], where: str) -> None:
        arm = _read_arm(body, where) if "arm" in body else "B"
        self._checks[arm].append(read_check(body, where))

    def collect(self, source: str) -> PairedFile:
        if len(self._blocks) > MAX_METRICS:
            raise BadInput(f"has more than {MAX_METRICS} metrics", field=source)
        metrics = {name: self._collect_metric(name, source) for name in sorted(self._blocks)}
        return PairedFile(metrics, self._stated, tuple(self._checks["B"]), tuple(self._checks["A"]))

    def _collect_metric(self, name: str, source: str) -> PairedSamples:
        unit = min(self._units[name])
        factors = {other: find_conversion(other, unit) or 1.0 for other in self._units[name]}
        arms: dict[int, dict[Arm, list[Block]]] = {}
        for (pair, arm, _), values in sorted(self._blocks[name].items()):
            block = tuple(value * factors[of] for value, of in values)
            if block:
                arms.setdefault(pair, {"A": [], "B": []})[arm].append(block)
        if len(arms) > MAX_PAIRS:
            raise BadInput(f"metric {name} has more than {MAX_PAIRS} pairs", field=source)
        pairs = tuple(Pair(pair, tuple(of["A"]), tuple(of["B"])) for pair, of in arms.items())
        return PairedSamples(name, unit, pairs)

    def _remember(self, name: str, stated: tuple[Better | None, float | None], where: str) -> None:
        before = self._stated.get(name, (None, None))
        for key, was, now in zip(("better", "tolerance"), before, stated, strict=True):
            if was is not None and now is not None and was != now:
                raise BadInput(
                    f"lines of {name} have {was} and {now}",
                    field=f"{where}.{key}",
                    value=now,
                    hint=f"state one {key} for a metric",
                )
        self._stated[name] = (before[0] or stated[0], before[1] or stated[1])


def _read_arm(body: Mapping[str, Any], where: str) -> Arm:
    arm = body.get("arm")
    if arm not in ("A", "B"):
        raise BadInput(
            '\'arm\' must be "A" for the reference or "B" for the candidate',
            field=f"{where}.arm",
            value=arm,
            hint=_EXAMPLE,
        )
    return "A" if arm == "A" else "B"


def _read_number(body: Mapping[str, Any], key: str, where: str) -> int:
    value = body.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise BadInput(
            f"'{key}' must be a whole number from 0 on",
            field=f"{where}.{key}",
            value=value,
            hint=_EXAMPLE,
        )
    return value
