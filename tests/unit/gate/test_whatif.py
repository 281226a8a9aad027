"""What if, asked of a snapshot by the names that people have for things."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from compatgate.core.facts import Facts, Gpus
from compatgate.documents.read import read_documents
from compatgate.documents.sources import read_paths
from compatgate.documents.specs import kind_of
from compatgate.errors import BadInput, NotFound
from compatgate.gate.snapshot import Snapshot, Version, build
from compatgate.gate.whatif import what_if
from compatgate.resources import matrix_dir


@pytest.fixture(scope="module")
def snapshot(facts: Facts, gpus: Gpus) -> Snapshot:
    """The example matrix."""
    documents = read_documents(read_paths([matrix_dir() / "examples"]), gpus)
    versions: list[Version] = [(kind_of(d), d.metadata.name, d, 1) for d in documents]
    return build(versions, facts, 1)


def test_every_pool_of_the_target_changes(snapshot: Snapshot, now: datetime) -> None:
    found = what_if(snapshot, "staging-h100", {"driver": "570.124.06"}, now)
    assert [pool["driver"] for pool in found.after] == ["570.124.06", "570.124.06"]


def test_or_one_pool_alone(snapshot: Snapshot, now: datetime) -> None:
    found = what_if(snapshot, "staging-h100", {"driver": "570.124.06"}, now, pool="h100-80")
    assert [pool["name"] for pool in found.after] == ["h100-80"]


def test_another_spelling_of_a_component_means_the_same(snapshot: Snapshot, now: datetime) -> None:
    one = what_if(snapshot, "prod-a100", {"nvidia-driver": "470.256.02"}, now)
    assert one == what_if(snapshot, "prod-a100", {"driver": "470.256.02"}, now)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({}, "set"),
        ({"driver": None}, "set.driver"),
        ({"driver": "new"}, "set.driver"),
        ({"driver": 580}, "set.driver"),
        ({"gpu": "A1000000"}, "set.gpu"),
        ({"hypervisor": "1.0"}, "hypervisor"),
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
