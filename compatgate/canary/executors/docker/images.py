"""Prepare the image of a job: pull it, or build the workload's own image.

Nothing is ever built on the image under test; a built image stays on the engine for later runs.
"""

from __future__ import annotations

import hashlib
import io
import time
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from compatgate.canary.executors import Job, PreparedJob, Progress
from compatgate.canary.executors.docker.engine import (
    explain_error,
    ignore_gone,
    missing_image_error,
)
from compatgate.canary.hosts import Host
from compatgate.canary.workload import Workload
from compatgate.canary.workloads import contents
from compatgate.canary.workloads.contents import has_own_image, list_files, make_archive
from compatgate.discovery.registry.image_spec import is_digest, parse_reference
from compatgate.errors import BadInput, InfrastructureError, NotFound

MAX_BUILD_S = 3600.0
"""For the steps of a build; base images are pulled before."""
MAX_BUILT_BYTES = 16 << 30
"""Bytes that a build may add to its largest base image."""
_REGISTRY_S = 10.0
"""Time for a registry to answer about an image that the host has."""
BUILT = "dev.compatgate.built"
"""Label of a built image: the digest of what it was built from."""
BUILT_FOR = "dev.compatgate.workload"
"""Label of a built image: the workload."""


def prepare_images(api: Any, host: Host, job: Job, progress: Progress) -> PreparedJob:
    """Prepare the images of a job on the engine.

    Use the image under test if the workload can run inside it, else the workload's reference, else
    the result of its build context. For a workload with a tool, only the tool comes from there, and
    the job runs in the image under test.
    """
    own = job.workload.image
    if job.image and own.inside:
        return PreparedJob(job, ensure_image(api, job.image, progress))
    if own.reference:
        return PreparedJob(job, ensure_image(api, own.reference, progress))
    if own.context is None or not (job.image or has_own_image(job.workload)):
        raise BadInput(
            f"the workload {job.workload.name} needs an image under test, but none is given",
            field="image",
            hint="name an image with --image REF",
        )
    if job.image and own.tool:
        image = ensure_image(api, job.image, progress)
        return PreparedJob(job, image, tool=_build(api, host, job, progress))
    return PreparedJob(job, _build(api, host, job, progress))


def _build(api: Any, host: Host, job: Job, progress: Progress) -> str:
    """Build a workload's context on the images that its Dockerfile names, and on no other.

    Return the id of the image, perhaps of an earlier build from the same files and base images.
    """
    workload = job.workload
    content, text = _make_context(workload)
    if job.image and contents.BASE_ARGUMENT in contents.find_arguments(text):
        raise BadInput(
            f"the workload {workload.name} does not build on the image under test: its Dockerfile "
            f"has an ARG {contents.BASE_ARGUMENT}, and build steps would run as root in that image",
            field="image.context",
            hint="set inside = true; build compiled parts on a base image of your own and take "
            'them over with tool = "/opt/..."',
        )
    _check_network(workload, text, host)
    bases = {base: ensure_image(api, base, progress) for base in contents.find_base_images(text)}
    for base, image in bases.items():
        config = api.inspect_image(image)["Config"] or {}
        if triggers := config.get("OnBuild"):
            steps = "; ".join(" ".join(str(each).split())[:200] for each in triggers[:4])
            raise BadInput(
                f"the workload {workload.name} does not build: {base} has ONBUILD triggers, "
                f"which would run unseen: {steps}",
                field="image.context",
                value=base,
                hint="start from an image without them",
            )
    # The limits of each build step, as far as an engine's builder supports them.
    limits: dict[str, Any] = dict.fromkeys(("memory", "memswap"), workload.limits.memory)
    if cpus := workload.limits.cpus:
        limits["cpusetcpus"] = f"0-{max(1, min(int(cpus), int(api.info().get('NCPU') or 1))) - 1}"
    rest = repr((sorted(bases.values()), workload.image.network, limits, workload.limits.shm))
    key = hashlib.sha256(hashlib.sha256(content).digest() + rest.encode()).hexdigest()
    if result := _built_here(api, f"{BUILT}={key}"):
        return result[0]
    image = _run_build(
        api, workload, content, {BUILT: key, BUILT_FOR: workload.name}, limits, progress
    )
    _check_size(api, workload, image, list(bases.values()))
    # Images of earlier builds go unless a container uses them.
    for old in _built_here(api, f"{BUILT_FOR}={workload.name}"):
        if old != image:
            with ignore_gone():
                api.remove_image(old)
    return image


def _run_build(
    api: Any,
    workload: Workload,
    content: bytes,
    labels: dict[str, str],
    limits: dict[str, Any],
    progress: Progress,
) -> str:
    doing = f"building {workload.name}"
    progress(doing, None)
    image, until = "", time.monotonic() + MAX_BUILD_S
    try:
        for event in api.build(
            fileobj=io.BytesIO(content),
            custom_context=True,
            labels=labels,
            network_mode=None if workload.image.network else "none",
            container_limits=limits,
            shmsize=workload.limits.shm,
            rm=True,
            forcerm=True,
            decode=True,
            timeout=MAX_BUILD_S,
        ):
            if error := event.get("error"):
                what = " ".join(str(error).split())
                named = f"that the Dockerfile of {workload.name} names"
                if missing := missing_image_error(named, what):
                    raise missing
                if any(word in what for word in ("i/o timeout", "dial tcp", "TLS handshake")):
                    problem = f"the build of {workload.name} could not pull: {what}"
                    raise InfrastructureError(problem)
                hint = "steps have no network unless the workload sets network = true"
                raise BadInput(f"the workload {workload.name} does not build: {what}", hint=hint)
            image = (event.get("aux") or {}).get("ID", image)
            progress(doing, None)
            if time.monotonic() >= until:
                raise TimeoutError
    except Exception as error:
        # The engine ends a build if the client disconnects; a silent step ends as a read error.
        if time.monotonic() >= until:
            raise BadInput(
                f"the workload {workload.name} does not build within {MAX_BUILD_S:g} s",
                field="image.context",
                hint="build the image elsewhere and set image.reference",
            ) from error
        raise
    if not image:
        raise InfrastructureError(f"the engine ended the build of {workload.name} without an image")
    return image


def _built_here(api: Any, label: str) -> list[str]:
    """Return the ids of images with a label that were built here.

    An image that was pulled may carry any label; it has a repository, and no built image has one.
    """
    return [
        str(image["Id"])
        for image in api.images(filters={"label": label})
        if all(
            name.startswith("<none>")
            for name in (*(image.get("RepoTags") or ()), *(image.get("RepoDigests") or ()))
        )
    ]


def _check_size(api: Any, workload: Workload, image: str, bases: list[str]) -> None:
    largest = max((int(api.inspect_image(base)["Size"]) for base in bases), default=0)
    added = int(api.inspect_image(image)["Size"]) - largest
    if added > MAX_BUILT_BYTES:
        api.remove_image(image, force=True)
        raise BadInput(
            f"the build of {workload.name} adds {added} bytes to its base image",
            field="image.context",
            value=added,
            hint=f"at most {MAX_BUILT_BYTES}; build it elsewhere and set image.reference",
        )


def _make_context(workload: Workload) -> tuple[bytes, str]:
    if workload.folder is None:
        raise BadInput(f"the workload {workload.name} has no folder to build from")
    files = list_files(workload.folder / (workload.image.context or "."))
    content = next((file.content for file in files if file.path == "Dockerfile"), None)
    if content is None:
        raise BadInput(f"the workload {workload.name} has no Dockerfile", field="image.context")
    return make_archive(files), content.decode(errors="replace")


def _check_network(workload: Workload, text: str, host: Host) -> None:
    if workload.image.network and not host.build_network:
        raise BadInput(
            f"the build of {workload.name} needs the network, but {host.name} does not allow that",
            field="image.network",
            value=True,
            hint=f"set build_network = true for {host.name} in hosts.toml, or set image.reference",
        )
    if not workload.image.network and (sources := contents.find_downloads(text)):
        raise BadInput(
            f"the workload {workload.name} does not build: it downloads {sources[0]}",
            field="image.network",
            hint="builds have no network unless the workload sets network = true",
        )


def ensure_image(api: Any, reference: str, progress: Progress) -> str:
    """Find an image on the engine, or pull it.

    An existing image is pulled again only if its registry has another image under the tag. A run is
    bound to the digest that ran, so an image that only the engine has is used as it is.
    """
    from docker.errors import ImageNotFound

    try:
        result = api.inspect_image(reference)
    except ImageNotFound:
        if reference.startswith("sha256:"):
            raise NotFound(
                f"image {reference} does not exist on the engine", field="image", value=reference
            ) from None
    else:
        digests = result.get("RepoDigests") or []
        if "sha256:" in reference or not digests:
            return _identity(result, reference)
        progress(f"looking for a newer {reference}", None)
        remote = _ask_registry(api, reference)
        if remote is None:
            progress(f"using {reference} of the host: its registry has no answer", None)
        if remote is None or any(digest.endswith(f"@{remote}") for digest in digests):
            return _identity(result, reference)
    _pull(api, reference, progress)
    return _identity(api.inspect_image(reference), reference)


def _ask_registry(api: Any, reference: str) -> str | None:
    """Return the digest of a tag in its registry; None if it does not answer soon or has none.

    An engine repeats its question to a registry that is away for more than a minute.
    """
    from docker.errors import APIError

    answers: SimpleQueue[str | None] = SimpleQueue()

    def ask() -> None:
        digest = None
        with suppress(APIError, OSError):
            digest = api.inspect_distribution(reference)["Descriptor"]["digest"]
        answers.put(digest)

    Thread(target=ask, name="compatgate-registry", daemon=True).start()
    with suppress(Empty):
        return answers.get(timeout=_REGISTRY_S)
    return None


def _identity(image: dict[str, Any], reference: str) -> str:
    """Return the digest under the requested name; engines leave ``docker.io/library/`` out."""
    digests: list[str] = image.get("RepoDigests") or []
    named = None if is_digest(reference) else parse_reference(reference)
    of_name = []
    for digest in digests if named else ():
        other = parse_reference(digest)
        if named and (named.registry, named.repository) == (other.registry, other.repository):
            of_name.append(digest)
    return str((of_name or digests or [image["Id"]])[0])


def _pull(api: Any, reference: str, progress: Progress) -> None:
    from docker.errors import APIError
    from docker.utils import parse_repository_tag

    name, tag = parse_repository_tag(reference)
    doing = f"pulling {reference}"
    progress(doing, None)
    what = ""
    total: dict[str, int] = {}
    done: dict[str, float] = {}
    try:
        for event in api.pull(name, tag=tag or "latest", stream=True, decode=True):
            if what := " ".join(str(event.get("error") or "").split()):
                break
            layer, detail = event.get("id"), event.get("progressDetail") or {}
            size, current = detail.get("total"), detail.get("current")
            if layer and size and current:
                part = min(current / size, 1.0)
                unpacking = event.get("status") == "Extracting"  # which counts a third
                total.setdefault(layer, size)
                done[layer] = total[layer] * ((2 + part) / 3 if unpacking else part * 2 / 3)
                progress(doing, sum(done.values()) / sum(total.values()))
    except APIError as error:
        what = explain_error(error)
    if what:
        raise missing_image_error(reference, what) or InfrastructureError(
            f"cannot pull {reference}: {what}", field="image", value=reference
        )
