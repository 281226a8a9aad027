"""What things on an engine are called, so that they are found again and never made twice."""

from __future__ import annotations

from compatgate.canary.executors.interface import Job

RUN = "dev.compatgate.run"
ATTEMPT = "dev.compatgate.attempt"
STEP = "dev.compatgate.step"


def name_of(job: Job) -> str:
    """Name of the job's container; an engine refuses a second one of that name."""
    return f"compatgate-{job.run}-{job.attempt}-{job.step}"


def labels_of(job: Job) -> dict[str, str]:
    """Labels of everything that is made for the job."""
    return {RUN: job.run, ATTEMPT: str(job.attempt), STEP: job.step}


def of_run(run: str) -> dict[str, str]:
    """Filter for everything of a run, whatever the attempt."""
    return {"label": f"{RUN}={run}"}
