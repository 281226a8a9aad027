"""The nodes in memory follow the reports of every process."""

from __future__ import annotations

from typing import Any

import msgspec
from sqlalchemy import text

from compatgate.kit.database import tables
from compatgate.kit.database.database import Database
from compatgate.kit.principal import Authorship
from compatgate.service.app import Rooms
from compatgate.service.cluster.node_index import NodeIndex
from compatgate.service.nodes.inventory import NodeInventory
from compatgate.service.nodes.schemas import Report

TAINT = {"key": "team", "effect": "NoSchedule", "value": "a"}


def report(rooms: Rooms, name: str, **of: Any) -> None:
    node = {"name": name, "labels": {"zone": "x"}, **of}
    rooms.nodes.report(msgspec.convert({"nodes": [node]}, Report), by="tester")


def names(index: NodeIndex | None, zone: str) -> set[str]:
    assert index is not None
    found = index.labelled("zone", zone) & index.alive
    return {name for _, name in index.keys() if index.with_fact("name", name) & found}  # noqa: SIM118


def test_another_process_sees_new_changed_and_removed_nodes(rooms: Rooms, by: Authorship) -> None:
    other = NodeInventory(rooms.gate.database)
    report(rooms, "n1", taints=[TAINT])
    report(rooms, "n2")
    assert names(other.index(), "x") == {"n1", "n2"}
    index = other.index()
    assert index is not None
    assert index.fact_values("taint") == ("team\0NoSchedule\0a",)
    report(rooms, "n2", labels={"zone": "y"})
    report(rooms, "n3")
    rooms.nodes.remove("n1", by)
    assert names(other.index(), "x") == {"n1", "n2"}, "a look is due after some seconds"
    other.follow_change()
    assert names(other.index(), "x") == {"n3"}
    assert names(other.index(), "y") == {"n2"}
    before = index.version
    report(rooms, "n2", labels={"zone": "y"})
    other.follow_change()
    assert index.version == before, "a repeated report changes nothing"
    other.close()


def test_a_report_without_taints_keeps_those_of_before(rooms: Rooms) -> None:
    report(rooms, "n1", taints=[TAINT])
    report(rooms, "n1")
    assert rooms.nodes.show("n1").row.taints == [TAINT]
    report(rooms, "n1", taints=[])
    assert rooms.nodes.show("n1").row.taints == []


def test_nodes_survive_the_migration_down_and_up(database_url: str, rooms: Rooms) -> None:
    report(rooms, "n1", taints=[TAINT])
    database = Database.open(database_url)
    assert tables.migrate_schema(database, "0010") == "0010"
    with database.reading() as session:
        assert session.execute(text("SELECT name FROM nodes")).scalars().all() == ["n1"]
    assert tables.migrate_schema(database) == tables.expected_version()
    shown = rooms.nodes.show("n1")
    assert (shown.row.labels, shown.row.taints, shown.row.changed_at) == ({"zone": "x"}, [], None)
    inventory = NodeInventory(database)
    assert names(inventory.index(), "x") == {"n1"}
    report(rooms, "n1", taints=[TAINT])
    inventory.follow_change()
    index = inventory.index()
    assert index is not None
    assert index.fact_values("taint") == ("team\0NoSchedule\0a",)
    inventory.close()
    database.close()
