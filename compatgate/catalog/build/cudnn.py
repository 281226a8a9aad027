"""cuDNN releases, from ``cudnn.yaml``."""

from __future__ import annotations

from typing import Any

from compatgate.catalog.build.read import (
    Record,
    ascending,
    drivers,
    of,
    pair,
    pairs,
    source,
    three_parts,
    version,
)
from compatgate.core.facts import Cudnn, CudnnBuild, CudnnRelease, CudnnRow, Pair, Source


def cudnn(document: Record) -> Cudnn:
    """Each release with its builds per CUDA major."""
    forward = document["rules"]["hardware_forward_compat"]
    return Cudnn(
        releases=ascending(_release(record) for record in document["releases"]),
        forward_compatible_from=version("cudnn", forward["from"]),
        forward_source=of(forward),
    )


def _release(record: Record) -> CudnnRelease:
    builds = {int(major): _build(record, int(major)) for major in sorted(record["cuda_majors"])}
    return CudnnRelease(three_parts("cudnn", record["version"]), builds, of(record))


def _build(record: Record, major: int) -> CudnnBuild:
    matrix = [r for r in record["support_matrix"] or () if r["package_cuda_major"] == major]
    rows = tuple(_row(row) for row in matrix) or _floor(record, major)
    return CudnnBuild(
        minimum_capability=_minimum(record["min_cc"], major),
        rows=rows,
        source=of(record) if matrix else _derived(record, major),
        capability_source=_capability_source(record),
    )


def _row(row: Record) -> CudnnRow:
    return CudnnRow(
        drivers(linux=row["min_driver_linux"], windows=row["min_driver_windows"]),
        pairs(row["compute_capabilities"]),
        pairs(row["cuda_toolkits"]),
    )


def _floor(record: Record, major: int) -> tuple[CudnnRow, ...]:
    """A release without a matrix of its own takes the floor of its CUDA major."""
    floor = (record["min_driver_linux_by_cuda_major"] or {}).get(str(major))
    return (CudnnRow(drivers(linux=floor["value"]), (), ()),) if floor else ()


def _derived(record: Record, major: int) -> Source:
    floor = (record["min_driver_linux_by_cuda_major"] or {}).get(str(major))
    if not floor:
        return of(record)
    return source(
        f"driver floor of CUDA {major} in the support matrices of neighbouring releases, as none of"
        f" cuDNN {record['version']} was found",
        confidence=floor["confidence"],
    )


def _minimum(stated: Any, major: int) -> Pair | None:
    text = stated.get(str(major)) if isinstance(stated, dict) else stated
    return pair(text) if text else None


def _capability_source(record: Record) -> Source | None:
    if not record["min_cc"]:
        return None
    return source(record["min_cc_source"], confidence=record["min_cc_confidence"])
