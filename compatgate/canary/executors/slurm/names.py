"""What jobs and folders are called, so that they are found again and never made twice."""

from __future__ import annotations

import re

from compatgate.canary.executors.interface import Handle, Job
from compatgate.errors import BadInput

PREFIX = "compatgate-"
_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,120}", re.ASCII)


def job_name(run: str) -> str:
    """The name of every job of a run: Slurm finds and cancels jobs by it."""
    return PREFIX + safe(run)


def comment_of(job: Job) -> str:
    """For people who look at the queue."""
    return f"compatgate run={safe(job.run)} attempt={job.attempt} step={safe(job.step)}"


def folder_name(job: Job | Handle) -> str:
    """The folder of a job below that of its run."""
    return f"{job.attempt}-{safe(job.step)}"


def safe(name: str) -> str:
    """The name, where it can be that of a folder and of a job.

    Raises:
        BadInput: it cannot.
    """
    if not _SAFE.fullmatch(name):
        raise BadInput(f"{name!r} is not a name", field="run", value=name)
    return name
