"""What sbatch is asked for. Pure; an argument vector, no ``#SBATCH`` lines and no shell."""

from __future__ import annotations

import math

from compatgate.canary.executors.interface import Job
from compatgate.canary.executors.slurm.names import comment_of, job_name
from compatgate.canary.executors.slurm.script import LOG
from compatgate.canary.hosts import Slurm
from compatgate.errors import BadInput

_GRACE_S = 60
"""The engine ends a job at the workload's timeout; Slurm's limit is for when no worker is left."""
_FETCH_S = 1800


def arguments(job: Job, slurm: Slurm, folder: str) -> list[str]:
    """The arguments of ``sbatch`` but the script.

    The environment is handed on whole: it is the small one that the commands are called with.

    Args:
        job: what is run.
        slurm: of the host.
        folder: of the job.

    Raises:
        BadInput: it needs GPUs, and the host does not say which GRES they are.
    """
    workload = job.workload
    limits = workload.limits
    asked = [
        "--parsable",
        f"--job-name={job_name(job.run)}",
        f"--comment={comment_of(job)}",
        f"--chdir={folder}",
        f"--output={folder}/{LOG}",
        "--open-mode=append",
        "--no-requeue",
        "--export=ALL",
        "--propagate=NONE",
        f"--nodes={workload.nodes}",
        f"--ntasks={workload.nodes}",
        "--ntasks-per-node=1",
        f"--time={_minutes(job, slurm)}",
        f"--mem={math.ceil(limits.memory / (1 << 20))}M",
    ]
    if limits.cpus:
        asked.append(f"--cpus-per-task={math.ceil(limits.cpus)}")
    if workload.gpus:
        if not slurm.gres:
            raise BadInput(
                f"the workload {workload.name} needs GPUs, and the host names no GRES",
                field="slurm.gres",
                hint='like gres = "gpu:a100"',
            )
        asked.append(f"--gres={slurm.gres}:{workload.gpus}")
    for option in ("partition", "account", "qos", "constraint"):
        if value := getattr(slurm, option):
            asked.append(f"--{option}={value}")
    return [*asked, *slurm.extra]


def _minutes(job: Job, slurm: Slurm) -> int:
    fetch = _FETCH_S if slurm.container in ("pyxis", "wrapper") else 0
    return math.ceil((job.workload.timeout_s + fetch + _GRACE_S) / 60)
