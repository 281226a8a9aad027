"""What nodes have below their containers is kept, weighed, and compared with the pools."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
import yaml
from grouped_nodes import group_views

from compatgate.core.facts import Facts
from compatgate.core.node import NODE_COMPONENTS, fits_declared
from compatgate.core.request import DriftKind
from compatgate.documents.validation import read_body
from compatgate.errors import BadInput
from compatgate.service.matrix.snapshots.snapshot import Snapshot, build
from compatgate.service.nodes.comparison import MatrixComparer, NodeView
from compatgate.service.nodes.merging import audit_details, merge_nodes, reported_nodes
from compatgate.service.nodes.reports import SeenNode, seen_node
from compatgate.service.nodes.repository import NodeRow
from compatgate.service.nodes.schemas import Report
from tests.unit.service.nodes.conftest import NOW

ROOT = Path(__file__).parents[4]
H100 = [{"gpu": "NVIDIA H100 80GB HBM3", "count": 8}]
NODE = {"kernel-modules": "open", "fabric-manager": "580.95.05"}
_KERNEL = "feature.node.kubernetes.io/kernel-version.full"
LABELS = {
    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
    "nvidia.com/gpu.count": "8",
    "nvidia.com/gpu.machine": "p5.48xlarge",
    "nvidia.com/cuda.driver-version.full": "580.95.05",
    "feature.node.kubernetes.io/kernel-version.full": "6.8.0-1021-aws",
    "feature.node.kubernetes.io/system-os_release.ID": "ubuntu",
    "feature.node.kubernetes.io/system-os_release.VERSION_ID": "24.04",
}


def make_snapshot(facts: Facts, *pools: dict[str, Any]) -> Snapshot:
    body = {"metadata": {"name": "prod"}, "spec": {"pools": list(pools)}}
    return build([("Target", "prod", read_body(body, "Target", facts.gpus, ["prod"]), 1)], facts, 1)


def pool(name: str = "h100", driver: str = "580.95.05", **fields: Any) -> dict[str, Any]:
    return {"name": name, "gpu": "H100-SXM5-80GB", "driver": driver, **fields}


def tell(
    facts: Facts,
    known: Mapping[str, NodeRow] | None = None,
    at: timedelta = timedelta(),
    **node: Any,
) -> NodeRow:
    body = {"nodes": [{"name": "n1", "target": "prod", **node}]}
    report = msgspec.convert(body, Report)
    (row,) = merge_nodes(report, reported_nodes(report, NOW + at, facts), known or {}, "reporter")
    return row


def own(driver: str = "580.95.05", **more: Any) -> dict[str, Any]:
    return {"driver": driver, "gpus": H100, **more}


def view(row: NodeRow, snapshot: Snapshot) -> NodeView:
    seen = seen_node(row.witnesses)
    gpus = [kind["gpu"] for kind in row.gpus]
    standing = MatrixComparer(snapshot).standing(
        row.driver, gpus, row.labels, (row.target, None), seen
    )
    return NodeView(row, standing, False, seen)


def test_every_part_of_a_node_can_drift() -> None:
    assert set(get_args(DriftKind)) == {"driver", "gpu", "platform", *NODE_COMPONENTS}


@pytest.mark.parametrize(
    ("name", "declared", "seen", "fits"),
    [
        ("kernel", "6.8", "6.8.0-45-generic", True),
        ("kernel", "6.8.0-45", "6.8.0-45-generic", True),
        ("kernel", "6.8.0-4", "6.8.0-45-generic", False),
        ("kernel", "6.8.0-45-generic", "6.8.0", False),
        ("fabric-manager", "580", "580.95.05", True),
        ("fabric-manager", "580.95.5", "580.95.05", True),
        ("container-toolkit", "1.18.0", "1.18.0-rc.1", False),
        ("distribution", "rhel-9", "rhel-9.4", True),
        ("distribution", "ubuntu", "ubuntu-24.04", True),
        ("distribution", "ubuntu-22.04", "ubuntu-24.04", False),
        ("kernel-modules", "open", "proprietary", False),
        ("vbios", "96.00.89.00.0d", "96.00.89.00.0D", True),
    ],
)
def test_a_declaration_may_be_shorter_than_what_is_seen(
    name: str, declared: str, seen: str, fits: bool
) -> None:
    assert fits_declared(name, declared, seen) is fits


@pytest.mark.parametrize(
    ("pools", "seen", "differences"),
    [
        ([pool()], {"node": {"fabric-manager": "570.172.08"}}, []),  # nothing is declared
        ([pool(node=NODE)], {"node": NODE}, []),
        ([pool(node=NODE)], {}, []),  # nothing is seen
        (
            [pool(node=NODE)],
            {"node": {"kernel-modules": "proprietary", "fabric-manager": "570.172.08"}},
            [("kernel-modules", "proprietary", ("open",)),
             ("fabric-manager", "570.172.08", ("580.95.05",))],
        ),
        # Another pool of the same GPUs leaves the part open.
        ([pool(node=NODE), pool("other")], {"node": {"kernel-modules": "proprietary"}}, []),
        # The pool with the node's driver decides.
        (
            [pool(node={"kernel-modules": "open"}),
             pool("old", "535.183.01", node={"kernel-modules": "proprietary"})],
            {"node": {"kernel-modules": "proprietary"}},
            [("kernel-modules", "proprietary", ("open",))],
        ),
        ([pool(platform="aws/p5")], {"platform": "aws/p5"}, []),
        ([pool(platform="aws/p5")], {"platform": "dgx/h100"},
         [("platform", "dgx/h100", ("aws/p5",))]),
        ([pool(platform="aws/p5"), pool("any")], {"platform": "dgx/h100"}, []),
    ],
)  # fmt: skip
def test_what_is_seen_is_compared_with_what_every_fitting_pool_states(
    facts: Facts, pools: list[dict[str, Any]], seen: dict[str, Any], differences: list[Any]
) -> None:
    found = view(tell(facts, probe=own(**seen)), make_snapshot(facts, *pools))
    assert [(d.what, d.have, tuple(d.declared)) for d in found.standing.differences] == differences


def test_what_no_source_reports_is_a_note_and_no_difference(facts: Facts) -> None:
    snapshot = make_snapshot(facts, pool(platform="aws/p5", node={**NODE, "kernel": "6.8"}))
    found = view(tell(facts, labels=LABELS), snapshot)
    assert found.seen == SeenNode(
        "aws/p5", (("kernel", "6.8.0-1021-aws"), ("distribution", "ubuntu-24.04"))
    )
    assert found.standing.differences == ()
    assert found.standing.notes == (
        "prod declares kernel-modules, fabric-manager, which no source reports",
    )


def test_the_node_itself_decides_over_labels_and_the_difference_is_said(facts: Facts) -> None:
    seen = {"platform": "aws/p5en", "node": {"kernel": "6.8.0-1035-aws", **NODE}}
    row = tell(facts, labels=LABELS, probe=own(**seen))
    assert seen_node(row.witnesses) == SeenNode(
        "aws/p5en",
        (
            ("kernel-modules", "open"),
            ("fabric-manager", "580.95.05"),
            ("kernel", "6.8.0-1035-aws"),
            ("distribution", "ubuntu-24.04"),
        ),
    )
    assert row.disagreements == [
        "the labels say kernel 6.8.0-1021-aws, the node itself 6.8.0-1035-aws: "
        "the driver's own report decides",
        "the labels say platform aws/p5, the node itself aws/p5en: the driver's own report decides",
    ]


def test_a_changed_part_is_dated_and_audited_and_a_newly_seen_one_is_not(facts: Facts) -> None:
    before = tell(facts, probe=own())
    hour = timedelta(hours=1)
    same = tell(facts, {"n1": before}, hour, probe=own(node=NODE, platform="aws/p5"))
    assert same.since == before.since
    assert audit_details([same], {"n1": before}) == {}
    changed = tell(
        facts, {"n1": same}, 2 * hour, probe=own(node={**NODE, "fabric-manager": "570.172.08"})
    )
    assert changed.since == NOW + 2 * hour
    assert audit_details([changed], {"n1": same})["changed"] == {
        "n1": {"node": {"fabric-manager": ["580.95.05", "570.172.08"]}}
    }


def test_a_stored_report_of_before_is_read(facts: Facts) -> None:
    witness = {"witness": "driver", "seen_at": "2026-11-01T00:00:00Z", "driver": "580.95.05",
               "gpus": [{"gpu": "H100-SXM5-80GB", "count": 8}]}  # fmt: skip
    old = msgspec.structs.replace(tell(facts, probe=own()), witnesses={"driver": witness})
    assert seen_node(old.witnesses) == SeenNode()
    snapshot = make_snapshot(facts, pool())
    assert view(old, snapshot).to_body().node == {}
    new = tell(facts, {"n1": old}, labels=LABELS)
    assert set(new.witnesses) == {"driver", "labels"}
    assert view(new, snapshot).to_body().platform == "aws/p5"


@pytest.mark.parametrize(
    ("probe", "field", "says"),
    [
        ({"node": {"fabric-manger": "1.0"}}, "nodes[0].probe.node.fabric-manger",
         "did you mean fabric-manager?"),
        ({"node": {"kernel-modules": "closed"}}, "nodes[0].probe.node.kernel-modules",
         "one of open, proprietary, nouveau"),
        ({"platform": "two words"}, "nodes[0].probe.platform", "like bare-metal"),
    ],
)  # fmt: skip
def test_a_report_of_a_part_that_cannot_be_names_it(
    facts: Facts, probe: dict[str, Any], field: str, says: str
) -> None:
    with pytest.raises(BadInput) as caught:
        tell(facts, probe=own(**probe))
    assert caught.value.field == field
    assert says in (caught.value.hint or "")


@pytest.fixture
def fleet(facts: Facts) -> Callable[[], tuple[list[NodeView], Snapshot]]:
    """The example matrix, and the nodes that ``nodes import matrix/fleet/nodes.json`` reports."""

    def read() -> tuple[list[NodeView], Snapshot]:
        documents = list(yaml.safe_load_all((ROOT / "matrix/examples/targets.yaml").read_text()))
        names = [document["metadata"]["name"] for document in documents]
        found: list[Any] = []
        for document in documents:
            body = {key: document[key] for key in ("metadata", "spec")}
            name = body["metadata"]["name"]
            found.append(("Target", name, read_body(body, "Target", facts.gpus, names), 1))
        snapshot = build(found, facts, 1)
        raw = (ROOT / "matrix/fleet/nodes.json").read_bytes()
        report = msgspec.json.decode(raw, type=Report)
        rows = merge_nodes(report, reported_nodes(report, NOW, facts), {}, "reporter")
        return [view(row, snapshot) for row in rows], snapshot

    return read


def test_the_drift_of_the_example_fleet_names_fabric_manager_and_module_flavour(
    fleet: Callable[[], tuple[list[NodeView], Snapshot]],
) -> None:
    views, snapshot = fleet()
    assert [group.message for group in group_views(views, snapshot)] == [
        "1 of 4 nodes of staging-h100 reports Fabric Manager 570.172.08 instead of 580.95.05",
        "1 of 4 nodes of staging-h100 reports Linux kernel 6.14.0-33-generic instead of 6.8",
        "1 of 4 nodes of staging-h100 reports NVIDIA kernel modules proprietary instead of open",
    ]
    assert {v.row.name: v.seen.platform for v in views if v.row.labels} == {
        "a100-01": "aws/p4de",
        "l4-01": "gcp/g2",
    }


def test_labels_that_are_much_younger_decide_over_the_node_itself(facts: Facts) -> None:
    own_report = tell(
        facts, probe=own(node={"kernel": "6.8.0-1021-aws", **NODE}), at=-timedelta(days=3)
    )
    row = tell(facts, {"n1": own_report}, labels={**LABELS, _KERNEL: "6.8.0-1035-aws"})
    assert dict(seen_node(row.witnesses).node) == {
        **NODE,
        "kernel": "6.8.0-1035-aws",
        "distribution": "ubuntu-24.04",
    }
    assert any("which decide" in one for one in row.disagreements)
