"""Witnesses of a node: what each says, where they disagree, and which of them decides."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from compatgate.core.facts import Facts
from compatgate.service.nodes.reports import NodeConclusion, source_reports, weigh_sources
from compatgate.service.nodes.schemas import GpusBody, NodeReport

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
LABELS = {
    "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
    "nvidia.com/gpu.count": "8",
    "nvidia.com/cuda.driver-version.full": "535.183.01",
    "kubernetes.io/arch": "amd64",
}
MIXED = {
    "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB",
    "nvidia.com/gpu.count": "2",
    "nvidia.com/gpu.replicas": "0",
    "nvidia.com/mig.strategy": "mixed",
    "nvidia.com/cuda.driver-version.full": "535.183.01",
    "nvidia.com/mig-1g.5gb.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb-SHARED",
    "nvidia.com/mig-1g.5gb.count": "4",
    "nvidia.com/mig-1g.5gb.replicas": "2",
    "nvidia.com/mig-3g.20gb.product": "NVIDIA-A100-SXM4-40GB-MIG-3g.20gb",
    "nvidia.com/mig-3g.20gb.count": "1",
}
OWN = {"driver": "535.183.01", "gpus": [{"gpu": "A100 80GB SXM", "count": 8}]}


@pytest.fixture
def concluded(facts: Facts) -> Any:
    """What counts of a node that is described; ``later`` is when its labels were read."""

    def of(*, later: timedelta = timedelta(0), **node: Any) -> NodeConclusion:
        report = msgspec.convert({"name": "n1", **node}, NodeReport)
        witnesses = source_reports(report, NOW, facts)
        if "labels" in witnesses:
            witnesses["labels"] = msgspec.structs.replace(witnesses["labels"], seen_at=NOW + later)
        return weigh_sources(witnesses)

    return of


def test_labels_alone_tell_driver_and_gpus(concluded: Any) -> None:
    found = concluded(labels=LABELS)
    assert found == NodeConclusion("535.183.01", (GpusBody("A100-SXM4-80GB", 8),), ())


def test_witnesses_that_agree_in_other_words_agree(concluded: Any) -> None:
    own = {"driver": "535.183.1", "gpus": [{"gpu": "NVIDIA A100-SXM4-80GB"}] * 8}
    found = concluded(labels=LABELS, allocatable={"nvidia.com/gpu": 8, "cpu": 64}, probe=own)
    assert found.disagreements == ()


def test_the_drivers_own_report_decides(concluded: Any) -> None:
    own = {"driver": "550.54.15", "gpus": [{"gpu": "A100-SXM4-80GB", "count": 7}]}
    found = concluded(labels=LABELS, probe=own)
    assert (found.driver, found.gpus) == ("550.54.15", (GpusBody("A100-SXM4-80GB", 7),))
    assert found.disagreements == (
        "the labels say driver 535.183.01, the driver itself 550.54.15: "
        "the driver's own report decides",
        "the labels say 8 x A100-SXM4-80GB, the driver itself 7 x A100-SXM4-80GB: "
        "the driver's own report decides",
    )


def test_a_report_of_the_driver_that_is_long_out_of_date_decides_no_more(concluded: Any) -> None:
    own = OWN | {"driver": "525.60.13"}
    within = concluded(labels=LABELS, probe=own, later=timedelta(hours=23))
    assert within.driver == "525.60.13"
    found = concluded(labels=LABELS, probe=own, later=timedelta(days=9))
    assert found.driver == "535.183.01"
    assert "its own report" not in found.disagreements[0]
    assert (
        "is of 2026-11-21 12:00:00 UTC, long before the labels, which decide"
        in found.disagreements[0]
    )


def test_what_one_witness_leaves_open_another_tells(concluded: Any) -> None:
    without = {k: v for k, v in LABELS.items() if "driver" not in k}
    assert concluded(labels=without, probe={"driver": "550.54.15"}) == NodeConclusion(
        "550.54.15", (GpusBody("A100-SXM4-80GB", 8),), ()
    )
    assert concluded(labels=LABELS, probe={"driver": None}).driver == "535.183.01"


def test_a_kubelet_that_hands_out_fewer_gpus_is_noticed(concluded: Any) -> None:
    found = concluded(labels=LABELS, allocatable={"nvidia.com/gpu": 7})
    assert found.gpus == (GpusBody("A100-SXM4-80GB", 8),)
    assert found.disagreements == ("the labels make 8 of nvidia.com/gpu, the kubelet hands out 7",)
    assert "hands out 0" in concluded(labels=LABELS, allocatable={}).disagreements[0]


def test_sharing_is_counted_as_the_device_plugin_does(concluded: Any) -> None:
    shared = LABELS | {"nvidia.com/gpu.replicas": "4"}
    assert concluded(labels=shared, allocatable={"nvidia.com/gpu.shared": 32}).disagreements == ()
    assert concluded(labels=shared, allocatable={"nvidia.com/gpu": 8}).disagreements


def test_slices_are_kinds_of_their_own(concluded: Any) -> None:
    given = {"nvidia.com/mig-1g.5gb": 8, "nvidia.com/mig-3g.20gb": 1}
    found = concluded(labels=MIXED, allocatable=given)
    assert [(kind.gpu, kind.count) for kind in found.gpus] == [
        ("A100-SXM4-40GB-MIG-1g.5gb", 4), ("A100-SXM4-40GB-MIG-3g.20gb", 1),
    ]  # fmt: skip
    assert found.disagreements == ()


def test_labels_that_contradict_themselves_say_so(concluded: Any) -> None:
    cuda = {"nvidia.com/cuda.runtime.major": "13", "nvidia.com/cuda.runtime.minor": "0"}
    (said,) = concluded(labels=LABELS | cuda).disagreements
    assert "the labels say CUDA 13.0, but driver 535.183.01 is of CUDA 12.2" in said


def test_a_gpu_that_the_facts_do_not_know_keeps_its_name(concluded: Any) -> None:
    found = concluded(probe={"driver": "999.1", "gpus": [{"gpu": "NVIDIA Z9000", "count": 2}]})
    assert found == NodeConclusion("999.1", (GpusBody("NVIDIA Z9000", 2),), ())


def test_a_node_without_gpus_has_none(concluded: Any) -> None:
    assert concluded(labels={"kubernetes.io/os": "linux"}) == NodeConclusion(None, (), ())
    present = concluded(labels={"nvidia.com/gpu.present": "true"})
    assert "no label of GPU Feature Discovery names" in present.disagreements[0]
