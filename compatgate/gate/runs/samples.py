"""Samples of stored runs, as files."""

from __future__ import annotations

from typing import Any

import msgspec

from compatgate.canary.run import StepResult
from compatgate.canary.samples.lines import to_text
from compatgate.canary.samples.take import Taken, Whole, take
from compatgate.core.facts import Facts
from compatgate.core.stack import parse_stack
from compatgate.documents.names import did_you_mean
from compatgate.errors import Conflict, NotFound
from compatgate.gate.runs.service import Runs


def take_samples(
    runs: Runs, facts: Facts, run_id: str, *, step: str | None = None, note: str = ""
) -> dict[str, Any]:
    """What a run measured as files, and why some of its steps give none; as plain data.

    Args:
        runs: of the database.
        facts: to read GPUs by.
        run_id: of a run that has ended.
        step: only this one.
        note: kept in each file.

    Raises:
        NotFound: there is no such run, or no such step of it.
        Conflict: it has not ended.
    """
    detail = runs.show(run_id)
    if not detail.run.has_ended:
        hint = "a sample is taken once it is known what became of the whole run"
        what = f"the run {run_id} is {detail.run.state}"
        raise Conflict(what, field="run", value=run_id, hint=hint)
    names = [row.name for row in detail.steps]
    if step is not None and step not in names:
        hint = did_you_mean(step, names)
        raise NotFound(f"{run_id} has no step {step!r}", field="step", value=step, hint=hint)
    whole = Whole(
        id=run_id,
        state=detail.run.state,
        reason=detail.run.reason,
        stack=parse_stack(detail.run.stack),
        steps=tuple(msgspec.convert(row.body, StepResult) for row in detail.steps),
    )
    return shown(take(whole, runs.catalogue().workloads, facts, step=step, note=note))


def shown(taken: Taken) -> dict[str, Any]:
    """What was taken, each sample as a file beside its workload."""
    return {
        "samples": [
            {
                "name": sample.head.file_name,
                "workload": sample.head.workload,
                "step": sample.head.step,
                "text": to_text(sample),
            }
            for sample in taken.samples
        ],
        "refused": [{"step": each.step, "reason": each.reason} for each in taken.refused],
    }
