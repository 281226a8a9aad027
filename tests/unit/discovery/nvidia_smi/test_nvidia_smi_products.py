"""Names that the table cuts off, and MIG profiles that it does not name."""

from __future__ import annotations

import pytest

from compatgate.catalog import load_facts
from compatgate.core.facts import Facts
from compatgate.core.gpus import resolve_gpu
from compatgate.discovery.nvidia_smi.report import Device, Slice, find_profile, identify_product
from compatgate.errors import BadInput


@pytest.fixture(scope="module")
def facts() -> Facts:
    return load_facts([])


@pytest.mark.parametrize(
    ("name", "memory_mib", "sku"),
    [
        ("NVIDIA A100 80G...", 81920, "A100-PCIe-80GB"),
        ("NVIDIA A100-SXM...", 40960, "A100-SXM4-40GB"),
        ("NVIDIA A100-SXM...", 81920, "A100-SXM4-80GB"),
        ("Tesla V100-SXM2...", 32480, "V100-SXM2-32GB"),
        ("Tesla V100-SXM2...", 16160, "V100-SXM2-16GB"),
    ],
)
def test_a_cut_off_name_is_completed_by_its_memory(
    facts: Facts, name: str, memory_mib: int, sku: str
) -> None:
    gpu, note = identify_product(Device(name, memory_mib=memory_mib), facts.gpus)
    assert resolve_gpu(gpu, facts.gpus).sku == sku
    assert not note


def test_a_cut_off_name_of_alike_products_leaves_the_capability_and_says_so(facts: Facts) -> None:
    gpu, note = identify_product(Device("NVIDIA GeForce RTX 4070...", memory_mib=12282), facts.gpus)
    assert gpu == "sm_89"
    assert "may be" in note


def test_a_cut_off_name_of_unlike_products_is_refused(facts: Facts) -> None:
    with pytest.raises(BadInput, match="truncated"):
        identify_product(Device("NVIDIA GeForce ..."), facts.gpus)


def test_a_product_that_is_not_known_is_its_capability_where_that_was_asked_for(
    facts: Facts,
) -> None:
    gpu, note = identify_product(Device("NVIDIA Made Up 9", capability="9.0"), facts.gpus)
    assert gpu == "9.0"
    assert "not a known product" in note


@pytest.mark.parametrize(
    ("gpu", "memory_mib", "part", "profile"),
    [
        ("A100-SXM4-80GB", 81920, Slice(memory_mib=9728, engines=1), "1g.10gb"),
        ("A100-SXM4-80GB", 81920, Slice(memory_mib=19968, engines=1), "1g.20gb"),
        ("A100-SXM4-80GB", 81920, Slice(memory_mib=19968, engines=2), "2g.20gb"),
        ("A100-SXM4-80GB", 81920, Slice(memory_mib=40192, engines=3), "3g.40gb"),
        ("A100-SXM4-80GB", 81920, Slice(memory_mib=40192, engines=4), "4g.40gb"),
        ("H100-SXM5-80GB", 81559, Slice(memory_mib=80896, engines=8), "7g.80gb"),
        ("A30", 24576, Slice(memory_mib=5952, engines=1), "1g.6gb"),
        ("A30", 24576, Slice(memory_mib=11968, engines=2), "2g.12gb"),
        ("A100-SXM4-80GB", 81920, Slice(memory_mib=40192), None),
        ("A100-SXM4-80GB", None, Slice(memory_mib=40192, engines=3), None),
        ("A100-SXM4-80GB", 81920, Slice(profile="1g.10gb+me"), "1g.10gb+me"),
    ],
)
def test_a_profile_follows_from_the_share_of_memory_and_copy_engines(
    facts: Facts, gpu: str, memory_mib: int | None, part: Slice, profile: str | None
) -> None:
    found = resolve_gpu(gpu, facts.gpus)
    assert find_profile(part, Device(gpu, memory_mib=memory_mib), found) == profile
