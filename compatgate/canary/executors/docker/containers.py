"""Describe a job's container: its limits, its rights, and the volumes with its files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from compatgate.canary.executors import Job, PreparedJob, make_command, make_environment
from compatgate.canary.executors.docker.engine import container_name, job_labels
from compatgate.canary.hosts import Host
from compatgate.canary.witness.interpreter import COMPLETE, PLACE, VARIABLE, Interpreter
from compatgate.canary.workload import FOLDER
from compatgate.canary.workloads.contents import list_container_files, make_archive
from compatgate.errors import BadInput, CompatgateError

NOBODY = "65534:65534"
_CDI_SINCE = 25
_MIN_LOG_BYTES = 1 << 20
_LOG_RATIO = 4
"""Ratio of a log file's size to the stored output: records of short lines exceed their text."""


def make_container_body(
    job: Job,
    image: str,
    config: dict[str, Any],
    volume: str | None,
    devices: Literal["request", "cdi"],
    tool: str | None = None,
    python: Interpreter | None = None,
) -> dict[str, Any]:
    """Return the request that creates a job's container.

    A ``volume``, ``tool`` or ``python`` is None where the image has its own.
    """
    workload = job.workload
    more = ({} if job.gpu_slots else {"NVIDIA_VISIBLE_DEVICES": "void"}) | (
        _NO_INJECTION if python else {}
    )
    environment = make_environment(job, "/tmp", more)  # noqa: S108
    command = make_command(job)
    if python:
        path = environment.get(_LIBRARY_PATH) or _read_variable(config, _LIBRARY_PATH)
        command = python.command(command[1:], path)
    user = config.get("User") or ""
    is_root = user.partition(":")[0] in ("", "0", "root")
    mounts = (
        (volume, FOLDER),
        (tool, workload.image.tool),
        (python_volume(python) if python else None, PLACE),
    )
    return {
        "Image": image,
        "Entrypoint": command,
        "Cmd": [],
        "WorkingDir": FOLDER,
        # The image's user; nobody instead of root, unless the workload says otherwise.
        "User": NOBODY if is_root and workload.user == "nobody" else user,
        "Env": [f"{name}={value}" for name, value in environment.items()],
        "Labels": job_labels(job),
        "Hostname": "canary",
        "Healthcheck": {"Test": ["NONE"]},
        "NetworkDisabled": True,
        "HostConfig": _resource_limits(job) | {
            "Tmpfs": _tmpfs_mounts(job, config.get("Volumes") or {}),
            "Mounts": [
                make_volume_mount(name, place, read_only=True)
                for name, place in mounts
                if name and place
            ],
            "DeviceRequests": _gpu_requests(job, config, devices),
        },
    }  # fmt: skip


_LIBRARY_PATH = "LD_LIBRARY_PATH"
_NO_INJECTION = {"LD_PRELOAD": "", "LD_AUDIT": "", "GLIBC_TUNABLES": "", VARIABLE: "worker"}
"""Variables against images that put code into every process that the loader starts."""


def _read_variable(config: dict[str, Any], name: str) -> str:
    for stated in config.get("Env") or []:
        key, _, value = stated.partition("=")
        if key == name:
            return str(value)
    return ""


def _resource_limits(job: Job) -> dict[str, Any]:
    limits = job.workload.limits
    return {
        "NetworkMode": "none",
        "ReadonlyRootfs": True,
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges"],
        "IpcMode": "private",
        "Privileged": False,
        "PublishAllPorts": False,
        "RestartPolicy": {"Name": "no"},
        "Memory": limits.memory,
        "MemorySwap": limits.memory,
        "PidsLimit": limits.pids,
        "ShmSize": limits.shm,
        "NanoCpus": int(limits.cpus * 1e9) if limits.cpus else 0,
        "Ulimits": [{"Name": "core", "Soft": 0, "Hard": 0}],
        # The local driver stores bytes unchanged; json-file replaces bytes that are not UTF-8.
        "LogConfig": {
            "Type": "local",
            "Config": {
                "max-size": str(max(_LOG_RATIO * limits.output, _MIN_LOG_BYTES)),
                "max-file": "2",
                "compress": "false",
            },
        },
    }


def _tmpfs_mounts(job: Job, volumes: dict[str, Any]) -> dict[str, str]:
    size = f"size={job.workload.limits.tmp}"
    places = {"/tmp": f"rw,exec,nosuid,nodev,mode=1777,{size}"}  # noqa: S108
    taken = [FOLDER, PLACE, "/tmp", *filter(None, [job.workload.image.tool])]  # noqa: S108
    for path in volumes:
        if not f"{path.rstrip('/')}/".startswith(tuple(f"{place}/" for place in taken)):
            places[path] = f"rw,noexec,nosuid,nodev,mode=1777,{size}"
    return places


_DRIVER_PARTS = ("compute", "compat32", "graphics", "utility", "video", "display")
"""Parts of the driver that an engine can request (moby, daemon/nvidia_linux.go)."""


def _gpu_requests(
    job: Job, config: dict[str, Any], devices: Literal["request", "cdi"]
) -> list[dict[str, Any]]:
    if not job.gpu_slots:
        return []
    slots = [str(slot) for slot in job.gpu_slots]
    if devices == "cdi":
        return [{"Driver": "cdi", "DeviceIDs": [f"nvidia.com/gpu={slot}" for slot in slots]}]
    stated = _read_variable(config, "NVIDIA_DRIVER_CAPABILITIES").replace(" ", "").split(",")
    parts: list[str] = []
    # A named part replaces those of the image, which is under test; but programs need NVML.
    if any(stated) and not {"all", "utility"} & set(stated):
        parts = [*(part for part in stated if part in _DRIVER_PARTS), "utility"]
    return [{"Driver": "nvidia", "DeviceIDs": slots, "Capabilities": [["gpu", *parts]]}]


def check_engine(info: dict[str, Any], host: Host, job: Job) -> None:
    """Check that the engine can enforce a container's limits and can provide GPUs."""
    for feature, what in (("MemoryLimit", "memory"), ("PidsLimit", "processes")):
        if not info.get(feature):
            raise CompatgateError(
                f"the engine of {host.name} cannot limit {what}",
                field="host",
                value=host.name,
                hint="delegate cgroups to it; a rootless engine needs systemd and cgroup v2",
            )
    digits = str(info.get("ServerVersion", "")).partition(".")[0]
    major = int(digits) if digits.isdecimal() else 0
    if job.gpu_slots and host.devices == "cdi" and major < _CDI_SINCE:
        raise CompatgateError(
            f"the engine of {host.name} is {info.get('ServerVersion')} and does not support CDI",
            field="devices",
            value="cdi",
            hint=f'upgrade to Docker {_CDI_SINCE}, or write devices = "request"',
        )


def put_files(api: Any, prepared: PreparedJob) -> str:
    """Create a volume with the workload's folder.

    An engine unpacks archives only into paths that the container may write, and the job's container
    may not write its folder. A helper container that is never started provides its mount. Return
    the volume's name.
    """
    job = prepared.job
    name = f"{container_name(job)}-files"
    api.create_volume(name, labels=job_labels(job))
    mount = make_volume_mount(name, FOLDER, read_only=False)
    with _lend_container(api, job, prepared.image, name, mount) as lender:
        api.put_archive(lender, FOLDER, make_archive(list_container_files(job.workload)))
    return name


def put_tool(api: Any, prepared: PreparedJob) -> str:
    """Create a volume with the workload's tool, from the image that was built for it.

    When a container is created, the engine copies the image's content at a mount point into an
    empty volume. This container is never started. Return the volume's name.
    """
    job, image = prepared.job, prepared.tool or ""
    name, place = f"{container_name(job)}-tool", job.workload.image.tool or ""
    with _lend_container(api, job, image, name) as lender:
        found = _find_file(api, lender, place)
    if not found or not found["mode"] >> 31:
        raise BadInput(
            f"the Dockerfile of {job.workload.name} does not create the folder {place}",
            field="image.tool",
            value=place,
        )
    api.create_volume(name, labels=job_labels(job))
    mount = make_volume_mount(name, place, read_only=False) | {"VolumeOptions": {"NoCopy": False}}
    with _lend_container(api, job, image, name, mount):
        return name


PYTHON = "dev.compatgate.python"
"""Label of a volume with a worker's interpreter: the digest of its files."""
_PRELOAD = "/etc/ld.so.preload"


def python_volume(python: Interpreter) -> str:
    """Return the name of the volume with an interpreter."""
    return f"compatgate-python-{python.digest.removeprefix('sha256:')[:16]}"


def put_interpreter(api: Any, prepared: PreparedJob, python: Interpreter) -> None:
    """Create the volume with the worker's interpreter; it stays on the engine for later jobs.

    A volume that a stopped worker has left half full is filled again.
    """
    job, name = prepared.job, python_volume(python)
    api.create_volume(name, labels={PYTHON: python.digest})
    mount = make_volume_mount(name, PLACE, read_only=False)
    helper = f"{container_name(job)}-python"
    with _lend_container(api, job, prepared.image, helper, mount) as lender:
        if _find_file(api, lender, f"{PLACE}/{COMPLETE}") is None:
            api.put_archive(lender, PLACE, python.archive)


def check_preloads(api: Any, container: str, image: str) -> None:
    """Check that the image does not put code into every process that a loader starts."""
    found = _find_file(api, container, _PRELOAD)
    if found and found["size"]:
        raise BadInput(
            f"the image {image} has {_PRELOAD}, which puts its own code into the worker's programs",
            field="image",
            value=image,
            hint=f"remove {_PRELOAD} from the image; set LD_PRELOAD for the program that needs it",
        )


def _find_file(api: Any, container: str, path: str) -> dict[str, Any] | None:
    """Return what an engine says of a file or folder in a container; None if there is none."""
    from docker.errors import NotFound

    try:
        pieces, stat = api.get_archive(container, path)
    except NotFound:
        return None
    pieces.close()
    return dict(stat)


@contextmanager
def _lend_container(
    api: Any, job: Job, image: str, name: str, *mounts: dict[str, Any]
) -> Iterator[str]:
    """Create a container that is never started, for its mounts or its content, and remove it."""
    body = {
        "Image": image,
        "Entrypoint": ["never-started"],
        "Labels": job_labels(job),
        "HostConfig": {"NetworkMode": "none", "Mounts": list(mounts)},
    }
    container = str(api.create_container_from_config(body, name)["Id"])
    try:
        yield container
    finally:
        api.remove_container(container, v=True, force=True)


def make_volume_mount(volume: str, place: str, *, read_only: bool) -> dict[str, Any]:
    """Return the volume's mount; the image's content at that path is not copied into the volume."""
    return {
        "Type": "volume",
        "Source": volume,
        "Target": place,
        "ReadOnly": read_only,
        "VolumeOptions": {"NoCopy": True},
    }
