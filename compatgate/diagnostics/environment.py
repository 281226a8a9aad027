"""Read the environment of a process: the variables to report, and the visible GPUs.

Only variables of a fixed list are reported, so that no secret leaks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from compatgate.discovery.nvidia_smi.report import Device

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


class Visible(Struct, frozen=True):
    """The visible GPUs in the order of the process, and notes."""

    devices: tuple[Device, ...]
    notes: tuple[str, ...] = ()


def visible_devices(
    devices: Sequence[Device], environment: Mapping[str, str], *, container: bool = False
) -> Visible:
    """Apply the variables to a host's GPUs.

    Args:
        devices: GPUs of the host in PCI order, as NVML and nvidia-smi number them.
        environment: environment of the process.
        container: the process is in a container and the devices are the host's: the container
            runtime selects before CUDA does. Inside the container NVML shows only selected GPUs.
    """
    notes: list[str] = []
    left = tuple(devices)
    if container and CONTAINER in environment:
        left = let_in(left, environment[CONTAINER], notes)
    if CUDA in environment:
        left = _chosen(left, environment, notes)
    return Visible(left, tuple(notes))


def let_in(devices: Sequence[Device], value: str, notes: list[str]) -> tuple[Device, ...]:
    """Select the GPUs for a container: ``all``, ``none``, ``void``, indices or UUIDs."""
    entries = [entry.strip() for entry in value.split(",") if entry.strip()]
    if entries == ["all"]:
        return tuple(devices)
    if not entries or entries in (["none"], ["void"]):
        return ()
    found = []
    for entry in entries:
        device = _named(devices, entry)
        if device is None:
            notes.append(f"{CONTAINER} names {entry}, which is not a GPU of this host")
        elif device not in found:
            found.append(device)
    return tuple(found)


def _chosen(
    devices: Sequence[Device], environment: Mapping[str, str], notes: list[str]
) -> tuple[Device, ...]:
    """Select the GPUs that CUDA uses; an unknown entry hides every GPU after it."""
    value = environment[CUDA]
    entries = [entry.strip() for entry in value.split(",")]
    if any(e.isdecimal() for e in entries) and not _order_is_known(devices, environment):
        notes.append(
            f"{CUDA}={value} numbers the fastest GPU first; that order is unknown, so all GPUs are "
            "shown; set CUDA_DEVICE_ORDER=PCI_BUS_ID for a certain order"
        )
        return tuple(devices)
    found: list[Device] = []
    for entry in entries:
        device = _named(devices, entry)
        if device is None or device in found:
            if entry not in ("", "-1", "NoDevFiles"):
                why = "twice" if device else "which is not a GPU of this process"
                notes.append(f"{CUDA} names {entry}, {why}: CUDA ignores it and all later entries")
            break
        found.append(device)
    return tuple(found)


def _order_is_known(devices: Sequence[Device], environment: Mapping[str, str]) -> bool:
    alike = len({device.name for device in devices}) < 2
    return alike or environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"


def _named(devices: Sequence[Device], entry: str) -> Device | None:
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
