"""Turn a report of ``nvidia-smi`` into pools, and find contradictions to the facts.

Products come first: the table truncates names, and most formats do not name MIG profiles.
"""

from __future__ import annotations

from msgspec import Struct

from compatgate.core.facts import Facts
from compatgate.core.facts.nvidia import Gpu, Gpus
from compatgate.core.gpus import mig_profiles, normalise, resolve_gpu
from compatgate.core.versions import parse_version, show
from compatgate.discovery.nvidia_smi.report import NODE_LABELS, Device, Report, Slice
from compatgate.discovery.observations import DRIVER_CUDA, Conflict, ObservedPool
from compatgate.errors import BadInput

_USABLE = (0.88, 1.03)
"""Reported memory as a share of the product's nominal memory."""


class Product(Struct, frozen=True):
    """The product of a device, in a form that `resolve_gpu` reads.

    Attributes:
        gpu: product, or ``sm_80`` where only the compute capability is certain.
        note: sentence on missing information; empty when complete.
    """

    gpu: str
    note: str = ""


def identify(device: Device, table: Gpus) -> Product:
    """Return the product of a device.

    Raises:
        BadInput: the name is truncated and fits products of different compute capability.
    """
    if device.cut_off:
        return _completed(device, table)
    if device.capability:
        try:
            resolve_gpu(device.name, table)
        except BadInput:
            note = f"{device.name} is not a known product; its compute capability is used"
            return Product(device.capability, note)
    return Product(device.name)


def _completed(device: Device, table: Gpus) -> Product:
    start = _compact(device.name.rstrip(". "))
    names = {_compact(spelling): name for spelling, name in table.aliases.items()}
    names |= {_compact(name): name for name in table.gpus}
    fitting = sorted({name for spelling, name in names.items() if spelling.startswith(start)})
    found = [table.gpus[name] for name in fitting if _holds(table.gpus[name], device.memory_mib)]
    if len(found) == 1:
        return Product(found[0].name)
    capabilities = {gpu.capability for gpu in found}
    candidates = " or ".join(gpu.name for gpu in found[:4]) or "no known product"
    advice = "nvidia-smi -q and nvidia-smi -L print names in full"
    if len(capabilities) == 1:
        note = f"'{device.name}' is truncated and may be {candidates}; {advice}"
        return Product(f"sm_{show(capabilities.pop()).replace('.', '')}", note)
    raise BadInput(
        f"the product name '{device.name}' is truncated and may be {candidates}",
        field="gpu",
        value=device.name,
        hint=f"{advice}; or state it: --pool gpu=...",
    )


def _compact(text: str) -> str:
    return normalise(text).replace("-", "")


def _holds(gpu: Gpu, memory_mib: int | None) -> bool:
    if gpu.memory_gb is None or memory_mib is None:
        return True
    return _USABLE[0] <= memory_mib / 1024 / gpu.memory_gb <= _USABLE[1]


def profile_of(part: Slice, device: Device, gpu: Gpu) -> str | None:
    """Return the MIG profile of a slice, None where several profiles fit the output.

    The memory part is NVIDIA's own formula (NVIDIA/go-nvlib, pkg/nvlib/device/mig_profile.go): the
    slice's share of the memory in eighths, rounded up, of the size that the product is sold with.
    """
    if part.profile:
        return part.profile
    if not part.memory_mib or not device.memory_mib or not gpu.memory_gb:
        return None
    eighths = -(-part.memory_mib * 8 // device.memory_mib)
    size = int(gpu.memory_gb * eighths / 8 + 0.5)
    fitting = [name for name in mig_profiles(gpu) if name.endswith(f"g.{size}gb")]
    if len(fitting) > 1 and part.engines and gpu.capability[0] in (8, 9):
        # One copy engine per compute slice on Ampere and Hopper (MIG User Guide, profile tables).
        fitting = [name for name in fitting if int(name[0]) == min(part.engines, 7)]
    return fitting[0] if len(fitting) == 1 else None


class Pools(Struct, frozen=True):
    """The pools of a host, one per kind of GPU, with notes on missing information."""

    pools: tuple[ObservedPool, ...]
    notes: tuple[str, ...] = ()


def observed_pools(report: Report, table: Gpus) -> Pools:
    """Group the devices of a report; a MIG slice is a kind of its own.

    Raises:
        BadInput: a product name is truncated and fits different products.
    """
    counts: dict[str, int] = {}
    notes: list[str] = []
    if report.attached and report.attached > len(report.devices):
        notes.append(f"{report.attached} GPUs are attached, {len(report.devices)} shown")
    for device in report.devices:
        product = identify(device, table)
        if product.note:
            notes.append(product.note)
        for gpu in _kinds(device, product, table, notes):
            counts[gpu] = counts.get(gpu, 0) + 1
    pools = tuple(
        ObservedPool(_short(gpu, table), gpu, report.driver, report.os, devices=count)
        for gpu, count in counts.items()
    )
    return Pools(pools, tuple(dict.fromkeys(notes)))


def _kinds(device: Device, product: Product, table: Gpus, notes: list[str]) -> list[str]:
    """Return the device itself, or its MIG slices."""
    if not device.slices:
        if device.mig:
            notes.append(f"{product.gpu} is in MIG mode and has no MIG device: nothing runs on it")
        return [product.gpu]
    gpu = _resolved(product.gpu, table)
    kinds = []
    for part in device.slices:
        profile = profile_of(part, device, gpu) if gpu else part.profile
        if profile is None:
            notes.append(
                f"the MIG profile of a slice of {product.gpu} cannot be told from this output, the "
                "whole GPU is used; nvidia-smi -L names profiles"
            )
        kinds.append(f"{product.gpu} MIG {profile}" if profile else product.gpu)
    return kinds


def _resolved(gpu: str, table: Gpus) -> Gpu | None:
    try:
        return resolve_gpu(gpu, table)
    except BadInput:
        return None


def _short(gpu: str, table: Gpus) -> str:
    found = _resolved(gpu, table)
    text = found.sku if found else gpu
    return "-".join(text.lower().split())


def disagreements(report: Report, facts: Facts) -> tuple[Conflict, ...]:
    """Return conflicts between the printed CUDA version and the driver's.

    ``nvidia-smi`` prints the CUDA version of the libcuda that its process loads: inside a container
    with a forward-compatibility package it is the package's version, not the host driver's.
    """
    if not report.driver or not report.cuda or report.os != "linux":
        return ()
    try:
        driver = parse_version("driver", report.driver)
        printed = parse_version("cuda", report.cuda).major_minor
    except BadInput:
        return ()
    branch = facts.driver_branches.branches.get(driver.major)
    if branch is None or branch.cuda is None or branch.cuda == printed:
        return ()
    own = show(branch.cuda)
    labels = report.form == NODE_LABELS
    who = "GPU Feature Discovery" if labels else "nvidia-smi"
    says = "the labels say" if labels else "nvidia-smi prints"
    if printed > branch.cuda:
        why = f"a forward-compatibility package (cuda-compat) was loaded where {who} ran"
    else:
        why = f"an older libcuda was loaded where {who} ran"
    message = (
        f"{says} CUDA {report.cuda}, but driver {report.driver} is of CUDA {own}: "
        f"{why}; the driver version decides"
    )
    return (Conflict(DRIVER_CUDA, message, own),)
