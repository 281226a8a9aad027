"""Read what the labels of a Kubernetes node say of vGPUs and of shared GPUs.

Source: NVIDIA/k8s-device-plugin README, "Catalog of Labels".
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from compatgate.discovery.nvidia_smi.report import Report

_VGPU = "nvidia.com/vgpu"
_STRATEGY = "nvidia.com/gpu.sharing-strategy"
_SHARED = "-SHARED"


def add_vgpu_labels(report: Report, labels: Mapping[str, str]) -> Report:
    """Return the report with the vGPU manager of the node's host, and how its GPUs are shared.

    ``vgpu.host-driver-branch`` (``r582_12`` for 580.126.08) is NVIDIA's internal branch: it is no
    driver branch, and is not read.
    """
    manager = labels.get(f"{_VGPU}.host-driver-version") or None
    guest = labels.get(f"{_VGPU}.present") == "true" or manager is not None
    return replace(report, guest=guest, manager=manager, sharing=_sharing(labels))


def _sharing(labels: Mapping[str, str]) -> str | None:
    """Return how GPUs are shared; None where they are not, or where no label tells."""
    strategy = labels.get(_STRATEGY)
    if strategy is not None:
        return strategy if strategy in ("mps", "time-slicing") else None
    # Before 0.15 the device plugin knew time slicing alone, and wrote no strategy.
    return "time-slicing" if labels.get("nvidia.com/gpu.product", "").endswith(_SHARED) else None
