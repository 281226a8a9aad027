"""What reports with and without the scope bless say of a node's target, one after the other."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from compatgate.errors import Forbidden
from compatgate.kit.principal import Principal
from compatgate.service.gate.questions.service import Gate
from compatgate.service.matrix.documents.service import Authorship
from compatgate.service.nodes.reports.schemas import Report

OPERATOR = Principal("job", frozenset({"operate"}))
BLESSER = Principal("mara", frozenset({"operate", "bless"}))
A100 = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}


def report(gate: Gate, who: Principal, cluster: str = "one", **node: Any) -> None:
    body = {"cluster": cluster, "nodes": [{"name": "n1", "labels": A100, **node}]}
    gate.nodes.report(msgspec.convert(body, Report), by=who.name, principal=who)


def assigned(gate: Gate) -> tuple[str | None, str | None]:
    row = gate.nodes.show("n1").row
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
def test_only_bless_assigns(gate: Gate, reports: Any, found: tuple[str | None, str | None]) -> None:
    for who, node in reports:
        report(gate, who, **node)
    assert assigned(gate) == found


def test_an_assigned_node_and_a_second_cluster_need_bless(gate: Gate) -> None:
    report(gate, BLESSER, target="lab")
    with pytest.raises(Forbidden, match="is new"):
        report(gate, OPERATOR, cluster="two")
    with pytest.raises(Forbidden, match="the scope bless is required"):
        gate.nodes.remove("n1", Authorship("job", "gone", OPERATOR))
    report(gate, BLESSER, cluster="two")
    report(gate, OPERATOR, cluster="two")
    gate.nodes.remove("n1", Authorship("mara", "gone", BLESSER), "one")
