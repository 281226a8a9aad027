"""Build the tables of ``vgpu.yaml``: releases and combinations, and the types that names name."""

from __future__ import annotations

from compatgate.catalog.build.values import Record, driver, fill, pair, record_source
from compatgate.core.facts.nvidia import VgpuType
from compatgate.core.facts.vgpu import (
    CloudGuest,
    SharingFact,
    Vgpu,
    VgpuBranch,
    VgpuFeature,
    VgpuRelease,
    VgpuTypes,
    VgpuWindow,
)
from compatgate.core.versions import Version
from compatgate.core.vgpus import compact


def vgpu(document: Record) -> Vgpu:
    """Build releases, combinations, features and limits of sharing."""
    branches = sorted(document["branches"], key=lambda row: row["vgpu"])
    releases = sorted(document["releases"], key=lambda row: _release_key(row["release"]))
    return Vgpu(
        tuple(fill(VgpuBranch, row) for row in branches),
        tuple(_release(row) for row in releases),
        tuple(fill(CloudGuest, row, driver=driver(row["driver"])) for row in document["clouds"]),
        {row["host"]: _window(row) for row in document["windows"]},
        {row["feature"]: _feature(row) for row in document["features"]},
        tuple(fill(SharingFact, row) for row in document["sharing"]),
        {row["rule"]: record_source(row) for row in document["rules"]},
    )


def _release_key(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def _release(row: Record) -> VgpuRelease:
    also = [one["guest_linux"] for one in row.get("also_stated", ()) if "guest_linux" in one]
    return fill(
        VgpuRelease,
        row,
        vgpu=_release_key(row["release"])[0],
        **{name: _driver(row[name]) for name in ("host", "guest_linux", "guest_windows")},
        also=tuple(map(driver, also)),
    )


def _driver(text: str | None) -> Version | None:
    return driver(text) if text else None


def _window(row: Record) -> VgpuWindow:
    return fill(VgpuWindow, row, accepts=tuple(row["accepts"] or ()))


def _feature(row: Record) -> VgpuFeature:
    stated = {name: tuple(row[name] or ()) for name in ("series", "os")}
    return fill(VgpuFeature, row, **stated, note=row.get("note") or "")


def vgpu_types(document: Record) -> VgpuTypes:
    """Build the types by every spelling of their prefix."""
    found: dict[str, VgpuType] = {}
    for row in document["types"]:
        made = _type(row)
        for prefix in (row["prefix"], *row.get("also_written", ())):
            found[compact(prefix)] = made
    return VgpuTypes(found)


def _type(row: Record) -> VgpuType:
    since = {int(branch): driver(text) for branch, text in row.get("since", {}).items()}
    capability = row.get("compute_capability")
    return fill(
        VgpuType,
        row,
        capability=pair(capability) if capability else None,
        memory={series: tuple(sizes) for series, sizes in row["memory_gb"].items()},
        mig_backed=tuple(row.get("mig_backed", ())),
        branches={branch: since.get(branch) for branch in row["branches"]},
    )
