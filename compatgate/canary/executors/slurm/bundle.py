"""The OCI bundle of a job: the site's of the image, confined, with the workload's folder in it."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from compatgate.canary.executors.slurm.containers import SCRATCH, Place
from compatgate.canary.workload import FOLDER
from compatgate.errors import BadInput, Infrastructure, NotFound

CONFIG = "config.json"


def write(template: str, place: Place) -> None:
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
    (own / CONFIG).write_text(json.dumps(confined(_read(bundle, place.image), bundle, place)))


def confined(config: dict[str, Any], bundle: Path, place: Place) -> dict[str, Any]:
    """The configuration of the job's container. Pure.

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
