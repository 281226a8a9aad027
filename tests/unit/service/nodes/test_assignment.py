"""What reports with and without the scope bless say of a node's target, one after the other."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from compatgate.errors import Forbidden
from compatgate.kit.principal import Authorship, Principal
from compatgate.service.app import Rooms
from compatgate.service.nodes.schemas import Report

OPERATOR = Principal("job", frozenset({"operate"}))
BLESSER = Principal("mara", frozenset({"operate", "bless"}))
A100 = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}


def report(rooms: Rooms, who: Principal, cluster: str = "one", **node: Any) -> None:
    body = {"cluster": cluster, "nodes": [{"name": "n1", "labels": A100, **node}]}
    rooms.nodes.report(msgspec.convert(body, Report), by=who.name, principal=who)


def assigned(rooms: Rooms) -> tuple[str | None, str | None]:
    row = rooms.nodes.show("n1").row
    return row.target, row.assigned


@pytest.mark.parametrize(
    ("reports", "found"),
    [
        ([(OPERATOR, {"target": "lab"})], ("lab", None)),
        ([(BLESSER, {"target": "lab"})], ("lab", "lab")),
        ([(BLESSER, {})], (None, "")),
        ([(BLESSER, {"target": "lab"}), (OPERATOR, {"target": "other"})], ("other", "lab")),
        ([(BLESSER, {"target": "lab"}), (OPERATOR, {"labels": {"a": "b"}})], (None, "lab")),
        ([(BLESSER, {"target": "lab"}), (BLESSER, {})], (None, "")),
        ([(BLESSER, {}), (OPERATOR, {})], (None, "")),
        ([(BLESSER, {}), (OPERATOR, {"target": "lab"})], ("lab", None)),
        ([(BLESSER, {}), (OPERATOR, {"labels": {"a": "b"}})], (None, None)),
        ([(BLESSER, {}), (OPERATOR, {"labels": {**A100, "nvidia.com/gfd.timestamp": "7"}})],
         (None, "")),
    ],
)  # fmt: skip
def test_only_bless_assigns(
    rooms: Rooms, reports: Any, found: tuple[str | None, str | None]
) -> None:
    for who, node in reports:
        report(rooms, who, **node)
    assert assigned(rooms) == found


def test_an_assigned_node_and_a_second_cluster_need_bless(rooms: Rooms) -> None:
    report(rooms, BLESSER, target="lab")
    with pytest.raises(Forbidden, match="is new"):
        report(rooms, OPERATOR, cluster="two")
    with pytest.raises(Forbidden, match="the scope bless is required"):
        rooms.nodes.remove("n1", Authorship("job", "gone", OPERATOR))
    report(rooms, BLESSER, cluster="two")
    report(rooms, OPERATOR, cluster="two")
    rooms.nodes.remove("n1", Authorship("mara", "gone", BLESSER), "one")
