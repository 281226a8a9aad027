"""PyTorch releases, from ``pytorch.yaml``: architectures and pins belong to the build."""

from __future__ import annotations

from compatgate.catalog.build import pins
from compatgate.catalog.build.read import Record, ascending, gpu_code, pair, pairs, source, version
from compatgate.core.facts import Build, Framework, Pair, Pin, Release, Source


def pytorch(document: Record) -> Framework:
    """Every published build of every release, and the wheels that only the index has."""
    return Framework("torch", ascending(_release(record) for record in document["releases"]))


def _release(record: Record) -> Release:
    python = record["python"]
    told = source(record["published_source"], confidence=record["published_confidence"])
    listed = [_build(build, told) for build in record["builds"]]
    unlisted = [_index_only(build) for build in record["index_only_builds"] or ()]
    return Release(
        version=version("torch", record["version"]),
        builds=tuple(sorted((*listed, *unlisted), key=lambda build: build.cuda or (0, 0))),
        source=told,
        python=(*python["wheels_linux_x86_64"], *python["wheels_free_threaded"]),
        python_aarch64=tuple(record["linux_aarch64_wheels_on_index"] or ()),
        cpu_only=tuple(record.get("cpu_only_on_index") or ()),
        python_source=source(python["source"], confidence=python["confidence"]),
        note=record.get("notes") or "",
    )


def _build(build: Record, told: Source) -> Build:
    return Build(
        cuda=pair(build["cuda"]),
        cuda_major=pair(build["cuda"])[0],
        accepts=f"{build['cuda']}.*",
        source=told,
        label=build["tag"],
        default=build["pypi_default"],
        sass=_code(build["sass"]),
        ptx=_code(build["ptx"]),
        aarch64=gpu_code(build["gpu_code_aarch64"]) if build.get("gpu_code_aarch64") else None,
        pins=_pins(build),
        arch_source=_arch_source(build),
        note=build.get("note") or "",
    )


def _code(listed: list[str] | None) -> tuple[Pair, ...] | None:
    """An empty list says that there is none, an absent one that it is not known."""
    return None if listed is None else pairs(listed)


def _arch_source(build: Record) -> Source | None:
    if build["arch_source"] is None:
        return None
    return source(build["arch_source"], confidence=build["arch_confidence"])


def _index_only(build: Record) -> Build:
    told = source(build["evidence"], confidence="derived")
    stated = {name: build[name] for name in ("cudnn", "nccl") if build.get(name)}
    return Build(
        cuda=pair(build["cuda"]),
        cuda_major=pair(build["cuda"])[0],
        accepts=f"{build['cuda']}.*",
        source=told,
        label=build["tag"],
        listed=False,
        pins={name: pins.exact(name, text, told) for name, text in stated.items()},
        note="on the wheel index, not on the install page",
    )


def _pins(build: Record) -> dict[str, Pin]:
    found = {}
    for name in ("cudnn", "nccl"):
        if text := build[name]:
            told = build.get(f"{name}_source") or build["lib_source"]
            confidence = build.get(f"{name}_confidence") or build["lib_confidence"]
            found[name] = pins.exact(name, text, source(told, confidence=confidence))
    return found
