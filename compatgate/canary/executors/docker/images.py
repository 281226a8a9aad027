"""Which image a job runs in, and what is built beside it; never on the image under test."""

from __future__ import annotations

import io
import time
from typing import Any

from compatgate.canary.executors.docker.errors import no_image
from compatgate.canary.executors.docker.names import RUN
from compatgate.canary.executors.docker.pulls import have
from compatgate.canary.executors.interface import Job, Prepared, Progress
from compatgate.canary.hosts import Host
from compatgate.canary.workload import Limits, Workload
from compatgate.canary.workloads import dockerfile
from compatgate.canary.workloads.own_image import brings_image
from compatgate.canary.workloads.pack import archive, files_of
from compatgate.errors import BadInput, Infrastructure

LONGEST_BUILD_S = 3600.0
"""For the steps of a build; what they start from is pulled before."""


def prepare(api: Any, host: Host, job: Job, progress: Progress) -> Prepared:
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
        return Prepared(job, have(api, job.image, progress))
    if own.reference:
        return Prepared(job, have(api, own.reference, progress))
    if own.context is None or not (job.image or brings_image(job.workload)):
        raise BadInput(
            f"the workload {job.workload.name} runs in an image under test, and there is none",
            field="image",
            hint="name one, --image REF",
        )
    if job.image and own.tool:
        image = have(api, job.image, progress)
        return Prepared(job, image, tool=_build(api, host, job, progress))
    return Prepared(job, _build(api, host, job, progress))


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
    if job.image and dockerfile.BASE in dockerfile.arguments(text):
        raise _on_image_under_test(workload)
    _check_network(workload, text, host)
    for base in dockerfile.images(text):
        _check_triggers(api, workload, have(api, base, progress), base)
    doing = f"building {workload.name}"
    progress(doing, None)
    image, until = "", time.monotonic() + LONGEST_BUILD_S
    try:
        for event in api.build(
            fileobj=io.BytesIO(content),
            custom_context=True,
            labels={RUN: job.run},
            network_mode=None if workload.image.network else "none",
            container_limits=_limits(workload.limits, api.info()),
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
    """The archive that is built from, and the text of its Dockerfile."""
    if workload.folder is None:
        raise BadInput(f"the workload {workload.name} has no folder to build from")
    files = files_of(workload.folder / (workload.image.context or "."))
    content = next((file.content for file in files if file.path == "Dockerfile"), None)
    if content is None:
        raise BadInput(f"the workload {workload.name} has no Dockerfile", field="image.context")
    return archive(files), content.decode(errors="replace")


def _limits(limits: Limits, engine: dict[str, Any]) -> dict[str, Any]:
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
    if found := no_image(f"that the Dockerfile of {workload.name} names", what):
        return found
    if "i/o timeout" in what or "dial tcp" in what or "TLS handshake" in what:
        return Infrastructure(f"the build of {workload.name} could not pull: {what}")
    hint = "steps have no network unless the workload says network = true"
    return BadInput(f"the workload {workload.name} does not build: {what}", hint=hint)
