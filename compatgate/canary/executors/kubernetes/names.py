"""What things in a cluster are called, so that they are found again and never made twice."""

from __future__ import annotations

import hashlib
import re

from compatgate.canary.executors.interface import Job

RUN = "dev.compatgate.run"
ATTEMPT = "dev.compatgate.attempt"
STEP = "dev.compatgate.step"
GROUP = "dev.compatgate.group"
"""On the pods of a job of several nodes, which may talk to each other."""
START = "dev.compatgate.start"
"""Annotation that tells a start whose answer was lost from another start of the same job."""
INDEX = "batch.kubernetes.io/job-completion-index"
"""Annotation that the job controller puts on the pods of an Indexed Job."""

_LONGEST = 52
"""A pod's name is its job's and six characters, its host name the job's and its index: 63."""
_LABEL = 63


def name_of(job: Job) -> str:
    """Name of the job's Job; a cluster refuses a second one of that name.

    A run's id and a step's name may be too long for one, or have letters that names have not; the
    digest keeps two of them apart then.
    """
    whole = f"{job.run}-{job.attempt}-{job.step}"
    readable = re.sub(r"[^a-z0-9]+", "-", f"cg-{job.step}-{job.attempt}".lower())
    digest = hashlib.sha256(whole.encode()).hexdigest()[:10]
    return f"{readable[: _LONGEST - 11].rstrip('-')}-{digest}"


def labels_of(job: Job) -> dict[str, str]:
    """Labels of everything that is made for the job."""
    return {RUN: job.run, ATTEMPT: str(job.attempt), STEP: _label(job.step)}


def of_run(run: str) -> str:
    """Selector of everything of a run, whatever the attempt."""
    return f"{RUN}={run}"


def of_job(run: str, attempt: int, step: str) -> str:
    """Selector of everything of one job."""
    return f"{RUN}={run},{ATTEMPT}={attempt},{STEP}={_label(step)}"


def _label(value: str) -> str:
    """A value that is short enough for a label."""
    if len(value) <= _LABEL:
        return value
    return f"{value[: _LABEL - 11]}-{hashlib.sha256(value.encode()).hexdigest()[:10]}"
