"""TensorRT releases, from ``tensorrt.yaml``."""

from __future__ import annotations

from compatgate.catalog.build import pins
from compatgate.catalog.build.read import Record, ascending, drivers, of, pair, version
from compatgate.core.facts import Build, Framework, Pair, Pin, Release
from compatgate.core.versions import Version


def tensorrt(document: Record) -> Framework:
    """One build per CUDA major: it serves every minor of that major."""
    floors = document["driver"]
    return Framework(
        "tensorrt", ascending(_release(record, floors) for record in document["releases"])
    )


def _release(record: Record, floors: Record) -> Release:
    return Release(
        version=version("tensorrt", record["version"]),
        builds=tuple(_build(record, major, floors) for major in record["cuda_majors"]),
        source=of(record),
        note=record.get("note") or "",
    )


def _build(record: Record, major: int, floors: Record) -> Build:
    minimum = record["min_compute_capability"]
    return Build(
        cuda=_made_with(record, major),
        cuda_major=major,
        accepts=f"{major}.*",
        source=of(record),
        minimum_capability=pair(minimum["value"]) if minimum["value"] else None,
        pins=_pins(record),
        driver=_driver(record, major, floors),
        arch_source=of(minimum) if minimum["value"] else None,
    )


def _made_with(record: Record, major: int) -> Pair | None:
    made = [pair(build["cuda"]) for build in record["package_builds_linux_x86_64"] or ()]
    return next((cuda for cuda in made if cuda[0] == major), None)


def _pins(record: Record) -> dict[str, Pin]:
    """cuDNN is needed before 10.0 and optional from then on, whatever version is named."""
    need = record["cudnn_needed"]
    if not need or need["major"] is None:
        return {}
    told = of(need)
    return {"cudnn": pins.major("cudnn", need["major"], told, optional=need["optional"])}


def _driver(record: Record, major: int, floors: Record) -> dict[str, Version]:
    if record["version"] not in floors["applies_to_releases"]:
        return {}
    floor = next(
        (f for f in floors["floors"] if major in f["cuda_majors"]), {"linux": None, "windows": None}
    )
    return drivers(linux=floor["linux"], windows=floor["windows"])
