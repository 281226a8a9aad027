"""Look at a host without its driver: GPUs on the PCI bus, and a driver's traces."""

from __future__ import annotations

import os
from collections.abc import Iterator
from fnmatch import fnmatch

from compatgate.discovery.driver import PROC, SYS, read_kernel_driver
from compatgate.discovery.machine.observe import Root

_NVIDIA = "0x10de"
_DISPLAY = "0x03"
_PCI = "/sys/bus/pci/devices"
_OTHER_DRIVERS = ("/etc/nv_tegra_release", "/dev/nvhost-gpu", "/dev/nvgpu", "/dev/dxg")
"""Files of the drivers of Jetsons and of WSL."""
HERE = Root()


def explain_absence(said: str | None, errors: bool, root: Root = HERE) -> str | None:
    """Return why no GPU could be judged, and what to do; None where a log says enough."""
    if said:
        return f"nvidia-smi lists no GPU: {said[:300]} (compatgate triage explains its words)"
    if errors or _has_driver(root):
        return None
    if gpus := list(_list_gpus(root)):
        return (
            f"{len(gpus)} NVIDIA GPU(s) on the PCI bus, and NVIDIA's driver is not loaded"
            f" ({', '.join(gpus[:4])}): install it, or load it with sudo modprobe nvidia and look"
            " again"
        )
    return (
        "this machine has no NVIDIA GPU on its PCI bus and no driver, so a quiet log"
        " proves nothing: run this on the GPU node (in a container, with its GPUs), or pipe the"
        " node's log: sudo dmesg | compatgate health --dmesg -"
    )


def _has_driver(root: Root) -> bool:
    module = read_kernel_driver(proc=root.at(PROC), sys=root.at(SYS))
    nodes = any(fnmatch(name, "nvidia[0-9]*") for name in root.list("/dev"))
    return module is not None or nodes or any(map(root.has, _OTHER_DRIVERS))


def _list_gpus(root: Root) -> Iterator[str]:
    """Yield the address of each GPU of NVIDIA's, and the kernel driver that has it."""
    for address in root.list(_PCI):
        folder = f"{_PCI}/{address}"
        of_nvidia = root.read(f"{folder}/vendor") == _NVIDIA
        if of_nvidia and root.read(f"{folder}/class").startswith(_DISPLAY):
            link = root.at(f"{folder}/driver")
            driver = os.path.basename(os.path.realpath(link)) if os.path.exists(link) else ""
            yield f"{address}: {driver or 'no driver'}"
