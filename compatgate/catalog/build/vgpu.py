"""Build the tables of ``vgpu.yaml``: releases and combinations, and the types that names name."""

from __future__ import annotations

from compatgate.catalog.build.values import Record, driver, pair, record_source
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
        tuple(VgpuBranch(b["vgpu"], b["driver_branch"], record_source(b)) for b in branches),
        tuple(_release(row) for row in releases),
        tuple(
            CloudGuest(driver(row["driver"]), row["cloud"], row["release"], record_source(row))
            for row in document["clouds"]
        ),
        {row["host"]: _window(row) for row in document["windows"]},
        {row["feature"]: _feature(row) for row in document["features"]},
        tuple(_sharing(row) for row in document["sharing"]),
        {row["rule"]: record_source(row) for row in document["rules"]},
    )


def _release_key(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def _release(row: Record) -> VgpuRelease:
    also = [one["guest_linux"] for one in row.get("also_stated", ()) if "guest_linux" in one]
    return VgpuRelease(
        release=row["release"],
        vgpu=_release_key(row["release"])[0],
        host=_driver(row["host"]),
        guest_linux=_driver(row["guest_linux"]),
        guest_windows=_driver(row["guest_windows"]),
        source=record_source(row),
        also=tuple(driver(text) for text in also),
    )


def _driver(text: str | None) -> Version | None:
    return driver(text) if text else None


def _window(row: Record) -> VgpuWindow:
    guests, accepts = tuple(row["guests"]), tuple(row["accepts"] or ())
    return VgpuWindow(row["host"], guests, accepts, row["lowest"], record_source(row))


def _feature(row: Record) -> VgpuFeature:
    return VgpuFeature(
        row["feature"],
        row["title"],
        row["works_on"],
        tuple(row["series"] or ()),
        tuple(row["os"] or ()),
        row.get("note") or "",
        record_source(row),
    )


def _sharing(row: Record) -> SharingFact:
    return SharingFact(
        row["mode"],
        row["limit"],
        tuple(row["values"]),
        row["effect"],
        row["text"],
        record_source(row),
    )


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
    return VgpuType(
        prefix=row["prefix"],
        product=row["product"],
        capability=pair(capability) if capability else None,
        memory={series: tuple(sizes) for series, sizes in row["memory_gb"].items()},
        mig_backed=tuple(row.get("mig_backed", ())),
        branches={branch: since.get(branch) for branch in row["branches"]},
        source=record_source(row),
        cuda_only=tuple(row.get("cuda_only", ())),
    )
