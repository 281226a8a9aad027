"""Drift from memory is what the database says now, whichever gate took the report."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from sqlalchemy import text

from compatgate.errors import BadInput
from compatgate.kit import clock
from compatgate.kit.principal import Authorship
from compatgate.service.app import Rooms
from compatgate.service.nodes.reports import is_same_driver
from compatgate.service.nodes.schemas import Report
from compatgate.service.nodes.service import Nodes

OTHER = {
    "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
    "nvidia.com/gpu.count": "8",
    "nvidia.com/cuda.driver-version.full": "550.54.15",
}
SOUND = OTHER | {"nvidia.com/cuda.driver-version.full": "535.183.01"}


def tell(rooms: Rooms, cluster: str, *nodes: dict[str, Any]) -> None:
    named = [{"target": "prod-a100", **node} for node in nodes]
    rooms.nodes.report(msgspec.convert({"cluster": cluster, "nodes": named}, Report), by="reporter")


@pytest.fixture
def reader(stocked: Rooms) -> Nodes:
    """Another process that reads the same database."""
    return Nodes(stocked.gate.database, stocked.gate.facts, stocked.snapshots)


def drifted(reader: Nodes, **filters: Any) -> list[str]:
    return [f"{view.row.cluster}/{view.row.name}" for view in reader.drift(**filters).items]


def test_another_gate_sees_a_report_a_change_and_a_removal_at_once(
    stocked: Rooms, reader: Nodes, by: Authorship
) -> None:
    assert drifted(reader) == []
    tell(stocked, "eu", {"name": "a", "labels": OTHER}, {"name": "b", "labels": SOUND})
    assert drifted(reader) == ["eu/a"]
    tell(stocked, "eu", {"name": "a", "labels": SOUND}, {"name": "b", "labels": OTHER})
    assert drifted(reader) == ["eu/b"]
    stocked.nodes.remove("b", by)
    assert drifted(reader) == []
    assert reader.group_drift() == []


def test_groups_follow_a_change_of_the_matrix_and_count_only_what_filters_keep(
    stocked: Rooms, reader: Nodes, by: Authorship
) -> None:
    old = clock.now() - timedelta(days=2)
    tell(stocked, "eu", {"name": "a", "labels": OTHER}, {"name": "b", "labels": SOUND})
    tell(stocked, "us", {"name": "c", "labels": OTHER, "seen_at": old})
    (group,) = reader.group_drift()
    assert (group.nodes, group.of, group.stale, group.named) == (
        *(2, 3, 1),
        (("eu", "a"), ("us", "c")),
    )
    (kept,) = reader.group_drift(cluster="us", stale=True)
    page = reader.drift(cluster="us", stale=True)
    assert (kept.nodes, kept.of, len(page.items)) == (1, 1, 1)
    assert drifted(reader, stale=False) == ["eu/a"]
    assert drifted(reader, gpu="L4") == []
    target = stocked.matrix.get("Target", "prod-a100").document
    for pool in target["spec"]["pools"]:
        pool["driver"] = "550.54.15"
    stocked.matrix.change("Target", "prod-a100", target, by)
    assert drifted(reader, what="driver") == ["eu/b"]


def test_pages_of_drift_meet_without_gaps(stocked: Rooms, reader: Nodes) -> None:
    names = ["a-1", "a.1", "a1", "b"]  # which databases sort otherwise by their collation
    for cluster in ("us", "eu"):
        tell(stocked, cluster, *({"name": name, "labels": OTHER} for name in names))
    found, cursor = [], None
    while True:
        page = reader.drift(cursor=cursor, limit=3)
        found += [(view.row.cluster, view.row.name) for view in page.items]
        cursor = page.next
        if cursor is None:
            break
    assert found == sorted((cluster, name) for cluster in ("eu", "us") for name in names)


@pytest.mark.parametrize(("asked", "field"), [({"limit": 0}, "limit"), ({"cursor": "x"}, "cursor")])
def test_a_page_that_cannot_be_is_refused(reader: Nodes, asked: dict[str, Any], field: str) -> None:
    with pytest.raises(BadInput) as caught:
        reader.drift(**asked)
    assert caught.value.field == field


LABELS = (OTHER, SOUND, SOUND | {"nvidia.com/gpu.product": "NVIDIA-L4"}, {"pool": "x"})


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_fleet_that_changes_at_random_is_what_each_node_says(
    stocked: Rooms, reader: Nodes, by: Authorship, seed: int
) -> None:
    draw = random.Random(seed)
    for _ in range(12):
        cluster = draw.choice(("eu", "us"))
        picked = draw.sample(range(40), draw.randint(1, 15))
        named = [
            {
                "name": f"n{number}",
                "labels": draw.choice(LABELS),
                "target": draw.choice(("prod-a100", "ci-l4")),
                "seen_at": clock.now() - timedelta(hours=draw.choice((0, 30))),
            }
            for number in picked
        ]
        tell(stocked, cluster, *named)
        if draw.random() < 0.4:
            stocked.nodes.remove(f"n{picked[0]}", by, cluster)
        views = list(reader.each())
        keys = sorted((one.row.cluster, one.row.name) for one in views)
        for target in ("prod-a100", "ci-l4"):
            its = [
                (one.row.cluster, one.row.name) for one in views if target in one.standing.targets
            ]
            assert list(reader.keys_of(target)) == sorted(its)
        for driver in ("550.54.15", "535.183.1", "1.2.3"):
            its = [
                (one.row.cluster, one.row.name)
                for one in views
                if is_same_driver(one.row.driver or "", driver)
            ]
            found = reader.list(driver=driver, limit=1000).items
            assert [(one.row.cluster, one.row.name) for one in found] == sorted(its)
        differing = {
            (one.row.cluster, one.row.name): one for one in views if one.standing.differences
        }
        page = reader.drift(limit=1000).items
        assert [(one.row.cluster, one.row.name) for one in page] == sorted(differing)
        assert list(page) == [differing[key] for key in keys if key in differing]
        for group in reader.group_drift():
            members = [
                one
                for one in views
                for found in one.standing.differences
                if (found.target, found.what, found.have, tuple(found.declared))
                == (group.target, group.what, group.have, group.declared)
            ]
            assert (group.nodes, group.stale) == (len(members), sum(one.stale for one in members))


@pytest.mark.parametrize(("writer", "look"), [(-4, 0), (-4, 120), (120, 0), (120, -120), (0, 120)])
def test_a_change_is_seen_whichever_clock_is_wrong(
    stocked: Rooms, reader: Nodes, monkeypatch: pytest.MonkeyPatch, writer: int, look: int
) -> None:
    real = clock.now

    def shift(minutes: int) -> None:
        monkeypatch.setattr(clock, "now", lambda: real() + timedelta(minutes=minutes))

    hour = real() - timedelta(hours=1)
    nodes = [{"name": name, "labels": SOUND, "seen_at": hour} for name in ("a", "b")]
    tell(stocked, "eu", *nodes)
    shift(look)
    assert drifted(reader) == []
    shift(writer)
    tell(stocked, "eu", {"name": "a", "labels": OTHER})
    shift(look)
    assert drifted(reader) == ["eu/a"]
    shift(0)
    tell(stocked, "eu", {"name": "b", "labels": OTHER})
    shift(look)
    assert drifted(reader) == ["eu/a", "eu/b"]


def test_a_node_that_an_older_program_stored_is_seen(stocked: Rooms, reader: Nodes) -> None:
    tell(stocked, "eu", {"name": "a", "labels": SOUND})
    assert drifted(reader) == []
    tell(stocked, "eu", {"name": "b", "labels": OTHER})
    with stocked.gate.database.writing() as session:
        session.execute(text("UPDATE nodes SET changed_at = NULL WHERE name = 'b'"))
    assert drifted(reader) == ["eu/b"]
