"""A workload's files in its container: volumes of their own, filled before the start."""

from __future__ import annotations

from typing import Any

from compatgate.canary.executors.docker.names import labels_of, name_of
from compatgate.canary.executors.interface import Job, Prepared
from compatgate.canary.workload import FOLDER
from compatgate.canary.workloads.pack import archive, container_files
from compatgate.errors import BadInput


def put(api: Any, prepared: Prepared) -> str:
    """Make a volume with the workload's folder.

    An engine unpacks archives only into what a container may write, and the job's own container
    may not write its folder: another one that is never started lends its mount.

    Returns:
        The volume's name.
    """
    job = prepared.job
    name = f"{name_of(job)}-files"
    api.create_volume(name, labels=labels_of(job))
    lender = _lender(api, job, prepared.image, name, [mount(name, FOLDER, read_only=False)])
    api.put_archive(lender, FOLDER, archive(container_files(job.workload)))
    api.remove_container(lender, v=True, force=True)
    return name


def put_tool(api: Any, prepared: Prepared) -> str:
    """Make a volume with the workload's tool, out of the image that was built for it.

    The engine itself copies what an image has at a mount's place into an empty volume when a
    container is created. That container is never started.

    Returns:
        The volume's name.

    Raises:
        BadInput: the image does not have it.
    """
    job = prepared.job
    name, image, place = f"{name_of(job)}-tool", prepared.tool or "", job.workload.image.tool or ""
    _check_there(api, job, image, place, name)
    api.create_volume(name, labels=labels_of(job))
    filled = mount(name, place, read_only=False) | {"VolumeOptions": {"NoCopy": False}}
    lender = _lender(api, job, image, name, [filled])
    api.remove_container(lender, v=True, force=True)
    return name


def _check_there(api: Any, job: Job, image: str, place: str, name: str) -> None:
    from docker.errors import NotFound

    lender = _lender(api, job, image, name, [])
    try:
        pieces, stat = api.get_archive(lender, place)
        pieces.close()
        is_folder = bool(stat["mode"] >> 31)
    except NotFound:
        is_folder = False
    finally:
        api.remove_container(lender, v=True, force=True)
    if not is_folder:
        raise BadInput(
            f"the Dockerfile of {job.workload.name} makes no folder {place}",
            field="image.tool",
            value=place,
        )


def _lender(api: Any, job: Job, image: str, name: str, mounts: list[dict[str, Any]]) -> str:
    """Create a container that is never started, for what it mounts or has."""
    body = {
        "Image": image,
        "Entrypoint": ["never-started"],
        "Labels": labels_of(job),
        "HostConfig": {"NetworkMode": "none", "Mounts": mounts},
    }
    return str(api.create_container_from_config(body, name)["Id"])


def mount(volume: str, place: str, *, read_only: bool) -> dict[str, Any]:
    """The volume at its place; what the image may have there is not copied into it."""
    return {
        "Type": "volume",
        "Source": volume,
        "Target": place,
        "ReadOnly": read_only,
        "VolumeOptions": {"NoCopy": True},
    }
