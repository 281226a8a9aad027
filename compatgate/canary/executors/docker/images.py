"""Prepare the image that a job runs in: pull it, or build a workload's own beside it.

Nothing is ever built on the image under test.
"""

from __future__ import annotations

import io
import time
from collections.abc import Iterable, Iterator
from typing import Any

from compatgate.canary.executors.docker.engine import RUN, explain_error, missing_image_error
from compatgate.canary.executors.interface import Job, PreparedJob, Progress
from compatgate.canary.hosts import Host
from compatgate.canary.workload import Limits, Workload
from compatgate.canary.workloads import dockerfile
from compatgate.canary.workloads.dockerfile import brings_image
from compatgate.canary.workloads.pack import archive, files_of
from compatgate.discovery.registry.reference import Reference, is_digest, parse_reference
from compatgate.errors import BadInput, Infrastructure, NotFound

LONGEST_BUILD_S = 3600.0
"""For the steps of a build; what they start from is pulled before."""


def prepare_images(api: Any, host: Host, job: Job, progress: Progress) -> PreparedJob:
    """Have the images of a job on the engine.

    The image under test itself where the workload can run inside it; else the workload's
    reference; else what its context builds. Of a workload with a tool only the tool is taken from
    there, and the job runs in the image under test.

    Raises:
        NotFound: there is no such image.
        BadInput: nothing says which image, or it does not build.
        Infrastructure: registry or engine fail in a way that may pass.
    """
    own = job.workload.image
    if job.image and own.inside:
        return PreparedJob(job, ensure_image(api, job.image, progress))
    if own.reference:
        return PreparedJob(job, ensure_image(api, own.reference, progress))
    if own.context is None or not (job.image or brings_image(job.workload)):
        raise BadInput(
            f"the workload {job.workload.name} runs in an image under test, and there is none",
            field="image",
            hint="name one, --image REF",
        )
    if job.image and own.tool:
        image = ensure_image(api, job.image, progress)
        return PreparedJob(job, image, tool=_build(api, host, job, progress))
    return PreparedJob(job, _build(api, host, job, progress))


def _build(api: Any, host: Host, job: Job, progress: Progress) -> str:
    """Build a workload's context on the images that its Dockerfile names, and on no other.

    Returns:
        The id of what was built.

    Raises:
        BadInput: it wants the image under test, ONBUILD triggers or a network that it is not
            given; a step fails, or all of them take too long.
        NotFound: an image that it starts from is not there.
        Infrastructure: registry or engine fail in a way that may pass.
    """
    workload = job.workload
    content, text = _context(workload)
    if job.image and dockerfile.BASE in dockerfile.build_arguments(text):
        raise _on_image_under_test(workload)
    _check_network(workload, text, host)
    for base in dockerfile.base_images(text):
        _check_triggers(api, workload, ensure_image(api, base, progress), base)
    doing = f"building {workload.name}"
    progress(doing, None)
    image, until = "", time.monotonic() + LONGEST_BUILD_S
    try:
        for event in api.build(
            fileobj=io.BytesIO(content),
            custom_context=True,
            labels={RUN: job.run},
            network_mode=None if workload.image.network else "none",
            container_limits=_build_limits(workload.limits, api.info()),
            shmsize=workload.limits.shm,
            rm=True,
            forcerm=True,
            decode=True,
            timeout=LONGEST_BUILD_S,
        ):
            if error := event.get("error"):
                raise _build_failed(workload, " ".join(str(error).split()))
            image = (event.get("aux") or {}).get("ID", image)
            progress(doing, None)
            if time.monotonic() >= until:
                raise TimeoutError
    except Exception as error:
        # The engine ends a build whose client is gone; a silent step ends as an error of reading.
        if time.monotonic() >= until:
            raise _too_long(workload) from error
        raise
    if not image:
        raise Infrastructure(f"the engine ended the build of {workload.name} without an image")
    return image


def _context(workload: Workload) -> tuple[bytes, str]:
    """Return the archive that is built from, and the text of its Dockerfile."""
    if workload.folder is None:
        raise BadInput(f"the workload {workload.name} has no folder to build from")
    files = files_of(workload.folder / (workload.image.context or "."))
    content = next((file.content for file in files if file.path == "Dockerfile"), None)
    if content is None:
        raise BadInput(f"the workload {workload.name} has no Dockerfile", field="image.context")
    return archive(files), content.decode(errors="replace")


def _build_limits(limits: Limits, engine: dict[str, Any]) -> dict[str, Any]:
    """What each step may use, as far as an engine's builder can limit it."""
    found: dict[str, Any] = {"memory": limits.memory, "memswap": limits.memory}
    if limits.cpus:
        last = max(1, min(int(limits.cpus), int(engine.get("NCPU") or 1))) - 1
        found["cpusetcpus"] = f"0-{last}"
    return found


def _on_image_under_test(workload: Workload) -> BadInput:
    return BadInput(
        f"the workload {workload.name} does not build on the image under test: its Dockerfile has "
        f"an ARG {dockerfile.BASE}, and steps of a build would run as root in that image",
        field="image.context",
        hint="say inside = true; have what must be compiled built on a base of your own and taken "
        'over with tool = "/opt/..." (docs/canaries.md)',
    )


def _check_network(workload: Workload, text: str, host: Host) -> None:
    if workload.image.network and not host.build_network:
        raise BadInput(
            f"the build of {workload.name} needs the network, and {host.name} gives builds none",
            field="image.network",
            value=True,
            hint=f"build_network = true for {host.name} in hosts.toml, or an image.reference",
        )
    if not workload.image.network and (sources := dockerfile.downloads(text)):
        raise BadInput(
            f"the workload {workload.name} does not build: it downloads {sources[0]}",
            field="image.network",
            hint="builds have no network unless the workload says network = true",
        )


def _check_triggers(api: Any, workload: Workload, image: str, name: str) -> None:
    config = api.inspect_image(image)["Config"] or {}
    if triggers := config.get("OnBuild"):
        shown = "; ".join(" ".join(str(each).split())[:200] for each in triggers[:4])
        raise BadInput(
            f"the workload {workload.name} does not build: {name} has ONBUILD triggers, "
            f"which would run unseen: {shown}",
            field="image.context",
            value=name,
            hint="start from an image without them",
        )


def _too_long(workload: Workload) -> BadInput:
    return BadInput(
        f"the workload {workload.name} does not build within {LONGEST_BUILD_S:g} s",
        field="image.context",
        hint="build the image elsewhere and name it, image.reference",
    )


def _build_failed(workload: Workload, what: str) -> Exception:
    if found := missing_image_error(f"that the Dockerfile of {workload.name} names", what):
        return found
    if "i/o timeout" in what or "dial tcp" in what or "TLS handshake" in what:
        return Infrastructure(f"the build of {workload.name} could not pull: {what}")
    hint = "steps have no network unless the workload says network = true"
    return BadInput(f"the workload {workload.name} does not build: {what}", hint=hint)


def ensure_image(api: Any, reference: str, progress: Progress) -> str:
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
    """By digest under the name that was asked for; engines leave ``docker.io/library/`` out."""
    digests: list[str] = image.get("RepoDigests") or []
    named = None if is_digest(reference) else parse_reference(reference)
    of_name = [d for d in digests if named and _is_of(named, parse_reference(d))]
    return str((of_name or digests or [image["Id"]])[0])


def _is_of(one: Reference, other: Reference) -> bool:
    return (one.registry, one.repository) == (other.registry, other.repository)


def _pull(api: Any, reference: str, progress: Progress) -> None:
    from docker.errors import APIError
    from docker.utils import parse_repository_tag

    name, tag = parse_repository_tag(reference)
    doing = f"pulling {reference}"
    progress(doing, None)
    try:
        for share in _pull_progress(api.pull(name, tag=tag or "latest", stream=True, decode=True)):
            progress(doing, share)
    except _StreamError as error:
        what = str(error)
    except APIError as error:
        what = explain_error(error)
    else:
        return
    raise missing_image_error(reference, what) or Infrastructure(
        f"cannot pull {reference}: {what}", field="image", value=reference
    )


class _StreamError(Exception):
    """An error that came in a stream of progress."""


def _pull_progress(events: Iterable[dict[str, Any]]) -> Iterator[float]:
    """Yield how much of all layers known so far is here, unpacking counting a third."""
    total: dict[str, int] = {}
    done: dict[str, float] = {}
    for event in events:
        if error := event.get("error"):
            raise _StreamError(" ".join(str(error).split()))
        layer, detail = event.get("id"), event.get("progressDetail") or {}
        size, current = detail.get("total"), detail.get("current")
        if not (layer and size and current):
            continue
        part = min(current / size, 1.0)
        unpacking = event.get("status") == "Extracting"
        total.setdefault(layer, size)
        done[layer] = total[layer] * ((2 + part) / 3 if unpacking else part * 2 / 3)
        yield sum(done.values()) / sum(total.values())
