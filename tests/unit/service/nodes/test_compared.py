"""Witnesses beside each other: what each says, what differs, and whose word counts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from compatgate.service.nodes.details import SourceComparison, SourceLine, compare_sources

A100 = {
    "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
    "nvidia.com/gpu.count": "8",
    "nvidia.com/cuda.driver-version.full": "535.183.01",
}
OWN = {"driver": "550.54.15", "cuda": "12.4", "gpus": [{"gpu": "A100 80GB SXM", "count": 8}]}


def line(found: SourceComparison, name: str) -> SourceLine:
    return next(one for one in found.lines if one.name == name)


def test_the_drivers_own_report_decides(seen: Any) -> None:
    found = compare_sources(seen(labels=A100, probe=OWN).row)
    assert [one.witness for one in found.witnesses] == ["driver", "labels"]
    driver, gpus = line(found, "Driver"), line(found, "GPUs")
    assert driver.said == {"driver": "550.54.15", "labels": "535.183.01"}
    assert (driver.decides, driver.differ) == ("driver", True)
    assert (gpus.decides, gpus.differ) == ("driver", False)
    assert found.why == ("The driver's own report decides about driver and GPUs.",)


def test_two_spellings_of_a_driver_do_not_differ(seen: Any) -> None:
    labels = A100 | {"nvidia.com/cuda.driver-version.full": "535.54.3"}
    found = compare_sources(seen(labels=labels, probe=OWN | {"driver": "535.54.03"}).row)
    assert not line(found, "Driver").differ


def test_a_report_that_is_out_of_date_decides_no_more(seen: Any) -> None:
    row = seen(labels=A100, probe=OWN).row
    long_ago = (datetime(2026, 11, 19, 12, tzinfo=UTC) - timedelta(hours=1)).isoformat()
    old = {**row.witnesses["driver"], "seen_at": long_ago}
    found = compare_sources(
        msgspec.structs.replace(row, witnesses={**row.witnesses, "driver": old})
    )
    assert line(found, "Driver").decides == "labels"
    assert "more than a day older than the labels" in found.why[0]
    assert "2026-11-19 11:00:00 UTC" in found.why[0]


def test_where_only_one_tells_it_decides(seen: Any) -> None:
    assert compare_sources(seen(labels=A100).row).why == (
        "Only the labels report its driver and GPUs.",
    )
    (why,) = compare_sources(seen(labels=None, probe=OWN).row).why
    assert why.startswith("Only the driver itself reports")


def test_what_the_first_leaves_out_the_other_says(seen: Any) -> None:
    found = compare_sources(seen(labels=A100, probe={"driver": None}).row)
    assert line(found, "Driver").decides == "labels"
    assert found.why[1] == (
        "The driver's report says nothing of the driver and GPUs: the other source decides."
    )


def test_nobody_tells(seen: Any) -> None:
    found = compare_sources(seen(probe={"driver": None}, allocatable={"nvidia.com/gpu": 8}).row)
    assert found.why[0].startswith("No source reports its driver and GPUs")
    assert [one.name for one in found.lines] == ["nvidia.com/gpu"]


def test_what_the_kubelet_hands_out_is_held_against_the_labels(seen: Any) -> None:
    fewer = compare_sources(seen(labels=A100, allocatable={"nvidia.com/gpu": 7}).row)
    gpus = line(fewer, "nvidia.com/gpu")
    assert gpus.said == {"labels": "8 expected", "kubelet": "7 handed out"}
    assert (gpus.differ, gpus.decides) == (True, None)
    shared = compare_sources(seen(labels=A100, allocatable={"nvidia.com/gpu.shared": 8}).row)
    assert line(shared, "nvidia.com/gpu").said["kubelet"] == "8 handed out, by sharing"
    assert not line(shared, "nvidia.com/gpu").differ
