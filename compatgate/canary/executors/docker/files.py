"""The workload's folder in its container: a volume of its own, filled before the start."""

from __future__ import annotations

from typing import Any

from compatgate.canary.executors.docker.names import labels_of, name_of
from compatgate.canary.executors.interface import Prepared
from compatgate.canary.workload import FOLDER
from compatgate.canary.workloads.pack import archive, container_files


def put(api: Any, prepared: Prepared) -> str:
    """Make a volume with the workload's files.

    An engine unpacks archives only into what a container may write, and the job's own container
    may not write its folder: another one that is never started lends its mount.

    Returns:
        The volume's name.
    """
    job = prepared.job
    name = f"{name_of(job)}-files"
    labels = labels_of(job)
    api.create_volume(name, labels=labels)
    body = {
        "Image": prepared.image,
        "Entrypoint": ["never-started"],
        "Labels": labels,
        "HostConfig": {"NetworkMode": "none", "Mounts": [mount(name, read_only=False)]},
    }
    lender = api.create_container_from_config(body, name)["Id"]
    api.put_archive(lender, FOLDER, archive(container_files(job.workload)))
    api.remove_container(lender, v=True, force=True)
    return name


def mount(volume: str, *, read_only: bool) -> dict[str, Any]:
    """The volume at its place; what the image may have there is not copied into it."""
    return {
        "Type": "volume",
        "Source": volume,
        "Target": FOLDER,
        "ReadOnly": read_only,
        "VolumeOptions": {"NoCopy": True},
    }
