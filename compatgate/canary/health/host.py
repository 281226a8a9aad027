"""Look at a host without its driver: GPUs on the PCI bus, modules, libraries, CPU and network.

Everything is read below a root folder, which is ``/`` for this machine.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from fnmatch import fnmatch

from msgspec import Struct

from compatgate.discovery.driver import PROC, SYS, KernelDriver, read_kernel_driver
from compatgate.discovery.machine.files import Root
from compatgate.discovery.machine.observe import observe_programs, run_program

_NVIDIA = "0x10de"
_DISPLAY, _BRIDGE = "0x03", "0x0680"
_PCI = "/sys/bus/pci/devices"
_OTHER_DRIVERS = {
    "/etc/nv_tegra_release": "Jetson",
    "/dev/nvhost-gpu": "Jetson",
    "/dev/nvgpu": "Jetson",
    "/dev/dxg": "WSL",
}
_LIBRARY_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/nvidia/lib64",
    "/usr/lib/wsl/lib",
)
_LIBRARY = re.compile(r"lib(?:cuda|nvidia-ml)\.so\.(\d{2,4}\.\d{1,4}(?:\.\d{1,4})?)")
_FABRIC_MANAGER = "nv-fabricmanage"
"""Name of its process, which the kernel cuts after 15 characters."""
_VIRTUAL = re.compile(r"lo|docker\d|br-|veth|virbr|cali|cni|flannel|ifb\d|tunl\d|dummy\d")


class PciDevice(Struct, frozen=True):
    """A device of NVIDIA's on the PCI bus, and the kernel driver that has it, if any."""

    address: str
    driver: str | None


class Host(Struct, frozen=True):
    """A host as seen without its driver: GPUs (display devices, 3D controllers) and their files.

    ``other`` is a platform with another driver, ``Jetson`` or ``WSL``. Fabric Manager runs as far
    as processes are visible; its installed version is read where the host has NVSwitches.
    """

    gpus: tuple[PciDevice, ...]
    switches: tuple[PciDevice, ...]
    module: KernelDriver | None
    other: str | None
    nodes: tuple[str, ...]
    libraries: tuple[str, ...]
    fabric_manager: bool
    fabric_manager_version: str | None = None

    @property
    def has_driver(self) -> bool:
        """Tell whether any driver for an NVIDIA GPU is there."""
        return self.module is not None or self.other is not None or bool(self.nodes)

    def explain_absence(self, said: str | None, errors: bool) -> str | None:
        """Return why no GPU could be judged, and what to do; None where a log says enough."""
        if said:
            return f"nvidia-smi lists no GPU: {said[:300]} (compatgate triage explains its words)"
        if self.has_driver or errors:
            return None
        if self.gpus:
            owners = ", ".join(f"{d.address}: {d.driver or 'no driver'}" for d in self.gpus[:4])
            return (
                f"{len(self.gpus)} NVIDIA GPU(s) on the PCI bus, and NVIDIA's driver is not loaded"
                f" ({owners}): install it, or load it with sudo modprobe nvidia and look again"
            )
        return (
            "this machine has no NVIDIA GPU on its PCI bus and no driver, so a quiet log"
            " proves nothing: run this on the GPU node (in a container, with its GPUs), or pipe the"
            " node's log: sudo dmesg | compatgate health --dmesg -"
        )


HERE = Root()


def look_at_host(root: Root = HERE) -> Host:
    """Return what a host shows without its driver."""
    devices = tuple(_pci_devices(root))
    switches = tuple(device for kind, device in devices if kind.startswith(_BRIDGE))
    names = (name for folder in _LIBRARY_FOLDERS for name in root.list(folder))
    programs = observe_programs(run_program, []) if switches and root.is_here else ()
    versions = (one.version for one in programs if one.component == "fabric-manager")
    return Host(
        gpus=tuple(device for kind, device in devices if kind.startswith(_DISPLAY)),
        switches=switches,
        module=read_kernel_driver(proc=root.at(PROC), sys=root.at(SYS)),
        other=next((name for path, name in _OTHER_DRIVERS.items() if root.has(path)), None),
        nodes=tuple(name for name in root.list("/dev") if fnmatch(name, "nvidia[0-9]*")),
        libraries=tuple(sorted({match[1] for match in map(_LIBRARY.fullmatch, names) if match})),
        fabric_manager=any(
            root.read(f"/proc/{name}/comm", 64) == _FABRIC_MANAGER
            for name in root.list("/proc")
            if name.isdecimal()
        ),
        fabric_manager_version=next(versions, None),
    )


def _pci_devices(root: Root) -> Iterator[tuple[str, PciDevice]]:
    """Yield the class and the device of everything that NVIDIA made."""
    for address in root.list(_PCI):
        folder = f"{_PCI}/{address}"
        if root.read(f"{folder}/vendor") == _NVIDIA:
            link = root.at(f"{folder}/driver")
            driver = os.path.basename(os.path.realpath(link)) if os.path.exists(link) else None
            yield root.read(f"{folder}/class"), PciDevice(address, driver)


# --- input --------------------------------------------------------------------------------------


class Traffic(Struct, frozen=True):
    """Packets of a network device since the start: received, and dropped on the way in or out."""

    packets: int
    dropped: int


class InputCounters(Struct, frozen=True):
    """Counters of what feeds the GPUs, at a moment; None: the kernel does not say.

    ``cpu`` is of all CPUs in ticks, ``iowait`` that of it waiting for input and output,
    ``pressure`` percent of the last 10 s in which some task waited so, ``network`` that of real
    devices.
    """

    cpu: int | None
    iowait: int | None
    pressure: float | None
    network: dict[str, Traffic] | None


def read_input_counters(root: Root = HERE) -> InputCounters:
    """Return the counters now."""
    # The line of all CPUs (proc_stat(5)); the time of guests is in that of users.
    cpu = re.search(r"^cpu((?: +\d+){5,}) *$", root.read("/proc/stat"), re.MULTILINE)
    ticks = [int(value) for value in cpu[1].split()[:8]] if cpu else None
    network = root.read("/proc/net/dev")
    pressure = re.search(
        r"^some avg10=(\d{1,3}\.\d+)", root.read("/proc/pressure/io"), re.MULTILINE
    )
    return InputCounters(
        cpu=sum(ticks) if ticks else None,
        iowait=ticks[4] if ticks else None,
        pressure=float(pressure[1]) if pressure else None,
        network=_traffic(network) if network else None,
    )


def _traffic(text: str) -> dict[str, Traffic]:
    """Return packets and drops by device (``/proc/net/dev``: 8 receive, then 8 transmit fields)."""
    traffic = {}
    for line in text.splitlines():
        name, colon, rest = line.partition(":")
        values = rest.split()
        if colon and len(values) >= 12 and all(map(str.isdecimal, values)):
            counts = [int(value) for value in values]
            if not _VIRTUAL.match(name.strip()):
                dropped = counts[3] + counts[11]
                traffic[name.strip()] = Traffic(counts[1] + counts[9] + dropped, dropped)
    return traffic
