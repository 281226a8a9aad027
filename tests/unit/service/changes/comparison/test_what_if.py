"""What if, asked of a snapshot by the names that people have for things."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest

from compatgate.core.compare.what_if import WhatIf
from compatgate.core.facts import Facts
from compatgate.core.facts.nvidia import Gpus
from compatgate.discovery.node_labels import read_nodes
from compatgate.documents.sources import read_paths
from compatgate.documents.specs import kind_of
from compatgate.documents.validation import read_documents
from compatgate.errors import BadInput, NotFound
from compatgate.resources import matrix_dir
from compatgate.service.changes.comparison.service import answer_in_json, answer_what_if
from compatgate.service.matrix.snapshots.snapshot import DocumentVersion, Snapshot, build
from compatgate.web.deploy_hooks.questions import rollout_question


@pytest.fixture(scope="module")
def snapshot(facts: Facts, gpus: Gpus) -> Snapshot:
    """The example matrix."""
    documents = read_documents(read_paths([matrix_dir() / "examples"]), gpus)
    versions: list[DocumentVersion] = [(kind_of(d), d.metadata.name, d, 1) for d in documents]
    return build(versions, facts, 1)


def what_if(
    snapshot: Snapshot, target: str, changes: dict[str, Any], now: datetime, **more: Any
) -> WhatIf:
    return answer_what_if({"target": target, "set": changes, **more}, snapshot, now)


def test_every_pool_of_the_target_changes(snapshot: Snapshot, now: datetime) -> None:
    found = what_if(snapshot, "staging-h100", {"driver": "570.124.06"}, now)
    assert [pool["driver"] for pool in found.after] == ["570.124.06", "570.124.06"]


def test_or_one_pool_alone(snapshot: Snapshot, now: datetime) -> None:
    found = what_if(snapshot, "staging-h100", {"driver": "570.124.06"}, now, pool="h100-80")
    assert [pool["name"] for pool in found.after] == ["h100-80"]


def test_another_spelling_of_a_component_means_the_same(snapshot: Snapshot, now: datetime) -> None:
    one = what_if(snapshot, "prod-a100", {"nvidia-driver": "470.256.02"}, now)
    assert one == what_if(snapshot, "prod-a100", {"driver": "470.256.02"}, now)


@pytest.mark.parametrize("stated", ["580", "newest"])
def test_a_driver_may_be_a_branch_or_the_newest(
    snapshot: Snapshot, now: datetime, stated: str
) -> None:
    found = what_if(snapshot, "prod-a100", {"nvidia-driver": stated}, now)
    chosen = found.set["driver"]
    assert str(chosen).startswith("580.")
    assert [pool["driver"] for pool in found.after] == [chosen]
    assert f"driver {chosen} is the newest of branch 580" in found.remarks[0]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({}, "set"),
        ({"driver": None}, "set.driver"),
        ({"driver": "new"}, "set.driver"),
        ({"driver": 580}, "set.driver"),
        ({"gpu": "A1000000"}, "set.gpu"),
        ({"drivr": "1.0"}, "drivr"),
        ({"cuda": "x"}, "cuda"),
    ],
)
def test_a_malformed_change_is_named(
    snapshot: Snapshot, now: datetime, changes: dict[str, Any], field: str
) -> None:
    with pytest.raises(BadInput) as told:
        what_if(snapshot, "prod-a100", changes, now)
    assert field in (told.value.field or "")


def test_a_name_that_does_not_exist_is_answered_with_near_ones(
    snapshot: Snapshot, now: datetime
) -> None:
    with pytest.raises(NotFound, match="prod-a100"):
        what_if(snapshot, "prod-a10", {"driver": "580.95.05"}, now)
    with pytest.raises(NotFound, match="a100-80"):
        what_if(snapshot, "prod-a100", {"driver": "580.95.05"}, now, pool="a100")


A100 = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
SET = {"driver": "535.216.01"}


def ask(snapshot: Snapshot, now: datetime, **body: Any) -> dict[str, Any]:
    return answer_in_json({"set": SET, **body}, snapshot, now)


def test_a_node_is_of_the_target_whose_labels_it_has(snapshot: Snapshot, now: datetime) -> None:
    found = ask(snapshot, now, node={"labels": A100})
    assert (found["target"], [p["name"] for p in found["after"]]) == ("prod-a100", ["a100-80"])


def test_a_node_that_names_its_target_is_of_that_one(snapshot: Snapshot, now: datetime) -> None:
    labels = {**A100, "compatgate.dev/target": "staging-h100"}
    with pytest.raises(NotFound, match="no pool of the target 'staging-h100'"):
        ask(snapshot, now, node={"labels": labels})
    annotations = {"compatgate.dev/target": "staging-h100"}
    node = {"kind": "Node", "metadata": {"labels": A100, "annotations": annotations}}
    asked = rollout_question(node, {"driver": "535.216.01"})
    assert asked["target"] == "staging-h100"
    assert rollout_question(node, {"driver": "535.216.01", "target": "t"})["target"] == "t"
    (read,) = read_nodes(json.dumps(node))
    assert read.target == "staging-h100"


def test_a_node_is_judged_with_the_driver_that_it_has(snapshot: Snapshot, now: datetime) -> None:
    labels = {**A100, "nvidia.com/cuda.driver-version.full": "535.104.05"}
    found = ask(snapshot, now, node={"labels": labels, "name": "gpu-7"})
    assert found["before"][0]["driver"] == "535.104.05"
    assert found["remarks"] == ["the node has driver 535.104.05, pool a100-80 declares 535.183.01"]


def test_gpus_of_a_node_that_its_target_does_not_declare_are_judged_as_well(
    snapshot: Snapshot, now: datetime
) -> None:
    slices = "nvidia.com/mig-1g.10gb"
    labels = {
        **A100,
        "nvidia.com/gpu.count": "4",
        f"{slices}.product": "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb",
        f"{slices}.count": "7",
        "nvidia.com/cuda.driver-version.full": "535.183.01",
    }
    found = ask(snapshot, now, node={"labels": labels})
    assert [pool["gpu"] for pool in found["after"]] == [
        "A100-SXM4-80GB",
        "A100-SXM4-80GB-MIG-1g.10gb",
    ]
    assert found["remarks"] == [
        "no pool of prod-a100 declares the node's A100-SXM4-80GB-MIG-1g.10gb"
    ]


def test_a_named_target_decides_where_a_node_belongs(snapshot: Snapshot, now: datetime) -> None:
    labels = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    found = ask(snapshot, now, target="staging-h100", node={"labels": labels})
    assert [p["name"] for p in found["after"]] == ["h100-80"]


def test_a_node_is_judged_with_the_kernel_and_platform_that_it_has(
    snapshot: Snapshot, now: datetime
) -> None:
    labels = {
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
        "nvidia.com/gpu.machine": "p5.48xlarge",
        "feature.node.kubernetes.io/kernel-version.full": "6.14.0-33-generic",
    }
    found = ask(snapshot, now, target="staging-h100", node={"labels": labels})
    (pool,) = found["before"]
    assert (pool["platform"], pool["node"]["kernel"]) == ("aws/p5", "6.14.0-33-generic")
    assert pool["node"]["fabric-manager"] == "580.95.05"
    assert found["remarks"] == [
        "the node has Linux kernel 6.14.0-33-generic, pool h100-80 declares 6.8"
    ]


@pytest.mark.parametrize(
    ("body", "field", "said"),
    [
        ({}, "target", "name a target"),
        ({"target": 7}, "target", "must be the name"),
        ({"target": ""}, "target", "must be the name"),
        ({"targt": "prod-a100"}, "targt", "did you mean target"),
        ({"target": "prod-a100", "set": {}}, "set", "names no change"),
        ({"target": "prod-a100", "set": {"drivr": "1"}}, "set.drivr", "did you mean driver"),
        ({"target": "prod-a100", "set": {"cuda": "x"}}, "set.cuda", "is not a version"),
        ({"target": "prod-a100", "set": [1]}, "set", "must be a JSON object"),
        ({"target": "prod-a100", "pool": "x"}, "pool", "has no pool"),
        ({"node": {}}, "node", "labels"),
        ({"node": {"labels": {"a": 1}}}, "node.labels.a", "must be text"),
        ({"node": {"labels": {"a": "b"}}}, "node.labels", "fit no target"),
        ({"target": "inference-l4", "node": {"labels": A100}}, "node.labels", "no pool of"),
        ({"target": "prod-a100", "node": {"labels": {"a": "b"}}}, "node.labels", "no node is"),
    ],
)
def test_a_question_that_cannot_be_is_named(
    snapshot: Snapshot, now: datetime, body: dict[str, Any], field: str, said: str
) -> None:
    with pytest.raises((BadInput, NotFound), match=said) as told:
        answer_what_if({"set": SET, **body}, snapshot, now)
    assert told.value.field == field
