"""What became of one execution of a workload, before any baseline is looked at. Pure."""

from __future__ import annotations

import signal
from typing import Literal

from msgspec import Struct

from compatgate.canary.report import Report
from compatgate.canary.run import Outcome
from compatgate.canary.workload import Workload

NO_GPU = 77
"""Exit status of a program that needs a GPU and found none; test runners use it for a skip."""

_SIGNAL = 128
"""Above it, an exit status stands for a signal."""


class Ended(Struct, frozen=True):
    """How an execution ended.

    Attributes:
        how: by itself, or why it was stopped.
        exit_code: where it ended by itself; above 128 a signal, as shells count.
    """

    how: Literal["exited", "timeout", "memory"]
    exit_code: int | None = None


class Verdict(Struct, frozen=True):
    """An outcome, and why in one line."""

    outcome: Outcome
    reason: str = ""


def conclude_step(workload: Workload, ended: Ended, report: Report) -> Verdict:
    """Say whether an execution may be judged.

    No data is never a pass: whatever was promised in ``workload.toml`` and not reported, a GPU that
    was not seen, or output that was lost makes it inconclusive.
    """
    return (
        _of_the_tool(ended, report)
        or _ending(workload, ended)
        or _damaged(workload, report)
        or _failed_check(report)
        or _missing(workload, report)
        or Verdict("passed")
    )


def _of_the_tool(ended: Ended, report: Report) -> Verdict | None:
    """A tool that cannot run here for reasons of its own; whatever else went wrong counts."""
    crashed = ended.exit_code is None or ended.exit_code > _SIGNAL
    if not report.own_fault or ended.how != "exited" or crashed or _failed_check(report):
        return None
    advice = "build it with a CUDA that this driver takes"
    return Verdict("inconclusive", f"the tool, not the stack: {report.own_fault}; {advice}")


def _ending(workload: Workload, ended: Ended) -> Verdict | None:
    if ended.how == "timeout":
        return Verdict("timeout", f"was stopped after {workload.timeout_s} s")
    if ended.how == "memory":
        return Verdict("failed", f"was killed for using more than {workload.limits.memory} bytes")
    code = ended.exit_code
    if code == 0:
        return None
    if code == NO_GPU and workload.gpus:
        return Verdict("inconclusive", "found no GPU")
    if code is None:
        return Verdict("inconclusive", "ended without an exit status")
    return Verdict("failed", f"ended with {_status(code)}")


def _status(code: int) -> str:
    try:
        return f"status {code} ({signal.Signals(code - _SIGNAL).name})"
    except ValueError:
        return f"status {code}"


def _damaged(workload: Workload, report: Report) -> Verdict | None:
    if report.env is None:
        return Verdict("inconclusive", "printed no env line, so what was loaded is not known")
    if report.problems:
        own = workload.adapter == "jsonl"
        what = "broke the line protocol" if own else "printed what cannot be read"
        return Verdict("inconclusive", f"{what}: {report.problems[0]}")
    if report.truncated:
        dropped = report.dropped_bytes
        return Verdict("inconclusive", f"printed {dropped} bytes more than are kept")
    return None


def _failed_check(report: Report) -> Verdict | None:
    failed = [check for check in report.checks if not check.ok]
    if not failed:
        return None
    first = failed[0]
    also = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
    said = f": {first.message}" if first.message else ""
    return Verdict("failed", f"check {first.name} failed{said}{also}")


def _missing(workload: Workload, report: Report) -> Verdict | None:
    if workload.gpus and not (report.env and report.env.gpus):
        return Verdict("inconclusive", "its env line names no GPU")
    checked = {check.name for check in report.checks}
    measured = {metric.name for metric in report.metrics if metric.values}
    for kind, promised, given in (
        ("check", workload.checks, checked),
        ("metric", workload.metrics, measured),
    ):
        if absent := [name for name in promised if name not in given]:
            return Verdict("inconclusive", f"did not report {kind} {', '.join(absent)}")
    if not measured and all(check.skipped for check in report.checks):
        return Verdict("inconclusive", "measured and checked nothing")
    return None
