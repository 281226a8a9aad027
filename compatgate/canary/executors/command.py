"""A job's command and variables, the same for every executor."""

from __future__ import annotations

from collections.abc import Mapping

from compatgate.canary.executors.interface import Job
from compatgate.errors import BadInput


def command_of(job: Job) -> list[str]:
    """The argument vector, with the seed in its place."""
    return [part.replace("{seed}", str(job.seed)) for part in job.workload.command]


def environment_of(job: Job, scratch: str, more: Mapping[str, str]) -> dict[str, str]:
    """Variables of the program; the workload's own win.

    Args:
        job: what is run.
        scratch: the one folder to write to.
        more: of the executor.
    """
    return {
        "HOME": scratch,
        "TMPDIR": scratch,
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "COMPATGATE_SEED": str(job.seed),
        **_needs_ptx(job),
        **more,
        **job.workload.environment,
    }


def _needs_ptx(job: Job) -> dict[str, str]:
    """Tell programs what the stated stack needs; nothing where it is not stated."""
    if job.needs_ptx is None:
        return {}
    return {"COMPATGATE_NEEDS_PTX": "yes" if job.needs_ptx else "no"}


def on_one_machine(job: Job, host: str) -> None:
    """For executors whose host is a single machine.

    Raises:
        BadInput: the workload runs on several.
    """
    if job.workload.nodes > 1:
        raise BadInput(
            f"{job.workload.name} runs on {job.workload.nodes} nodes, and {host} is one",
            field="nodes",
            value=job.workload.nodes,
            hint="run it on a slurm or kubernetes host",
        )
