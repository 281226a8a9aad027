"""Nodes for the pages: a pool of 512 of which three drifted, slices, a stale one, a strange one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import msgspec

from compatgate.kit import clock
from compatgate.service.app import Rooms
from compatgate.service.nodes.schemas import MAX_NODES, Report

NODES = 512
DRIFTED = ("gpu-017", "gpu-203", "gpu-380")
DRIVER, OTHER = "535.183.01", "550.54.15"
_DRIVER_LABEL = "nvidia.com/cuda.driver-version.full"
A100 = {
    "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
    "nvidia.com/gpu.count": "8",
    "nvidia.com/mig.strategy": "mixed",
    _DRIVER_LABEL: DRIVER,
}
L4 = {
    "nvidia.com/gpu.product": "NVIDIA-L4",
    "nvidia.com/gpu.count": "4",
    _DRIVER_LABEL: "580.95.05",
}
SLICES = {
    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
    "nvidia.com/gpu.count": "8",
    "nvidia.com/gpu.replicas": "0",
    "nvidia.com/mig.strategy": "mixed",
    "nvidia.com/mig.config": "all-1g.10gb",
    "nvidia.com/mig.config.state": "success",
    "nvidia.com/mig-1g.10gb.product": "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb",
    "nvidia.com/mig-1g.10gb.count": "56",
    _DRIVER_LABEL: "580.95.05",
}


def fill_nodes(rooms: Rooms) -> None:
    """Report nodes as a cluster's job and the drivers themselves would."""
    now = clock.now()
    _tell(rooms, "prod-eu", _pool())
    _tell(rooms, "prod-eu", (_own(name, now - timedelta(hours=5)) for name in DRIFTED))
    _tell(rooms, "prod-eu", [_labelled("gpu-203", A100 | {_DRIVER_LABEL: OTHER}, 8)])
    gone = _labelled("l4-07", L4, 4) | {"seen_at": now - timedelta(days=6)}
    _tell(rooms, "serving", [_labelled("l4-01", L4, 4), _labelled("l4-02", L4, 3), gone])
    sliced = _labelled("h100-01", SLICES, 0) | {"target": "staging-h100"}
    sliced["allocatable"] = {"nvidia.com/mig-1g.10gb": 56}
    strange = {
        "name": "lab-01",
        "target": "no-such-target",
        "labels": {},
        "probe": {"driver": None},
    }
    _tell(rooms, "staging", [sliced, strange])
    _tell(rooms, "staging", [_labelled("l4-01", {}, 0)])  # of another cluster, by the same name


def _pool() -> Iterator[dict[str, Any]]:
    long_ago = clock.now() - timedelta(hours=20)
    for number in range(1, NODES + 1):
        yield _labelled(f"gpu-{number:03}", A100, 8) | {"seen_at": long_ago}


def _labelled(name: str, labels: dict[str, str], count: int) -> dict[str, Any]:
    return {"name": name, "labels": labels, "allocatable": {"nvidia.com/gpu": count}}


def _own(name: str, at: Any) -> dict[str, Any]:
    gpus = [{"gpu": "NVIDIA A100-SXM4-80GB", "count": 8}]
    return {"name": name, "seen_at": at, "probe": {"driver": OTHER, "cuda": "12.4", "gpus": gpus}}


def _tell(rooms: Rooms, cluster: str, nodes: Any) -> None:
    whole = list(nodes)
    for first in range(0, len(whole), MAX_NODES):
        body = {"cluster": cluster, "nodes": whole[first : first + MAX_NODES]}
        report = msgspec.convert(body, Report)
        rooms.nodes.report(report, by="nodes-job")
