"""The workload's folder in its pod: a ConfigMap, mounted read-only."""

from __future__ import annotations

import base64
from typing import Any

from compatgate.canary.executors.interface import Job
from compatgate.canary.executors.kubernetes.names import labels_of, name_of
from compatgate.canary.workloads.pack import Packed, container_files
from compatgate.errors import BadInput

MOST_BYTES = 1 << 20
"""Of the values and keys of a ConfigMap (Kubernetes, ``MaxSecretSize``)."""


def packed(job: Job) -> list[Packed]:
    """The files that travel; none for a workload whose image has them.

    Raises:
        BadInput: they are more than fits, or no plain files.
    """
    if job.workload.folder is None:
        return []
    files = container_files(job.workload)
    size = sum(len(file.content) + len(_key(number)) for number, file in enumerate(files))
    if size > MOST_BYTES:
        raise BadInput(
            f"the files of {job.workload.name} are {size} bytes, and a cluster takes {MOST_BYTES}",
            field=job.workload.name,
            value=size,
            hint="have the image bring what is large",
        )
    return files


def config_map(job: Job, files: list[Packed]) -> dict[str, Any]:
    """The object that carries the files; numbered, since keys cannot have the ``/`` of a path."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name_of(job), "labels": labels_of(job)},
        "immutable": True,
        "binaryData": {
            _key(number): base64.b64encode(file.content).decode()
            for number, file in enumerate(files)
        },
    }


def volume(job: Job, files: list[Packed]) -> dict[str, Any]:
    """The files at their paths, readable for everybody."""
    items = [
        {"key": _key(number), "path": file.path, "mode": 0o555 if file.executable else 0o444}
        for number, file in enumerate(files)
    ]
    return {"name": "files", "configMap": {"name": name_of(job), "items": items}}


def _key(number: int) -> str:
    return f"f{number}"
