"""Describe what another tool measured, as its report states it.

A report gives one `Observation` for each place that it is about: a node, a partition, a cluster.
Its parts are the tool's tests, each with its own result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from compatgate.canary.run import Report
from compatgate.errors import BadInput, quote_error

PartOutcome = Literal["passed", "failed", "inconclusive"]
MAX_BYTES = 8 << 20
"""Maximum size of a report."""
MAX_OBSERVATIONS = 2000
MAX_PARTS = 2000
_SHOWN = 80
_T = TypeVar("_T")


class Part(Struct, frozen=True):
    """The result of one test of the tool.

    Attributes:
        name: unique in its observation.
        reason: one line.
    """

    name: str
    outcome: PartOutcome
    reason: str
    report: Report
    started: datetime | None = None
    finished: datetime | None = None


class Observation(Struct, frozen=True):
    """The statements of a report about one place; None: not stated.

    Attributes:
        tool: name and version of the tool.
        host: node that was measured, if it was one.
        nodes: number of nodes.
        gpus: number of GPUs, at least 1.
        gpu: product name of the GPUs, as printed.
        family: what the name of the GPU's SKU must contain, where the report has no product name.
        versions: component to version that was loaded.
        finished: end of the measurement.
    """

    tool: str
    parts: tuple[Part, ...]
    host: str | None = None
    nodes: int = 1
    gpus: int = 1
    gpu: str | None = None
    family: str | None = None
    driver: str | None = None
    versions: dict[str, str] = {}
    started: datetime | None = None
    finished: datetime | None = None

    @property
    def outcome(self) -> PartOutcome:
        """Return ``failed`` if a part failed, ``passed`` if all passed, else ``inconclusive``."""
        found = {part.outcome for part in self.parts}
        if "failed" in found:
            return "failed"
        return "passed" if found == {"passed"} else "inconclusive"

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

    A report with problems, or without a check that passed, decides nothing.
    """
    failed = [check for check in report.checks if not check.ok and not check.skipped]
    if failed:
        return "failed", f"{failed[0].name}: {failed[0].message or 'failed'}"
    if report.problems:
        return "inconclusive", report.problems[0]
    passed = [check for check in report.checks if not check.skipped]
    if not passed:
        return "inconclusive", "the report has no result that passes or fails"
    return "passed", f"{len(passed)} of {len(passed)} checks passed"


def make_part(name: str, report: Report, **times: Any) -> Part:
    """Return a part judged by the report's own checks."""
    outcome, reason = judge_report(report)
    return Part(name, outcome, reason, report, **times)


class Node:
    """A value of a JSON report with its path, for errors that name the field."""

    def __init__(self, value: Any, path: str) -> None:
        self.value = value
        self.path = path

    def wrong(self, problem: str, hint: str = "") -> BadInput:
        """Return the error for this value."""
        shown = self.value if isinstance(self.value, int | float | str) else repr(self.value)
        text = str(shown)[:_SHOWN] if not isinstance(shown, int | float) else shown
        return BadInput(problem, field=self.path, value=text, hint=hint)

    def get(self, name: str) -> Node:
        """Return a member; its value is None if it is missing.

        Raises:
            BadInput: this is no object.
        """
        if not isinstance(self.value, dict):
            raise self.wrong("is not an object")
        return Node(self.value.get(name), f"{self.path}.{name}" if self.path else name)

    def items(self) -> list[Node]:
        """Return the items of a list; [] if it is missing.

        Raises:
            BadInput: this is no list.
        """
        if self.value is None:
            return []
        if not isinstance(self.value, list):
            raise self.wrong("is not a list")
        return [Node(each, f"{self.path}[{index}]") for index, each in enumerate(self.value)]

    def text(self) -> str:
        """Return text.

        Raises:
            BadInput: it is missing, empty or something else.
        """
        if not isinstance(self.value, str) or not self.value.strip():
            raise self.wrong("is missing" if self.value is None else "must be text")
        return self.value

    def optional_text(self) -> str | None:
        """Return text, or None if it is missing.

        Raises:
            BadInput: it is something else.
        """
        return None if self.value in (None, "") else self.text()

    def number(self) -> float:
        """Return a finite number.

        Raises:
            BadInput: it is missing or something else.
        """
        value = self.value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong("is missing" if value is None else "must be a number")
        if not math.isfinite(value):
            raise self.wrong("must be a finite number")
        return float(value)

    def count(self) -> int:
        """Return a whole number from 0; 0 if it is missing.

        Raises:
            BadInput: it is something else.
        """
        value = self.value
        if value is None:
            return 0
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**31:
            raise self.wrong("must be a whole number from 0")
        return value

    def moment(self) -> datetime | None:
        """Return seconds since the epoch as a time; None if it is missing.

        Raises:
            BadInput: it is no time.
        """
        if self.value is None:
            return None
        try:
            return datetime.fromtimestamp(self.number(), UTC)
        except (OverflowError, ValueError, OSError):
            raise self.wrong("is no time", "seconds since 1970") from None


def parse_json(text: str, path: str = "") -> Node:
    """Parse a JSON document.

    Raises:
        BadInput: it is malformed.
    """
    try:
        return Node(msgspec.json.decode(text), path)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadInput(
            f"is not JSON: {quote_error(error)}", field=path or "file", value=text[:_SHOWN].strip()
        ) from None


def limit(found: Sequence[_T], most: int, what: str, field: str) -> tuple[_T, ...]:
    """Return a sequence as a tuple.

    Raises:
        BadInput: it is empty or too long.
    """
    if not found:
        raise BadInput(f"the report has no {what}", field=field)
    if len(found) > most:
        hint = f"at most {most}; split the report"
        raise BadInput(f"the report has too many {what}", field=field, value=len(found), hint=hint)
    return tuple(found)
