"""Read what ``nvidia-smi`` prints about vGPUs, in a guest and on its host.

* ``nvidia-smi vgpu`` and ``nvidia-smi vgpu -q``: a host's vGPUs, the second with the driver of
  each guest.
* ``nvidia-smi -q``: "Virtualization Mode" is ``VGPU`` in a guest, ``Host VGPU`` on a host.
* plain ``nvidia-smi`` of a host: a process called ``vgpu`` for each vGPU.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from msgspec.structs import replace

from compatgate.core.facts.nvidia import Gpus
from compatgate.core.gpus import find_gpu
from compatgate.discovery.nvidia_smi.report import Device, Guest, Pools, Report, read_value
from compatgate.discovery.observations import ObservedPool
from compatgate.errors import BadInput

PLATFORM = "vgpu"
_MANAGER = "vgpu-manager"
_HEADER = re.compile(r"NVIDIA-SMI\s+[\w.]+\s+Driver Version:\s*(?P<driver>[\w.]+)")
_TITLE = re.compile(r"^[ \t]*\|[ \t]+vGPU ID[ \t]+Name[ \t]+\|[ \t]+VM ID", re.MULTILINE)
_GPU = re.compile(r"(?P<index>\d{1,3})\s+(?P<name>\S.*)")
_VGPU = re.compile(r"\d{6,}\s+(?P<name>\S.*)")
_BUS = re.compile(r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d")
_ACTIVE = re.compile(r"^[ \t]+Active vGPUs[ \t]+:[ \t]*\d", re.MULTILINE)
_NAME = re.compile(r"\s+vGPU Name\s+:\s*(.+?)\s*")
_DRIVER = re.compile(r"\s+Guest Driver Version\s+:\s*(.+?)\s*")
PROCESS = re.compile(r"^[ \t]*\|[ \t]+\d.*[ \t]C\+G[ \t]+vgpu[ \t]", re.MULTILINE)


def parse_vgpu_table(text: str) -> Report | None:
    """Read ``nvidia-smi vgpu``; return None when the text has none."""
    title = _TITLE.search(text)
    if title is None:
        return None
    header = [*_HEADER.finditer(text, 0, title.start())]
    driver = read_value(header[-1]["driver"]) if header else None
    devices: list[Device] = []
    guests: list[Guest] = []
    for line in text[title.start() :].splitlines()[1:]:
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) != 3:
            if line.strip() and not line.strip().startswith(("+", "|")):
                break
            continue
        if (match := _GPU.fullmatch(cells[0])) and _BUS.fullmatch(cells[1]):
            devices.append(Device(match["name"], bus=cells[1].lower()))
        elif match := _VGPU.fullmatch(cells[0]):
            guests.append(Guest(match["name"]))
    return Report("vgpu", driver=driver, devices=tuple(devices), guests=tuple(guests), host=True)


def parse_vgpu_report(text: str) -> Report | None:
    """Read ``nvidia-smi vgpu -q``; return None when the text has none."""
    if not _ACTIVE.search(text):
        return None
    guests: list[Guest] = []
    for line in text.splitlines():
        if match := _NAME.fullmatch(line):
            guests.append(Guest(match[1]))
        elif guests and (match := _DRIVER.fullmatch(line)):
            guests[-1] = replace(guests[-1], driver=read_value(match[1]))
    return Report("vgpu -q", guests=tuple(guests), host=True)


def group_guests(report: Report) -> Pools:
    """Group the vGPUs of a host by type and driver."""
    named = [guest for guest in report.guests if not guest.name.endswith("...")]
    notes: list[str] = []
    if len(named) < len(report.guests):
        advice = "nvidia-smi vgpu -q prints names in full"
        if not named:
            raise BadInput("the names of the vGPUs are cut off", field="gpu", hint=advice)
        notes.append(
            f"{len(report.guests) - len(named)} vGPUs have names that are cut off; {advice}"
        )
    counts = Counter(named)
    if any(guest.driver is None for guest in counts):
        notes.append(
            "the drivers of some guests are not in this output: nvidia-smi vgpu -q prints those of "
            "guests that run, or state driver= of the pool"
        )
    node = ((_MANAGER, report.driver),) if report.driver else ()
    pools = [
        ObservedPool(
            "-".join((*guest.name.lower().split(), *((guest.driver,) if guest.driver else ()))),
            guest.name,
            guest.driver,
            devices=count,
            platform=PLATFORM,
            node=node,
        )
        for guest, count in counts.items()
    ]
    return Pools(tuple(pools), tuple(notes))


def mark_vgpus(
    pools: Iterable[ObservedPool], report: Report, table: Gpus, notes: list[str]
) -> tuple[ObservedPool, ...]:
    """Mark pools of guests and of hosts."""
    modes = {device.virtualization for device in report.devices}
    marked: list[ObservedPool] = []
    for pool in pools:
        gpu = find_gpu(pool.gpu, table)
        manager = None
        if report.guest or "VGPU" in modes or (gpu and gpu.vgpu):
            pool = replace(pool, platform=PLATFORM)
            manager = report.manager
        elif (report.host or "Host VGPU" in modes) and pool.driver:
            notes.append(
                f"this is a vGPU host: {pool.driver} is its vGPU manager, and its guests, where "
                "workloads run, have a driver and GPU names of their own"
            )
            manager = pool.driver
        if manager:
            others = (part for part in pool.node if part[0] != _MANAGER)
            pool = replace(pool, node=(*others, (_MANAGER, manager)))
        marked.append(pool)
    return tuple(marked)
