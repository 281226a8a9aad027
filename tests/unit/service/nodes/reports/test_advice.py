"""What to label and taint on one node, from what the gate alone knows."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from compatgate.core.request import DriverState
from compatgate.service.nodes.reports.comparison import NodeComparison, NodeView
from compatgate.service.nodes.reports.details import TargetShare, advise, count_shares
from compatgate.service.nodes.reports.repository import NodeRow

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def view(
    state: DriverState = "not-blessed",
    labels: dict[str, str] | None = None,
    witnesses: tuple[str, ...] = ("labels",),
    name: str = "gpu-17",
) -> NodeView:
    told: dict[str, dict[str, Any]] = {who: {} for who in witnesses}
    row = NodeRow(
        "eu", name, "550.54.15", [], [], None, labels or {}, told, "reporter", NOW, NOW, NOW
    )
    return NodeView(row, NodeComparison(("prod",), state, "why"), False)


def test_a_node_that_nothing_was_set_on_is_labelled_and_tainted() -> None:
    assert advise(view(), ()).commands == (
        "kubectl annotate node gpu-17 "
        "'compatgate.dev/driver-set=label=not-blessed taint=550.54.15' --overwrite",
        "kubectl label node gpu-17 compatgate.dev/driver=not-blessed --overwrite",
        "kubectl taint node gpu-17 compatgate.dev/driver-not-blessed=550.54.15:NoSchedule",
    )


@pytest.mark.parametrize("state", ["blessed", "unknown"])
def test_only_what_is_not_blessed_is_tainted(state: DriverState) -> None:
    assert not any("taint node" in one for one in advise(view(state), ()).commands)


def test_where_something_may_be_set_only_the_node_itself_tells() -> None:
    labelled = advise(view(labels={"compatgate.dev/driver": "blessed"}), ())
    assert (labelled.says, labelled.commands) == ("blessed", ())
    assert advise(view(witnesses=("driver",)), ()).commands == ()
    assert labelled.look == (
        "kubectl get node gpu-17 -o json | compatgate k8s nodes --file - --cluster eu "
        "--suggest --max-tainted 1"
    )


def test_a_wrong_entry_does_not_close_a_fleet_unsaid() -> None:
    views = [view("not-blessed" if n < 3 else "blessed", name=f"n{n}") for n in range(20)]
    (share,) = count_shares(views, ["prod"])
    assert share == TargetShare("prod", 3, 20)
    assert advise(view(), [share]).too_many == (share,)
    assert advise(view(), [TargetShare("prod", 2, 20)]).too_many == ()
    assert advise(view("blessed"), [share]).too_many == ()
