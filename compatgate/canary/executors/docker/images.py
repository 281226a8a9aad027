"""Which image a job runs in, and how it comes onto the engine."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import Any

from compatgate.canary.executors.docker.errors import explanation, no_image
from compatgate.canary.executors.docker.names import RUN
from compatgate.canary.executors.interface import Job, Progress
from compatgate.canary.workload import Workload
from compatgate.canary.workloads.dockerfile import arguments
from compatgate.canary.workloads.own_image import brings_image
from compatgate.canary.workloads.pack import archive, files_of
from compatgate.errors import BadInput, Infrastructure, NotFound


def prepare(api: Any, job: Job, progress: Progress) -> str:
    """Have the image of a job on the engine.

    The image under test itself where the workload can run inside it; else the workload's
    reference; else what its context builds, on top of the image under test if it lets it.

    Returns:
        ``name@sha256:...``, or the id of an image that has no digest.

    Raises:
        NotFound: there is no such image.
        BadInput: nothing says which image, or it does not build.
        Infrastructure: registry or engine fail in a way that may pass.
    """
    own = job.workload.image
    if job.image and own.inside:
        return have(api, job.image, progress)
    if own.reference:
        return have(api, own.reference, progress)
    if own.context is None or not (job.image or brings_image(job.workload)):
        raise BadInput(
            f"the workload {job.workload.name} runs in an image under test, and there is none",
            field="image",
            hint="name one, --image REF",
        )
    return _build(api, job, progress)


def have(api: Any, reference: str, progress: Progress) -> str:
    """Find an image on the engine, or pull it.

    What is named by digest or id is not asked for again; a tag is, unless the image was made on
    this engine and has no registry to come from.
    """
    from docker.errors import ImageNotFound

    try:
        found = api.inspect_image(reference)
        if "sha256:" in reference or not found.get("RepoDigests"):
            return _identity(found, reference)
    except ImageNotFound:
        if reference.startswith("sha256:"):
            raise NotFound(
                f"there is no image {reference} on the engine", field="image", value=reference
            ) from None
    _pull(api, reference, progress)
    return _identity(api.inspect_image(reference), reference)


def _identity(image: dict[str, Any], reference: str) -> str:
    from docker.utils import parse_repository_tag

    name = parse_repository_tag(reference)[0]
    digests: list[str] = image.get("RepoDigests") or []
    of_name = [d for d in digests if d.partition("@")[0] in (name, f"docker.io/library/{name}")]
    return str((of_name or digests or [image["Id"]])[0])


def _pull(api: Any, reference: str, progress: Progress) -> None:
    from docker.errors import APIError
    from docker.utils import parse_repository_tag

    name, tag = parse_repository_tag(reference)
    doing = f"pulling {reference}"
    progress(doing, None)
    try:
        for share in _shares(api.pull(name, tag=tag or "latest", stream=True, decode=True)):
            progress(doing, share)
    except _Said as error:
        what = str(error)
    except APIError as error:
        what = explanation(error)
    else:
        return
    raise no_image(reference, what) or Infrastructure(
        f"cannot pull {reference}: {what}", field="image", value=reference
    )


class _Said(Exception):
    """An error that came in a stream of progress."""


def _shares(events: Iterable[dict[str, Any]]) -> Iterator[float]:
    """How much of all layers known so far is here, unpacking counting a third."""
    total: dict[str, int] = {}
    done: dict[str, float] = {}
    for event in events:
        if error := event.get("error"):
            raise _Said(" ".join(str(error).split()))
        layer, detail = event.get("id"), event.get("progressDetail") or {}
        size, current = detail.get("total"), detail.get("current")
        if not (layer and size and current):
            continue
        part = min(current / size, 1.0)
        unpacking = event.get("status") == "Extracting"
        total.setdefault(layer, size)
        done[layer] = total[layer] * ((2 + part) / 3 if unpacking else part * 2 / 3)
        yield sum(done.values()) / sum(total.values())


def _build(api: Any, job: Job, progress: Progress) -> str:
    workload = job.workload
    content, wants_base = _context(workload)
    base = have(api, job.image, progress) if job.image and wants_base else None
    doing = f"building {workload.name}"
    progress(doing, None)
    image = ""
    for event in api.build(
        fileobj=io.BytesIO(content),
        custom_context=True,
        buildargs={"BASE": base} if base else {},
        labels={RUN: job.run},
        network_mode=None if workload.image.network else "none",
        rm=True,
        forcerm=True,
        decode=True,
        timeout=workload.timeout_s + 3600,
    ):
        if error := event.get("error"):
            raise _build_failed(workload, " ".join(str(error).split()))
        image = (event.get("aux") or {}).get("ID", image)
    if not image:
        raise Infrastructure(f"the engine ended the build of {workload.name} without an image")
    return image


def _context(workload: Workload) -> tuple[bytes, bool]:
    if workload.folder is None:
        raise BadInput(f"the workload {workload.name} has no folder to build from")
    files = files_of(workload.folder / (workload.image.context or "."))
    dockerfile = next((file.content for file in files if file.path == "Dockerfile"), None)
    if dockerfile is None:
        raise BadInput(f"the workload {workload.name} has no Dockerfile", field="image.context")
    return archive(files), "BASE" in arguments(dockerfile.decode(errors="replace"))


def _build_failed(workload: Workload, what: str) -> Exception:
    if found := no_image(f"that the Dockerfile of {workload.name} names", what):
        return found
    if "i/o timeout" in what or "dial tcp" in what or "TLS handshake" in what:
        return Infrastructure(f"the build of {workload.name} could not pull: {what}")
    hint = "steps have no network unless the workload says network = true"
    return BadInput(f"the workload {workload.name} does not build: {what}", hint=hint)
