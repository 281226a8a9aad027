"""Forward-compatibility packages, from ``forward_compat.yaml``."""

from __future__ import annotations

from typing import Any

from compatgate.catalog.build.read import Record, driver, of, pair, source
from compatgate.core.facts import CompatPackage, ForwardCompat, Reference, Source


def forward_compat(document: Record) -> ForwardCompat:
    """Packages by CUDA series, and the hardware that they are for."""
    hardware = _rule(document, "hardware")
    gate = _rule(document, "brand gate")
    return ForwardCompat(
        packages={str(p["cuda"]): _package(p) for p in document["packages"]},
        segments=tuple(hardware["segments"]),
        conditional_segments=tuple(hardware["conditional_segments"]),
        hardware=of(hardware),
        brands=tuple(gate["requirement_strings"]),
    )


def _rule(document: Record, name: str) -> Record:
    rule: Record = next(rule for rule in document["rules"] if rule["rule"] == name)
    return rule


def _package(package: Record) -> CompatPackage:
    libcuda = str(package["libcuda_from_driver"])
    return CompatPackage(
        cuda=pair(package["cuda"]),
        driver=None if libcuda.endswith(".x") else driver(libcuda),
        driver_branch=int(libcuda.split(".")[0]),
        branches=tuple(sorted(package["host_driver_branches"])),
        disputed=_disputed(package),
        minimums={int(b): driver(v) for b, v in package.get("patch_minimums", {}).items()},
        source=of(package),
    )


def _disputed(package: Record) -> dict[int, Source]:
    """Branches that some source names and another denies, or leaves out."""
    found: dict[int, Source] = {}
    for seen in _each(package.get("also_seen")):
        told = source(seen["source"], confidence="derived")
        found.update({int(branch): told for branch in seen["branches"]})
    for dispute in _each(package.get("disputed")):
        found[int(dispute["branch"])] = _both(source(dispute["for"]), source(dispute["against"]))
    return {branch: found[branch] for branch in sorted(found)}


def _both(one: Source, other: Source) -> Source:
    """Those who say so lead, whichever of both has an address."""
    against = Reference(f"against: {other.title}", other.url)
    return Source(f"for: {one.title}", one.url, one.confidence, (*one.also, against, *other.also))


def _each(value: Any) -> list[Record]:
    return list(value or ())
