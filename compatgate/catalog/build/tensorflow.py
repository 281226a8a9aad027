"""TensorFlow releases, from ``tensorflow.yaml``: one CUDA build a release."""

from __future__ import annotations

from compatgate.catalog.build import pins
from compatgate.catalog.build.read import (
    Record,
    ascending,
    drivers,
    of,
    pair,
    pairs,
    source,
    version,
)
from compatgate.core.facts import Build, Framework, Pin, Release
from compatgate.core.versions import Version


def tensorflow(document: Record) -> Framework:
    """The tested build configurations, with what the wheels pin."""
    driver = document["driver"]
    cpu_only = tuple((document.get("cpu_only_on_index") or {}).get("processors", ()))
    releases = ascending(_release(record, driver, cpu_only) for record in document["releases"])
    return Framework("tensorflow", releases, os=("linux",))


def _release(record: Record, driver: Record, cpu_only: tuple[str, ...]) -> Release:
    python = record["python"]
    return Release(
        version=version("tensorflow", record["version"]),
        builds=(_build(record, driver),),
        source=of(record),
        python_range=(python["min"], python["max"]),
        python_source=of(record),
        cpu_only=cpu_only,
        os=("linux", "windows") if record["windows_native_gpu"] else ("linux",),
    )


def _build(record: Record, driver: Record) -> Build:
    cuda = record["cuda"]
    code = record.get("gpu_code")
    minimum = record["min_compute_capability"]
    return Build(
        cuda=pair(cuda["tested"]),
        cuda_major=cuda["major"],
        accepts=f"{cuda['major']}.*",
        source=of(record),
        default=True,
        sass=pairs(code["sass"]) if code else None,
        ptx=pairs(code["ptx"]) if code else None,
        minimum_capability=pair(minimum["value"]) if minimum else None,
        pins=_pins(record),
        driver=_driver(cuda["tested"], driver),
        arch_source=of(code) if code else of(minimum) if minimum else None,
    )


def _driver(cuda: str, driver: Record) -> dict[str, Version]:
    """The page's floor speaks of the builds for the CUDA that it names."""
    return drivers(linux=driver["linux_min"]) if cuda == driver["cuda"] else {}


def _pins(record: Record) -> dict[str, Pin]:
    """cuDNN as the binary checks it: same major, minor equal or higher, patch ignored."""
    cudnn = record["cudnn"]
    wanted = f">={cudnn['tested']},<{cudnn['major'] + 1}"
    found = {"cudnn": pins.ranged("cudnn", wanted, of(record))}
    extra = record["and_cuda_extra"] or {}
    nccl = extra.get(f"nvidia-nccl-cu{record['cuda']['major']}")
    if nccl:
        told = source(f"extra and-cuda of tensorflow=={record['version']}", confidence="metadata")
        found["nccl"] = pins.requirement("nccl", nccl, told)
    return found
