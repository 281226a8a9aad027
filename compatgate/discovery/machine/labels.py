"""Read what the labels of a Kubernetes node say of the machine: kernel, distribution, platform.

Source: Node Feature Discovery, "Feature labels" (``kernel-version``, ``system-os_release``);
Kubernetes, "Well-known labels" (instance type); GPU Feature Discovery (``nvidia.com/gpu.machine``).
"""

from __future__ import annotations

from collections.abc import Mapping

from compatgate.discovery.machine.platforms import MachineTexts
from compatgate.discovery.nvidia_smi.node_parts import keep_valid

_NFD = "feature.node.kubernetes.io"
_INSTANCE_TYPES = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
_MACHINE = "nvidia.com/gpu.machine"


def read_label_parts(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the parts of a node that its labels state, by name of `NODE_COMPONENTS`."""
    name = labels.get(f"{_NFD}/system-os_release.ID", "")
    version = labels.get(f"{_NFD}/system-os_release.VERSION_ID", "")
    stated = {
        "kernel": labels.get(f"{_NFD}/kernel-version.full", ""),
        "distribution": "-".join(filter(None, (name, version))) if name else "",
    }
    return keep_valid({part: value for part, value in stated.items() if value})


def read_label_texts(labels: Mapping[str, str]) -> MachineTexts:
    """Return what the labels say of the machine itself."""
    machine = labels.get(_MACHINE, "")
    return MachineTexts(
        product="" if machine == "unknown" else machine,
        instance_type=next((labels[name] for name in _INSTANCE_TYPES if labels.get(name)), ""),
    )
