"""Groups nodes as the gate compares them, from nodes that a test made."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from compatgate.service.matrix.snapshots.snapshot import Snapshot
from compatgate.service.nodes.comparison import NodeView
from compatgate.service.nodes.fleet import ComparedNodes, DriftGroup, drift_groups


def group_views(views: Iterable[NodeView], snapshot: Snapshot, **asked: Any) -> list[DriftGroup]:
    """The drift of nodes, each a part of its own; those that are stale count so."""
    listed = list(views)
    fleet = [
        ComparedNodes(
            view.row.driver,
            tuple(kind["gpu"] for kind in view.row.gpus),
            view.standing,
            {(view.row.cluster, view.row.name): view.row.since},
        )
        for view in listed
    ]
    stale = {(view.row.cluster, view.row.name) for view in listed if view.stale}
    return drift_groups(fleet, snapshot, stale=stale, **asked)
