"""What a plan says of a target: causes, edits, canaries and the frontier."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from msgspec.structs import replace

from compatgate.core.compare.differences import Subject
from compatgate.core.compare.frontier import FactsEvaluator, Placed, find_frontier
from compatgate.core.compare.plan import Plan, Question, make_plan
from compatgate.core.compare.upgrades import RangeChange, edit_entry, resolve_upgrades
from compatgate.core.constraints import parse_constraint
from compatgate.core.facts import Facts
from compatgate.core.matrix import Entry, EntryIndex, Matrix, Waiver
from compatgate.core.request import CanaryPolicy, Policy, Pool, Target
from compatgate.core.stack import parse_stack
from compatgate.errors import BadInput

A100, V100 = "driver=535.183.01,gpu=A100-SXM4-80GB", "driver=535.183.01,gpu=V100-SXM2-32GB"
TORCH = {"cuda": "12.1.*", "torch": "~=2.4.0"}
Ask = Callable[..., Plan]
PoolOf = Callable[[str], Pool]


def entry(name: str, **components: str) -> Entry:
    constraints = {key: parse_constraint(key, text) for key, text in components.items()}
    return Entry(name, ("t",), constraints, "blessed")


@pytest.fixture
def ask(facts: Facts, now: datetime, pool_of: PoolOf) -> Ask:
    def make(
        changes: dict[str, Any],
        *entries: Entry,
        pools: tuple[str, ...] = (A100,),
        running: tuple[Subject, ...] = (),
        policy: Policy | None = None,
    ) -> Plan:
        described = tuple(replace(pool_of(t), name=f"p{n}") for n, t in enumerate(pools))
        target = Target("t", described, policy or Policy(require_entry=True))
        asked = Question(target, described, changes, running)
        return make_plan(asked, facts=facts, matrix=Matrix(7, EntryIndex(entries)), now=now)

    return make


def test_physics_comes_before_paperwork(ask: Ask) -> None:
    narrow = entry("narrow", driver=">=535,<536", **TORCH)
    open_ = entry("open", **TORCH)
    plan = ask({"driver": "470.256.02"}, narrow, open_)
    assert [group.cause for group in plan.groups] == ["facts"] * len(plan.groups)
    first = plan.groups[0]
    assert (first.rule, first.pools) == ("CG101", ("p0",))
    assert {"narrow", "open"} == set(first.entries)
    assert plan.edits == ()
    assert plan.order.pools[0].held == "the facts break narrow on it"
    assert not plan.allowed


def test_an_entry_that_only_its_range_excludes_is_edited_and_the_edit_is_verified(
    ask: Ask,
) -> None:
    policy = Policy(require_entry=True, canary=CanaryPolicy(suites=("smoke", "dl-core")))
    plan = ask({"driver": "580.95.05"}, entry("narrow", driver=">=535.104.05,<536", **TORCH),
               policy=policy)  # fmt: skip
    assert plan.verdict == "fail"
    assert {group.cause for group in plan.groups if group.outcome == "fail"} == {"matrix"}
    edit = plan.edits[0]
    assert edit.components == {"driver": RangeChange(">=535.104.05,<536", ">=535.104.05,<581")}
    assert edit.verified
    assert edit.becomes == "narrow"
    assert "580" not in edit.between
    assert [(run.suite, run.driver, run.required) for run in plan.owed] == [
        ("dl-core", "580.95.05", False),
        ("smoke", "580.95.05", False),
    ]
    assert plan.order.pools[0].held is None
    assert plan.order.pools[0].needed == (
        "run suite dl-core",
        "run suite smoke",
        "edit entry narrow",
    )


def test_a_running_stack_is_judged_like_an_entry(ask: Ask) -> None:
    stack = {"cuda": "12.1", "torch": "2.4.1+cu121"}
    running = Subject(
        "stack",
        "vd_1",
        "t",
        stack=stack,
        image="team/app:1",
        within=("p0",),
        apart=True,
        decisions=12,
    )
    plan = ask({"driver": "470.256.02"}, entry("open", **TORCH), running=(running,))
    found = next(s for s in plan.subjects if s.kind == "stack")
    assert (found.change, found.cause, found.decisions) == ("breaks", "facts", 12)
    assert "vd_1" in plan.groups[0].stacks
    elsewhere = replace(running, within=("other",))
    plan = ask({"driver": "470.256.02"}, entry("open", **TORCH), running=(elsewhere,))
    assert [s.kind for s in plan.subjects] == ["entry"]


def test_the_frontier_names_the_last_branch_that_drives_a_gpu(ask: Ask) -> None:
    plan = ask({"driver": "580.95.05"}, entry("open", **TORCH), pools=(V100, A100))
    rows = {row.branch: row for row in plan.frontier.rows}
    assert rows[580].keeps == plan.frontier.subjects == 1
    assert rows[580].first is not None
    newer = [row for branch, row in rows.items() if branch > 580]
    assert newer
    for row in newer:
        assert row.loses == ("open",)
        assert row.first is None
        assert any(why.startswith("p0: CG105") for why in row.why)
    assert not any(row.first for branch, row in rows.items() if branch < 525)


def test_equal_stacks_in_a_frontier_answer_as_each_of_them_alone(
    facts: Facts, now: datetime, pool_of: PoolOf
) -> None:
    stacks = [
        parse_stack({"cuda": "12.1", "torch": "2.4.1+cu121"}),
        parse_stack({"cuda": "11.8", "torch": "2.4.1+cu118"}),
        parse_stack({"cuda": "13.0", "torch": "2.9.0+cu130"}),
    ]
    pools = [replace(pool_of(text), name=f"p{n}") for n, text in enumerate((A100, V100))]
    placed = [
        Placed(f"s{n}-{stack.components['cuda']}-{pool.name}", stack, pool)
        for n in range(3)
        for stack in stacks
        for pool in pools
    ]
    judge = FactsEvaluator("t", facts, Matrix(), now)
    together = find_frontier(placed, {}, judge, facts)
    alone = [find_frontier([one], {}, judge, facts) for one in placed]
    assert together.subjects == len(placed)
    for place, row in enumerate(together.rows):
        rows = [one.rows[place] for one in alone]
        assert row.keeps == sum(one.keeps for one in rows)
        assert row.loses == tuple(sorted(name for one in rows for name in one.loses))
        assert row.unknown == sum(one.unknown for one in rows)
        assert row.first is None or row.keeps == len(placed)


def test_a_waiver_of_one_target_does_not_answer_for_another(
    facts: Facts, now: datetime, pool_of: PoolOf
) -> None:
    stack = parse_stack({"cuda": "12.4", "torch": "2.4.1+cu124"})
    pool = pool_of("driver=470.256.02,gpu=A100-SXM4-80GB")
    before = FactsEvaluator("mine", facts, Matrix(), now)(stack, pool)
    assert before[1]
    rules = tuple(said.split()[0] for said in before[1])
    waiver = Waiver("w", rules, ("mine",), "team", "moves soon", now.date().isoformat())
    matrix = Matrix(2, None, [waiver])
    assert FactsEvaluator("mine", facts, matrix, now)(stack, pool)[0] < before[0]
    assert FactsEvaluator("other", facts, matrix, now)(stack, pool) == before
    assert FactsEvaluator("mine", facts, Matrix(3), now)(stack, pool) == before


def test_nothing_in_use_is_no_pass(ask: Ask) -> None:
    plan = ask({"driver": "535.216.01"})
    assert plan.verdict == "unknown"
    assert "nothing was evaluated" in plan.summary


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (">=535.104.05,<536", ">=535.104.05,<581"),
        ("535.*", ">=535,<581"),
        ("==535.183.01", ">=535.183.01,<581"),
        (">=590", ">=580.95.05"),
        ("<536", ">=580.95.05,<581"),
        (">=535,<=535.300.0,!=545.*", ">=535,<581,!=545.*"),
        (">=535,<590,!=580.*", ">=535,<590"),
    ],
)
def test_a_driver_range_is_extended_to_the_new_branch(before: str, after: str) -> None:
    edited = edit_entry(entry("e", driver=before, **TORCH), {"driver": "580.95.05"})
    assert edited is not None
    assert edited.components["driver"].text == after
    assert edit_entry(edited, {"driver": "580.95.05"}) is None


def test_another_cuda_makes_a_candidate_of_its_own() -> None:
    edited = edit_entry(entry("e", **TORCH), {"cuda": "12.4"})
    assert edited is not None
    assert (edited.name, edited.status) == ("e-cuda12.4", "candidate")
    assert edited.components["cuda"].text == "12.4.*"


def test_an_upgrade_stays_with_the_kind_of_branch(facts: Facts, pool_of: PoolOf) -> None:
    pools = (pool_of(A100),)
    changes, why = resolve_upgrades(["driver", "cuda"], {}, pools, facts, "2026-11-23")
    assert changes["driver"].startswith("580.")
    assert changes["cuda"] == "13.0"
    assert "LTSB" in why[0]
    named, _ = resolve_upgrades(["driver=570"], {}, pools, facts, "2026-11-23")
    assert named["driver"].startswith("570.")


@pytest.mark.parametrize(
    ("upgrades", "says"),
    [
        (["drivers"], "is not an upgrade"),
        (["driver=99"], "is not a driver branch"),
        (["driver", "driver=580"], "stated twice"),
        (["cuda=19"], "not a known series"),
    ],
)
def test_a_wrong_upgrade_is_refused(
    facts: Facts, pool_of: PoolOf, upgrades: list[str], says: str
) -> None:
    with pytest.raises(BadInput, match=says) as caught:
        resolve_upgrades(upgrades, {}, (pool_of(A100),), facts, "2026-11-23")
    assert caught.value.field == "upgrade"


def test_a_windows_pool_needs_a_stated_driver(facts: Facts, pool_of: PoolOf) -> None:
    windows = pool_of("driver=537.70,gpu=A100-SXM4-80GB,os=windows")
    with pytest.raises(BadInput, match="no Linux driver"):
        resolve_upgrades(["driver"], {}, (windows,), facts, "2026-11-23")
