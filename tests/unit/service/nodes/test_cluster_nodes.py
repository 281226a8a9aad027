"""Nodes of a cluster as reports that a gate takes."""

from __future__ import annotations

from typing import Any

import msgspec

from compatgate.service.nodes.cluster_connection import make_reports, node_of
from compatgate.service.nodes.schemas import Report


def body(name: str = "n1", **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}}


def test_labels_that_matter_are_kept_where_there_are_too_many() -> None:
    many = {f"a{number}": "x" for number in range(400)}
    node = node_of(body(**many, **{"nvidia.com/gpu.product": "NVIDIA-L4"}))
    assert node
    sent = node.to_report()["labels"]
    assert len(sent) == 256
    assert sent["nvidia.com/gpu.product"] == "NVIDIA-L4"


def test_what_nfd_says_of_processor_and_kernel_is_not_sent() -> None:
    nfd = "feature.node.kubernetes.io"
    labels = {f"{nfd}/cpu-cpuid.AVX": "true", f"{nfd}/pci-10de.present": "true"}
    node = node_of(body(**labels))
    assert node
    assert list(node.to_report()["labels"]) == [f"{nfd}/pci-10de.present"]


def test_a_large_cluster_is_reported_in_parts_that_a_gate_takes() -> None:
    labels = {f"nvidia.com/{number}": "x" * 60 for number in range(100)}
    nodes = [node for n in range(700) if (node := node_of(body(f"n{n}", **labels)))]
    parts = list(make_reports(nodes, "eu"))
    assert all(len(msgspec.json.encode(part)) < 1024 * 1024 for part in parts)
    read = [msgspec.convert(part, Report) for part in parts]
    assert [node.name for part in read for node in part.nodes] == [n.name for n in nodes]


def test_taints_are_sent_as_far_as_they_are_well_formed() -> None:
    taint = {
        "key": "team",
        "value": "a",
        "effect": "NoSchedule",
        "timeAdded": "2026-11-01T00:00:00Z",
    }
    spec = {"taints": [taint, {"key": "x", "effect": "Never"}, {"effect": "NoExecute"}, "none"]}
    node = node_of({**body(), "spec": spec})
    assert node
    assert node.to_report()["taints"] == [{"key": "team", "effect": "NoSchedule", "value": "a"}]
    msgspec.convert({"nodes": [node.to_report()]}, Report)


def test_quantities_that_are_no_counts_are_left_out() -> None:
    given = {"nvidia.com/gpu": "8", "nvidia.com/mig-1g.5gb": "4k", "cpu": "64", "nvidia.com/x": "1"}
    node = node_of({**body(), "status": {"allocatable": given}})
    assert node
    assert node.allocatable == {"nvidia.com/gpu": 8}


def test_a_kubelet_that_says_nothing_is_no_witness_of_no_gpus() -> None:
    node = node_of(body(**{"nvidia.com/gpu.count": "8"}))
    assert node is not None
    assert "allocatable" not in node.to_report()
