"""Kubernetes nodes by their labels, as GPU Feature Discovery writes them."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatgate.core.facts import Facts
from compatgate.core.request import parse_pool
from compatgate.discovery.node_labels import NodePools, group_nodes, read_nodes
from compatgate.errors import BadInput

FOLDER = Path(__file__).parents[2] / "fixtures" / "node_labels"
A100 = (FOLDER / "gfd-a100.yaml").read_text()
MIXED = (FOLDER / "gfd-mixed-mig.txt").read_text()


def node(name: str = "", **changes: str | None) -> dict[str, Any]:
    labels = {
        "kubernetes.io/arch": "amd64",
        "nvidia.com/gpu.product": "NVIDIA-L4",
        "nvidia.com/gpu.count": "2",
        "nvidia.com/cuda.driver-version.full": "550.54.15",
    }
    for key, value in changes.items():
        label = key.replace("__", "/").replace("_", ".")
        labels[label] = value if value is not None else ""
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": {k: v for k, v in labels.items() if v}},
    }


def pools(text: str, facts: Facts) -> NodePools:
    return group_nodes(read_nodes(text), facts)


def test_a_node_as_yaml_is_a_pool(facts: Facts) -> None:
    found = pools(A100, facts)
    assert [pool.to_body() for pool in found.pools] == [
        {
            "name": "a100-sxm4-80gb",
            "gpu": "NVIDIA-A100-SXM4-80GB",
            "driver": "550.54.15",
            "os": "linux",
            "count": 1,
            "platform": "dgx/a100",
            "cpu": "x86_64",
        }
    ]
    assert found.notes == ()
    assert found.conflicts == ()


def test_mig_devices_are_pools_and_gpus_that_are_all_cut_are_none(facts: Facts) -> None:
    found = pools(MIXED, facts)
    assert [(pool.gpu, pool.driver) for pool in found.pools] == [
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "535.104.05"),
        ("NVIDIA-A100-SXM4-40GB-MIG-3g.20gb", "535.104.05"),
    ]
    assert all(parse_pool(pool.to_body(), facts.gpus).gpu for pool in found.pools)


def test_a_whole_gpu_beside_mig_devices_is_a_pool(facts: Facts) -> None:
    found = pools(MIXED.replace("gpu.replicas=0", "gpu.replicas=1"), facts)
    assert found.pools[0].gpu == "NVIDIA-A100-SXM4-40GB"
    assert len(found.pools) == 3


def test_nodes_that_are_alike_are_counted(facts: Facts) -> None:
    items = [node(f"n{i}", nvidia_com__gpu_count=str(i + 1)) for i in range(3)]
    items.append(node("old", nvidia_com__cuda_driver_version_full="x"))
    items[-1]["metadata"]["labels"]["nvidia.com/cuda.driver-version.full"] = "535.104.05"
    items.append({"kind": "Node", "metadata": {"name": "cpu", "labels": {"a": "b"}}})
    found = pools(json.dumps({"kind": "List", "items": items}), facts)
    assert [(p.name, p.driver, p.nodes) for p in found.pools] == [
        ("l4", "550.54.15", 3),
        ("l4-2", "535.104.05", 1),
    ]
    assert found.notes == ("1 node (cpu): no label names a GPU",)


@pytest.mark.parametrize(
    ("product", "sku"),
    [
        ("NVIDIA-H100-80GB-HBM3-SHARED", "H100-SXM5-80GB"),
        ("Tesla-T4-SHARED", "T4"),
        ("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb", "A100-SXM4-80GB-MIG-1g.10gb"),
        ("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb.me", "A100-SXM4-80GB-MIG-1g.10gb+me"),
        ("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb-SHARED", "A100-SXM4-80GB-MIG-1g.10gb"),
    ],
)
def test_products_of_shared_and_cut_gpus_resolve(product: str, sku: str, facts: Facts) -> None:
    text = json.dumps(node(nvidia_com__gpu_product=product))
    (pool,) = pools(text, facts).pools
    gpu = parse_pool(pool.to_body(), facts.gpus).gpu
    assert gpu is not None
    assert gpu.sku == sku


def test_an_unknown_product_is_known_by_its_compute_capability(facts: Facts) -> None:
    text = json.dumps(
        node(
            nvidia_com__gpu_product="NVIDIA-X999",
            nvidia_com__gpu_compute_major="9",
            nvidia_com__gpu_compute_minor="0",
        )
    )
    found = pools(text, facts)
    assert found.pools[0].gpu == "9.0"
    assert "not a known product" in found.notes[0]


def test_a_driver_with_two_parts_and_zeros_keeps_its_digits(facts: Facts) -> None:
    text = "nvidia.com/gpu.product: NVIDIA-L4\nnvidia.com/cuda.driver-version.full: 550.10\n"
    assert pools(text, facts).pools[0].driver == "550.10"


def test_a_node_without_driver_labels_leaves_the_driver_open(facts: Facts) -> None:
    (pool,) = pools("nvidia.com/gpu.product=NVIDIA-L4", facts).pools
    assert pool.driver is None
    assert "driver" not in pool.to_body()


def test_an_arm_node_is_of_its_cpu(facts: Facts) -> None:
    text = "nvidia.com/gpu.product=NVIDIA-GB200,kubernetes.io/arch=arm64"
    assert pools(text, facts).pools[0].cpu == "aarch64"


def test_labels_whose_cuda_is_not_the_drivers_contradict(facts: Facts) -> None:
    text = A100.replace('runtime-version.minor: "4"', 'runtime-version.minor: "8"')
    (conflict,) = pools(text, facts).conflicts
    assert "the labels say CUDA 12.8" in conflict.message


@pytest.mark.parametrize(
    ("labels", "note"),
    [
        ({"nvidia.com/gpu.present": "true"}, "no label of GPU Feature Discovery"),
        ({"feature.node.kubernetes.io/pci-10de.present": "true"}, "no label of GPU Feature"),
        (
            {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB-MIG-INVALID"},
            "do not fit the strategy",
        ),
        ({"nvidia.com/gpu.count": "0", "nvidia.com/gpu.product": "NVIDIA-L4"}, "no node is"),
    ],
)
def test_a_node_whose_gpus_are_not_named_is_no_pool(
    labels: dict[str, str], note: str, facts: Facts
) -> None:
    with pytest.raises(BadInput, match=note):
        pools(json.dumps(labels), facts)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty"),
        ("{", "is not JSON"),
        ("{}", "no node is labelled|has neither nodes nor labels"),
        ('{"kind": "List", "items": []}', "has neither nodes nor labels"),
        ('{"kind": "Pod", "metadata": {"name": "p"}}', "is a Pod"),
        ('{"kind": "Node", "metadata": {"labels": 7}}', "is not a node"),
        ('"text"', "neither"),
        ("[1, 2]", "neither"),
        ("a: [", "neither YAML nor labels"),
        ("just words\nand more", "neither"),
        ("a: {b: {c: d}}", "neither"),
        ('{"items":' * 5000, "JSON"),
        ("[" * 100_000, "JSON"),
        ("a: &a [*a]", "neither"),
        ("- &a [{gpu: x}, {gpu: y}]\n- [*a, *a, *a]", "aliases are not supported"),
        ("- " * 70 + "x", "nested too deeply"),
    ],
)
def test_what_holds_no_nodes_is_refused(text: str, problem: str, facts: Facts) -> None:
    with pytest.raises(BadInput, match=problem):
        pools(text, facts)


@given(st.text(max_size=200) | st.dictionaries(st.text(), st.text()).map(json.dumps))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(BadInput):
        assert all(node.labels is not None for node in read_nodes(text))


def test_a_vgpu_node_states_the_driver_of_its_host(facts: Facts) -> None:
    labels = {
        "nvidia.com/gpu.product": "GRID-A100D-10C",
        "nvidia.com/cuda.driver-version.full": "580.126.09",
        "nvidia.com/vgpu.present": "true",
        "nvidia.com/vgpu.host-driver-version": "595.71.03",
        "nvidia.com/vgpu.host-driver-branch": "r596_25",
        "nvidia.com/gpu.sharing-strategy": "none",
    }
    (pool,) = pools(json.dumps(labels), facts).pools
    body = pool.to_body()
    assert (body["platform"], body["node"]) == ("vgpu", {"vgpu-manager": "595.71.03"})
    assert "sharing" not in body
    gpu = parse_pool(body, facts.gpus).gpu
    assert gpu is not None
    assert (gpu.sku, gpu.name, gpu.memory_gb) == ("A100D-10C", "A100-PCIe-80GB", 10)


@pytest.mark.parametrize(
    ("labels", "sharing"),
    [
        ({"nvidia.com/gpu.sharing-strategy": "mps"}, "mps"),
        ({"nvidia.com/gpu.sharing-strategy": "time-slicing"}, "time-slicing"),
        ({"nvidia.com/gpu.sharing-strategy": "none"}, None),
        ({"nvidia.com/gpu.sharing-strategy": "other"}, None),
        ({"nvidia.com/gpu.product": "NVIDIA-L4-SHARED"}, "time-slicing"),
        ({}, None),
    ],
)
def test_labels_tell_how_gpus_are_shared(
    labels: dict[str, str], sharing: str | None, facts: Facts
) -> None:
    described = json.dumps({"nvidia.com/gpu.product": "NVIDIA-L4", **labels})
    (pool,) = pools(described, facts).pools
    assert pool.to_body().get("sharing") == sharing
