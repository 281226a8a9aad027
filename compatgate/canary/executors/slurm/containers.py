"""Choose a job's image, and run its program in a container by the site's means."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from compatgate.canary.executors import Job, Progress, pin_image
from compatgate.canary.hosts import Slurm
from compatgate.canary.workload import FOLDER
from compatgate.discovery.registry.image_spec import DOCKER_HUB, parse_reference
from compatgate.errors import BadInput, InfrastructureError, NotFound

SCRATCH = "/tmp"  # noqa: S108
"""Writable path in a container."""
_SRUN = ("srun", "--ntasks-per-node=1", "--kill-on-bad-exit=1")


class ContainerPlace(Struct, frozen=True):
    """Image (by digest; "" without a container), folder on every node and name of a container."""

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


def make_fetch_command(slurm: Slurm, place: ContainerPlace) -> list[str]:
    """Return the command that fetches the image before the time limit starts; [] for none."""
    match slurm.container:
        case "pyxis":
            return [*_SRUN, *_pyxis(place), "true"]
        case "wrapper":
            return _fill_placeholders(slurm.fetch, place)
    return []


def make_run_command(
    slurm: Slurm, place: ContainerPlace, program: Sequence[str], nodes: int
) -> list[str]:
    """Return the whole argument vector."""
    spread = _SRUN if nodes > 1 else ()
    match slurm.container:
        case "pyxis":
            return [*_SRUN, *_pyxis(place), *program]
        case "oci":
            return [*_SRUN, f"--container={place.folder}/bundle", *program]
        case "wrapper":
            return [*spread, *_fill_placeholders(slurm.wrapper, place), *program]
    return [*spread, *program]


def make_enroot_uri(image: str) -> str:
    """Return ``registry#path@digest``; enroot takes a tag or a digest, so a tag is left out.

    Source: pyxis, Usage (``--container-image=[USER@][REGISTRY#]IMAGE[:TAG]|PATH``).
    """
    named = parse_reference(image)
    registry = "" if named.registry == DOCKER_HUB else f"{named.registry}#"
    which = f"@{named.digest}" if named.digest else f":{named.tag}"
    return f"docker://{registry}{named.repository}{which}"


def _pyxis(place: ContainerPlace) -> list[str]:
    return [
        f"--container-image={make_enroot_uri(place.image)}",
        f"--container-name={place.name}",
        f"--container-mounts={place.files}:{FOLDER}:ro,{place.scratch}:{SCRATCH}",
        f"--container-workdir={FOLDER}",
        "--no-container-mount-home",
        "--no-container-entrypoint",
    ]


def _fill_placeholders(template: Sequence[str], place: ContainerPlace) -> list[str]:
    """Fill placeholders within arguments; no shell ever reads them."""
    known = {"image": place.image, "files": place.files, "scratch": place.scratch,
             "name": place.name, "folder": FOLDER}  # fmt: skip
    filled = []
    for part in template:
        for name, value in known.items():
            part = part.replace(f"{{{name}}}", value)
        filled.append(part)
    return filled


NO_IMAGE = "node"
"""Image of a job that runs on the node itself."""


def prepare_image(job: Job, slurm: Slurm, host: str, progress: Progress) -> str:
    """Return the image as ``name@sha256:...``.

    A cluster does not build images. A workload whose image is built from its folder needs that
    image in a registry, and the reference in ``workload.toml``.
    """
    workload = job.workload
    if slurm.container == "none":
        if job.image:
            raise BadInput(
                f"{host} runs programs on its nodes without containers",
                field="image",
                value=job.image,
                hint='set container = "pyxis", "oci" or "wrapper" in [host.slurm]',
            )
        if workload.folder is None:
            raise BadInput(f"the workload {workload.name} has no folder", field="workload")
        return NO_IMAGE
    reference = job.image if workload.image.inside and job.image else workload.image.reference
    if not reference:
        raise BadInput(
            f"no image is named for {workload.name} on {host}",
            field="image",
            hint="use --image REF, or set image.reference in workload.toml: "
            "a cluster does not build images",
        )
    progress(f"looking up {reference}", None)
    return pin_image(reference)


def write_bundle(template: str, place: ContainerPlace) -> None:
    """Write ``bundle/config.json`` in the job's folder.

    The template is the path of the site's bundle, with ``{digest}``; this machine sees it as well.
    """
    bundle = Path(template.replace("{digest}", place.image.rpartition("@sha256:")[2]))
    path = bundle / "config.json"
    try:
        config = json.loads(path.read_bytes())
        root = config["root"]["path"]
    except FileNotFoundError:
        raise NotFound(
            f"{bundle} contains no OCI bundle of {place.image}",
            field="image",
            value=place.image,
            hint="unpack the image there, for example with umoci",
        ) from None
    except OSError as error:
        raise InfrastructureError(f"cannot read {path}: {error.strerror}", field="image") from None
    except (ValueError, TypeError, LookupError, RecursionError):
        raise BadInput(f"{path} is not an OCI configuration with a root", field="image") from None
    if not isinstance(root, str):
        raise BadInput(f"{path} names no root", field="image")
    own = Path(place.folder) / "bundle"
    own.mkdir(mode=0o700)
    (own / path.name).write_text(json.dumps(confine_config(config, bundle, place)))


def confine_config(config: dict[str, Any], bundle: Path, place: ContainerPlace) -> dict[str, Any]:
    """Return the configuration of the job's container. Pure.

    Devices, hooks and other settings of the site stay, because they provide the GPUs. Slurm adds
    the program and its environment.

    Source: opencontainers/runtime-spec, config.md and config-linux.md. The bundle's root is
    relative to its path.
    """
    made = copy.deepcopy(config)
    made["root"] = {"path": str(bundle / config["root"]["path"]), "readonly": True}
    process = made.setdefault("process", {})
    process |= {"cwd": FOLDER, "terminal": False, "noNewPrivileges": True, "capabilities": {}}
    taken = (FOLDER, SCRATCH)
    mounts = [m for m in made.get("mounts", []) if m.get("destination") not in taken]
    made["mounts"] = [
        *mounts,
        _bind_mount(place.files, FOLDER, "ro"),
        _bind_mount(place.scratch, SCRATCH, "rw"),
    ]
    linux = made.setdefault("linux", {})
    kept = [space for space in linux.get("namespaces", []) if space.get("type") != "network"]
    linux["namespaces"] = [*kept, {"type": "network"}]
    return made


def _bind_mount(source: str, destination: str, mode: str) -> dict[str, Any]:
    return {
        "destination": destination,
        "type": "bind",
        "source": source,
        "options": ["rbind", mode, "nosuid", "nodev"],
    }
