"""Read what ``nvidia-smi`` prints about the node below the driver: VBIOS, GSP, persistence, fabric.

Lines of ``/proc/driver/nvidia/version``, of the kernel log and of ``modinfo nvidia`` name the
flavour of the kernel modules, ``uname -a`` the kernel; reports often hold them next to the output
of ``nvidia-smi``.

Source: NVIDIA driver README, chapters "GSP Firmware" (N/A means that it is not in use) and "Open
Linux Kernel Modules" (the licence that modinfo prints).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from compatgate.core.node import NODE_COMPONENTS, read_node_value
from compatgate.discovery.observations import NodeParts
from compatgate.errors import BadInput

_SWITCH = {"enabled": "on", "on": "on", "disabled": "off", "off": "off"}
_NAMES = {
    "vbios version": "vbios",
    "persistence mode": "persistence",
    "gsp firmware version": "gsp-firmware",
}
_NVRM = re.compile(
    r"NVRM(?: version)?:\s*(?:loading )?NVIDIA UNIX\s+(?P<open>Open )?(?:\S+ )?Kernel Module"
)
_UNAME = re.compile(r"^Linux \S+ (?P<kernel>\d\S+) #\d\S* ", re.MULTILINE)
_LICENSE = re.compile(r"^license:\s+(?P<license>Dual MIT/GPL|NVIDIA)\s*$", re.MULTILINE)
_MODINFO = re.compile(r"^(?:filename:\s+\S*/nvidia\.ko\S*|description:.*NVIDIA.*)$", re.MULTILINE)


def read_part(name: str, printed: str) -> dict[str, str]:
    """Return the part of the node that a printed line or element states; empty for others.

    Names are as printed, ``VBIOS Version`` or ``vbios_version``. The value ``N/A`` says nothing,
    except of GSP firmware, which is not in use.
    """
    part = _NAMES.get(name.strip().lower().replace("_", " "))
    value = printed.strip()
    if part is None or not value:
        return {}
    absent = value.lower().strip("[]") in ("n/a", "not supported", "unknown error")
    if part == "gsp-firmware":
        return {part: "off" if absent else "on"} if absent or value[0].isdigit() else {}
    if part == "persistence":
        return {part: _SWITCH[value.lower()]} if value.lower() in _SWITCH else {}
    return {} if absent else keep_valid({part: value})


def keep_valid(stated: Mapping[str, str]) -> dict[str, str]:
    """Return the parts whose values can be stated, in the order of `NODE_COMPONENTS`."""
    valid: dict[str, str] = {}
    for name in NODE_COMPONENTS:
        if name in stated:
            try:
                valid[name] = read_node_value(name, stated[name], name)
            except BadInput:
                continue
    return valid


def find_host_parts(text: str) -> dict[str, str]:
    """Return what lines next to the output say of the host: module flavour and kernel."""
    if match := _NVRM.search(text):
        parts = {"kernel-modules": "open" if match["open"] else "proprietary"}
    elif _MODINFO.search(text) and (found := _LICENSE.search(text)):
        parts = {"kernel-modules": "open" if "MIT" in found["license"] else "proprietary"}
    else:
        parts = {}
    if match := _UNAME.search(text):
        parts["kernel"] = match["kernel"]
    return keep_valid(parts)


def join_parts(stated: Sequence[Mapping[str, str]], what: str, notes: list[str]) -> NodeParts:
    """Return the parts that all devices state alike; what differs is not stated, but noted."""
    parts: list[tuple[str, str]] = []
    for name, component in NODE_COMPONENTS.items():
        values = list(dict.fromkeys(one[name] for one in stated if name in one))
        if len(values) == 1:
            parts.append((name, values[0]))
        elif values:
            notes.append(f"{component.title} differs among the {what}: {', '.join(values)}")
    return tuple(parts)


_WAITING = ("not started", "in progress")


def note_fabric(states: Iterable[str | None]) -> list[str]:
    """Return a note where a GPU waits for the NVLink fabric."""
    waiting = [state for state in states if state and state.lower() in _WAITING]
    if not waiting:
        return []
    count = "a GPU waits" if len(waiting) == 1 else f"{len(waiting)} GPUs wait"
    return [
        f"{count} for the NVLink fabric (Fabric State: {waiting[0]}): Fabric Manager is not "
        "running, or has not finished; until then CUDA fails with error 802"
    ]
