"""A question about some pools of a target: what is judged, and that the verdict says so."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from compatgate.core.facts import Facts
from compatgate.documents.validation import read_body
from compatgate.errors import BadInput, NotFound
from compatgate.service.gate.questions.decider import Decider, decide
from compatgate.service.matrix.snapshots.snapshot import Snapshot, build

H100 = "H100-SXM5-80GB"
STACK = {"cuda": "12.4", "arch": ["sm_90"]}


@pytest.fixture
def snapshot(facts: Facts) -> Snapshot:
    """Whole GPUs and slices in one target; an entry for whole GPUs."""
    target = {
        "pools": [
            {"name": "whole", "gpu": H100, "driver": "580.95.05"},
            {"name": "slices", "gpu": f"{H100}-MIG-1g.10gb", "driver": "580.95.05"},
        ],
        "policy": {"requireEntry": True},
    }
    entry = {"targets": ["*"], "gpus": [H100], "components": {"cuda": "12.*"}, "status": "blessed"}
    bodies: list[tuple[Any, str, dict[str, Any]]] = [("Target", "t", target), ("Entry", "e", entry)]
    read = [
        (kind, name, read_body({"metadata": {"name": name}, "spec": spec}, kind, facts.gpus), 1)
        for kind, name, spec in bodies
    ]
    return build(read, facts, 1)


def said(verdict: Any) -> dict[str, tuple[str, ...]]:
    return {finding.rule: finding.pools for finding in verdict.findings}


@pytest.mark.parametrize("decided", [decide, lambda *a: Decider().decide(*a)])
def test_only_the_pools_that_are_named_are_judged(
    snapshot: Snapshot, now: datetime, decided: Any
) -> None:
    whole = decided({"target": "t", "pools": ["whole"], "stack": STACK}, snapshot, now)
    assert (whole.verdict, whole.allowed, whole.target) == ("pass", True, "t")
    assert [pool["name"] for pool in whole.pools] == ["whole"]
    slices = decided({"target": "t", "pools": ["slices"], "stack": STACK}, snapshot, now)
    assert (slices.verdict, slices.allowed) == ("fail", False)
    assert said(slices)["CG801"] == ("slices",)


def test_the_verdict_says_which_pools_were_left_out(snapshot: Snapshot, now: datetime) -> None:
    body = {"target": "t", "pools": ["whole"], "stack": STACK}
    (finding,) = decide(body, snapshot, now).findings
    assert (finding.rule, finding.outcome, finding.pools) == ("CG833", "not-checked", ("whole",))
    assert finding.message == "the question is about some pools of t; slices was not judged"


def test_naming_every_pool_is_asking_about_the_target(snapshot: Snapshot, now: datetime) -> None:
    all_of_them = decide({"target": "t", "stack": STACK}, snapshot, now)
    named = {"target": "t", "pools": ["slices", "whole"], "stack": STACK}
    assert decide(named, snapshot, now).id == all_of_them.id
    assert "CG833" not in said(all_of_them)


def test_answers_of_other_pools_are_not_taken_from_memory(
    snapshot: Snapshot, now: datetime
) -> None:
    decider = Decider()
    ids = {
        decider.decide({"target": "t", "stack": STACK, **pools}, snapshot, now).id
        for pools in ({}, {"pools": ["whole"]}, {"pools": ["slices"]})
    }
    assert len(ids) == 3


def test_a_pool_that_the_target_does_not_have_is_refused(snapshot: Snapshot, now: datetime) -> None:
    with pytest.raises(NotFound, match="no pool 'slice'") as raised:
        decide({"target": "t", "pools": ["slice"], "stack": STACK}, snapshot, now)
    assert raised.value.field == "pools"
    assert "slices" in raised.value.hint


@pytest.mark.parametrize("pools", [[], "whole", [""], [7], {"whole": 1}])
def test_what_is_no_list_of_names_is_refused(snapshot: Snapshot, now: datetime, pools: Any) -> None:
    with pytest.raises(BadInput, match="list of pool names"):
        decide({"target": "t", "pools": pools, "stack": STACK}, snapshot, now)


def test_pools_of_a_described_pool_mean_nothing(snapshot: Snapshot, now: datetime) -> None:
    with pytest.raises(BadInput, match="needs a target"):
        decide({"pool": {"gpu": H100}, "pools": ["whole"], "stack": STACK}, snapshot, now)
