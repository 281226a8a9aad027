"""Describe what another tool measured, as its report states it.

A report gives one `Observation` for each place that it is about: a node or a cluster. Its parts are
the tool's tests, each with its own result.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Literal

from msgspec import Struct

from compatgate.canary.run import Env, Report
from compatgate.errors import BadInput

PartOutcome = Literal["passed", "failed", "inconclusive"]
MAX_BYTES = 8 << 20
"""Maximum size of a report."""
MAX_OBSERVATIONS = 2000


_RETURN_CODE = re.compile(r"(return|exit)[-_. ]?(code|status|value)(:\d+)?$", re.IGNORECASE)


class Part(Struct, frozen=True):
    """The result of one test of the tool; its name is unique in the observation."""

    name: str
    outcome: PartOutcome
    reason: str
    report: Report


class Observation(Struct, frozen=True):
    """The statements of a report about one place; None: not stated.

    Attributes:
        host: node that was measured, if it was one.
        gpu: product name of the GPUs, as printed.
    """

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
        return (
            "inconclusive",
            "return codes alone say that programs ended, not that they were right",
        )
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
