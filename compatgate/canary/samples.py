"""Write what a finished run measured as the lines of the protocol, for `canary judge`. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from compatgate.canary.engine.baseline_judge import find_learning_obstacle
from compatgate.canary.run import Report, StepResult

_DEVICE = ("name", "memory_bytes", "compute_capability", "mig")
"""Members of a GPU that name no single device."""


def list_samples(run: str, steps: Iterable[StepResult]) -> dict[str, Any]:
    """Return a file for each step that measured soundly, and why the others have none."""
    samples, refused = [], []
    for step in steps:
        report = msgspec.convert(step.report, Report) if step.report is not None else None
        if why := _find_obstacle(step, report):
            refused.append({"step": step.name, "reason": why})
        elif report is not None:
            lines = (msgspec.json.encode(line).decode() + "\n" for line in _list_lines(report))
            file = {"name": f"{run}_{step.name}.jsonl", "workload": step.workload}
            samples.append({**file, "step": step.name, "text": "".join(lines)})
    return {"samples": samples, "refused": refused}


def _find_obstacle(step: StepResult, report: Report | None) -> str:
    """Return why a step has no sample; "" if it has one."""
    if report is None:
        return step.reason or "its output is no longer stored"
    if report.env is None:
        return "it printed no env line, so the loaded components are unknown"
    return report.own_fault or next(iter(report.problems), "") or find_learning_obstacle(step)


def _list_lines(report: Report) -> Iterator[dict[str, Any]]:
    if env := report.env:
        gpus = [
            {name: value for name in _DEVICE if (value := getattr(device, name)) is not None}
            for device in env.gpus
        ]
        known = {"driver": env.driver, "gpus": gpus, "versions": env.versions}
        yield {"type": "env", **known, **env.other}
    for metric in report.metrics:
        yield {"type": "metric", **msgspec.to_builtins(metric)}
    for check in report.checks:
        line = {"type": "check", "name": check.name, "ok": check.ok, "message": check.message}
        yield line | ({"skipped": True} if check.skipped else {})
