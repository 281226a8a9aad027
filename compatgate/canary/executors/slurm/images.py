"""Which image a job runs in, pinned to its digest by asking the registry."""

from __future__ import annotations

from compatgate.canary.executors.interface import Job, Progress
from compatgate.canary.hosts import Slurm
from compatgate.discovery.image.reference import parse_reference
from compatgate.errors import BadInput, Infrastructure, Unavailable

BARE = "node"
"""Stands for an image where the program runs on the node itself."""
_DEADLINE_S = 60.0


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
    try:
        return _by_digest(reference)
    except Unavailable as error:
        raise Infrastructure(error.problem, field="image", value=reference) from error


def _by_digest(reference: str) -> str:
    named = parse_reference(reference)
    if named.digest:
        return str(named)
    # The client for registries takes a tenth of a second to import.
    from compatgate.discovery.image.deadline import Deadline
    from compatgate.discovery.image.options import ImageOptions
    from compatgate.discovery.image.registry import places
    from compatgate.discovery.image.transport import Transport

    options = ImageOptions()
    with Deadline(_DEADLINE_S) as deadline, Transport(options, deadline) as transport:
        registry = places(named, transport, options)[-1]
        digest = registry.digest_of(named.locator) or registry.manifest(named.locator).digest
    return f"{named.registry}/{named.repository}@{digest}"
