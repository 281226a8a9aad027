"""What jobs and folders are called, so that they are found again and never made twice."""

from __future__ import annotations

from compatgate.canary.executors.interface import Handle, Job
from compatgate.canary.executors.names import safe

PREFIX = "compatgate-"


def job_name(run: str) -> str:
    """The name of every job of a run: Slurm finds and cancels jobs by it."""
    return PREFIX + safe(run)


def comment_of(job: Job) -> str:
    """For people who look at the queue."""
    return f"compatgate run={safe(job.run)} attempt={job.attempt} step={safe(job.step)}"


def folder_name(job: Job | Handle) -> str:
    """The folder of a job below that of its run."""
    return f"{job.attempt}-{safe(job.step)}"
