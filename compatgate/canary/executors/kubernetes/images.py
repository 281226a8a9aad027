"""Which image a job runs in."""

from __future__ import annotations

from compatgate.canary.executors.interface import Job, Progress
from compatgate.canary.executors.pinned import by_digest
from compatgate.canary.hosts import Host
from compatgate.errors import BadInput


def prepare(job: Job, host: Host, progress: Progress) -> str:
    """The image by digest, so that every node of the cluster pulls the same one.

    The image under test itself where the workload can run inside it; else the one that the host
    names for the workload; else the workload's reference. Nothing is built in a cluster.

    Raises:
        BadInput: nothing says which image.
        NotFound: the registry has no such image.
        Infrastructure: it does not answer.
    """
    workload = job.workload
    own = workload.image
    named = host.kubernetes.images.get(workload.name) if host.kubernetes else None
    reference = job.image if job.image and own.inside else named or own.reference
    if reference:
        progress(f"looking up {reference}", None)
        return by_digest(reference)
    if own.context is None:
        raise BadInput(
            f"the workload {workload.name} runs inside an image under test, and there is none",
            field="image",
            hint="name one, --image REF",
        )
    raise BadInput(
        f"the workload {workload.name} builds its image, and a cluster builds none",
        field="image",
        value=workload.name,
        hint=f"build and push it, and name it for {host.name}: "
        f'[host.kubernetes.images] {workload.name} = "REGISTRY/NAME@sha256:..."',
    )
