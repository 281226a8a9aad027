"""Recognise the platform of a machine, and tell which GPUs a platform has."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from compatgate.core.gpus import normalise

if TYPE_CHECKING:
    from compatgate.core.facts.nvidia import Gpu
    from compatgate.core.facts.platforms import Dmi, Platform, Platforms

_NO_NAME = re.compile(r"[^a-z0-9]+")


def recognise_platform(
    table: Platforms,
    *,
    instance_type: str = "",
    vendor: str = "",
    product: str = "",
    asset_tag: str = "",
    accelerator: str = "",
    device_tree: Iterable[str] = (),
) -> str | None:
    """Return the platform of a machine; None where nothing names one, or several fit.

    Args:
        table: the platforms.
        instance_type: label ``node.kubernetes.io/instance-type``, or what a cloud calls the shape.
        vendor: DMI ``sys_vendor``.
        product: DMI ``product_name``, or the label ``nvidia.com/gpu.machine`` made of it.
        asset_tag: DMI ``chassis_asset_tag``.
        accelerator: label ``cloud.google.com/gke-accelerator``.
        device_tree: entries of ``/proc/device-tree/compatible``.
    """
    known = table.platforms.values()
    entries = [entry.strip("\0 ").lower() for entry in device_tree]
    by_tree = [p for p in known if any(_fits(e, p.recognise.device_tree) for e in entries)]
    by_type = [p for p in known if _fits(instance_type, p.recognise.instance_types)]
    by_accelerator = [p for p in known if _fits(accelerator, p.recognise.accelerators)]
    by_dmi = _find_by_dmi(known, vendor, product, asset_tag)
    for found in (by_tree, by_type, by_accelerator, by_dmi):
        if names := {platform.name for platform in found}:
            return names.pop() if len(names) == 1 else None
    return None


def _find_by_dmi(
    known: Iterable[Platform], vendor: str, product: str, asset_tag: str
) -> list[Platform]:
    """Return the platforms whose DMI fields a machine has; those that name a product come first."""
    fields = {"vendor": vendor, "product": product, "asset_tag": asset_tag}
    best: list[Platform] = []
    most = 0
    for platform in known:
        rank = max((_rank(dmi, fields) for dmi in platform.recognise.dmi), default=0)
        if rank > most:
            best, most = [platform], rank
        elif rank and rank == most:
            best.append(platform)
    return best


def _rank(dmi: Dmi, fields: dict[str, str]) -> int:
    """Return how exactly DMI fields fit, 0: not at all. A label of a node has no vendor."""
    rank = 0
    for name, value in fields.items():
        pattern: str = getattr(dmi, name)
        if not pattern or (name == "vendor" and not value and dmi.product):
            continue
        if not _fits(value, (pattern,)):
            return 0
        rank += {"product": 4, "asset_tag": 2, "vendor": 1}[name]
    return rank


def _fits(value: str, patterns: Iterable[str]) -> bool:
    """Return whether a value fits a pattern; labels write a dash for a blank."""
    text = value.strip().lower()
    if not text:
        return False
    dashed = text.replace(" ", "-")
    return any(
        fnmatchcase(text, pattern.lower()) or fnmatchcase(dashed, pattern.lower().replace(" ", "-"))
        for pattern in patterns
    )


def has_gpu(platform: Platform, gpu: Gpu, capabilities: Iterable[tuple[int, int]]) -> bool:
    """Return whether a platform may have a GPU: a SKU, a family, or a bare capability.

    Args:
        platform: the platform.
        gpu: the GPU of a pool.
        capabilities: compute capabilities of the platform's GPUs.
    """
    if not platform.gpus:
        return True
    if not gpu.product:
        return gpu.capability in set(capabilities)
    words = set(normalise(gpu.name).split("-"))
    names = [set(normalise(name).split("-")) for name in platform.gpus]
    return any(_includes(name, words) for name in names)


def _includes(name: set[str], words: set[str]) -> bool:
    """Return whether a name has all words of a family's name; ``sxm`` stands for each version."""
    plain = {_NO_NAME.sub("", word) for word in name}
    return all(
        word in plain or (word == "sxm" and any(one.startswith("sxm") for one in plain))
        for word in words
    )
