"""Take samples from runs: measurements as files next to their workloads."""

from __future__ import annotations

from typing import Any

import msgspec

from compatgate.canary.run import StepResult
from compatgate.canary.samples.extract import FinishedRun, extract_samples, sample_files
from compatgate.core.facts import Facts
from compatgate.core.stack import parse_stack
from compatgate.documents.sources import suggest_name
from compatgate.errors import Conflict, NotFound
from compatgate.service.runs.queue.service import Runs


def collect_samples(
    runs: Runs, facts: Facts, run_id: str, *, step: str | None = None, note: str = ""
) -> dict[str, Any]:
    """Return the measurements of an ended run as files, and why steps give none; as plain data.

    ``note`` stays in each file.
    """
    detail = runs.show(run_id)
    if not detail.run.has_ended:
        hint = "wait for the end of the run, then take samples"
        what = f"the run {run_id} is {detail.run.state}"
        raise Conflict(what, field="run", value=run_id, hint=hint)
    names = [row.name for row in detail.steps]
    if step is not None and step not in names:
        hint = suggest_name(step, names)
        raise NotFound(f"{run_id} has no step {step!r}", field="step", value=step, hint=hint)
    whole = FinishedRun(
        id=run_id,
        state=detail.run.state,
        reason=detail.run.reason,
        stack=parse_stack(detail.run.stack),
        steps=tuple(msgspec.convert(row.body, StepResult) for row in detail.steps),
    )
    workloads = runs.catalogue().workloads
    return sample_files(extract_samples(whole, workloads, facts, step=step, note=note))
