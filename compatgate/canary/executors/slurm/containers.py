"""Choose a job's image, and bring its program into a container by the site's means.

An OCI bundle is the site's bundle of the image, confined, with the workload's folder in it.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from compatgate.canary.executors.interface import Job, Progress
from compatgate.canary.executors.jobs import check_name, pin_image
from compatgate.canary.executors.slurm.submission import PREFIX
from compatgate.canary.hosts import Slurm
from compatgate.canary.workload import FOLDER
from compatgate.discovery.registry.reference import DOCKER_HUB, parse_reference
from compatgate.errors import BadInput, Infrastructure, NotFound

SCRATCH = "/tmp"  # noqa: S108
"""Where a container may write."""
_SRUN = ("srun", "--ntasks-per-node=1", "--kill-on-bad-exit=1")


class ContainerPlace(Struct, frozen=True):
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
        """Return the workload's folder, on the node."""
        return f"{self.folder}/files"

    @property
    def scratch(self) -> str:
        """Return the one place to write to, on the node."""
        return f"{self.folder}/tmp"  # noqa: S108


def container_name(run: str, attempt: int, step: str) -> str:
    """Unique on a node."""
    return f"{PREFIX}{check_name(run)}-{attempt}-{check_name(step)}"


def fetch_command(slurm: Slurm, place: ContainerPlace) -> list[str]:
    """What has the image on the node before the workload's time begins to count; [] for nothing."""
    match slurm.container:
        case "pyxis":
            return [*_SRUN, *_pyxis(place), "true"]
        case "wrapper":
            return _fill_placeholders(slurm.fetch, place)
    return []


def run_command(
    slurm: Slurm, place: ContainerPlace, program: Sequence[str], nodes: int
) -> list[str]:
    """Return the whole argument vector.

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
            return [*spread, *_fill_placeholders(slurm.wrapper, place), *program]
    return [*spread, *program]


def enroot_uri(image: str) -> str:
    """``registry#path@digest``; a tag beside a digest is left out, enroot takes one of them.

    Source: pyxis, Usage (``--container-image=[USER@][REGISTRY#]IMAGE[:TAG]|PATH``).
    """
    named = parse_reference(image)
    registry = "" if named.registry == DOCKER_HUB else f"{named.registry}#"
    which = f"@{named.digest}" if named.digest else f":{named.tag}"
    return f"docker://{registry}{named.repository}{which}"


def _pyxis(place: ContainerPlace) -> list[str]:
    return [
        f"--container-image={enroot_uri(place.image)}",
        f"--container-name={place.name}",
        f"--container-mounts={place.files}:{FOLDER}:ro,{place.scratch}:{SCRATCH}",
        f"--container-workdir={FOLDER}",
        "--no-container-mount-home",
        "--no-container-entrypoint",
    ]


def _fill_placeholders(template: Sequence[str], place: ContainerPlace) -> list[str]:
    """Placeholders become parts of arguments; no shell ever reads them."""
    known = {"image": place.image, "files": place.files, "scratch": place.scratch,
             "name": place.name, "folder": FOLDER}  # fmt: skip
    filled = []
    for part in template:
        for name, value in known.items():
            part = part.replace(f"{{{name}}}", value)
        filled.append(part)
    return filled


BARE = "node"
"""Stands for an image where the program runs on the node itself."""


def prepare_image(job: Job, slurm: Slurm, host: str, progress: Progress) -> str:
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
    return pin_image(reference)


CONFIG = "config.json"


def write_bundle(template: str, place: ContainerPlace) -> None:
    """Write ``bundle/config.json`` in the job's folder.

    Args:
        template: path of the site's bundle, with ``{digest}``; this machine sees it as well.
        place: what the job runs in.

    Raises:
        NotFound: there is no bundle of the image.
        BadInput: it is none.
        Infrastructure: it cannot be read.
    """
    bundle = Path(template.replace("{digest}", place.image.rpartition("@sha256:")[2]))
    own = Path(place.folder) / "bundle"
    own.mkdir(mode=0o700)
    (own / CONFIG).write_text(json.dumps(confine_config(_read(bundle, place.image), bundle, place)))


def confine_config(config: dict[str, Any], bundle: Path, place: ContainerPlace) -> dict[str, Any]:
    """Return the configuration of the job's container. Pure.

    Devices, hooks and what else the site put in stay: they bring the GPUs. Slurm puts in the
    program and its environment itself.

    Source: opencontainers/runtime-spec, config.md and config-linux.md.

    Args:
        config: of the site's bundle.
        bundle: where that is; its root is relative to it.
        place: what the job runs in.
    """
    made = copy.deepcopy(config)
    made["root"] = {"path": str(bundle / config["root"]["path"]), "readonly": True}
    process = made.setdefault("process", {})
    process |= {"cwd": FOLDER, "terminal": False, "noNewPrivileges": True, "capabilities": {}}
    taken = (FOLDER, SCRATCH)
    mounts = [m for m in made.get("mounts", []) if m.get("destination") not in taken]
    made["mounts"] = [
        *mounts,
        _bind(place.files, FOLDER, "ro"),
        _bind(place.scratch, SCRATCH, "rw"),
    ]
    linux = made.setdefault("linux", {})
    kept = [space for space in linux.get("namespaces", []) if space.get("type") != "network"]
    linux["namespaces"] = [*kept, {"type": "network"}]
    return made


def _bind(source: str, destination: str, mode: str) -> dict[str, Any]:
    return {
        "destination": destination,
        "type": "bind",
        "source": source,
        "options": ["rbind", mode, "nosuid", "nodev"],
    }


def _read(bundle: Path, image: str) -> dict[str, Any]:
    path = bundle / CONFIG
    try:
        config = json.loads(path.read_bytes())
        root = config["root"]["path"]
    except FileNotFoundError:
        raise NotFound(
            f"there is no OCI bundle of {image} at {bundle}",
            field="image",
            value=image,
            hint="unpack the image there, with umoci for example",
        ) from None
    except OSError as error:
        raise Infrastructure(f"cannot read {path}: {error.strerror}", field="image") from None
    except (ValueError, TypeError, LookupError):
        raise BadInput(f"{path} is no OCI configuration with a root", field="image") from None
    if not isinstance(root, str):
        raise BadInput(f"{path} names no root", field="image")
    return dict(config)
