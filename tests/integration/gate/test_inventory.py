"""The nodes in memory follow the reports of every process."""

from __future__ import annotations

from typing import Any

import msgspec
from sqlalchemy import text

from compatgate.kit.database import tables
from compatgate.kit.database.database import Database
from compatgate.service.cluster.admission.node_index import NodeIndex
from compatgate.service.gate.questions.service import Gate
from compatgate.service.matrix.documents.service import Authorship
from compatgate.service.nodes.reports.inventory import NodeInventory
from compatgate.service.nodes.reports.schemas import Report

TAINT = {"key": "team", "effect": "NoSchedule", "value": "a"}


def report(gate: Gate, name: str, **of: Any) -> None:
    node = {"name": name, "labels": {"zone": "x"}, **of}
    gate.nodes.report(msgspec.convert({"nodes": [node]}, Report), by="tester")


def names(index: NodeIndex | None, zone: str) -> set[str]:
    assert index is not None
    found = index.labelled("zone", zone) & index.alive
    return {name for _, name in index.keys() if index.with_fact("name", name) & found}  # noqa: SIM118


def test_another_process_sees_new_changed_and_removed_nodes(gate: Gate, by: Authorship) -> None:
    other = NodeInventory(gate.database)
    report(gate, "n1", taints=[TAINT])
    report(gate, "n2")
    assert names(other.index(), "x") == {"n1", "n2"}
    index = other.index()
    assert index is not None
    assert index.fact_values("taint") == ("team\0NoSchedule\0a",)
    report(gate, "n2", labels={"zone": "y"})
    report(gate, "n3")
    gate.nodes.remove("n1", by)
    assert names(other.index(), "x") == {"n1", "n2"}, "a look is due after some seconds"
    other.follow_change()
    assert names(other.index(), "x") == {"n3"}
    assert names(other.index(), "y") == {"n2"}
    before = index.version
    report(gate, "n2", labels={"zone": "y"})
    other.follow_change()
    assert index.version == before, "a repeated report changes nothing"
    other.close()


def test_a_report_without_taints_keeps_those_of_before(gate: Gate) -> None:
    report(gate, "n1", taints=[TAINT])
    report(gate, "n1")
    assert gate.nodes.show("n1").row.taints == [TAINT]
    report(gate, "n1", taints=[])
    assert gate.nodes.show("n1").row.taints == []


def test_nodes_survive_the_migration_down_and_up(database_url: str, gate: Gate) -> None:
    report(gate, "n1", taints=[TAINT])
    database = Database.open(database_url)
    assert tables.migrate_schema(database, "0010") == "0010"
    with database.reading() as session:
        assert session.execute(text("SELECT name FROM nodes")).scalars().all() == ["n1"]
    assert tables.migrate_schema(database) == tables.expected_version()
    shown = gate.nodes.show("n1")
    assert (shown.row.labels, shown.row.taints, shown.row.changed_at) == ({"zone": "x"}, [], None)
    inventory = NodeInventory(database)
    assert names(inventory.index(), "x") == {"n1"}
    report(gate, "n1", taints=[TAINT])
    inventory.follow_change()
    index = inventory.index()
    assert index is not None
    assert index.fact_values("taint") == ("team\0NoSchedule\0a",)
    inventory.close()
    database.close()
