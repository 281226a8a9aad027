"""Nodes as a gate shows them, made without a database."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from compatgate.core.facts import Facts
from compatgate.documents.validation import read_body
from compatgate.service.matrix.snapshots.snapshot import Snapshot, build
from compatgate.service.nodes.comparison import MatrixComparer, NodeView
from compatgate.service.nodes.merging import merge_nodes, reported_nodes
from compatgate.service.nodes.schemas import Report

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
SPEC = {
    "pools": [
        {"name": "whole", "gpu": "A100-SXM4-80GB", "driver": "535.183.01", "count": 512},
        {"name": "l4", "gpu": "L4", "driver": "580.95.05"},
    ],
    "match": {"nodeLabels": {"pool": "prod"}},
}
ENTRY = {
    "targets": ["prod"],
    "components": {"driver": ">=535.104.05,<536", "cuda": "12.*"},
    "status": "blessed",
}


@pytest.fixture
def snapshot(facts: Facts) -> Snapshot:
    """A target of two pools and an entry that blesses the driver of one."""
    found: list[Any] = []
    for kind, name, spec in (("Target", "prod", SPEC), ("Entry", "stack", ENTRY)):
        body = {"metadata": {"name": name}, "spec": spec}
        found.append((kind, name, read_body(body, kind, facts.gpus, ["prod"]), 1))  # type: ignore[arg-type]
    return build(found, facts, 1)


@pytest.fixture
def seen(facts: Facts, snapshot: Snapshot) -> Callable[..., NodeView]:
    """A node by what is reported of it; ``stale`` as it is to be shown."""

    def view(name: str = "n1", *, stale: bool = False, **node: Any) -> NodeView:
        body = {"cluster": "eu", "nodes": [{"name": name, "labels": {"pool": "prod"}, **node}]}
        report = msgspec.convert(body, Report)
        (row,) = merge_nodes(report, reported_nodes(report, NOW, facts), {}, "reporter")
        gpus = [kind["gpu"] for kind in row.gpus]
        standing = MatrixComparer(snapshot).standing(
            row.driver, gpus, row.labels, (row.target, None)
        )
        return NodeView(row, standing, stale)

    return view
