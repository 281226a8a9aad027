"""Toolkits and drivers, from ``cuda_driver.yaml``."""

from __future__ import annotations

from compatgate.catalog.build.read import Record, ascending, drivers, of, source, version
from compatgate.core.facts import CudaDriver, MinorCompat, Reference, Source, Toolkit
from compatgate.core.versions import Version


def cuda_driver(document: Record) -> CudaDriver:
    """The release notes' two tables, and the releases that stand in neither."""
    floors = [_minor_compat(rule) for rule in document["minor_version_compat"] if _has_floor(rule)]
    special = document["special_cases"]
    return CudaDriver(
        toolkits=ascending(_toolkit(release) for release in document["releases"]),
        minor_compat={floor.major: floor for floor in sorted(floors, key=lambda f: f.major)},
        first_compatible_major=min(floor.major for floor in floors),
        same_row={str(c["cuda"]): str(c["same_row_as"]) for c in special if c.get("same_row_as")},
        never_released={str(c["cuda"]): _why(c) for c in special if c.get("never_released")},
    )


def _toolkit(release: Record) -> Toolkit:
    return Toolkit(
        version("cuda", release["cuda"]),
        drivers(
            linux=release["linux_toolkit_driver_min"],
            windows=release["windows_toolkit_driver_min"],
        ),
        of(release),
    )


def _has_floor(rule: Record) -> bool:
    return bool(rule.get("linux_min"))


def _minor_compat(rule: Record) -> MinorCompat:
    return MinorCompat(
        major=int(rule["major"]),
        minimum=drivers(
            linux=rule.get("linux_min_first_public_driver") or rule["linux_min"],
            windows=rule.get("windows_min"),
        ),
        source=of(rule),
        exceptions={str(e["cuda"]): _exception(e) for e in rule.get("exceptions", ())},
    )


def _exception(exception: Record) -> dict[str, Version]:
    return drivers(
        linux=exception.get("linux_min"),
        linux_aarch64=exception.get("linux_aarch64_min"),
        windows=exception.get("windows_min"),
    )


def _why(case: Record) -> Source:
    told = source(case["source"], confidence=case["confidence"])
    return Source(case["fact"], told.url, told.confidence, (Reference(told.title, told.url),))
