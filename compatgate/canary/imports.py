"""Read reports of other tools: DCGM, nccl-tests, and JSON lines; pure functions on text.

A report gives one `Observation` for each place that it is about: a node or a cluster. Its parts are
the tool's tests, each with its own result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from compatgate.canary.protocol.dcgm import read_dcgm
from compatgate.canary.protocol.jsonl import JsonLines, is_protocol_like
from compatgate.canary.protocol.nccl_tests import read_nccl_tests
from compatgate.canary.protocol.tool import ToolOutput, ToolReader
from compatgate.canary.run import Env, Report
from compatgate.canary.workload import ImageSpec, MetricSpec, Workload
from compatgate.errors import BadInput
from compatgate.kit.clock import parse_moment

ImportFormat = Literal["dcgm", "nccl-tests", "jsonl"]
PartOutcome = Literal["passed", "failed", "inconclusive"]
MAX_BYTES = 8 << 20
MAX_OBSERVATIONS = 2000
_RETURN_CODE = re.compile(r"(return|exit)[-_. ]?(code|status|value)(:\d+)?$", re.IGNORECASE)

_MAX_TEXT = 200
_NCCL_WORDS = ("# nThread", "# nccl-tests version", "# Avg bus bandwidth", '"nccl_version"')
_DCGM_WORDS = ('"DCGM Diagnostic"', '"DCGM GPU Diagnostic"')
_TOOL = "JSON lines"

_MAX_NAMED = 5


class Part(Struct, frozen=True):
    """The result of one test of the tool; its name is unique in the observation."""

    name: str
    outcome: PartOutcome
    reason: str
    report: Report


class Observation(Struct, frozen=True):
    """The statements of a report about one place; None: not stated."""

    tool: str
    parts: tuple[Part, ...]
    host: str | None = None
    nodes: int = 1
    gpus: int = 1
    gpu: str | None = None
    driver: str | None = None
    versions: dict[str, str] = {}
    finished: datetime | None = None

    @property
    def outcome(self) -> PartOutcome:
        """Return ``failed`` if a part failed, ``passed`` if all passed, else ``inconclusive``."""
        results = {part.outcome for part in self.parts}
        if "failed" in results:
            return "failed"
        return "passed" if results == {"passed"} else "inconclusive"

    @property
    def reason(self) -> str:
        """Return the outcome's reason in one line."""
        if self.outcome == "passed":
            return f"{len(self.parts)} of {len(self.parts)} tests passed"
        wrong = [part for part in self.parts if part.outcome == self.outcome]
        more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        return f"{wrong[0].name} {self.outcome}: {wrong[0].reason}{more}"


def judge_report(report: Report) -> tuple[PartOutcome, str]:
    """Return the outcome that a report's own checks give, with its reason.

    A report with problems, or without a check that passed, decides nothing. Nor does a return code
    alone: it says that a program ended, not that its results are right.
    """
    failed = [check for check in report.checks if not check.ok and not check.skipped]
    if failed:
        return "failed", f"{failed[0].name}: {failed[0].message or 'failed'}"
    if report.problems:
        return "inconclusive", report.problems[0]
    passed = [check for check in report.checks if not check.skipped]
    if not passed:
        return "inconclusive", "the report has no result that passes or fails"
    if all(_RETURN_CODE.search(check.name) for check in passed):
        reason = "return codes alone say that programs ended, not that they were right"
        return "inconclusive", reason
    return "passed", f"{len(passed)} of {len(passed)} checks passed"


def make_part(name: str, report: Report) -> Part:
    """Return a part judged by the report's own checks."""
    return Part(name, *judge_report(report), report)


def find_gpu(env: Env | None) -> str | None:
    """Return the product name of the GPUs; None if the report names none."""
    names = {device.name for device in env.gpus} if env else set()
    if len(names) > 1:
        raise BadInput(
            "the ranks ran on different GPUs",
            field="devices",
            value=", ".join(sorted(names)),
            hint="import results of one SKU at a time",
        )
    return next(iter(names), None)


class _Outline(Struct, frozen=True):
    """The members that declare a metric or check; malformed lines are left to `JsonLines`."""

    type: object = ""
    name: object = ""
    unit: object = ""


def read_json_lines(text: str) -> list[Observation]:
    """Read a report: an observation for each ``env`` line."""

    def outline(line: str) -> _Outline:
        try:
            return msgspec.json.decode(line, type=_Outline)
        except (msgspec.MsgspecError, RecursionError, UnicodeEncodeError):
            return _Outline()

    lines = text.split("\n")
    outlines = [outline(line) for line in lines]
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


def _read_place(lines: Sequence[str], outlines: Sequence[_Outline], start: int) -> Observation:
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
    env = report.env or Env()
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


def read_dcgm_diag(text: str) -> list[Observation]:
    """Read the JSON of ``dcgmi diag -j``; its driver is in it, its host and time are not.

    Source: https://github.com/NVIDIA/DCGM, ``testing/python3/dcgm_diag_schema.json``.
    """
    report = _read(text, read_dcgm)
    env = report.env
    version = str(env.other.get("dcgm", "")) if env else ""
    part = make_part("diag", report)
    return [
        Observation(
            tool=f"dcgmi diag {version}".strip(), parts=(part,), driver=env.driver if env else None
        )
    ]


def read_nccl(text: str) -> list[Observation]:
    """Read the table that nccl-tests prints.

    Its times are local times without a zone, so they are not used.

    Source: https://github.com/NVIDIA/nccl-tests, ``src/util.cu``.
    """
    report = _read(text, read_nccl_tests)
    env = report.env
    other = env.other if env else {}
    hosts = [str(host) for host in other.get("hosts", [])]
    if not any(check.name == "right" for check in report.checks):
        problem = "values were not validated (-c 0), so the report shows no correct result"
        report = replace(report, problems=(*report.problems, problem))
    return [
        Observation(
            tool=f"nccl-tests {other.get('nccl-tests') or ''}".strip(),
            parts=(make_part("nccl-tests", report),),
            host=hosts[0] if len(hosts) == 1 else None,
            nodes=max(1, len(hosts)),
            gpus=max(1, int(other.get("ranks", 1))),
            gpu=find_gpu(env),
            versions=dict(env.versions) if env else {},
        )
    ]


def _read(text: str, read: ToolReader) -> Report:
    output = ToolOutput(read)
    # The end of a JSON document shows that it is whole; that of a table is a line feed.
    whole = text + "\n" if text.lstrip().startswith("{") else text
    output.feed(whole.encode())
    report = output.report()
    if not report.metrics and not report.checks and report.problems:
        raise BadInput("; ".join(report.problems[:_MAX_NAMED]), field="file")
    return report


READERS: dict[ImportFormat, Callable[[str], list[Observation]]] = {
    "dcgm": read_dcgm_diag,
    "nccl-tests": read_nccl,
    "jsonl": read_json_lines,
}


def read_observations(
    text: str, form: ImportFormat | Literal["auto"]
) -> tuple[ImportFormat, tuple[Observation, ...]]:
    """Return the format of a whole report, and its observations."""
    if len(text.encode()) > MAX_BYTES:
        raise BadInput("the report is too large", field="file", hint=f"at most {MAX_BYTES} bytes")
    if not text.strip():
        raise BadInput("the report is empty", field="file")
    known = find_format(text) if form == "auto" else form
    return known, tuple(READERS[known](text))


def find_format(text: str) -> ImportFormat:
    """Return the format of a report."""
    if any(word in text for word in _NCCL_WORDS):
        return "nccl-tests"
    if any(word in text for word in _DCGM_WORDS):
        return "dcgm"
    if any(is_protocol_like(line.encode()) for line in text.splitlines()):
        return "jsonl"
    raise BadInput(
        "unknown format of the report",
        field="format",
        value="auto",
        hint=f"name the format: {', '.join(READERS)}",
    )
