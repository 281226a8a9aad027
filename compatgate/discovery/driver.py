"""Ask the NVIDIA driver of this machine: its version from ``/proc`` and ``/sys``, GPUs from NVML.

The kernel driver's version needs no tool. NVML needs ``nvidia-ml-py``
(extra ``nvml``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from msgspec import Struct

from compatgate.discovery.nvidia_smi.node_parts import keep_valid
from compatgate.discovery.nvidia_smi.report import Device, Report, Slice

PROC = "/proc/driver/nvidia/version"
SYS = "/sys/module/nvidia/version"
# "NVIDIA UNIX x86_64 Kernel Module  535.183.01  Wed May ..." and, for the open kernel modules,
# "NVIDIA UNIX Open Kernel Module for x86_64  550.144.03  Release Build  (dvs-builder@...)".
_LINE = re.compile(
    r"NVRM version:\s*NVIDIA UNIX\s+(?P<open>Open )?(?:\S+ )?Kernel Module(?: for \S+)?\s+"
    r"(?P<version>\d{2,4}\.\d{1,4}(?:\.\d{1,4})?)(?!\S)"
)
_VERSION = re.compile(r"\d{2,4}\.\d{1,4}(?:\.\d{1,4})?")


class KernelDriver(Struct, frozen=True):
    """The loaded kernel module; ``open`` is None where the source does not tell."""

    version: str
    open: bool | None
    origin: str


def parse_proc_version(text: str) -> KernelDriver | None:
    """Read ``/proc/driver/nvidia/version``; None when it names no version.

    Jetson's driver may print ``TempVersion`` instead of a number.
    """
    match = _LINE.search(text)
    if match is None:
        return None
    return KernelDriver(match["version"], match["open"] is not None, PROC)


def parse_sys_version(text: str) -> KernelDriver | None:
    """Read ``/sys/module/nvidia/version``; None when it is not a version."""
    clean = text.strip()
    return KernelDriver(clean, None, SYS) if _VERSION.fullmatch(clean) else None


def read_kernel_driver(*, proc: str = PROC, sys: str = SYS) -> KernelDriver | None:
    """Return the loaded kernel driver, None when no NVIDIA module is loaded."""
    for path, parse in ((proc, parse_proc_version), (sys, parse_sys_version)):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                found = parse(file.read(4096))
        except OSError:
            continue
        if found:
            return found
    return None


def read_nvml(nvml: Any = None) -> Report | None:
    """Return NVML's report; None without the library, the driver or a GPU."""
    with open_nvml(nvml) as library:
        if library is None:
            return None
        try:
            handles = [
                library.nvmlDeviceGetHandleByIndex(i) for i in range(library.nvmlDeviceGetCount())
            ]
            devices = tuple(_device(library, handle) for handle in handles)
            if not devices:
                return None
            cuda = query_nvml(library, "nvmlSystemGetCudaDriverVersion_v2")
            return Report(
                "NVML",
                driver=nvml_text(library.nvmlSystemGetDriverVersion()),
                cuda=f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None,
                devices=devices,
            )
        except library.NVMLError:
            return None


@contextmanager
def open_nvml(nvml: Any = None) -> Iterator[Any]:
    """Open NVML while the block runs; yield None without the library or the driver."""
    if nvml is None:
        try:
            nvml = import_module("pynvml")
        except ImportError:
            yield None
            return
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        yield None
        return
    try:
        yield nvml
    finally:
        nvml.nvmlShutdown()


def query_nvml(nvml: Any, name: str, *arguments: Any) -> Any:
    """Return a property of NVML; None where this GPU, driver or binding lacks it."""
    function = getattr(nvml, name, None)
    if function is None:
        return None
    try:
        return function(*arguments)
    except nvml.NVMLError:
        return None


def nvml_text(value: bytes | str | None) -> str | None:
    """Return a string of NVML, given as text or as bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _device(nvml: Any, handle: Any) -> Device:
    memory = query_nvml(nvml, "nvmlDeviceGetMemoryInfo", handle)
    capability = query_nvml(nvml, "nvmlDeviceGetCudaComputeCapability", handle)
    mode = query_nvml(nvml, "nvmlDeviceGetMigMode", handle)
    mig = bool(mode and mode[0])
    info = query_nvml(nvml, "nvmlDeviceGetPciInfo", handle)
    return Device(
        nvml_text(nvml.nvmlDeviceGetName(handle)) or "",
        bus=((nvml_text(info.busId) or "").lower() if info else ""),
        memory_mib=memory.total // 2**20 if memory else None,
        capability=f"{capability[0]}.{capability[1]}" if capability else None,
        mig=mig,
        slices=_mig_slices(nvml, handle) if mig else (),
        uuid=nvml_text(query_nvml(nvml, "nvmlDeviceGetUUID", handle)) or None,
        node=_node_parts(nvml, handle),
    )


def _node_parts(nvml: Any, handle: Any) -> dict[str, str]:
    """Return VBIOS, persistence and GSP firmware, as far as this driver tells."""
    persistence = query_nvml(nvml, "nvmlDeviceGetPersistenceMode", handle)
    modes = query_nvml(nvml, "nvmlDeviceGetGspFirmwareMode", handle)
    switches = {"persistence": persistence, "gsp-firmware": modes[0] if modes else None}
    stated = {name: "on" if on else "off" for name, on in switches.items() if on in (0, 1)}
    if vbios := nvml_text(query_nvml(nvml, "nvmlDeviceGetVbiosVersion", handle)):
        stated["vbios"] = vbios
    return keep_valid(stated)


def _mig_slices(nvml: Any, handle: Any) -> tuple[Slice, ...]:
    """Return the MIG devices; their names end in the profile (``... MIG 1g.10gb``)."""
    count = query_nvml(nvml, "nvmlDeviceGetMaxMigDeviceCount", handle) or 0
    mig_slices = []
    for index in range(count):
        part = query_nvml(nvml, "nvmlDeviceGetMigDeviceHandleByIndex", handle, index)
        if part is None:
            continue
        name = nvml_text(query_nvml(nvml, "nvmlDeviceGetName", part)) or ""
        memory = query_nvml(nvml, "nvmlDeviceGetMemoryInfo", part)
        mig_slices.append(
            Slice(
                profile=name.partition(" MIG ")[2].strip() or None,
                memory_mib=memory.total // 2**20 if memory else None,
                uuid=nvml_text(query_nvml(nvml, "nvmlDeviceGetUUID", part)) or None,
            )
        )
    return tuple(mig_slices)
