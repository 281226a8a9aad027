"""What nvidia-smi prints of vGPUs, where it is incomplete or about a host."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from compatgate.core.facts import Facts
from compatgate.core.gpus import covers_gpu, resolve_gpu
from compatgate.core.rule import Verdict
from compatgate.discovery.drafts import draft_target, read_drafts
from compatgate.discovery.nvidia_smi import parse_nvidia_smi
from compatgate.discovery.nvidia_smi.report import group_pools
from compatgate.errors import BadInput

HEAD = """\
+-----------------------------------------------------------------------------+
| NVIDIA-SMI 550.163.02             Driver Version: 550.163.02                |
|---------------------------------+------------------------------+------------+
| GPU  Name                       | Bus-Id                       | GPU-Util   |
|      vGPU ID     Name           | VM ID     VM Name            | vGPU-Util  |
|=================================+==============================+============|
|   0  NVIDIA L40S                | 00000000:67:00.0             |   0%       |
"""
ROW = "|      32516344{number}  {name:<14} | 7cc6...  'sss',debug-thre... |      0%    |\n"
QUERY = """\
GPU 00000000:67:00.0
    Active vGPUs                          : 1
    vGPU ID                               : 3251634401
        vGPU Name                         : NVIDIA L40S-24Q
        Guest Driver Version              : 550.163.01
"""


def row(number: int, name: str) -> str:
    return ROW.format(number=number, name=name)


def test_the_guests_of_a_host_are_pools_by_type(facts: Facts) -> None:
    text = HEAD + row(1, "GRID T4-8C") + row(2, "GRID T4-8C") + row(3, "GRID T4-4C")
    found = group_pools(parse_nvidia_smi(text), facts.gpus)
    assert [(pool.gpu, pool.devices) for pool in found.pools] == [
        ("GRID T4-8C", 2),
        ("GRID T4-4C", 1),
    ]
    assert {pool.node for pool in found.pools} == {(("vgpu-manager", "550.163.02"),)}


def test_the_query_completes_names_that_the_table_cuts_off(facts: Facts) -> None:
    found = group_pools(parse_nvidia_smi(HEAD + row(1, "NVIDIA L40S...") + QUERY), facts.gpus)
    (pool,) = found.pools
    assert (pool.gpu, pool.driver) == ("NVIDIA L40S-24Q", "550.163.01")
    assert pool.to_body()["node"] == {"vgpu-manager": "550.163.02"}
    assert found.notes == ()


def test_names_that_are_all_cut_off_are_refused_with_what_prints_them(facts: Facts) -> None:
    report = parse_nvidia_smi(HEAD + row(1, "NVIDIA L40S..."))
    with pytest.raises(BadInput, match="nvidia-smi vgpu -q prints names in full"):
        group_pools(report, facts.gpus)
    some = parse_nvidia_smi(HEAD + row(1, "NVIDIA L40S...") + row(2, "GRID T4-8C"))
    assert "1 vGPUs have names" in group_pools(some, facts.gpus).notes[0]


def test_a_host_without_guests_is_said_to_be_one(facts: Facts) -> None:
    found = group_pools(parse_nvidia_smi(HEAD), facts.gpus)
    (pool,) = found.pools
    assert (pool.gpu, pool.driver, pool.platform) == ("NVIDIA L40S", "550.163.02", None)
    assert "this is a vGPU host" in found.notes[0]


def test_a_query_of_a_host_without_guests_names_no_gpu() -> None:
    with pytest.raises(BadInput, match="names no GPU"):
        parse_nvidia_smi("GPU 00000001:C8:00.0\n    Active vGPUs                 : 0\n")


def test_a_vgpu_is_a_sku_of_its_own(facts: Facts) -> None:
    vgpu = resolve_gpu("NVIDIA L40S-24Q", facts.gpus)
    board = resolve_gpu("L40S", facts.gpus)
    assert not covers_gpu(board, vgpu, facts.gpus)
    assert not covers_gpu(vgpu, board, facts.gpus)
    assert covers_gpu(vgpu, resolve_gpu("nvidia l40s-24q", facts.gpus), facts.gpus)
    assert resolve_gpu("GRID A100D-1-20C MIG 1g.20gb", facts.gpus).sku == "A100D-1-20C"
    assert resolve_gpu("A100X-40C", facts.gpus).name == "A100-SXM4-40GB"


def test_forward_compatibility_of_a_vgpu_is_open(ask: Callable[..., Verdict]) -> None:
    verdict = ask("driver=535.309.01,gpu=GRID T4-8C", "cuda=12.8,cuda-compat=12.8,arch=compute_75")
    said = {finding.rule: finding for finding in verdict.findings}
    assert said["CG103"].outcome == "unknown"
    assert "the brand that the vGPU T4-8C reports" in said["CG103"].message


def test_a_target_drafted_from_vgpu_nodes_states_host_and_sharing(facts: Facts) -> None:
    labels = {
        "nvidia.com/gpu.product": "GRID-T4-8C",
        "nvidia.com/cuda.driver-version.full": "580.126.09",
        "nvidia.com/vgpu.host-driver-version": "595.71.03",
        "nvidia.com/gpu.sharing-strategy": "time-slicing",
    }
    node = json.dumps({"kind": "Node", "metadata": {"name": "guest", "labels": labels}})
    (pool,) = draft_target(read_drafts([("nodes", node)], facts), "guests", facts.gpus)["spec"][
        "pools"
    ]
    assert pool["gpu"] == "T4-8C"
    assert (pool["platform"], pool["sharing"]) == ("vgpu", "time-slicing")
    assert pool["node"] == {"vgpu-manager": "595.71.03"}
