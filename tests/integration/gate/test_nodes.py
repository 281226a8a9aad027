"""Nodes in the database: reports are kept once, shown against the matrix, filtered, forgotten."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from grouped_nodes import group_views

from compatgate.errors import BadInput, Conflict, NotFound
from compatgate.kit import clock
from compatgate.kit.principal import Authorship
from compatgate.service.app import Rooms
from compatgate.service.nodes.comparison import NodeView
from compatgate.service.nodes.schemas import Report

A100 = {
    "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
    "nvidia.com/gpu.count": "8",
    "nvidia.com/cuda.driver-version.full": "535.183.01",
}
L4 = A100 | {"nvidia.com/gpu.product": "NVIDIA-L4", "nvidia.com/gpu.count": "1"}


def tell(
    rooms: Rooms, *nodes: dict[str, Any], cluster: str = "eu", **others: Any
) -> list[NodeView]:
    report = msgspec.convert({"cluster": cluster, "nodes": nodes}, Report)
    return rooms.nodes.report(report, by="reporter", **others)


def names(page: Any) -> list[str]:
    return [view.row.name for view in page.items]


def links(rooms: Rooms) -> list[tuple[str, str, dict[str, Any]]]:
    found = rooms.audit.list_audit(action="node").items or ()
    more = rooms.audit.list_audit(action="nodes.report").items
    return [(row.action, row.subject, row.detail) for row in (*found, *more)]


def test_the_same_report_again_changes_nothing_but_the_time(stocked: Rooms) -> None:
    node = {"name": "n1", "labels": A100, "allocatable": {"nvidia.com/gpu": 8}}
    (first,) = tell(stocked, node)
    (second,) = tell(stocked, node)
    assert second.row.seen_at > first.row.seen_at
    times = {"seen_at": first.row.seen_at, "witnesses": first.row.witnesses}
    assert msgspec.structs.replace(second.row, **times) == first.row
    assert len(links(stocked)) == 1
    assert stocked.chain.verify().ok


def test_a_witness_that_is_not_asked_keeps_what_it_said(stocked: Rooms) -> None:
    tell(stocked, {"name": "n1", "labels": A100, "target": "prod-a100"})
    (found,) = tell(stocked, {"name": "n1", "probe": {"driver": "550.54.15"}})
    assert sorted(found.row.witnesses) == ["driver", "labels"]
    assert (found.row.driver, found.row.target) == ("550.54.15", "prod-a100")
    assert len(found.row.disagreements) == 1


def test_a_changed_driver_is_audited_and_dated(stocked: Rooms) -> None:
    (before,) = tell(stocked, {"name": "n1", "labels": A100})
    changed = A100 | {"nvidia.com/cuda.driver-version.full": "550.54.15"}
    (after,) = tell(stocked, {"name": "n1", "labels": changed})
    assert after.row.since > before.row.since
    assert after.row.first_seen_at == before.row.first_seen_at
    action, subject, detail = links(stocked)[0]
    assert (action, subject, detail["counts"]) == ("nodes.report", "eu", {"changed": 1, "new": 0})
    assert detail["changed"]["n1"]["driver"] == ["535.183.01", "550.54.15"]


def test_reports_that_come_late_set_nothing_back(stocked: Rooms) -> None:
    now = clock.now()
    tell(stocked, {"name": "n1", "labels": A100})
    old = A100 | {"nvidia.com/cuda.driver-version.full": "525.60.13"}
    (found,) = tell(stocked, {"name": "n1", "labels": old, "seen_at": now - timedelta(hours=1)})
    assert found.row.driver == "535.183.01"
    assert found.row.seen_at >= now


def test_a_dry_run_keeps_nothing(stocked: Rooms) -> None:
    (found,) = tell(stocked, {"name": "n1", "labels": A100}, dry_run=True)
    assert found.standing.driver == "blessed"
    assert names(stocked.nodes.list()) == []


def test_nodes_are_filtered_by_what_was_seen_and_by_what_the_matrix_says(stocked: Rooms) -> None:
    other = A100 | {"nvidia.com/cuda.driver-version.full": "550.54.15"}
    tell(stocked, {"name": "a", "labels": A100}, {"name": "b", "labels": other})
    tell(
        stocked,
        {"name": "c", "labels": L4, "probe": {"driver": "580.95.05"}},
        {"name": "d", "labels": {}},
        cluster="us",
    )
    listed = stocked.nodes.list
    assert names(listed()) == ["a", "b", "c", "d"]
    assert names(listed(cluster="us")) == ["c", "d"]
    assert names(listed(target="prod-a100")) == ["a", "b"]
    assert names(listed(gpu="a100 sxm4 80 GB")) == ["a", "b"]
    assert names(listed(driver="535.183.1")) == ["a"]
    assert names(listed(driver_state="not-blessed")) == ["b"]
    assert names(listed(driver_state="unknown")) == ["d"]
    assert names(listed(disagrees=True)) == ["c"]
    assert names(listed(gpu="%")) == names(listed(gpu="_")) == []
    assert names(stocked.nodes.drift()) == ["b"]
    assert names(stocked.nodes.drift(target="inference-l4")) == []
    assert names(stocked.nodes.drift(what="gpu")) == []


def test_the_matrix_as_it_is_now_decides(stocked: Rooms, by: Authorship) -> None:
    tell(stocked, {"name": "a", "labels": A100})
    assert names(stocked.nodes.drift()) == []
    document = stocked.matrix.get("Target", "prod-a100").document
    document["spec"]["pools"][0]["driver"] = "570.124.06"
    stocked.matrix.change("Target", "prod-a100", document, by)
    assert names(stocked.nodes.drift(what="driver")) == ["a"]


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
def test_pages_lead_through_what_a_filter_leaves(stocked: Rooms, limit: int) -> None:
    nodes = [{"name": f"n{i}", "labels": A100 if i % 3 else L4} for i in range(10)]
    tell(stocked, *nodes)
    found: list[str] = []
    cursor = None
    while True:
        page = stocked.nodes.list(target="prod-a100", cursor=cursor, limit=limit)
        assert len(page.items) <= limit
        found += names(page)
        if (cursor := page.next) is None:
            break
    assert found == [f"n{i}" for i in range(10) if i % 3]


def test_a_node_that_nothing_is_heard_of_is_stale(stocked: Rooms) -> None:
    long_ago = clock.now() - timedelta(days=2)
    tell(stocked, {"name": "old", "labels": A100, "seen_at": long_ago}, {"name": "new"})
    assert names(stocked.nodes.list(stale=True)) == ["old"]
    assert names(stocked.nodes.list(stale=False)) == ["new"]
    assert stocked.nodes.show("old").stale


def test_a_node_is_forgotten_with_a_reason(stocked: Rooms, by: Authorship) -> None:
    tell(stocked, {"name": "n1", "labels": A100})
    stocked.nodes.remove("n1", by)
    with pytest.raises(NotFound, match="node 'n1' does not exist"):
        stocked.nodes.show("n1")
    (link,) = stocked.audit.list_audit(action="node.remove").items
    assert (link.subject, link.detail["reason"]) == ("eu/n1", by.reason)
    tell(stocked, {"name": "n1", "labels": A100})
    assert names(stocked.nodes.list()) == ["n1"]


def test_a_name_of_two_clusters_needs_the_cluster(stocked: Rooms, by: Authorship) -> None:
    for cluster in ("eu", "us"):
        tell(stocked, {"name": "n1", "labels": A100}, cluster=cluster)
    with pytest.raises(Conflict, match="of eu, us"):
        stocked.nodes.show("n1")
    stocked.nodes.remove("n1", by, "us")
    assert stocked.nodes.show("n1").row.cluster == "eu"


def test_what_cannot_be_is_refused(stocked: Rooms) -> None:
    with pytest.raises(BadInput, match=r"nodes\[1\].name: 'a' is listed twice in the report"):
        tell(stocked, {"name": "a"}, {"name": "a"})
    later = clock.now() + timedelta(hours=1)
    with pytest.raises(BadInput, match=r"nodes\[0\].seen_at: '.*' is in the future"):
        tell(stocked, {"name": "a", "seen_at": later})


@pytest.mark.parametrize("filters", [{}, {"what": "driver"}, {"gpu": "L4"}, {"target": "none"}])
@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_groups_are_those_of_all_nodes_and_pages_have_each_once(
    stocked: Rooms, filters: dict[str, Any], limit: int
) -> None:
    other = A100 | {"nvidia.com/cuda.driver-version.full": "550.54.15"}
    drifting = [{"name": f"n{n}", "labels": other, "target": "prod-a100"} for n in range(3)]
    tell(stocked, *drifting, {"name": "l4", "labels": L4, "target": "prod-a100"})
    tell(stocked, {"name": "sound", "labels": A100, "target": "prod-a100"})
    groups = stocked.nodes.group_drift(**filters)
    found = stocked.nodes.drift(**filters, limit=limit)
    rest = stocked.nodes.drift(**filters, cursor=found.next) if found.next else None
    assert len(found.items) + len(rest.items if rest else ()) == sum(
        1 for _ in stocked.nodes.drift(**filters).items
    )
    assert rest is None or rest.items
    everything = group_views(
        stocked.nodes.each(gpu=filters.get("gpu")), stocked.gate.snapshot(),
        target=filters.get("target"), what=filters.get("what"),
    )  # fmt: skip
    assert groups == everything
    assert bool(groups) == ("target" not in filters)
