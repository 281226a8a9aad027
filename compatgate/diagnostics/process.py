"""Probe another process of this machine through ``/proc/PID``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
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
    stack_body,
    visible_devices,
)
from compatgate.diagnostics.loaded import LARGEST_MAPS, MappedFile, mapped_files
from compatgate.diagnostics.mapped import (
    Files,
    Reader,
    python_of,
)
from compatgate.discovery.driver import KernelDriver
from compatgate.discovery.findings import Inspection
from compatgate.discovery.nvidia_smi.report import Device, Report
from compatgate.discovery.observations import ObservedPool
from compatgate.discovery.probe import (
    Probe,
    describe_host,
    driver_observations,
    local_pools,
    probe_gpus,
)
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


class Host(Struct, frozen=True):
    """The machine that a process runs on."""

    report: Report | None
    kernel: KernelDriver | None
    notes: list[str]

    @staticmethod
    def here() -> Host:
        """Inspect this machine."""
        notes: list[str] = []
        return Host(*probe_gpus(notes), notes)

    def left_to(self, environment: Mapping[str, str], *, container: bool) -> Report | None:
        """Return the report, limited to the GPUs visible to a process."""
        if self.report is None:
            return None
        visible = visible_devices(self.report.devices, environment, container=container)
        self.notes.extend(visible.notes)
        return replace(self.report, devices=visible.devices, attached=None)

    def pools(self, report: Report | None, facts: Facts) -> tuple[ObservedPool, ...]:
        """Return the pools of a report of this machine."""
        return local_pools(report, self.kernel, facts, self.notes) if report else ()

    def document(self, seen: Inspection, pools: tuple[ObservedPool, ...]) -> dict[str, Any]:
        """Return the probe document of an inspection."""
        drivers = driver_observations(self.report, self.kernel)
        return Probe(
            pools,
            stack_body(seen),
            tuple(dict.fromkeys([*drivers, *seen.observations])),
            tuple(dict.fromkeys(seen.conflicts)),
            describe_host(pools, self.kernel, self.report, self.notes),
        ).to_json()


def probe_process(pid: int, facts: Facts) -> dict[str, Any]:
    """Return the probe document of a process: its stack, and the GPUs that it may use."""
    view = read_process(pid, facts.arch)
    process, host = view.process, Host.here()
    seen = add_user_driver(view, host)
    seen = replace(
        seen, open=(*describe_unknown_versions(process.libraries, seen.stack), *seen.open)
    )
    report = host.left_to(process.environment, container=process.container)
    devices = None if report is None else tuple(map(describe_gpu, report.devices))
    host.notes.extend(view.notes)
    document = host.document(seen, host.pools(report, facts))
    return {**document, "process": replace(process, devices=devices).to_json()}


def add_user_driver(view: View, host: Host) -> Inspection:
    """Add the consequences of the loaded libcuda to the inspection of a process."""
    kernel = host.kernel.version if host.kernel else None
    driver = find_user_driver(list(view.process.libraries), kernel)
    stack, observations = dict(view.seen.stack), view.seen.observations
    if driver.compat:
        stack["cuda-compat"] = driver.compat.version
        observations = (*observations, driver.compat)
    return Inspection(
        stack,
        tuple(dict.fromkeys(observations)),
        (*view.seen.conflicts, *driver.conflicts),
        (*view.seen.open, *driver.open),
    )


def describe_gpu(device: Device) -> dict[str, Any]:
    """Return a visible GPU in JSON form."""
    return {
        "name": device.name,
        "uuid": device.uuid,
        "bus": device.bus or None,
        "memory_mib": device.memory_mib,
        "compute_capability": device.capability,
        "mig": [{"profile": s.profile, "uuid": s.uuid} for s in device.slices],
    }
