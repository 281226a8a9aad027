"""Read the line protocol: JSON objects with a ``type`` among log lines.

A malformed line of the protocol (cut off, not UTF-8, ``NaN``, a wrong type, a name that
``workload.toml`` does not declare) is a problem of the report, and a report with problems is never
evidence. docs/reference/workloads.md is the specification.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from compatgate.canary.run import Check, Conditions, Device, Env, Metric, Report
from compatgate.canary.workload import Workload
from compatgate.core.components import COMPONENTS, find_component
from compatgate.core.versions import parse_version
from compatgate.errors import CompatgateError, explain_form, quote_error

MAX_LINE = 1 << 20
"""Maximum bytes of a line; the rest of a longer one is skipped."""


class Line(Struct, frozen=True):
    """A line without its end, which may be incomplete or cut at the maximum length."""

    number: int
    content: bytes
    complete: bool = True
    too_long: bool = False


class LineSplitter:
    """Splitter of output into lines; counts as ``dropped`` the bytes after ``most``."""

    def __init__(self, most: int) -> None:
        self._left = most
        self._buffer = bytearray()
        self._skipping = False
        self.count = 0
        self.dropped = 0

    def feed(self, data: bytes) -> Iterator[Line]:
        """Yield the lines that a piece completes."""
        taken = data[: self._left]
        self._left -= len(taken)
        self.dropped += len(data) - len(taken)
        start = 0
        while (end := taken.find(b"\n", start)) >= 0:
            yield from self._append(taken[start:end])
            if not self._skipping:
                yield self._line()
            self._skipping = False
            start = end + 1
        yield from self._append(taken[start:])

    def end(self) -> Iterator[Line]:
        """Yield the last line without a line feed; nothing if the output was cut."""
        if self._buffer and not self.dropped:
            yield self._line(complete=False)
        self._buffer.clear()

    def _append(self, part: bytes) -> Iterator[Line]:
        if self._skipping:
            return
        self._buffer += part
        if len(self._buffer) > MAX_LINE:
            del self._buffer[MAX_LINE:]
            yield self._line(too_long=True)
            self._skipping = True

    def _line(self, *, complete: bool = True, too_long: bool = False) -> Line:
        self.count += 1
        content = bytes(self._buffer)
        self._buffer.clear()
        return Line(self.count, content.removesuffix(b"\r"), complete, too_long)


LOST_LINE = b'{"type": "lost", "message": "the log outgrew its files, lines may be missing"}\n'


class BrokenLine(Exception):
    """Error: a line breaks the protocol; the message says how."""


def read_text(body: dict[str, Any], field: str, default: str | None = None) -> str:
    """Return a text member."""
    value = body.get(field, default)
    if not isinstance(value, str):
        raise BrokenLine(f"{field} is missing" if value is None else f"{field} must be text")
    return value


def read_number(field: str, value: object) -> float:
    """Return a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BrokenLine(f"{field} is missing" if value is None else f"{field} must be a number")
    try:
        result = float(value)
    except OverflowError:
        result = math.inf
    if not math.isfinite(result):
        raise BrokenLine(f"{field} is too large for a number")
    return result


def read_numbers(body: dict[str, Any], field: str, single: str | None = None) -> list[float]:
    """Return a list of numbers, or a single number under another name; [] if both are missing."""
    if single is not None and single in body:
        if field in body:
            raise BrokenLine(f"the line has both {field} and {single}")
        return [read_number(single, body[single])]
    values = body.get(field, [])
    if not isinstance(values, list):
        raise BrokenLine(f"{field} must be a list of numbers")
    return [read_number(f"{field}[{index}]", value) for index, value in enumerate(values)]


MAX_VALUES = 1_000_000
_MAX_PROBLEMS = 100
_MESSAGE = 2000
_KINDS = ("env", "metric", "check", "progress")
_PROTOCOL_LIKE = re.compile(rb'"type"\s*:\s*"(env|metric|check|progress)"')


class Collector:
    """Collector of what one execution printed; ``env`` is None until its line came."""

    def __init__(self) -> None:
        self.env: Env | None = None
        self._values: dict[str, tuple[str, list[float], list[float]]] = {}
        self._conditions: dict[str, Conditions] = {}
        self._checks: dict[str, Check] = {}
        self._problems: list[str] = []
        self._unsaid = 0

    def problem(self, text: str) -> None:
        """Record that output is damaged, or that data is missing."""
        if len(self._problems) < _MAX_PROBLEMS:
            self._problems.append(text[:_MESSAGE])
        else:
            self._unsaid += 1

    def read_env(self, body: dict[str, Any]) -> None:
        """Read the members of the env line, of which an output has one."""
        if self.env is not None:
            raise BrokenLine("the output has a second env line")
        self.env = read_env(body)

    def add_values(
        self, name: str, unit: str, values: Iterable[float], warmup: Iterable[float] = ()
    ) -> None:
        """Add values of a metric; repeated calls append."""
        _, kept, kept_warmup = self._values.setdefault(name, (unit, [], []))
        kept.extend(values)
        kept_warmup.extend(warmup)

    def add_check(self, check: Check) -> None:
        """Add a check; one that failed once has failed, and one that passed was not skipped."""
        known = self._checks.get(check.name)
        if known is None or (known.ok and (known.skipped or not check.skipped)):
            self._checks[check.name] = replace(check, message=check.message[:_MESSAGE])

    def make_report(self, env: Env | None, **more: Any) -> Report:
        """Return the report, with the other members that only the reader knows."""
        unsaid = [f"and {self._unsaid} more"] if self._unsaid else []
        return Report(
            env=env,
            metrics=tuple(
                Metric(name, unit, tuple(values), tuple(warmup), self._conditions.get(name))
                for name, (unit, values, warmup) in self._values.items()
                if values or warmup
            ),
            checks=tuple(self._checks.values()),
            problems=(*self._problems, *unsaid),
            **more,
        )


class JsonLines(Collector):
    """Reader of one execution of a workload."""

    def __init__(self, workload: Workload) -> None:
        super().__init__()
        self._workload = workload
        self._lines = LineSplitter(workload.limits.output)
        self._began = False
        self._room = MAX_VALUES
        self.progress: float | None = None

    def feed(self, data: bytes) -> None:
        """Read the next piece of output."""
        for line in self._lines.feed(data):
            self._take(line)

    def report(self) -> Report:
        """Return the report; an unfinished last line counts if it is whole."""
        for line in self._lines.end():
            self._take(line)
        lines, dropped = self._lines.count, self._lines.dropped
        return self.make_report(
            self.env, progress=self.progress, lines=lines, dropped_bytes=dropped
        )

    def _take(self, line: Line) -> None:
        try:
            if (body := parse_protocol_line(line)) is None:
                return
            match body.pop("type"):
                case "env":
                    if self._began and self.env is None:
                        raise BrokenLine("the env line must be the first line of the protocol")
                    self.read_env(body)
                case "metric":
                    self._read_metric(body)
                case "check":
                    self._read_check(body)
                case "progress":
                    self.progress = min(max(read_number("value", body.get("value")), 0.0), 1.0)
                case "lost":
                    raise BrokenLine(read_text(body, "message", default="lines were lost"))
                case kind:
                    raise BrokenLine(f"{_shorten(kind)} is not a type; known: {', '.join(_KINDS)}")
            self._began = True
        except BrokenLine as problem:
            self.problem(f"line {line.number}: {problem}")

    def _read_metric(self, body: dict[str, Any]) -> None:
        name = read_text(body, "name")
        declared = self._workload.metrics.get(name)
        if declared is None:
            raise BrokenLine(f"the metric {_shorten(name)} is not declared in workload.toml")
        unit = read_text(body, "unit")
        if unit != declared.unit:
            raise BrokenLine(
                f"the metric {name} is in {_shorten(unit)}, but {declared.unit} is declared"
            )
        values, warmup = read_numbers(body, "values", "value"), read_numbers(body, "warmup")
        if not (values or warmup):
            raise BrokenLine(f"the metric {name} has no value")
        self._room -= len(values) + len(warmup)
        if self._room < 0:
            raise BrokenLine(f"the output has more than {MAX_VALUES} values")
        if body.get("conditions") is not None:
            try:
                result = msgspec.convert(body["conditions"], Conditions)
            except msgspec.ValidationError as error:
                raise BrokenLine(f"conditions: {explain_form(error)}") from None
            for part in ("sm_mhz", "watts", "celsius", "limits"):
                if len(getattr(result, part)) not in (0, len(values)):
                    what = f"must have one entry for each of {len(values)} values"
                    raise BrokenLine(f"conditions.{part} {what}")
            kept = self._conditions.get(name)
            self._conditions[name] = kept.joined(result) if kept else result
        self.add_values(name, unit, values, warmup)

    def _read_check(self, body: dict[str, Any]) -> None:
        name = read_text(body, "name")
        if name not in self._workload.checks:
            raise BrokenLine(f"the check {_shorten(name)} is not declared in workload.toml")
        ok = body.get("ok")
        if not isinstance(ok, bool):
            raise BrokenLine(f"the check {name}: ok must be true or false")
        skipped = body.get("skipped", False)
        if not isinstance(skipped, bool) or (skipped and not ok):
            raise BrokenLine(
                f"the check {name}: skipped must be true or false, and true only with ok"
            )
        message = read_text(body, "message", default="")
        self.add_check(Check(name, ok, message, skipped, host=name in self._workload.host_checks))


def parse_protocol_line(line: Line) -> dict[str, Any] | None:
    """Return the object of a protocol line; None for log."""
    content = line.content.strip()
    if not content.startswith(b"{"):
        return None
    meant = is_protocol_like(content)
    try:
        body = msgspec.json.decode(content)
    except RecursionError:
        reason = "nested too deeply"
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        reason = f"not JSON: {quote_error(error)}"
        if re.search(rb"\b(NaN|-?Infinity)\b", content):
            reason = "NaN and Infinity are not JSON"
        elif line.too_long:
            reason = f"longer than {MAX_LINE} bytes"
        elif not line.complete:
            reason = "the line is cut off"
        elif content.decode(errors="replace").encode() != content:
            reason = "not UTF-8"
    else:
        return body if isinstance(body, dict) and "type" in body else None
    if meant:
        raise BrokenLine(reason)
    return None


def is_protocol_like(content: bytes) -> bool:
    """Return whether a line is meant to be of the protocol."""
    content = content.lstrip()
    return content.startswith(b"{") and _PROTOCOL_LIKE.search(content[:4096]) is not None


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."


_MAX_GPUS = 256
_ENV_MEMBERS = ("driver", "gpus", "versions", "paths")
_DEVICE = ("uuid", "pci", "compute_capability", "mig")


def read_env(body: dict[str, Any]) -> Env:
    """Read the members of the env line.

    Components are members of ``versions``, by any name that a stack may use. ``cuda``, ``cudnn``,
    ``nccl``, ``torch`` and the others may also be members of the line itself.
    """
    stated = {k: v for k, v in body.items() if k in COMPONENTS and k not in _ENV_MEMBERS}
    versions: dict[str, str] = {}
    for name, value in [*_read_mapping(body, "versions").items(), *stated.items()]:
        _add_version(versions, name, value)
    drivers = {"driver": versions.pop("driver")} if "driver" in versions else {}
    _add_version(drivers, "driver", body.get("driver"))
    paths = _read_mapping(body, "paths")
    value = body.get("gpus", [])
    if not isinstance(value, list):
        raise BrokenLine("gpus must be a list")
    if len(value) > _MAX_GPUS:
        raise BrokenLine(f"more than {_MAX_GPUS} gpus")
    return Env(
        driver=drivers.get("driver"),
        gpus=tuple(_read_device(index, item) for index, item in enumerate(value)),
        versions=versions,
        paths={_canonical_version(name): read_text(paths, name) for name in paths},
        other={k: v for k, v in body.items() if k not in _ENV_MEMBERS and k not in stated},
    )


def _add_version(versions: dict[str, str], name: str, value: object) -> None:
    if value is None:
        return
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise BrokenLine(f"the version of {name} must be text")
    component = _canonical_version(name)
    try:
        parse_version(component, value)
    except CompatgateError:
        raise BrokenLine(f"{value[:80]!r} is not a version of {component}") from None
    if versions.setdefault(component, value) != value:
        raise BrokenLine(f"{component} is both {versions[component]} and {value}")


def _canonical_version(name: str) -> str:
    result = find_component(name)
    if result is None:
        raise BrokenLine(f"{name[:80]!r} is not a component")
    return result.component.name


def _read_device(index: int, item: object) -> Device:
    if isinstance(item, str):
        return Device(item)
    if not isinstance(item, dict):
        raise BrokenLine(f"gpus[{index}] must be an object with a name")
    memory = item.get("memory_bytes")
    if not (memory is None or type(memory) is int):
        raise BrokenLine(f"gpus[{index}].memory_bytes must be a whole number")
    try:
        known = {k: read_text(item, k) for k in _DEVICE if item.get(k) is not None}
        return Device(name=read_text(item, "name"), memory_bytes=memory, **known)
    except BrokenLine as problem:
        raise BrokenLine(f"gpus[{index}].{problem}") from None


def _read_mapping(body: dict[str, Any], field: str) -> dict[str, Any]:
    value = body.get(field, {})
    if not isinstance(value, dict):
        raise BrokenLine(f"{field} must be an object")
    return value
