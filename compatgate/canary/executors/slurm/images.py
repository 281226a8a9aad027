"""Which image a job runs in, pinned to its digest by asking the registry."""

from __future__ import annotations

from compatgate.canary.executors.interface import Job, Progress
from compatgate.canary.executors.pinned import by_digest
from compatgate.canary.hosts import Slurm
from compatgate.errors import BadInput

BARE = "node"
"""Stands for an image where the program runs on the node itself."""


def pinned(job: Job, slurm: Slurm, host: str, progress: Progress) -> str:
    """``name@sha256:...``.

    Nothing is built on a cluster: a workload whose image is built from its folder needs that image
    in a registry, and its reference in ``workload.toml``.

    Raises:
        BadInput: nothing says which image, or there is one and no container to run it in.
        NotFound: the registry has no such image.
        Infrastructure: it does not answer.
    """
    workload = job.workload
    if slurm.container == "none":
        if job.image:
            raise BadInput(
                f"{host} runs programs on its nodes without containers",
                field="image",
                value=job.image,
                hint='container = "pyxis", "oci" or "wrapper" in [host.slurm]',
            )
        if workload.folder is None:
            raise BadInput(f"the workload {workload.name} has no folder", field="workload")
        return BARE
    reference = job.image if workload.image.inside and job.image else workload.image.reference
    if not reference:
        raise BadInput(
            f"nothing says which image {workload.name} runs in on {host}",
            field="image",
            hint="name one, --image REF, or image.reference in workload.toml: "
            "nothing is built on a cluster",
        )
    progress(f"looking up {reference}", None)
    return by_digest(reference)
