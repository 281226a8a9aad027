"""Drift in groups: how many of how many, in what, since when."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from grouped_nodes import group_views

from compatgate.service.matrix.snapshots.snapshot import Snapshot
from compatgate.service.nodes.fleet import NAMED

from .conftest import NOW

GPUS = [{"gpu": "A100-SXM4-80GB", "count": 8}]
FITS = {"driver": "535.183.01", "gpus": GPUS}
OTHER = {"driver": "550.54.15", "gpus": GPUS}


def test_nodes_with_the_same_difference_are_one_group(seen: Any, snapshot: Snapshot) -> None:
    views = [seen(f"ok-{n}", probe=FITS) for n in range(5)]
    views += [
        seen("a", probe=OTHER, seen_at=NOW - timedelta(hours=2)),
        seen("b", probe=OTHER, seen_at=NOW - timedelta(hours=7), stale=True),
    ]
    (group,) = group_views(views, snapshot)
    assert group.message == ("2 of 7 nodes of prod report driver 550.54.15 instead of 535.183.01")
    assert group.brief == "2 of 7 nodes report driver 550.54.15 instead of 535.183.01"
    assert (group.since, group.newest) == (NOW - timedelta(hours=7), NOW - timedelta(hours=2))
    assert (group.stale, group.pool) == (1, "whole")
    assert group.named == (("eu", "a"), ("eu", "b"))


def test_the_most_nodes_come_first_and_some_are_named(seen: Any, snapshot: Snapshot) -> None:
    views = [seen("strange", probe={**OTHER, "driver": "999.1"})]
    views += [seen(f"n{number:02}", probe=OTHER) for number in range(NAMED + 3)]
    first, second = group_views(views, snapshot)
    assert (first.nodes, len(first.named), second.nodes) == (NAMED + 3, NAMED, 1)


def test_what_is_not_known_is_said_so(seen: Any, snapshot: Snapshot) -> None:
    gpu, driver = group_views([seen("n", probe={"driver": None})], snapshot, target="prod")
    assert driver.message.startswith("1 of 1 node of prod does not report its")
    assert {gpu.have, driver.have} == {None}


@pytest.mark.parametrize(("asked", "found"), [({"what": "gpu"}, 1), ({"target": "gone"}, 0)])
def test_groups_are_narrowed(seen: Any, snapshot: Snapshot, asked: Any, found: int) -> None:
    views = [seen("n", probe={"driver": "535.183.01", "gpus": [{"gpu": "Q9000"}]})]
    assert len(group_views(views, snapshot, **asked)) == found


def test_many_are_in_the_plural(seen: Any, snapshot: Snapshot) -> None:
    views = [seen(name, probe={"driver": None, "gpus": GPUS}) for name in "ab"]
    (group,) = group_views(views, snapshot)
    assert group.message == (
        "2 of 2 nodes of prod do not report their driver; the target declares 535.183.01"
    )
