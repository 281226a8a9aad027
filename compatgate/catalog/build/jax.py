"""JAX releases, from ``jax.yaml``: the plugin's own pins count, not the page's."""

from __future__ import annotations

from compatgate.catalog.build import pins
from compatgate.catalog.build.read import Record, ascending, drivers, of, pair, source, version
from compatgate.core.facts import Build, Framework, Release, Source


def jax(document: Record) -> Framework:
    """Only variants with something to install behind them."""
    releases = ascending(_release(record) for record in document["releases"])
    return Framework("jax", releases, os=("linux",))


def _release(record: Record) -> Release:
    python = record["python"]
    return Release(
        version=version("jax", record["version"]),
        builds=tuple(_build(record, v) for v in record["variants"] if v["published"]),
        source=of(record),
        python_range=(python["min"], python["max"]),
        python_source=_python_source(record),
        note="; ".join(record.get("notes") or ()),
    )


def _python_source(record: Record) -> Source:
    python = record["python"]
    probe = python["wheel_probe"]
    if probe:
        return source(f"wheels of {probe['package']} on the package index", confidence="metadata")
    told = f"wheels of neighbouring releases of jax {record['version']} on the package index"
    return source(told, confidence=python["max_confidence"] or "derived")


def _build(record: Record, variant: Record) -> Build:
    major = variant["cuda_major"]
    built, minimum = variant["built_cuda"], variant["min_compute_capability"]
    told = of(variant)
    stated = {"cudnn": variant["cudnn_pin"], "nccl": variant["nccl_pin"]}
    return Build(
        cuda=pair(built) if built else None,
        cuda_major=major,
        accepts=_accepts(variant),
        source=told,
        default=_is_default(record["default_cuda_extra"], major),
        minimum_capability=pair(minimum) if minimum else None,
        arch_source=_arch_source(variant),
        pins={name: pins.requirement(name, text, told) for name, text in stated.items() if text},
        driver=drivers(linux=variant["min_driver_linux"]),
        note=variant.get("note") or "",
    )


def _arch_source(variant: Record) -> Source | None:
    """Where the lowest capability comes from, when the release's own page does not say it."""
    told = variant.get("min_compute_capability_source")
    if told is None:
        return None
    return source(told, confidence=variant["min_compute_capability_confidence"])


def _accepts(variant: Record) -> str:
    """The page's range, else the floor of the CUDA runtime that the plugin asks for."""
    major = variant["cuda_major"]
    floor = variant["cuda_range"] or variant["cuda_runtime_pin"]
    low = pair(floor.strip().removeprefix(">=")) if floor else (major, 0)
    return f">={low[0]}.{low[1]},<{major + 1}"


def _is_default(extra: str, major: int) -> bool:
    """Whether ``jax[cuda]`` asks for this CUDA major."""
    return f"cuda{major}" in extra.partition("<")[0]
