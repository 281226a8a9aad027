"""Whole GPUs and MIG slices: which pools of a target a request leads to."""

from __future__ import annotations

from typing import Any

import pytest

from compatgate.documents.specs import MatchSpec, PoolSpec, TargetSpec
from compatgate.service.cluster.matching import terms_of
from compatgate.service.cluster.placement import (
    describe_products,
    mig_profile,
    node_selection_of,
    pools_for,
)

PRODUCT, STRATEGY = "nvidia.com/gpu.product", "nvidia.com/mig.strategy"
H100 = "NVIDIA-H100-80GB-HBM3"
GPU = "nvidia.com/gpu"
WHOLE = PoolSpec("whole", "H100-SXM5-80GB", "580.95.05")
SMALL = PoolSpec("small", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "580.95.05")
LARGE = PoolSpec("large", "H100-SXM5-80GB-MIG-3g.40gb", "580.95.05")
MEDIA = PoolSpec("media", "H100-SXM5-80GB-MIG-1g.10gb.me", "580.95.05")
ALL = (WHOLE, SMALL, LARGE, MEDIA)


def pools(resource: str | None, *selectors: dict[str, str], **of: Any) -> set[str]:
    """Pools that a request leads to, by the node selectors of several alternatives."""
    target = TargetSpec(of.pop("pools", ALL), MatchSpec(node_labels=of.pop("labels", {})))
    terms = [term for labels in selectors or ({},) for term in terms_of({"nodeSelector": labels})]
    return set(pools_for(target, resource, node_selection_of(terms)))


@pytest.mark.parametrize(
    ("resource", "found"),
    [
        (GPU, {"whole"}),
        ("nvidia.com/mig-1g.10gb", {"small"}),
        ("nvidia.com/mig-3g.40gb", {"large"}),
        ("nvidia.com/mig-1g.10gb.me", {"media"}),
        ("nvidia.com/mig-1g.10gb.shared", {"small"}),
        ("nvidia.com/mig-7g.80gb", set()),
        ("nvidia.com/mig-", set()),
        ("nvidia.com/gpu.shared", {"whole", "small", "large", "media"}),
        ("deviceclass.resource.kubernetes.io/gpu.nvidia.com", {"whole"}),
        ("deviceclass.resource.kubernetes.io/mig.nvidia.com", {"small", "large", "media"}),
        ("deviceclass.resource.kubernetes.io/ours", {"whole", "small", "large", "media"}),
        ("example.com/gpu", {"whole", "small", "large", "media"}),
        (None, {"whole", "small", "large", "media"}),
    ],
)
def test_the_requested_resource_picks_the_pools(resource: str | None, found: set[str]) -> None:
    assert pools(resource) == found


@pytest.mark.parametrize(
    ("resource", "product", "found"),
    [
        (GPU, H100, {"whole"}),
        (GPU, f"{H100}-MIG-1g.10gb", {"small"}),
        (GPU, f"{H100}-MIG-1g.10gb-SHARED", {"small"}),
        (GPU, f"{H100}-MIG-7g.80gb", set()),
        ("nvidia.com/mig-1g.10gb", H100, {"small"}),
        ("nvidia.com/mig-1g.10gb", f"{H100}-MIG-3g.40gb", set()),
        (None, H100, {"whole", "small", "large", "media"}),
        (None, f"{H100}-MIG-3g.40gb", {"large"}),
    ],
)
def test_the_product_that_a_pod_selects_narrows_them(
    resource: str | None, product: str, found: set[str]
) -> None:
    assert pools(resource, {PRODUCT: product}) == found


def test_slices_may_be_handed_out_as_whole_gpus_where_the_strategy_is_single() -> None:
    assert pools(GPU, {STRATEGY: "single"}) == {"whole", "small", "large", "media"}
    assert pools(GPU, {STRATEGY: "mixed"}) == {"whole"}
    assert pools(GPU, labels={STRATEGY: "single"}) == {"whole", "small", "large", "media"}
    assert pools(GPU, {STRATEGY: "single", PRODUCT: H100}) == {"whole"}


def test_a_target_without_whole_gpus_hands_out_its_slices() -> None:
    assert pools(GPU, pools=(SMALL, LARGE)) == {"small", "large"}
    assert pools(GPU, {PRODUCT: f"{H100}-MIG-3g.40gb"}, pools=(SMALL, LARGE)) == {"large"}


def test_labels_that_the_target_states_are_those_of_its_nodes() -> None:
    assert pools(GPU, labels={PRODUCT: f"{H100}-MIG-1g.10gb"}) == {"small"}
    assert pools(GPU, labels={PRODUCT: H100}) == {"whole"}


def test_alternatives_lead_to_the_pools_of_each() -> None:
    either = {PRODUCT: H100}, {PRODUCT: f"{H100}-MIG-3g.40gb"}
    assert pools(GPU, *either) == {"whole", "large"}


def test_alternatives_beyond_number_may_lead_anywhere() -> None:
    many = [{PRODUCT: f"{H100}-MIG-{n % 8}g.{n}gb"} for n in range(1, 200)]
    assert pools(GPU, *many) == {"whole", "small", "large", "media"}
    assert pools("nvidia.com/mig-3g.40gb", *many) == {"large"}


def test_what_a_target_has_is_named() -> None:
    assert describe_products(TargetSpec((LARGE, WHOLE, SMALL))) == "whole GPUs, 1g.10gb, 3g.40gb"


def test_a_name_without_a_profile_is_a_whole_gpu() -> None:
    assert mig_profile("NVIDIA-A100-SXM4-40GB") is None
    assert mig_profile("") is None
