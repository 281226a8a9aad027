"""The line protocol: JSON lines among log lines.

A line is of the protocol when it is a JSON object with a ``type``; everything else is log. What
wants to be of the protocol and is not (cut off, not UTF-8, ``NaN``, a wrong type, a name that
``workload.toml`` does not declare) is a problem of the report, and a report with problems is never
evidence. docs/canaries.md is the specification.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from compatgate.canary.protocol.env import read_env
from compatgate.canary.protocol.fields import Broken, number, numbers, text
from compatgate.canary.protocol.lines import LONGEST, Line, Lines
from compatgate.canary.report import Check, Env, Metric, Report
from compatgate.canary.workload import Workload

MOST_VALUES = 1_000_000
"""Values of all metrics together."""
_MOST_PROBLEMS = 100
_MESSAGE = 2000
_KINDS = ("env", "metric", "check", "progress")
_MEANT = re.compile(rb'"type"\s*:\s*"(env|metric|check|progress)"')


class JsonLines:
    """Reads one execution of a workload."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._lines = Lines(workload.limits.output)
        self._env: Env | None = None
        self._began = False
        self._values: dict[str, tuple[list[float], list[float]]] = {}
        self._room = MOST_VALUES
        self._checks: dict[str, Check] = {}
        self._progress: float | None = None
        self._problems: list[str] = []
        self._unsaid = 0
        self._kinds: dict[str, Callable[[dict[str, Any]], None]] = {
            "env": self._read_env,
            "metric": self._read_metric,
            "check": self._read_check,
            "progress": self._read_progress,
            "lost": self._read_lost,
        }

    @property
    def progress(self) -> float | None:
        """How far the program says it is, 0 to 1."""
        return self._progress

    def feed(self, data: bytes) -> None:
        """Take the next piece of output."""
        for line in self._lines.feed(data):
            self._take(line)

    def report(self) -> Report:
        """What was read; an unfinished last line counts when it is whole."""
        for line in self._lines.end():
            self._take(line)
        problems = list(self._problems)
        if self._unsaid:
            problems.append(f"and {self._unsaid} more")
        return Report(
            env=self._env,
            metrics=tuple(
                Metric(name, self._workload.metrics[name].unit, tuple(values), tuple(warmup))
                for name, (values, warmup) in self._values.items()
            ),
            checks=tuple(self._checks.values()),
            progress=self._progress,
            problems=tuple(problems),
            lines=self._lines.count,
            dropped_bytes=self._lines.dropped,
        )

    def _take(self, line: Line) -> None:
        try:
            if (body := protocol_body(line)) is not None:
                self._read(body)
        except Broken as problem:
            if len(self._problems) < _MOST_PROBLEMS:
                self._problems.append(f"line {line.number}: {problem}")
            else:
                self._unsaid += 1

    def _read(self, body: dict[str, Any]) -> None:
        kind = body.pop("type")
        read = self._kinds.get(kind) if isinstance(kind, str) else None
        if read is None:
            raise Broken(f"{_short(kind)} is not a type; known: {', '.join(_KINDS)}")
        read(body)
        self._began = True

    def _read_env(self, body: dict[str, Any]) -> None:
        if self._env is not None:
            raise Broken("a second env")
        if self._began:
            raise Broken("env comes after other lines; it must be the first")
        self._env = read_env(body)

    def _read_metric(self, body: dict[str, Any]) -> None:
        name = text(body, "name")
        declared = self._workload.metrics.get(name)
        if declared is None:
            raise Broken(f"the metric {_short(name)} is not declared in workload.toml")
        unit = text(body, "unit")
        if unit != declared.unit:
            raise Broken(f"the metric {name} is in {_short(unit)}, declared is {declared.unit}")
        values, warmup = numbers(body, "values", "value"), numbers(body, "warmup")
        if not (values or warmup):
            raise Broken(f"the metric {name} has no value")
        self._room -= len(values) + len(warmup)
        if self._room < 0:
            raise Broken(f"more than {MOST_VALUES} values")
        known = self._values.setdefault(name, ([], []))
        known[0].extend(values)
        known[1].extend(warmup)

    def _read_check(self, body: dict[str, Any]) -> None:
        name = text(body, "name")
        if name not in self._workload.checks:
            raise Broken(f"the check {_short(name)} is not declared in workload.toml")
        ok = body.get("ok")
        if not isinstance(ok, bool):
            raise Broken(f"the check {name}: ok must be true or false")
        skipped = body.get("skipped", False)
        if not isinstance(skipped, bool) or (skipped and not ok):
            raise Broken(f"the check {name}: skipped must be true or false, and true only with ok")
        check = Check(name, ok, text(body, "message", default="")[:_MESSAGE], skipped)
        known = self._checks.get(name)
        # A check that failed once has failed, whatever comes later; one that held was no skip.
        if known is None or (known.ok and (known.skipped or not check.skipped)):
            self._checks[name] = check

    def _read_lost(self, body: dict[str, Any]) -> None:
        raise Broken(text(body, "message", default="lines were lost"))

    def _read_progress(self, body: dict[str, Any]) -> None:
        self._progress = min(max(number("value", body.get("value")), 0.0), 1.0)


def protocol_body(line: Line) -> dict[str, Any] | None:
    """The object of a protocol line; None for log.

    Raises:
        Broken: it was meant to be of the protocol.
    """
    content = line.content.strip()
    if not content.startswith(b"{"):
        return None
    meant = _MEANT.search(content[:4096]) is not None
    try:
        body = msgspec.json.decode(content)
    except UnicodeDecodeError:
        reason = "not UTF-8"
    except RecursionError:
        reason = "nested too deeply"
    except msgspec.MsgspecError as error:
        reason = str(error).removeprefix("JSON is malformed: ")
        if re.search(rb"\b(NaN|-?Infinity)\b", content):
            reason = "NaN and Infinity are not JSON"
        elif line.too_long:
            reason = f"longer than {LONGEST} bytes"
        elif not line.complete:
            reason = "the line is cut off"
    else:
        return body if isinstance(body, dict) and "type" in body else None
    if meant:
        raise Broken(reason)
    return None


def _short(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 80 else f"{shown[:80]}..."
