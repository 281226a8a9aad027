"""Read the input of `compatgate canary judge`: canary JSON lines, or plain numbers one a line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args

from msgspec import Struct

from compatgate.canary.judge.prepare import find_conversion
from compatgate.canary.judge.result import Samples
from compatgate.canary.run import Check
from compatgate.canary.workload import Better
from compatgate.errors import BadInput

PLAIN_METRIC = "value"
"""Default name of the metric of plain numbers."""
MAX_BYTES = 64 << 20
_NOT_FINITE = {"nan", "inf", "+inf", "-inf", "infinity", "+infinity", "-infinity"}


class MeasurementFile(Struct, frozen=True):
    """Content of one file of measurements.

    Attributes:
        form: ``empty`` if the file has neither a JSON line of the protocol nor a number.
        stated: direction and tolerance that lines state, by metric.
        lines: number of lines that are not empty.
    """

    form: Literal["lines", "plain", "empty"]
    metrics: dict[str, Samples] = {}
    checks: tuple[Check, ...] = ()
    stated: dict[str, tuple[Better | None, float | None]] = {}
    lines: int = 0


def read_measurements(
    data: bytes, *, source: str, metric: str | None, unit: str = ""
) -> MeasurementFile:
    """Read a file.

    Bytes that are not UTF-8 count as log.
    """
    if len(data) > MAX_BYTES:
        raise BadInput(f"is larger than the limit of {MAX_BYTES >> 20} MiB", field=source)
    text = data.decode("utf-8", "replace").removeprefix("\ufeff")
    lines = [(i, s) for i, line in enumerate(text.split("\n"), 1) if (s := line.strip())]
    known = [(i, body) for i, line in lines if (body := read_member(line)) is not None]
    if known:
        return _LineCollector(source).read(known, len(lines))
    if not lines:
        return MeasurementFile("empty")
    values = list(_read_plain(lines, source))
    name = metric or PLAIN_METRIC
    return MeasurementFile("plain", {name: Samples(name, unit, (tuple(values),))}, lines=len(lines))


def read_member(line: str) -> dict[str, Any] | None:
    """Return a line of the protocol; None for log."""
    if not line.startswith("{"):
        return None
    try:
        body = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) and isinstance(body.get("type"), str) else None


def _read_plain(lines: list[tuple[int, str]], source: str) -> Iterator[float]:
    for number, line in lines:
        if line.startswith("#"):
            continue
        try:
            yield float(line)
        except ValueError:
            raise BadInput(
                f"'{line[:60]}' is neither a number nor a JSON line of a canary",
                field=f"{source}:{number}",
                value=line[:60],
                hint='write one number per line, or lines such as {"type": "metric", "name": '
                '"step_time", "value": 1.2, "unit": "ms"}',
            ) from None


class _LineCollector:
    """Collector of the protocol's lines; a repeated metric appends."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._runs: dict[str, dict[str, list[float]]] = {}
        self._units: dict[str, str] = {}
        self._stated: dict[str, tuple[Better | None, float | None]] = {}
        self._checks: list[Check] = []

    def read(self, known: list[tuple[int, dict[str, Any]]], lines: int) -> MeasurementFile:
        """Return every metric and check."""
        for number, body in known:
            where = f"{self._source}:{number}"
            if body["type"] == "metric":
                self._metric(body, where)
            elif body["type"] == "check":
                self._checks.append(read_check(body, where))
        metrics = {
            name: Samples(name, self._units[name], tuple(tuple(run) for run in runs.values()))
            for name, runs in self._runs.items()
        }
        return MeasurementFile("lines", metrics, tuple(self._checks), self._stated, lines)

    def _metric(self, body: Mapping[str, Any], where: str) -> None:
        name = read_text(body, "name", where)
        unit = read_text(body, "unit", where, default="")
        first = self._units.setdefault(name, unit)
        factor = find_conversion(unit, first)
        if factor is None:
            raise BadInput(
                f"metric {name} changes its unit from {first or 'none'} to {unit or 'none'}",
                field=f"{where}.unit",
                value=unit,
                hint="use one unit for all values of a metric",
            )
        better, tolerance = read_statement(body, where)
        was_better, was_tolerance = self._stated.get(name, (None, None))
        self._stated[name] = (was_better or better, was_tolerance or tolerance)
        run = self._runs.setdefault(name, {}).setdefault(str(body.get("run", "")), [])
        if body.get("warmup") is not True:
            run += [value * factor for value in read_values(body, where)]


def read_statement(body: Mapping[str, Any], where: str) -> tuple[Better | None, float | None]:
    """Return the direction and the tolerance that a line states."""
    better, tolerance = body.get("better"), body.get("tolerance")
    if better is not None and better not in get_args(Better):
        raise BadInput(
            f"{better!r} is not a direction",
            field=f"{where}.better",
            value=better,
            hint="use lower, higher or either",
        )
    if tolerance is not None and not (is_number(tolerance) and 0 < tolerance < 1):
        raise BadInput(
            f"{tolerance!r} is not a tolerance",
            field=f"{where}.tolerance",
            value=tolerance,
            hint="use a share between 0 and 1, such as 0.05",
        )
    return better, tolerance


def read_values(body: Mapping[str, Any], where: str) -> list[float]:
    """Return the values of a metric line."""
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
    if not is_number(value):
        raise BadInput(f"{value!r} is not a number", field=where, value=value)
    try:
        return float(value)  # type: ignore[arg-type]
    except OverflowError:
        return float("inf")


def is_number(value: object) -> bool:
    """Return whether a JSON value is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def read_text(body: Mapping[str, Any], key: str, where: str, default: str | None = None) -> str:
    """Return text of a line."""
    value = body.get(key, default)
    if not isinstance(value, str) or (default is None and not value.strip()):
        raise BadInput(f"'{key}' must be text", field=f"{where}.{key}", value=value)
    return value.strip()


def read_check(body: Mapping[str, Any], where: str) -> Check:
    """Return the check of a line."""
    ok = body.get("ok")
    if not isinstance(ok, bool):
        raise BadInput("'ok' must be true or false", field=f"{where}.ok", value=ok)
    skipped = body.get("skipped", False)
    if not isinstance(skipped, bool) or (skipped and not ok):
        what = "'skipped' must be true or false, and true only with ok"
        raise BadInput(what, field=f"{where}.skipped", value=skipped)
    return Check(read_text(body, "name", where), ok, str(body.get("message", "")), skipped)
