"""Read results as JSON lines: the line protocol of canary programs, without a workload.

An ``env`` line begins the results of one place; its members ``host``, ``tool`` and ``measured_at``
say what was measured where, with what and until when. ``metric`` and ``check`` lines follow.
docs/how-to/imported-results.md is the specification.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from compatgate.canary.imports.observation import (
    MAX_OBSERVATIONS,
    Observation,
    find_gpu,
    make_part,
)
from compatgate.canary.protocol.jsonl import JsonLines
from compatgate.canary.run import Env, Report
from compatgate.canary.workload import ImageSpec, MetricSpec, Workload
from compatgate.errors import BadInput
from compatgate.kit.clock import parse_moment

_MAX_TEXT = 200
_TOOL = "JSON lines"


class _Outline(Struct, frozen=True):
    """The members that declare a metric or check; malformed lines are left to `JsonLines`."""

    type: object = ""
    name: object = ""
    unit: object = ""


def read_json_lines(text: str) -> list[Observation]:
    """Read a report: an observation for each ``env`` line."""
    lines = text.split("\n")
    outlines = [_outline(line) for line in lines]
    starts = [number for number, one in enumerate(outlines) if one.type == "env"]
    if not starts:
        raise BadInput("the report has no env line", field="file")
    if len(starts) > MAX_OBSERVATIONS:
        hint = f"at most {MAX_OBSERVATIONS}; split the report"
        raise BadInput("the report has too many env lines", field="file", hint=hint)
    starts[0] = 0  # a line of the protocol before the first env line is refused
    return [
        _read_place(lines[start:end], outlines[start:end], start)
        for start, end in zip(starts, [*starts[1:], len(lines)], strict=True)
    ]


def _outline(line: str) -> _Outline:
    try:
        return msgspec.json.decode(line, type=_Outline)
    except (msgspec.MsgspecError, RecursionError, UnicodeEncodeError):
        return _Outline()


def _read_place(lines: Sequence[str], outlines: Sequence[_Outline], start: int) -> Observation:
    """Read the lines of one place, which declare their metrics and checks themselves."""
    declared = Workload(
        name="import",
        description="",
        command=(),
        image=ImageSpec(),
        metrics={
            one.name: MetricSpec(str(one.unit), "either")
            for one in outlines
            if one.type == "metric" and isinstance(one.name, str)
        },
        checks={
            one.name: "" for one in outlines if one.type == "check" and isinstance(one.name, str)
        },
    )
    reader = JsonLines(declared)
    reader.feed("\n".join([*lines, ""]).encode())
    report = reader.report()
    if report.problems:
        number, _, problem = report.problems[0].removeprefix("line ").partition(": ")
        line = start + int(number)
        raise BadInput(f"line {line}: {problem}", field=f"line {line}")
    return _observe(report, report.env or Env())


def _observe(report: Report, env: Env) -> Observation:
    host, tool, finished = (_text(env, name) for name in ("host", "tool", "measured_at"))
    return Observation(
        tool=tool or _TOOL,
        parts=(make_part("report", report),),
        host=host,
        gpus=max(1, len(env.gpus)),
        gpu=find_gpu(env),
        driver=env.driver,
        versions=dict(env.versions),
        finished=None if finished is None else parse_moment(finished, field="env.measured_at"),
    )


def _text(env: Env, name: str) -> str | None:
    value = env.other.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or not value.isprintable() or not 0 < len(value) <= _MAX_TEXT:
        hint = f"one line of text, at most {_MAX_TEXT} characters"
        raise BadInput("must be one line of text", field=f"env.{name}", hint=hint)
    return value
