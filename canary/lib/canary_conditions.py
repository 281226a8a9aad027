"""Fix a program to the CPUs next to its GPU, and read the GPU's condition while it measures.

Python 3.8 or newer. Values are only comparable under comparable conditions: the clock and the heat
of the GPU, and the side of the machine that the host's part ran on. Without NVML, or without a GPU,
both are reported as absent, with the reason.
"""

import os

from canary_nvml import NoNvml, Nvml

SYSFS = "/sys/bus/pci/devices"
_watched = None


def bind(gpus, sysfs=SYSFS):
    """Bind this process to the CPUs of its GPU's NUMA node, and thereby its memory.

    The kernel allocates memory on the node of the CPU that first touches it. Call it before a
    framework starts threads: they inherit the binding.

    Args:
        gpus: as in the env line; nothing is bound without exactly one.
        sysfs: the kernel's folder of PCI devices.

    Returns:
        A member of the env line: ``cpus`` and ``numa``, or why nothing was bound.
    """
    if len(gpus) != 1:
        return {"fixed": False, "why": f"{len(gpus)} GPUs" if gpus else "no GPU"}
    folder = os.path.join(sysfs, (gpus[0].get("pci") or "?")[-12:])
    try:
        with open(os.path.join(folder, "local_cpulist"), encoding="ascii") as file:
            local = parse_cpus(file.read())
        with open(os.path.join(folder, "numa_node"), encoding="ascii") as file:
            node = int(file.read())
    except (OSError, ValueError) as error:
        return {"fixed": False, "why": f"the GPU's CPUs are not known: {error}"}
    allowed = os.sched_getaffinity(0)
    mine = local & allowed
    if not mine:
        return {"fixed": False, "why": "none of the GPU's CPUs is allowed here", "numa": node}
    os.sched_setaffinity(0, mine)
    return {"fixed": True, "cpus": len(mine), "of": len(allowed), "numa": node}


def parse_cpus(text):
    """Return the numbers of a kernel's list of CPUs, such as ``0-15,32``."""
    found = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def watch(gpus):
    """Start to watch the first GPU of this process; `read` then reads it.

    Returns:
        A member of the env line: ``nvml``, or why nothing can be read.
    """
    global _watched
    _watched = None
    if not gpus:
        return "not recorded: no GPU"
    try:
        nvml = Nvml().__enter__()  # until the process ends
    except NoNvml as why:
        return f"not recorded: {why}"
    handle = nvml.at(gpus[0].get("pci") or "")
    if handle is None:
        return "not recorded: NVML does not know the GPU's bus address"
    _watched = nvml, handle
    return "nvml"


def read():
    """Return the GPU's condition now; None if nothing is watched.

    Returns:
        SM clock in MHz, watts, degrees Celsius, and what holds the clocks down; None for a value
        that the driver or the GPU does not support.
    """
    if _watched is None:
        return None
    nvml, gpu = _watched
    return {
        "sm_mhz": nvml.sm_clock(gpu),
        "watts": nvml.power(gpu),
        "celsius": nvml.temperature(gpu),
        "limits": nvml.limits(gpu),
    }


def columns(rows):
    """Turn conditions of values into lists by name, as the line protocol carries them."""
    rows = [row for row in rows if row is not None]
    return {name: [row[name] for row in rows] for name in rows[0]} if rows else {}
