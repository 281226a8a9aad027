"""From a report of ``nvidia-smi`` to pools, and to what it and the facts disagree on."""

from __future__ import annotations

from msgspec import Struct

from compatgate.core.facts import Facts, Gpu, Gpus
from compatgate.core.gpus import resolve_gpu
from compatgate.core.versions import parse_version, show
from compatgate.discovery.nvidia_smi.products import Product, identify, profile_of
from compatgate.discovery.nvidia_smi.report import NODE_LABELS, Device, Report
from compatgate.discovery.observed import DRIVER_CUDA, Conflict, ObservedPool
from compatgate.errors import BadInput


class Pools(Struct, frozen=True):
    """The pools of a host, one per kind of GPU, and notes on what could not be told."""

    pools: tuple[ObservedPool, ...]
    notes: tuple[str, ...] = ()


def observed_pools(report: Report, table: Gpus) -> Pools:
    """Group the devices of a report; a MIG slice is a kind of its own.

    Raises:
        BadInput: a product name is cut off and fits products that differ.
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
    """The device itself, or its MIG slices."""
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
    """Where the CUDA version that is printed is not the one of the driver.

    ``nvidia-smi`` prints the CUDA version of the libcuda that its process loads: inside a container
    with a forward-compatibility package that is the package's, not the host driver's.
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
