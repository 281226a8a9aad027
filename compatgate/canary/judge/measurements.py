"""Read the input of `compatgate canary judge`: canary JSON lines, or plain numbers one a line.

With ``--paired``, lines have an arm, a pair and a block, by which a block is found in any order.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, get_args

from msgspec import Struct

from compatgate.canary.judge.paired.blocks import Arm, Block, Pair, PairedSamples
from compatgate.canary.judge.prepare import find_conversion
from compatgate.canary.judge.result import Samples
from compatgate.canary.run import Check
from compatgate.canary.workload import Better
from compatgate.errors import BadInput

PLAIN_METRIC = "value"
"""Default name of the metric of plain numbers."""
MAX_BYTES = 64 << 20
MAX_PAIRS = 200
"""Maximum number of pairs in a file."""
MAX_METRICS = 2000
"""Maximum number of metrics in a file of pairs."""
_NOT_FINITE = {"nan", "inf", "+inf", "-inf", "infinity", "+infinity", "-infinity"}
_EXAMPLE = '{"type": "metric", "name": "step_time", "value": 1.2, "unit": "ms"}'
_PAIRED_HINT = (
    'write lines such as {"type": "metric", "name": "step_time", "values": [1.2, 1.3], '
    '"unit": "ms", "arm": "A", "pair": 1, "block": 1}'
)
Statement = tuple[Better | None, float | None]
"""Direction and tolerance that lines of a metric state."""
_Lines = list[tuple[str, str]]
"""Lines that are not empty, each with its place: ``FILE:NUMBER``."""


class MeasurementFile(Struct, frozen=True):
    """Content of one file of measurements.

    Attributes:
        form: ``empty`` if the file has neither a JSON line of the protocol nor a number.
        lines: number of lines that are not empty.
    """

    form: Literal["lines", "plain", "empty"]
    metrics: dict[str, Samples] = {}
    checks: tuple[Check, ...] = ()
    stated: dict[str, Statement] = {}
    lines: int = 0


class PairedFile(Struct, frozen=True):
    """Content of a file of pairs; ``checks`` are of the candidate, and of lines without an arm."""

    metrics: dict[str, PairedSamples]
    stated: dict[str, Statement] = {}
    checks: tuple[Check, ...] = ()
    reference_checks: tuple[Check, ...] = ()


def read_measurements(
    data: bytes, *, source: str, metric: str | None, unit: str = ""
) -> MeasurementFile:
    """Read a file; lines that name a ``run`` are grouped by it.

    Bytes that are not UTF-8 count as log.
    """
    lines = _split_lines(data, source)
    known = [(where, body) for where, line in lines if (body := _parse(line)) is not None]
    known = [(where, body) for where, body in known if isinstance(body.get("type"), str)]
    if known:
        found = _Collector(known, lambda body, _: str(body.get("run", "")))
        metrics = {}
        for name, units in found.units.items():
            runs = found.convert(name, next(iter(units)))
            metrics[name] = Samples(name, next(iter(units)), tuple(runs.values()))
        checks = tuple(_read_check(body, where) for where, body in found.checks)
        return MeasurementFile("lines", metrics, checks, found.stated, len(lines))
    if not lines:
        return MeasurementFile("empty")
    name, values = metric or PLAIN_METRIC, tuple(_read_plain(lines))
    return MeasurementFile("plain", {name: Samples(name, unit, (values,))}, lines=len(lines))


def read_pairs(data: bytes, *, source: str) -> PairedFile:
    """Read a file of pairs; lines that are no JSON objects are log."""
    known = []
    for where, line in _split_lines(data, source):
        if line.startswith("{"):
            body = _parse(line)
            if body is None:  # without it, a pair may lack a block
                what = "is not a JSON object"
                raise BadInput(what, field=where, value=line[:60], hint=_PAIRED_HINT)
            known.append((where, body))
    found = _Collector(known, _read_place)
    if len(found.units) > MAX_METRICS:
        raise BadInput(f"has more than {MAX_METRICS} metrics", field=source)
    checks: dict[Arm, list[Check]] = {"A": [], "B": []}
    for where, body in found.checks:
        checks[_read_arm(body, where) if "arm" in body else "B"].append(_read_check(body, where))
    metrics = {name: _collect_pairs(found, name, source) for name in sorted(found.units)}
    return PairedFile(metrics, found.stated, tuple(checks["B"]), tuple(checks["A"]))


def _collect_pairs(found: _Collector, name: str, source: str) -> PairedSamples:
    unit = min(found.units[name])
    arms: dict[int, dict[Arm, list[Block]]] = {}
    for (pair, arm, _), block in sorted(found.convert(name, unit).items()):
        if block:
            arms.setdefault(pair, {"A": [], "B": []})[arm].append(block)
    if len(arms) > MAX_PAIRS:
        raise BadInput(f"metric {name} has more than {MAX_PAIRS} pairs", field=source)
    pairs = tuple(Pair(pair, tuple(of["A"]), tuple(of["B"])) for pair, of in arms.items())
    return PairedSamples(name, unit, pairs)


def _split_lines(data: bytes, source: str) -> _Lines:
    if len(data) > MAX_BYTES:
        raise BadInput(f"is larger than the limit of {MAX_BYTES >> 20} MiB", field=source)
    lines = data.decode("utf-8", "replace").removeprefix("\ufeff").split("\n")
    return [(f"{source}:{i}", s) for i, line in enumerate(lines, 1) if (s := line.strip())]


def _parse(line: str) -> dict[str, Any] | None:
    """Return the object of a line; None if it is none."""
    try:
        body = json.loads(line) if line.startswith("{") else None
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) else None


def _read_plain(lines: _Lines) -> Iterator[float]:
    for where, line in lines:
        if line.startswith("#"):
            continue
        try:
            yield float(line)
        except ValueError:
            raise BadInput(
                f"'{line[:60]}' is neither a number nor a JSON line of a canary",
                field=where,
                value=line[:60],
                hint=f"write one number per line, or lines such as {_EXAMPLE}",
            ) from None


class _Collector:
    """Collector of lines of the protocol: values by metric and place, without warm-up.

    A place is what ``read_place`` returns for a line, such as a run; a repeated place appends.
    """

    def __init__(
        self,
        lines: list[tuple[str, dict[str, Any]]],
        read_place: Callable[[Mapping[str, Any], str], Any],
    ) -> None:
        self.units: dict[str, dict[str, None]] = {}
        self.stated: dict[str, Statement] = {}
        self.checks = [(where, body) for where, body in lines if body.get("type") == "check"]
        self._values: dict[str, dict[Any, list[tuple[float, str]]]] = {}
        for where, body in lines:
            if body.get("type") == "metric":
                name, unit = self._declare(body, where)
                places = self._values.setdefault(name, {})
                if body.get("warmup") is not True:
                    values = places.setdefault(read_place(body, where), [])
                    values += [(value, unit) for value in _read_values(body, where)]

    def convert(self, name: str, unit: str) -> dict[Any, tuple[float, ...]]:
        """Return the values of a metric by place, in one of its units."""
        factors = {other: find_conversion(other, unit) or 1.0 for other in self.units[name]}
        return {
            place: tuple(value * factors[of] for value, of in values)
            for place, values in self._values[name].items()
        }

    def _declare(self, body: Mapping[str, Any], where: str) -> tuple[str, str]:
        """Note the unit of a line, and what it states; return its metric and its unit."""
        name, unit = _read_text(body, "name", where), _read_text(body, "unit", where, default="")
        first = next(iter(self.units.setdefault(name, {unit: None})))
        if find_conversion(unit, first) is None:
            raise BadInput(
                f"metric {name} is in {first or 'no unit'} and in {unit or 'no unit'}",
                field=f"{where}.unit",
                value=unit,
                hint="use one unit for all values of a metric",
            )
        self.units[name][unit] = None
        before, now = self.stated.get(name, (None, None)), _read_statement(body, where)
        for key, was, value in zip(("better", "tolerance"), before, now, strict=True):
            if was is not None and value is not None and was != value:
                raise BadInput(
                    f"lines of {name} have {was} and {value}",
                    field=f"{where}.{key}",
                    value=value,
                    hint=f"state one {key} for a metric",
                )
        self.stated[name] = (before[0] or now[0], before[1] or now[1])
        return name, unit


def _read_statement(body: Mapping[str, Any], where: str) -> Statement:
    better, tolerance = body.get("better"), body.get("tolerance")
    if better is not None and better not in get_args(Better):
        raise BadInput(
            f"{better!r} is not a direction",
            field=f"{where}.better",
            value=better,
            hint="use lower, higher or either",
        )
    if tolerance is not None and not (_is_number(tolerance) and 0 < tolerance < 1):
        raise BadInput(
            f"{tolerance!r} is not a tolerance",
            field=f"{where}.tolerance",
            value=tolerance,
            hint="use a share between 0 and 1, such as 0.05",
        )
    return better, tolerance


def _read_values(body: Mapping[str, Any], where: str) -> list[float]:
    if ("value" in body) == ("values" in body):
        raise BadInput("a metric must have exactly one of 'value' and 'values'", field=where)
    if "value" in body:
        return [_read_number(body["value"], f"{where}.value")]
    values = body["values"]
    if not isinstance(values, list):
        raise BadInput("is not a list of numbers", field=f"{where}.values", value=values)
    return [_read_number(value, f"{where}.values") for value in values]


def _read_number(value: object, where: str) -> float:
    """Return a number; null and text stand for a value that JSON cannot write (NaN, infinity)."""
    if value is None or (isinstance(value, str) and value.strip().lower() in _NOT_FINITE):
        return float(value) if value else float("nan")
    if not _is_number(value):
        raise BadInput(f"{value!r} is not a number", field=where, value=value)
    try:
        return float(value)  # type: ignore[arg-type]
    except OverflowError:
        return float("inf")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _read_text(body: Mapping[str, Any], key: str, where: str, default: str | None = None) -> str:
    value = body.get(key, default)
    if not isinstance(value, str) or (default is None and not value.strip()):
        raise BadInput(f"'{key}' must be text", field=f"{where}.{key}", value=value)
    return value.strip()


def _read_check(body: Mapping[str, Any], where: str) -> Check:
    """Return the check of a line."""
    ok = body.get("ok")
    if not isinstance(ok, bool):
        raise BadInput("'ok' must be true or false", field=f"{where}.ok", value=ok)
    skipped = body.get("skipped", False)
    if not isinstance(skipped, bool) or (skipped and not ok):
        what = "'skipped' must be true or false, and true only with ok"
        raise BadInput(what, field=f"{where}.skipped", value=skipped)
    return Check(_read_text(body, "name", where), ok, str(body.get("message", "")), skipped)


def _read_place(body: Mapping[str, Any], where: str) -> tuple[int, Arm, int]:
    """Return pair, arm and block of a line."""
    numbers = []
    for key in ("pair", "block"):
        value = body.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            what = f"'{key}' must be a whole number from 0 on"
            raise BadInput(what, field=f"{where}.{key}", value=value, hint=_PAIRED_HINT)
        numbers.append(value)
    return numbers[0], _read_arm(body, where), numbers[1]


def _read_arm(body: Mapping[str, Any], where: str) -> Arm:
    arm = body.get("arm")
    if arm not in ("A", "B"):
        what = '\'arm\' must be "A" for the reference or "B" for the candidate'
        raise BadInput(what, field=f"{where}.arm", value=arm, hint=_PAIRED_HINT)
    return "A" if arm == "A" else "B"
