"""A list, as a route or as a page, asks the database as often for one row as for twenty."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from flask.testing import FlaskClient
from sample_runs import FAMILY, GEMM, SKU, values
from sqlalchemy import event

from compatgate.canary.engine import BaselineKey
from compatgate.canary.judge.result import Samples
from compatgate.errors import Conflict
from compatgate.kit import clock
from compatgate.kit.principal import Authorship, Principal
from compatgate.service.app import Rooms
from compatgate.service.changes.upgrades.schemas import UpgradeRequest
from compatgate.service.matrix.proposals.schemas import ProposalRequest, ProposedPool
from compatgate.service.nodes.schemas import NodeReport, Report

BY = Authorship("mara", "for the test")
API = "/api/v1"
WHEN = datetime(2126, 1, 1, tzinfo=UTC)
LABELS = {
    "nvidia.com/gpu.product": "NVIDIA-L4",
    "nvidia.com/cuda.driver-version.full": "550.54.15",
}
Fill = Callable[[Rooms, int], None]


def add_target(rooms: Rooms, number: int) -> None:
    pools = [{"name": "l4", "gpu": "L4", "driver": "550.54.15"}]
    spec = {"pools": pools, "policy": {"approvals": 2}}
    body = {
        "metadata": {"name": f"t{number}"},
        "spec": {**spec, "match": {"nodeLabels": {"n": str(number)}}},
    }
    rooms.matrix.create("Target", body, BY)


def add_waiver(rooms: Rooms, number: int) -> None:
    spec = {
        "rules": ["CG101"], "targets": ["dev-rtx"], "match": {"everything": True}, "owner": "mara",
        "reason": "r", "expires": (clock.today() + timedelta(days=2)).isoformat(),
    }  # fmt: skip
    rooms.matrix.create("Waiver", {"metadata": {"name": f"w{number}"}, "spec": spec}, BY)


def add_proposals(rooms: Rooms, number: int) -> None:
    """Propose twice: one change that the gate refuses, and one that conflicts by now."""
    add_target(rooms, number)
    pool = ProposedPool(f"t{number}", {"driver": "550.90.07"})
    rooms.proposals.propose(ProposalRequest(pools=[pool]), BY)
    with suppress(Conflict):
        rooms.matrix.delete("Target", f"t{number}", BY)
    rooms.matrix.create("Entry", {
        "metadata": {"name": f"e{number}"},
        "spec": {"targets": ["dev-rtx"], "components": {"cuda": "12.4.*"}, "status": "candidate"},
    }, BY)  # fmt: skip
    for version in ("12.5.*", "12.6.*"):
        document = {
            "apiVersion": "compatgate.dev/v1", "kind": "Entry",
            "metadata": {"name": f"e{number}"},
            "spec": {
                "targets": ["dev-rtx"], "components": {"cuda": version}, "status": "candidate",
            },
        }  # fmt: skip
        view = rooms.proposals.propose(ProposalRequest(documents=[document]), BY)
    rooms.proposals.merge(view.row.id, Principal("ana", frozenset({"admin"})), view.row.digest)


def add_upgrade(rooms: Rooms, number: int) -> None:
    add_target(rooms, number)
    nodes = [NodeReport(name=f"n{number}", labels=LABELS, target=f"t{number}")]
    rooms.nodes.report(Report(nodes=nodes), by="t")
    request = UpgradeRequest(f"u{number}", f"t{number}", "550.90.07", health=False)
    rooms.upgrades.propose(request, BY)


def add_baselines(rooms: Rooms, number: int) -> None:
    """Learn a version that is approved, and one that waits."""
    ground = BaselineKey(f"gemm{number}@0123456789ab", SKU, FAMILY)
    for run in ("run_1", "run_2", "run_3", "run_4"):
        samples = [Samples("time", "ms", (values(),))]
        rooms.baselines.offer(ground, GEMM.metrics, f"{run}:gemm-0", samples)
        newest = rooms.baselines.list(state="proposed", limit=1).items[0]
        if run == "run_3":
            rooms.baselines.approve(newest.id, by="mara")


LISTS: list[tuple[str, Fill]] = [
    (f"{API}/targets", add_target),
    (f"{API}/pools", add_target),
    (f"{API}/waivers", add_waiver),
    (f"{API}/proposals", add_proposals),
    (f"{API}/upgrades", add_upgrade),
    (f"{API}/baselines", add_baselines),
    ("/ui/targets", add_target),
    ("/ui/waivers", add_waiver),
    ("/ui/proposals", add_proposals),
    ("/ui/upgrades", add_upgrade),
    ("/ui/baselines", add_baselines),
]


@pytest.mark.parametrize(("path", "add"), LISTS, ids=[path for path, _ in LISTS])
def test_a_list_asks_as_often_for_one_row_as_for_twenty(
    path: str, add: Fill, stocked: Rooms, pages: Callable[..., FlaskClient]
) -> None:
    client = pages(anonymous=("read",))
    statements: list[str] = []
    event.listen(
        stocked.gate.database.engine, "before_cursor_execute", lambda *a: statements.append(a[2])
    )

    def count() -> int:
        """Ask several times: what is read again now and then is not the list's."""
        asked = []
        for _ in range(4):
            statements.clear()
            assert client.get(path).status_code == 200
            asked.append(len(statements))
        return min(asked)

    add(stocked, 1)
    few, short = count(), client.get(path).data
    for number in range(2, 21):
        add(stocked, number)
    assert count() == few, statements
    assert len(client.get(path).data) > len(short)
