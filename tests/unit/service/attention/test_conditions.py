"""What is said to need attention, and what is not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from compatgate.core.facts import Facts
from compatgate.core.incidents import Condition
from compatgate.documents.validation import read_body
from compatgate.service.attention.conditions import (
    find_ending_waivers,
    find_evidence,
    find_impossible_entries,
    find_old_branches,
    find_unusable_targets,
)
from compatgate.service.attention.records import find_failed_runs
from compatgate.service.gate.advice.pairs import FitCache
from compatgate.service.matrix.snapshots.snapshot import Snapshot, build
from compatgate.service.runs.queue.models import RunRow

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
POOL = {"name": "l4", "gpu": "L4", "driver": "580.95.05"}


@pytest.fixture
def snapshot_of(facts: Facts):
    def make(*documents: tuple[str, str, dict[str, Any]]) -> Snapshot:
        names = [name for kind, name, _ in documents if kind == "Target"]
        versions = [
            (
                kind,
                name,
                read_body({"metadata": {"name": name}, "spec": spec}, kind, facts.gpus, names),
                1,
            )
            for kind, name, spec in documents
        ]
        return build(versions, facts, 1)

    return make


def conditions(snapshot: Snapshot, facts: Facts) -> list[Condition]:
    return [
        *find_unusable_targets(snapshot),
        *find_impossible_entries(snapshot, FitCache(facts), NOW, 5.0).conditions,
        *find_evidence(snapshot, NOW),
        *find_ending_waivers(snapshot, NOW.date()),
        *find_old_branches(snapshot, NOW),
    ]


def said(snapshot: Snapshot, facts: Facts) -> list[tuple[str, str, str]]:
    return [
        (one.level, member.name, member.note)
        for one in conditions(snapshot, facts)
        for member in one.members
    ]


def test_a_healthy_fleet_needs_none(snapshot_of, facts):
    entry = {
        "targets": ["prod"],
        "components": {"cuda": "12.8.*", "torch": "2.8.*"},
        "status": "blessed",
    }
    snapshot = snapshot_of(("Target", "prod", {"pools": [POOL]}), ("Entry", "fine", entry))
    assert said(snapshot, facts) == []


def test_a_driver_branch_past_its_end_is_named(snapshot_of, facts):
    old = {**POOL, "driver": "470.82.01"}
    ((level, name, message),) = said(snapshot_of(("Target", "prod", {"pools": [old]})), facts)
    assert (level, name) == ("warn", "prod")
    assert "branch 470 is past its end of life" in message


def test_a_blessed_entry_that_cannot_work_comes_first(snapshot_of, facts):
    entry = {"targets": ["prod"], "components": {"cuda": "13.0.*"}, "status": "blessed"}
    old = {**POOL, "driver": "535.183.01"}
    found = said(snapshot_of(("Target", "prod", {"pools": [old]}), ("Entry", "bad", entry)), facts)
    assert found[0][:2] == ("fail", "bad")
    assert "cannot work on prod" in found[0][2]


@pytest.mark.parametrize(
    "components",
    [
        {"torch": ">=2.4,<2.12"},  # the newest has no code for a V100
        {"cuda": "12.4.*", "torch": "~=2.6.0", "python": ">=3.8"},  # no wheel for 3.8
    ],
)
def test_an_entry_works_if_any_stack_that_it_allows_does(snapshot_of, facts, components):
    entry = {"targets": ["prod"], "components": components, "status": "blessed"}
    pool = {"name": "v100", "gpu": "V100-SXM2-32GB", "driver": "580.95.05"}
    found = said(
        snapshot_of(("Target", "prod", {"pools": [pool]}), ("Entry", "wide", entry)), facts
    )
    assert [one for one in found if one[0] == "fail"] == []


def test_an_entry_for_another_driver_is_not_broken(snapshot_of, facts):
    components = {"cuda": "13.0.*", "driver": ">=580"}
    entry = {"targets": ["prod"], "components": components, "status": "blessed"}
    old = {**POOL, "driver": "535.183.01"}
    found = said(
        snapshot_of(("Target", "prod", {"pools": [old]}), ("Entry", "later", entry)), facts
    )
    assert all(name != "later" for _, name, _ in found)


def test_evidence_that_is_asked_for_and_missing_is_named_for_each_suite(snapshot_of, facts):
    policy = {"canary": {"require": True, "suites": ["smoke", "dl-core"]}}
    found = said(snapshot_of(("Target", "prod", {"pools": [POOL], "policy": policy})), facts)
    assert [message for _, _, message in found] == [
        "requires suite smoke on L4, driver 580.95.05: no judged run yet",
        "requires suite dl-core on L4, driver 580.95.05: no judged run yet",
    ]


@pytest.mark.parametrize(
    ("expires", "expected"),
    [
        ("2026-11-21", "ends today; owner: team"),
        ("2026-12-01", "ends in 10 days; owner: team"),
        ("2027-06-01", None),
        ("2026-11-20", None),
    ],
)
def test_a_waiver_that_ends_soon_is_named_with_its_owner(snapshot_of, facts, expires, expected):
    spec = {
        "rules": ["CG803"],
        "targets": ["prod"],
        "owner": "team",
        "reason": "r",
        "expires": expires,
    }
    found = said(snapshot_of(("Target", "prod", {"pools": [POOL]}), ("Waiver", "w", spec)), facts)
    assert [message for _, name, message in found if name == "w"] == (
        [expected] if expected else []
    )


def test_targets_without_the_same_evidence_are_one_condition(snapshot_of, facts):
    policy = {"canary": {"require": True, "suites": ["smoke"]}}
    spec = {"pools": [POOL], "policy": policy}
    (found,) = conditions(snapshot_of(("Target", "a", spec), ("Target", "b", spec)), facts)
    assert [member.name for member in found.members] == ["a", "b"]
    assert found.message == "suite smoke on L4, driver 580.95.05: no judged run yet"


def test_entries_that_were_not_evaluated_in_time_leave_the_answer_incomplete(snapshot_of, facts):
    entry = {"targets": ["prod"], "components": {"cuda": "13.0.*"}, "status": "blessed"}
    old = {**POOL, "driver": "535.183.01"}
    snapshot = snapshot_of(("Target", "prod", {"pools": [old]}), ("Entry", "bad", entry))
    hasty = find_impossible_entries(snapshot, FitCache(facts), NOW, -1.0)
    assert hasty == ([], False)
    assert find_impossible_entries(snapshot, FitCache(facts), NOW, 5.0).complete


def ended(number: int, state: str, hours: float = 1, **fields: Any) -> RunRow:
    """A run that ended some hours ago; those of a larger number were asked for later."""
    at = NOW - timedelta(hours=hours)
    known = {
        "seq": number,
        "id": f"run_{number}",
        "suite": "smoke",
        "state": state,
        "stack": {"cuda": "12.4"},
        "target": "prod",
        "reason": "gemm: slower",
        "created_at": at,
        "finished_at": at,
    }
    names = RunRow.__struct_fields__
    return RunRow(**{**dict.fromkeys(names), **known, **fields})


def of(*runs: RunRow) -> list[tuple[str, str, str]]:
    found = find_failed_runs(sorted(runs, key=lambda run: -run.seq), NOW, {})
    return [(one.level, member.name, member.note) for one in found for member in one.members]


def test_a_run_of_the_last_day_that_did_not_pass_is_named_with_its_reason():
    assert of(ended(1, "failed")) == [("fail", "run_1", "of smoke on prod failed: gemm: slower")]
    late = ("warn", "run_1", "of smoke on prod took too long")
    assert of(ended(1, "timeout", reason=""))[0] == late
    assert of(ended(1, "passed"), ended(2, "cancelled", stack={})) == []
    assert of(ended(1, "failed", hours=25)) == []


def test_a_later_run_of_the_same_settles_it():
    assert of(ended(1, "failed"), ended(2, "passed")) == []
    assert len(of(ended(1, "failed"), ended(2, "failed"))) == 1
    assert len(of(ended(1, "failed"), ended(2, "passed", stack={"cuda": "12.8"}))) == 1
    assert len(of(ended(1, "failed"), ended(2, "cancelled"))) == 1
