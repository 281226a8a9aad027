"""Upgrades are listed, found and told of by both databases."""

from __future__ import annotations

import msgspec

from compatgate.service.gate.service import Gate
from compatgate.service.matrix.service import Authorship
from compatgate.service.nodes.schemas import Report
from compatgate.service.tokens.principal import Principal
from compatgate.service.upgrades.schemas import UpgradeRequest

BY = Authorship("tester", "for the test")
TOOL = Principal("tool", frozenset({"upgrade"}))
POOL = {"name": "a100", "gpu": "A100-SXM4-80GB", "driver": "535.183.01", "count": 2}
LABELS = {
    "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
    "nvidia.com/cuda.driver-version.full": "535.183.01",
}


def test_an_upgrade_is_listed_found_and_told_of_when_it_is_rolled_back(gate: Gate) -> None:
    spec = {"pools": [POOL]}
    gate.matrix.create("Target", {"metadata": {"name": "prod"}, "spec": spec}, BY)
    nodes = [{"name": f"n{number}", "target": "prod", "labels": LABELS} for number in (1, 2)]
    gate.nodes.report(msgspec.convert({"nodes": nodes}, Report), by="t")
    gate.upgrades.propose(UpgradeRequest("roll-580", "prod", "580.95.05"), BY)
    gate.upgrades.leave_out("roll-580", ["n2"], BY)
    (row,) = gate.upgrades.list(state="proposed", target="prod").items
    assert (row.waves, row.finished, row.nodes) == (2, 1, 2), "nothing is left of the second wave"
    assert gate.upgrades.list_open(limit=5) == (row,)
    assert gate.upgrades.find_names("LL-5", limit=5) == ("roll-580",)
    assert gate.upgrades.find_names("%", limit=5) == ()
    assert gate.upgrades.ask("roll-580", TOOL).decision.answer == "start"
    gate.upgrades.roll_back("roll-580", BY)
    assert gate.upgrades.list_open(limit=5) == ()
    gate.incidents.survey(thorough=False)
    (told,) = gate.incidents.list(kind="upgrade-rollback").items
    assert (told.level, told.members[0].name) == ("fail", "roll-580")
