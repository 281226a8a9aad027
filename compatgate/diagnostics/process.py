"""Probe another process of this machine through ``/proc/PID``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.facts import Facts
from compatgate.core.facts.nvidia import CudaArch
from compatgate.diagnostics.document import (
    Process,
    describe_unknown_versions,
    find_user_driver,
    reported_variables,
    visible_devices,
)
from compatgate.diagnostics.loaded import LARGEST_MAPS, MappedFile, mapped_files
from compatgate.diagnostics.mapped import Files, Reader, python_of
from compatgate.discovery.findings import Inspection
from compatgate.discovery.nvidia_smi.report import Device
from compatgate.discovery.probe import (
    Probe,
    describe_host,
    driver_observations,
    local_pools,
    probe_gpus,
)
from compatgate.discovery.stated_stack import attach_remarks
from compatgate.errors import BadInput, CompatgateError, NotFound, quote_error

_LARGEST_ENVIRON = 4 * 1024 * 1024


class View(Struct, frozen=True):
    """The observations of a process."""

    process: Process
    seen: Inspection
    notes: tuple[str, ...] = ()


def read_process(pid: int, facts: CudaArch | None = None, *, proc: str = "/proc") -> View:
    """Inspect a process."""
    folder = f"{proc}/{pid}"
    with _translate_errors(pid):
        began = _start_time(folder)
        executable = os.readlink(f"{folder}/exe")
        mapped = _maps(folder)
        with open(f"{folder}/environ", encoding="utf-8", errors="surrogateescape") as file:
            items = file.read(_LARGEST_ENVIRON).split("\0")
        environment = dict(item.split("=", 1) for item in items if "=" in item)
        container = _namespaces(folder) != _namespaces(f"{proc}/self")
        reader = Reader(folder, mapped, Files(f"{folder}/root"))
        seen = reader.seen(facts)
        if _start_time(folder) != began:
            raise ProcessLookupError
    process = Process(
        pid,
        executable.removesuffix(" (deleted)"),
        python_of(executable, mapped),
        container,
        tuple(reader.libraries),
        reported_variables(environment),
    )
    return View(process, seen, tuple(dict.fromkeys(reader.notes)))


@contextmanager
def _translate_errors(pid: int) -> Iterator[None]:
    field = "--pid"
    try:
        yield
    except (FileNotFoundError, ProcessLookupError):
        raise NotFound(
            f"process {pid} does not exist, or has just ended", field=field, value=pid
        ) from None
    except PermissionError:
        raise BadInput(
            f"permission to inspect process {pid} is denied",
            field=field,
            value=pid,
            hint="run this as the same user, or as root (CAP_SYS_PTRACE)",
        ) from None
    except CompatgateError:
        raise
    except OSError as error:
        raise BadInput(
            f"process {pid} cannot be read: {quote_error(error)}", field=field, value=pid
        ) from None


def _start_time(folder: str) -> str:
    """Return the start time of a process in clock ticks, to notice a reused number."""
    with open(f"{folder}/stat", encoding="utf-8", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    state, flags, began = fields[0], int(fields[6]), fields[19]
    pid = folder.rpartition("/")[2]
    if state in "ZX":
        raise BadInput(f"process {pid} has ended; only its exit status is left", field="--pid")
    if flags & 0x00200000:  # PF_KTHREAD
        raise BadInput(f"process {pid} is a kernel thread", field="--pid")
    return began


def _maps(folder: str) -> list[MappedFile]:
    """Return the mapped files as the process names them.

    After a chroot the kernel prepends the root; in another mount namespace it does not.
    """
    root = os.readlink(f"{folder}/root").rstrip("/")
    with open(f"{folder}/maps", encoding="utf-8", errors="surrogateescape") as file:
        found = mapped_files(file.read(LARGEST_MAPS))
    return [
        file._replace(path=file.path[len(root) :]) if file.path.startswith(f"{root}/") else file
        for file in found
    ]


def _namespaces(folder: str) -> tuple[str, str]:
    return os.readlink(f"{folder}/ns/mnt"), os.readlink(f"{folder}/root")


def probe_process(pid: int, facts: Facts) -> dict[str, Any]:
    """Return the probe document of a process: its stack, and the GPUs that it may use."""
    view = read_process(pid, facts.arch)
    process, seen = view.process, view.seen
    notes: list[str] = []
    report, kernel = probe_gpus(notes)
    # the consequences of the loaded libcuda
    driver = find_user_driver(list(process.libraries), kernel.version if kernel else None)
    compat = (driver.compat,) if driver.compat else ()
    stack = seen.stack | ({"cuda-compat": driver.compat.version} if driver.compat else {})
    unknown = describe_unknown_versions(process.libraries, stack)
    left = None
    if report:
        container = process.container
        visible = visible_devices(report.devices, process.environment, notes, container=container)
        process = replace(process, devices=tuple(map(_describe_gpu, visible)))
        left = replace(report, devices=visible, attached=None)
    notes += view.notes
    pools = local_pools(left, kernel, facts, notes) if left else ()
    conflicts = tuple(dict.fromkeys([*seen.conflicts, *driver.conflicts]))
    left_open = dict.fromkeys([*unknown, *seen.open, *driver.open])
    document = Probe(
        pools,
        attach_remarks(stack, left_open, conflicts),
        tuple(dict.fromkeys([*driver_observations(report, kernel), *seen.observations, *compat])),
        conflicts,
        describe_host(pools, kernel, report, notes),
    ).to_json()
    return {**document, "process": process.to_json()}


def _describe_gpu(device: Device) -> dict[str, Any]:
    return {
        "name": device.name,
        "uuid": device.uuid,
        "bus": device.bus or None,
        "memory_mib": device.memory_mib,
        "compute_capability": device.capability,
        "mig": [{"profile": s.profile, "uuid": s.uuid} for s in device.slices],
    }
