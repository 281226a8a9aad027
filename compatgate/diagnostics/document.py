"""Compose a probe document from the observations of a process.

Its environment has the variables to report and selects the visible GPUs. Only variables of a fixed
list are reported, so that no secret leaks. The loaded user-mode driver (libcuda) is the host's, or
comes from a forward-compatibility package.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.versions import parse_version
from compatgate.diagnostics.loaded import DRIVER_CUDA, Library
from compatgate.discovery.libraries import observe_library
from compatgate.discovery.nvidia_smi.report import Device
from compatgate.discovery.observations import Conflict, Observation
from compatgate.errors import BadInput

REPORTED = (
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "CUDA_MODULE_LOADING",
    "CUDA_FORCE_PTX_JIT",
    "CUDA_DISABLE_PTX_JIT",
    "CUDA_CACHE_DISABLE",
    "CUDA_HOME",
    "CUDA_PATH",
    "CUDA_VERSION",
    "CUDNN_VERSION",
    "NV_CUDNN_VERSION",
    "NCCL_VERSION",
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
    "NVIDIA_DISABLE_REQUIRE",
    "LD_LIBRARY_PATH",
)
_LONGEST = 8192


def reported_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the listed variables that are set; cut very long values."""
    return {name: environment[name][:_LONGEST] for name in REPORTED if name in environment}


CUDA = "CUDA_VISIBLE_DEVICES"
CONTAINER = "NVIDIA_VISIBLE_DEVICES"


def visible_devices(
    devices: Sequence[Device],
    environment: Mapping[str, str],
    notes: list[str],
    *,
    container: bool = False,
) -> tuple[Device, ...]:
    """Return the host's GPUs that the variables leave visible, in the order of the process.

    Args:
        container: the process is in a container and the devices are the host's: the container
            runtime selects before CUDA does. Inside the container NVML shows only selected GPUs.
    """
    left = tuple(devices)
    if container and CONTAINER in environment:
        left = select_container_gpus(left, environment[CONTAINER], notes)
    return _select_cuda_gpus(left, environment, notes) if CUDA in environment else left


def select_container_gpus(
    devices: Sequence[Device], value: str, notes: list[str]
) -> tuple[Device, ...]:
    """Select the GPUs for a container: ``all``, ``none``, ``void``, indices or UUIDs."""
    entries = [entry.strip() for entry in value.split(",") if entry.strip()]
    if entries == ["all"]:
        return tuple(devices)
    if not entries or entries in (["none"], ["void"]):
        return ()
    container_gpus = []
    for entry in entries:
        device = _find_device(devices, entry)
        if device is None:
            notes.append(f"{CONTAINER} names {entry}, which is not a GPU of this host")
        elif device not in container_gpus:
            container_gpus.append(device)
    return tuple(container_gpus)


def _select_cuda_gpus(
    devices: Sequence[Device], environment: Mapping[str, str], notes: list[str]
) -> tuple[Device, ...]:
    """Select the GPUs that CUDA uses; an unknown entry hides every GPU after it."""
    value = environment[CUDA]
    entries = [entry.strip() for entry in value.split(",")]
    is_ordered = environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    is_ordered |= len({device.name for device in devices}) < 2
    if any(e.isdecimal() for e in entries) and not is_ordered:
        notes.append(
            f"{CUDA}={value} numbers the fastest GPU first; that order is unknown, so all GPUs are "
            "shown; set CUDA_DEVICE_ORDER=PCI_BUS_ID for a certain order"
        )
        return tuple(devices)
    cuda_gpus: list[Device] = []
    for entry in entries:
        device = _find_device(devices, entry)
        if device is None or device in cuda_gpus:
            if entry not in ("", "-1", "NoDevFiles"):
                why = "twice" if device else "which is not a GPU of this process"
                notes.append(f"{CUDA} names {entry}, {why}: CUDA ignores it and all later entries")
            break
        cuda_gpus.append(device)
    return tuple(cuda_gpus)


def _find_device(devices: Sequence[Device], entry: str) -> Device | None:
    """Return the device with an index, ``GPU:MIG`` indices, or the start of a UUID."""
    first, colon, second = entry.partition(":")
    if first.isdecimal() and first.isascii():
        index = int(first)
        device = devices[index] if index < len(devices) else None
        if device is None or not colon:
            return device
        inside = int(second) if second.isdecimal() and second.isascii() else len(device.slices)
        return _slice_of(device, inside) if inside < len(device.slices) else None
    if not entry.startswith(("GPU-", "MIG-")) or len(entry) < 5:
        return None
    found = [d for d in devices if d.uuid and d.uuid.startswith(entry)]
    found += [
        _slice_of(device, number)
        for device in devices
        for number, part in enumerate(device.slices)
        if part.uuid and part.uuid.startswith(entry)
    ]
    return found[0] if len(found) == 1 else None


def _slice_of(device: Device, number: int) -> Device:
    return replace(device, slices=(device.slices[number],))


class Process(Struct, frozen=True):
    """The ``process`` of a probe document, without arguments, which may hold secrets.

    In a container it has another root or mount namespace than the observer. The devices are those
    that it may use; None: unknown.
    """

    pid: int
    executable: str
    python: str | None
    container: bool
    libraries: tuple[Library, ...]
    environment: dict[str, str]
    devices: tuple[dict[str, Any], ...] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        libraries = [{**one._asdict(), "path": json_text(one.path)} for one in self.libraries]
        return {
            "pid": self.pid,
            "executable": json_text(self.executable),
            "python": self.python,
            "container": self.container,
            "devices": None if self.devices is None else list(self.devices),
            "libraries": [
                {key: value for key, value in members.items() if value not in (None, "")}
                for members in libraries
            ],
            "environment": {k: json_text(v) for k, v in self.environment.items()},
        }


def json_text(text: str) -> str:
    """Return a file or variable name as valid text for JSON."""
    return text.encode("utf-8", "backslashreplace").decode()


def describe_unknown_versions(
    libraries: Iterable[Library], stack: dict[str, Any]
) -> tuple[str, ...]:
    """Describe loaded libraries of unknown version: they never pass."""
    found: dict[str, str] = {}
    for library in libraries:
        if library.component not in stack and library.component != DRIVER_CUDA:
            known = f", except its major, {library.major}" if library.major else ""
            path = json_text(library.path)
            sentence = f"{library.component}: {path} is loaded; its version is unknown{known}"
            found.setdefault(library.component, sentence)
    return tuple(found.values())


_DRIVER = re.compile(r"\d{3,4}\.\d+(?:\.\d+)?")


class UserDriver(Struct, frozen=True):
    """What the loaded libcuda means for the stack: a compatibility package, or conflicts."""

    compat: Observation | None = None
    conflicts: tuple[Conflict, ...] = ()
    open: tuple[str, ...] = ()


def find_user_driver(libraries: list[Library], kernel: str | None) -> UserDriver:
    """Compare the loaded libcuda with the kernel driver."""
    library = next((lib for lib in libraries if lib.component == DRIVER_CUDA), None)
    if library is None:
        return UserDriver()
    named = observe_library(library.path)
    own = library.name_version
    order = _compare(own, kernel)
    if order is not None and order < 0:
        message = f"{library.path} of driver {own} is loaded: older than kernel driver {kernel}"
        return UserDriver(conflicts=(Conflict("driver", message, kernel),))
    if named is None and not order:
        return UserDriver()
    if library.reported:
        how = f"{library.path}: {library.asked}()"
        return UserDriver(Observation("cuda-compat", library.reported, how))
    if named:
        return UserDriver(named)
    sentence = (
        f"cuda-compat: {library.path} of driver {own} is loaded over driver {kernel}; its CUDA "
        "version is unknown"
    )
    return UserDriver(open=(sentence,))


def _compare(own: str | None, kernel: str | None) -> int | None:
    """Return above 0 when libcuda is newer than the kernel driver; None: unknown."""
    if not own or not kernel or not _DRIVER.fullmatch(own):
        return None
    try:
        one, other = parse_version("driver", own), parse_version("driver", kernel)
    except BadInput:
        return None
    return (one > other) - (one < other)
