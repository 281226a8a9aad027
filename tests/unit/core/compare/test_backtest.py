"""What a change of the matrix would have answered to recorded questions."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from compatgate.core.compare.backtest import Backtest, run_backtest
from compatgate.core.compare.differences import Subject
from compatgate.core.compare.worlds import Evaluator, State
from compatgate.core.constraints import parse_constraint
from compatgate.core.facts import Facts
from compatgate.core.matrix import Entry, EntryIndex, EntryStatus, Matrix, Waiver
from compatgate.core.request import Policy, Pool, Target
from compatgate.core.stack import parse_stack

A100 = "driver=535.183.01,gpu=A100-SXM4-80GB"
STACK = {"cuda": "12.1", "torch": "2.4.0+cu121"}
PoolOf = Callable[[str], Pool]


def entry(status: EntryStatus = "blessed", **components: str) -> Entry:
    stated = components or {"torch": "~=2.4.0"}
    constraints = {key: parse_constraint(key, text) for key, text in stated.items()}
    return Entry("e", ("t",), constraints, status)


@pytest.fixture
def state(facts: Facts, pool_of: PoolOf) -> State:
    """The target t enforces entries on a pool of 512 nodes, and blesses torch 2.4."""
    pool = replace(pool_of(A100), name="p", count=512)
    target = Target("t", (pool,), Policy(require_entry=True))
    return State(facts, Matrix(1, EntryIndex([entry()])), {"t": target})


@pytest.fixture
def question(now: datetime) -> Subject:
    return Subject(
        "stack",
        "vd_1",
        "t",
        stack=STACK,
        first_asked=now - timedelta(days=2),
        last_asked=now,
        decisions=3,
        asked_by=("ci",),
    )


@pytest.fixture
def compare(state: State, question: Subject, now: datetime) -> Callable[..., Backtest]:
    def run(*asked: Subject, **after: Any) -> Backtest:
        return run_backtest(asked or (question,), state, replace(state, **after), now, 20)

    return run


def with_policy(state: State, **policy: Any) -> dict[str, Target]:
    target = state.targets["t"]
    return {"t": replace(target, policy=replace(target.policy, **policy))}


def test_nothing_differs_without_a_change(compare: Callable[..., Backtest]) -> None:
    found = compare()
    assert (found.groups, found.questions, found.decisions) == ((), 1, 3)


def test_a_revoked_entry_denies_whoever_asked(compare: Callable[..., Backtest]) -> None:
    (group,) = compare(matrix=Matrix(2, EntryIndex([entry("revoked")]))).groups
    assert (group.effect, group.cause, group.rule) == ("newly_denied", "matrix", "CG802")
    assert (group.decisions, group.nodes, group.asked_by) == (3, 512, ["ci"])
    (change,) = group.examples
    assert (change.before, change.after) == ("warn", "fail")


def test_a_wider_entry_allows_what_was_denied(
    compare: Callable[..., Backtest], question: Subject
) -> None:
    older = replace(question, stack={"torch": "2.5.1+cu121"}, name="vd_2")
    (group,) = compare(older, question, matrix=Matrix(2, EntryIndex([entry(torch=">=2.4")]))).groups
    assert (group.effect, group.rule) == ("newly_allowed", "CG801")
    assert [change.verdict_id for change in group.examples] == ["vd_2"]


def test_a_driver_too_old_is_a_matter_of_facts(
    compare: Callable[..., Backtest], state: State, pool_of: PoolOf
) -> None:
    target = state.targets["t"]
    old = replace(pool_of("driver=470.256.02,gpu=A100-SXM4-80GB"), name="p", count=512)
    (group,) = compare(targets={"t": replace(target, pools=(old,))}).groups
    assert (group.effect, group.cause, group.rule) == ("newly_denied", "facts", "CG101")


def test_a_new_pool_counts_for_questions_about_the_whole_target(
    compare: Callable[..., Backtest], state: State, pool_of: PoolOf, question: Subject
) -> None:
    target = state.targets["t"]
    blackwell = replace(pool_of("driver=580.95.05,gpu=B200"), name="new", count=8)
    larger = {"t": replace(target, pools=(*target.pools, blackwell))}
    limited = replace(question, within=("p",), name="vd_2")
    (group,) = compare(question, limited, targets=larger).groups
    assert [change.verdict_id for change in group.examples] == ["vd_1"]
    assert (group.effect, group.nodes) == ("newly_denied", 8)


def test_a_mode_that_denies_what_it_warned_of_is_a_matter_of_policy(
    state: State, question: Subject, now: datetime
) -> None:
    denied = replace(question, stack={"torch": "2.5.1+cu121"})
    warning = replace(state, targets=with_policy(state, mode="warn"))
    (group,) = run_backtest([denied], warning, state, now, 20).groups
    assert (group.effect, group.cause, group.rule) == ("newly_denied", "policy", "CG801")
    (back,) = run_backtest([denied], state, warning, now, 20).groups
    assert (back.effect, back.cause) == ("newly_allowed", "policy")


def test_what_is_stopped_because_something_is_unknown_is_told_apart(
    compare: Callable[..., Backtest], state: State, question: Subject, now: datetime
) -> None:
    future = replace(question, stack={"torch": "2.4.9+cu121"})
    lenient = replace(state, targets=with_policy(state, on_unknown="warn"))
    (group,) = run_backtest([future], lenient, state, now, 20).groups
    assert (group.effect, group.examples[0].after) == ("newly_unknown", "unknown")


def test_another_verdict_with_the_same_effect_is_a_change_only(
    state: State, question: Subject, now: datetime
) -> None:
    warning = replace(state, targets=with_policy(state, mode="warn"))
    revoked = replace(warning, matrix=Matrix(2, EntryIndex([entry("revoked")])))
    (group,) = run_backtest([question], warning, revoked, now, 20).groups
    assert (group.effect, group.rule) == ("changed", "CG802")
    assert (group.examples[0].before, group.examples[0].after) == ("warn", "fail")


def test_a_deleted_target_denies_and_one_that_cannot_be_resolved_is_unknown(
    compare: Callable[..., Backtest],
) -> None:
    (gone,) = compare(targets={}).groups
    assert (gone.effect, gone.cause, gone.rule) == ("newly_denied", "target", None)
    assert (gone.examples[0].before, gone.examples[0].after) == ("warn", None)
    (broken,) = compare(targets={}, unusable={"t": "the GPU X is not known"}).groups
    assert broken.effect == "newly_unknown"
    assert "X is not known" in broken.examples[0].message


def test_images_of_one_stack_are_decided_once_unless_a_waiver_tells_them_apart(
    state: State, now: datetime
) -> None:
    waiver = Waiver("w", ("CG801",), ("t",), "o", "r", "2100-01-01", image="r/waived/*")
    waiving = replace(state, matrix=Matrix(2, waivers=(waiver,)))
    evaluate = Evaluator(waiving, now)
    stack = parse_stack(STACK)
    verdicts = [
        evaluate(replace(stack, image=image), waiving.targets["t"])
        for image in ("r/waived/a", "r/b:1", "r/b:2", "r/waived/b")
    ]
    assert [verdict.allowed for verdict in verdicts] == [True, False, False, True]
    assert evaluate.decided == 2


def test_a_question_that_cannot_be_read_is_named(
    compare: Callable[..., Backtest], question: Subject
) -> None:
    found = compare(question, replace(question, stack={"torch": "new"}, name="vd_old"))
    assert (found.questions, list(found.unread)) == (1, ["vd_old"])
