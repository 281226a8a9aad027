"""ONNX Runtime GPU releases, from ``onnxruntime.yaml``."""

from __future__ import annotations

import re

from compatgate.catalog.build import pins
from compatgate.catalog.build.read import (
    Record,
    ascending,
    gpu_code,
    of,
    pair,
    pairs,
    source,
    version,
)
from compatgate.core.arch import parse_arch
from compatgate.core.facts import Build, Framework, Pin, Release


def onnxruntime(document: Record) -> Framework:
    """One build per channel: the package index, or a feed of the project's own."""
    releases = ascending(_release(record) for record in document["releases"])
    return Framework("onnxruntime-gpu", releases)


def _release(record: Record) -> Release:
    python = record["python"]
    return Release(
        version=version("onnxruntime-gpu", record["version"]),
        builds=tuple(_build(record, build) for build in record["builds"]),
        source=of(record),
        python_range=(python["min"], python["max"]),
        python_source=source(python["range_source"], confidence=python["range_confidence"]),
    )


def _build(record: Record, build: Record) -> Build:
    major = build["cuda_major"]
    exact = re.fullmatch(r"\d+\.\d+", build["cuda"])
    code, arm = build.get("gpu_code") or {}, build.get("gpu_code_aarch64")
    return Build(
        cuda=pair(build["cuda"]) if exact else None,
        cuda_major=major,
        accepts=f"{major}.*",
        source=of(build),
        default=build["channel"] == record["default_build"],
        listed=build["listed"],
        sass=pairs(code["sass"]) if code else None,
        ptx=pairs(code["ptx"]) if code else None,
        specific=tuple(arch for text in code.get("specific", ()) for arch in parse_arch(text)),
        aarch64=gpu_code(arm) if arm else None,
        ptx_cuda=pair(code["ptx_cuda"]) if code.get("ptx_cuda") else None,
        arch_source=of(code) if code else None,
        pins=_pins(build),
        note=build["note"] or "",
    )


def _pins(build: Record) -> dict[str, Pin]:
    """A build for cuDNN 8 does not work with cuDNN 9, nor the other way round."""
    major = build["cudnn_major"]
    return {"cudnn": pins.major("cudnn", major, of(build))} if major else {}
