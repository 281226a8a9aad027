"""How a job's program gets into its container, by the site's means. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from compatgate.canary.executors.names import safe
from compatgate.canary.executors.slurm.names import PREFIX
from compatgate.canary.hosts import Slurm
from compatgate.canary.workload import FOLDER
from compatgate.discovery.image.reference import DOCKER_HUB, parse_reference

SCRATCH = "/tmp"  # noqa: S108
"""Where a container may write."""
_SRUN = ("srun", "--ntasks-per-node=1", "--kill-on-bad-exit=1")


class Place(Struct, frozen=True):
    """What a job runs in.

    Attributes:
        image: by digest; "" without a container.
        folder: of the job, on every node.
        name: of the container.
    """

    image: str
    folder: str
    name: str

    @property
    def files(self) -> str:
        """The workload's folder, on the node."""
        return f"{self.folder}/files"

    @property
    def scratch(self) -> str:
        """The one place to write to, on the node."""
        return f"{self.folder}/tmp"  # noqa: S108


def container_name(run: str, attempt: int, step: str) -> str:
    """Unique on a node."""
    return f"{PREFIX}{safe(run)}-{attempt}-{safe(step)}"


def fetching(slurm: Slurm, place: Place) -> list[str]:
    """What has the image on the node before the workload's time begins to count; [] for nothing."""
    match slurm.container:
        case "pyxis":
            return [*_SRUN, *_pyxis(place), "true"]
        case "wrapper":
            return _filled(slurm.fetch, place)
    return []


def running(slurm: Slurm, place: Place, program: Sequence[str], nodes: int) -> list[str]:
    """The whole argument vector.

    Args:
        slurm: of the host.
        place: what it runs in.
        program: with its environment.
        nodes: one task is started on each.
    """
    spread = _SRUN if nodes > 1 else ()
    match slurm.container:
        case "pyxis":
            return [*_SRUN, *_pyxis(place), *program]
        case "oci":
            return [*_SRUN, f"--container={place.folder}/bundle", *program]
        case "wrapper":
            return [*spread, *_filled(slurm.wrapper, place), *program]
    return [*spread, *program]


def enroot_uri(image: str) -> str:
    """``registry#path@digest``; a tag beside a digest is left out, enroot takes one of them.

    Source: pyxis, Usage (``--container-image=[USER@][REGISTRY#]IMAGE[:TAG]|PATH``).
    """
    named = parse_reference(image)
    registry = "" if named.registry == DOCKER_HUB else f"{named.registry}#"
    which = f"@{named.digest}" if named.digest else f":{named.tag}"
    return f"docker://{registry}{named.repository}{which}"


def _pyxis(place: Place) -> list[str]:
    return [
        f"--container-image={enroot_uri(place.image)}",
        f"--container-name={place.name}",
        f"--container-mounts={place.files}:{FOLDER}:ro,{place.scratch}:{SCRATCH}",
        f"--container-workdir={FOLDER}",
        "--no-container-mount-home",
        "--no-container-entrypoint",
    ]


def _filled(template: Sequence[str], place: Place) -> list[str]:
    """Placeholders become parts of arguments; no shell ever reads them."""
    known = {"image": place.image, "files": place.files, "scratch": place.scratch,
             "name": place.name, "folder": FOLDER}  # fmt: skip
    filled = []
    for part in template:
        for name, value in known.items():
            part = part.replace(f"{{{name}}}", value)
        filled.append(part)
    return filled
