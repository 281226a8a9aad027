"""What clusters say of nodes and pods, and what neighbours say about drivers and GPUs."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec

from compatgate.catalog import load_facts
from compatgate.discovery.drafts import read_drafts
from compatgate.discovery.probe import probe_labels
from compatgate.kit.kubernetes import read_mapping
from compatgate.service.cluster.kinds import load_kinds
from compatgate.service.nodes.cluster_audit import pod_of
from compatgate.service.nodes.cluster_connection import make_reports, parse_nodes
from compatgate.service.nodes.merging import reported_nodes
from compatgate.service.nodes.schemas import Report
from compatgate.strict_json import DECODE_ERRORS
from targets.target import TESTS, Target

NEIGHBOURS = TESTS / "fixtures" / "neighbours"


def targets() -> dict[str, Target]:
    """Readers of nodes, pods, operators' settings and specifications."""
    return {**_live(), **_neighbours()}


def _nodes(facts: Any, data: bytes) -> object:
    """Nodes as they are printed, to what is reported of each."""
    found = parse_nodes(data, "file")
    now = datetime(2026, 11, 21, tzinfo=UTC)
    return [
        reported_nodes(msgspec.convert(report, Report), now, facts)
        for report in make_reports({node.name: node for node in found}.values(), "c")
    ]


def _pods(data: bytes) -> object:
    with suppress(*DECODE_ERRORS):
        return pod_of(read_mapping(msgspec.json.decode(data)), load_kinds())
    return None


def _live() -> dict[str, Target]:
    labels = {"nvidia.com/gpu.product": "NVIDIA-L4", "nvidia.com/gpu.count": "2",
              "nvidia.com/cuda.driver-version.full": "550.54.15"}  # fmt: skip
    node = {"kind": "Node", "metadata": {"name": "n1", "labels": labels}}
    note = {"compatgate.dev/driver-set": "label=blessed taint=1", "compatgate.dev/target": "t"}
    taint = {"key": "compatgate.dev/driver-not-blessed", "value": "1", "effect": "NoSchedule"}
    live = {"kind": "List", "items": [{**node, "spec": {"taints": [taint]},
            "metadata": {**node["metadata"], "annotations": note, "resourceVersion": "7"},
            "status": {"allocatable": {"nvidia.com/gpu": "8", "cpu": "64"}}}]}  # fmt: skip
    pulled = {"name": "a", "imageID": f"docker-pullable://r.example/a@sha256:{'a' * 64}"}
    limits = {"limits": {"nvidia.com/gpu": "1"}}
    pod = {"metadata": {"name": "p", "namespace": "n", "annotations": note},
           "spec": {"nodeName": "n1", "containers": [
               {"name": "a", "image": "r.example/a:1", "resources": limits}]},
           "status": {"phase": "Running", "containerStatuses": [pulled]}}  # fmt: skip
    nodes = [
        json.dumps({"kind": "List", "items": [node, node]}).encode(),
        "".join(f"{key}={value}\n" for key, value in labels.items()).encode(),
        b"kind: Node\nmetadata:\n  name: n1\n  labels:\n"
        + "".join(f"    {key}: '{value}'\n" for key, value in labels.items()).encode(),
    ]
    facts = load_facts([])
    return {
        "node labels": Target(
            lambda data: probe_labels(data.decode("utf-8", "replace"), facts), nodes
        ),
        "nodes of a cluster": Target(partial(_nodes, facts), [json.dumps(live).encode()]),
        "pods of a cluster": Target(_pods, [json.dumps(pod).encode()]),
    }


def _neighbours() -> dict[str, Target]:
    def read(data: bytes) -> object:
        draft = read_drafts([("file", data.decode("utf-8", "replace"))], load_facts())
        assert draft.pools
        return draft

    samples = [path.read_bytes() for path in sorted(NEIGHBOURS.glob("*.yaml"))]
    return {"neighbours": Target(read, samples)}
