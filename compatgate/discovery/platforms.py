"""Tell the platform of a machine, and read what the labels of a Kubernetes node say of it.

The platform follows from the firmware's texts, the instance type and the GPUs.

Source: Node Feature Discovery, "Feature labels" (``kernel-version``, ``system-os_release``);
Kubernetes, "Well-known labels" (instance type); GPU Feature Discovery (``nvidia.com/gpu.machine``);
NVIDIA/k8s-device-plugin README, "Catalog of Labels" (vGPUs and shared GPUs).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Literal, get_args

from msgspec.structs import replace

from compatgate.core.facts import Facts
from compatgate.core.facts.platforms import Condition
from compatgate.core.gpus import find_gpu
from compatgate.discovery.nvidia_smi.node_parts import keep_valid
from compatgate.discovery.nvidia_smi.report import Report

_NFD = "feature.node.kubernetes.io"
_INSTANCE_TYPES = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
_MACHINE = "nvidia.com/gpu.machine"
_VGPU_LABEL = "nvidia.com/vgpu"
_STRATEGY = "nvidia.com/gpu.sharing-strategy"
_SHARED = "-SHARED"
MachineText = Literal["vendor", "product", "asset_tag", "instance_type"]
MachineTexts = Mapping[MachineText, str]
"""The statements of a machine about itself, by their patterns in `Condition`."""


def recognise_platform(texts: MachineTexts, gpus: Iterable[str], facts: Facts) -> str | None:
    """Return the platform of a machine; None where no record of the facts fits."""
    if not any(texts.values()):
        return None
    names = {gpu.name for text in gpus if (gpu := find_gpu(text, facts.gpus))}
    said = {
        name: re.sub(r"[\s_]+", "-", texts.get(name, "").strip()).lower()
        for name in get_args(MachineText)
    }

    def fits(condition: Condition) -> bool:
        wanted = ((text, getattr(condition, name)) for name, text in said.items())
        return (not condition.gpus or not names.isdisjoint(condition.gpus)) and all(
            any(fnmatchcase(text, pattern) for pattern in patterns)
            for text, patterns in wanted
            if patterns
        )

    machines = facts.platform_machines.machines
    return next((one.platform for one in machines if any(map(fits, one.recognise))), None)


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
    return {
        "product": "" if machine == "unknown" else machine,
        "instance_type": next((labels[name] for name in _INSTANCE_TYPES if labels.get(name)), ""),
    }


def add_vgpu_labels(report: Report, labels: Mapping[str, str]) -> Report:
    """Return the report with the vGPU manager of the node's host.

    ``vgpu.host-driver-branch`` (``r582_12`` for 580.126.08) is NVIDIA's internal branch: it is no
    driver branch, and is not read.
    """
    manager = labels.get(f"{_VGPU_LABEL}.host-driver-version") or None
    guest = labels.get(f"{_VGPU_LABEL}.present") == "true" or manager is not None
    return replace(report, guest=guest, manager=manager)


def read_label_sharing(labels: Mapping[str, str]) -> str | None:
    """Return how containers share the GPUs of a node; None: not stated."""
    strategy = labels.get(_STRATEGY)
    if strategy is None:
        # Before 0.15 the device plugin knew time slicing alone, and wrote no strategy.
        shared = labels.get("nvidia.com/gpu.product", "").endswith(_SHARED)
        strategy = "time-slicing" if shared else None
    return strategy if strategy in ("mps", "time-slicing") else None
