"""What the labels of one node mean, as a report of its driver and GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from msgspec import Struct

from compatgate.discovery.nvidia_smi.report import NODE_LABELS, Device, Report

_GPU = "nvidia.com/gpu"
_MIG = re.compile(r"nvidia\.com/(?P<resource>mig-(?P<profile>\d[\w.]*))\.(?:product|count)")
_CPUS = {"amd64": "x86_64", "arm64": "aarch64"}
_MOST_GPUS = 1024
_INVALID = "MIG-INVALID"

_PRESENT = (
    "nvidia.com/gpu.present",
    "feature.node.kubernetes.io/pci-10de.present",
    "feature.node.kubernetes.io/pci-0300_10de.present",
    "feature.node.kubernetes.io/pci-0302_10de.present",
)
"""Labels of the operator and of NFD that an NVIDIA device is there, whether GFD ran or not."""


class Described(Struct, frozen=True):
    """One node.

    Attributes:
        report: None where the labels name no GPU.
        cpu: None where the labels do not tell.
        note: what is missing or contradicts; empty when nothing is.
    """

    report: Report | None
    cpu: str | None = None
    note: str = ""


def describe(labels: Mapping[str, str]) -> Described:
    """Read the labels of a node."""
    devices, note = _devices(labels)
    cpu = _CPUS.get(labels.get("kubernetes.io/arch", labels.get("beta.kubernetes.io/arch", "")))
    if not devices:
        return Described(None, cpu, note)
    system = labels.get("kubernetes.io/os", labels.get("beta.kubernetes.io/os", "linux"))
    report = Report(
        NODE_LABELS,
        driver=_driver(labels),
        cuda=_cuda(labels),
        os="windows" if system == "windows" else "linux",
        devices=devices,
    )
    return Described(report, cpu, note)


def _devices(labels: Mapping[str, str]) -> tuple[tuple[Device, ...], str]:
    product = labels.get(f"{_GPU}.product", "")
    slices = tuple(_slices(labels, product))
    if product.endswith((_INVALID, f"{_INVALID}-SHARED")):
        return slices, "its MIG devices do not fit the strategy 'single': GFD labels none of them"
    whole = _whole(labels, product)
    if slices and labels.get(f"{_GPU}.replicas") == "0":
        whole = ()  # GFD: every GPU of this product is in MIG mode, none is given out whole
    note = ""
    if not whole and not slices and any(labels.get(name) == "true" for name in _PRESENT):
        note = "it has an NVIDIA device, and no label of GPU Feature Discovery names it"
    return (*whole, *slices), note


def _whole(labels: Mapping[str, str], product: str) -> tuple[Device, ...]:
    capability = _capability(labels)
    count = _count(labels.get(f"{_GPU}.count"))
    if not product and not capability:
        return ()
    name = product.removesuffix("-SHARED") or str(capability)
    device = Device(name, memory_mib=_count_or_none(labels, "memory"), capability=capability)
    return (device,) * count


def _slices(labels: Mapping[str, str], product: str) -> Iterator[Device]:
    """The MIG devices of strategy ``mixed``, each kind with labels of its own."""
    resources = {match["resource"] for name in labels if (match := _MIG.fullmatch(name))}
    for resource in sorted(resources):
        profile = resource.removeprefix("mig-")
        named = labels.get(f"nvidia.com/{resource}.product") or f"{product}-MIG-{profile}"
        device = Device(named.removesuffix("-SHARED"), capability=_capability(labels))
        yield from (device,) * _count(labels.get(f"nvidia.com/{resource}.count"))


def _capability(labels: Mapping[str, str]) -> str | None:
    major, minor = labels.get(f"{_GPU}.compute.major"), labels.get(f"{_GPU}.compute.minor")
    return f"{major}.{minor}" if _number(major) and _number(minor) else None


def _driver(labels: Mapping[str, str]) -> str | None:
    """In full, or from its parts: older GFD wrote those alone."""
    full = labels.get("nvidia.com/cuda.driver-version.full")
    if full:
        return full
    for prefix, last in (("driver-version", "revision"), ("driver", "rev")):
        names = (f"nvidia.com/cuda.{prefix}.{part}" for part in ("major", "minor", last))
        parts = [labels.get(name, "") for name in names]
        if parts[0] and parts[1]:
            return ".".join(filter(None, parts))
    return None


def _cuda(labels: Mapping[str, str]) -> str | None:
    """The newest CUDA that the driver supports; GFD calls it the runtime."""
    for prefix in ("runtime-version", "runtime"):
        major = labels.get(f"nvidia.com/cuda.{prefix}.major")
        minor = labels.get(f"nvidia.com/cuda.{prefix}.minor")
        if _number(major) and _number(minor):
            return f"{major}.{minor}"
    return None


def _number(text: str | None) -> bool:
    return bool(text and text.isascii() and text.isdecimal())


def _count(text: str | None) -> int:
    """How many; one where the label is missing, none where it says 0."""
    return min(int(text), _MOST_GPUS) if text and _number(text) else 1


def _count_or_none(labels: Mapping[str, str], part: str) -> int | None:
    text = labels.get(f"{_GPU}.{part}")
    return int(text) if text and _number(text) and int(text) else None
