"""A node beside what its targets declare."""

from __future__ import annotations

from typing import Any

from compatgate.service.matrix.snapshots.snapshot import Snapshot
from compatgate.service.nodes.details import (
    GpuKind,
    compare_pools,
    gpu_kinds,
    single_pool,
    target_matches,
)

OWN = {"driver": "550.54.15", "gpus": [{"gpu": "A100-SXM4-80GB", "count": 8}]}


def test_a_node_belongs_by_its_labels(seen: Any, snapshot: Snapshot) -> None:
    (one,) = target_matches(seen(), snapshot)
    assert (one.target, one.is_there) == ("prod", True)
    assert one.why == "it has the target's labels pool=prod"


def test_an_annotation_or_a_label_names_its_target(seen: Any, snapshot: Snapshot) -> None:
    (noted,) = target_matches(seen(target="prod"), snapshot)
    assert noted.why == "its annotation compatgate.dev/target names it"
    (labelled,) = target_matches(seen(labels={"compatgate.dev/target": "gone"}), snapshot)
    assert labelled.why == "its label compatgate.dev/target names it"
    assert not labelled.is_there


def test_a_node_of_no_target_belongs_nowhere(seen: Any, snapshot: Snapshot) -> None:
    assert target_matches(seen(labels={}), snapshot) == ()
    assert compare_pools(seen(labels={}), snapshot) == ()


def test_pools_with_its_gpus_come_first(seen: Any, snapshot: Snapshot) -> None:
    l4 = {"driver": "580.95.05", "gpus": [{"gpu": "NVIDIA L4"}]}
    first, second = compare_pools(seen(probe=l4), snapshot)
    assert (first.pool.name, first.gpus, first.same_driver, first.fits) == (
        "l4",
        ("L4",),
        True,
        True,
    )
    assert (second.pool.name, second.gpus, second.fits) == ("whole", (), False)


def test_another_driver_fits_no_pool_and_an_unknown_one_is_neither(
    seen: Any, snapshot: Snapshot
) -> None:
    other = compare_pools(seen(probe=OWN), snapshot)[0]
    assert (other.pool.name, other.same_driver, other.fits) == ("whole", False, False)
    unknown = compare_pools(seen(probe={**OWN, "driver": "nouveau"}), snapshot)[0]
    assert (unknown.same_driver, unknown.fits) == (None, False)


def test_the_pool_is_told_only_where_it_is_one_of_several(snapshot: Snapshot) -> None:
    assert single_pool("prod", ["L4"], snapshot) == "l4"
    assert single_pool("prod", ["L4", "A100-SXM4-80GB"], snapshot) is None
    assert single_pool("prod", ["H100-PCIE-80GB"], snapshot) is None
    assert single_pool("gone", ["L4"], snapshot) is None


def test_slices_are_told_from_whole_gpus(seen: Any, snapshot: Snapshot) -> None:
    gpus = [
        {"gpu": "A100-SXM4-80GB", "count": 6},
        {"gpu": "NVIDIA A100-SXM4-80GB MIG 1g.10gb", "count": 14},
        {"gpu": "Q9000"},
    ]
    found = gpu_kinds(seen(probe={"driver": "535.183.01", "gpus": gpus}), snapshot)
    assert set(found) == {
        GpuKind("A100-SXM4-80GB", None, 6, True),
        GpuKind("A100-SXM4-80GB", "1g.10gb", 14, True),
        GpuKind("Q9000", None, 1, False),
    }
