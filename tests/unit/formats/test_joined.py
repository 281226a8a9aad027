"""Several verdicts as one."""

from __future__ import annotations

from typing import Any

from compatgate.check.deciders import Decider, FactsDecider
from compatgate.formats.reports import join_verdicts


def verdict(gpu: str, arch: str = "sm_80") -> dict[str, Any]:
    pool = {"name": gpu.lower(), "gpu": gpu, "driver": "535.104.05"}
    body = {"pool": pool, "stack": {"cuda": "12.1", "arch": arch}}
    return FactsDecider([], Decider()).decide([body])


def test_one_verdict_stays_as_it_is() -> None:
    one = verdict("L4")
    assert join_verdicts([one]) is one


def test_the_worst_decides() -> None:
    good, bad = verdict("L4"), verdict("H100")
    result = join_verdicts([good, bad])
    assert (result["verdict"], result["allowed"], result["id"]) == ("fail", False, bad["id"])
    assert result["ids"] == [good["id"], bad["id"]]
    assert [pool["name"] for pool in result["pools"]] == ["l4", "h100"]


def test_a_shared_finding_is_said_once_with_all_its_pools() -> None:
    result = join_verdicts([verdict("L4"), verdict("H100")])
    pools = {finding["rule"]: finding["pools"] for finding in result["findings"]}
    assert pools["CG104"] == ["l4", "h100"]
    assert pools["CG201"] == ["h100"]
    assert result["findings"][0]["rule"] == "CG201"


def test_a_rule_that_objects_anywhere_did_not_pass() -> None:
    result = join_verdicts([verdict("L4"), verdict("H100")])
    assert "CG201" not in result["checked"]["passed"]
    assert "CG101" in result["checked"]["passed"]
