"""Cells of the table of stacks and places, and the filter of the table."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from msgspec.structs import replace

from compatgate.core.cell_filter import Place, read_filter
from compatgate.core.cells import answer_cell, list_release_rows, make_entry_row
from compatgate.core.constraints import parse_constraint
from compatgate.core.evaluate import evaluate
from compatgate.core.facts import Facts
from compatgate.core.matrix import Entry, EntryIndex, EntryStatus, Matrix, Waiver
from compatgate.core.request import CanaryPolicy, Policy, Pool, Target
from compatgate.core.stack import parse_stack
from compatgate.errors import BadInput

A100 = "driver=535.183.01,gpu=A100-SXM4-80GB"
STACK = {"cuda": "12.1", "torch": "2.4.0+cu121"}
PoolOf = Callable[[str], Pool]
ENFORCED = Policy(require_entry=True)


def entry(status: EntryStatus = "blessed", **components: str) -> Entry:
    stated = components or {"torch": "~=2.4.0"}
    return Entry(
        "e", ("t",), {key: parse_constraint(key, text) for key, text in stated.items()}, status
    )


@pytest.mark.parametrize(
    ("pool", "stack", "policy", "status", "state", "rule"),
    [
        (A100, STACK, ENFORCED, "candidate", "unblessed", "CG801"),
        (A100, STACK, ENFORCED, "revoked", "fails", "CG802"),
        (
            A100,
            STACK,
            Policy(require_entry=True, canary=CanaryPolicy(require=True)),
            "blessed",
            "unblessed",
            "CG811",
        ),
        ("driver=450.51.06,gpu=A100-SXM4-80GB", STACK, ENFORCED, "candidate", "fails", "CG101"),
        (A100, {"torch": "99.1.0"}, ENFORCED, "candidate", "unknown", None),
    ],
)
def test_a_cell_says_what_stands_between_a_stack_and_a_pass(
    pool: str,
    stack: dict[str, str],
    policy: Policy,
    status: EntryStatus,
    state: str,
    rule: str | None,
    facts: Facts,
    pool_of: PoolOf,
    now: datetime,
) -> None:
    target = Target("t", (replace(pool_of(pool), name="p"),), policy)
    matrix = Matrix(1, EntryIndex([entry(status)]))
    found = answer_cell(parse_stack(stack), target, facts=facts, matrix=matrix, now=now)
    assert found.state == state
    assert rule in (None, found.rule)


def test_a_revoked_stack_that_a_waiver_lets_through_is_waived(
    facts: Facts, pool_of: PoolOf, now: datetime
) -> None:
    target = Target("t", (replace(pool_of(A100), name="p"),), ENFORCED)
    waiver = Waiver("night", ("CG802",), ("t",), "ops", "until the rebuild", "2099-01-01")
    matrix = Matrix(1, EntryIndex([entry("revoked")]), [waiver])
    found = answer_cell(parse_stack(STACK), target, facts=facts, matrix=matrix, now=now)
    assert (found.state, found.rule) == ("waived", "CG821")


def test_an_assumed_pin_is_the_note_of_its_cell(
    facts: Facts, pool_of: PoolOf, now: datetime
) -> None:
    target = Target("t", (replace(pool_of(A100), name="p"),), ENFORCED)
    pinned = entry(torch="~=2.4.0", cudnn="9.1.*")
    matrix = Matrix(1, EntryIndex([pinned]))
    found = answer_cell(parse_stack(STACK), target, facts=facts, matrix=matrix, now=now)
    assert (found.state, found.rule) == ("note", "CG804")
    assert found.why.startswith("blessed as e, if its cuDNN is the wheel's")


def test_no_cell_says_more_than_the_verdict(facts: Facts, pool_of: PoolOf, now: datetime) -> None:
    matrix = Matrix(
        1, EntryIndex([entry("blessed", torch="~=2.4.0"), entry("revoked", cuda="11.*")])
    )
    where = [
        Target("t", (replace(pool_of(f"driver={driver},gpu={gpu}"), name="p"),), policy)
        for driver in ("450.51.06", "535.183.01", "580.95.05")
        for gpu in ("A100-SXM4-80GB", "B200", "T4")
        for policy in (Policy(), ENFORCED)
    ]
    seen = set()
    for row in [*list_release_rows(facts, "torch"), make_entry_row(entry(), facts)]:
        for target in where:
            assert row.stack is not None
            cell = answer_cell(row.stack, target, facts=facts, matrix=matrix, now=now)
            body: dict[str, Any] = row.stack.to_json()
            verdict = evaluate(
                parse_stack(body), target, facts=facts, matrix=matrix, now=now, with_fixes=False
            )
            assert cell.verdict == verdict.verdict
            assert (cell.state == "works") == (verdict.verdict == "pass")
            assert (cell.state == "note") == (verdict.verdict == "warn")
            if cell.state == "unblessed":
                objecting = {f.rule for f in verdict.findings if f.outcome in ("fail", "unknown")}
                assert objecting <= {"CG801", "CG811", "CG812"}
            seen.add(cell.state)
    assert {"works", "unblessed", "fails"} <= seen


def test_an_entry_without_a_stack_has_an_open_row(facts: Facts) -> None:
    row = make_entry_row(entry(driver=">=535"), facts)
    assert row.stack is None
    assert row.open


@pytest.fixture
def places(pool_of: PoolOf) -> list[Place]:
    """A pool of A100 in production and one of T4 in staging."""
    return [
        ("prod-a100", {"tier": "prod"}, replace(pool_of(A100), name="main")),
        ("lab", {"tier": "dev"}, replace(pool_of("driver=580.95.05,gpu=T4"), name="p")),
    ]


@pytest.mark.parametrize(
    ("text", "keeps"),
    [
        ("torch 2.4.1", True),
        ("torch=2.4", True),
        ("torch>=2.4.3", True),
        ("torch<2.4", False),
        ("torch 2.5", False),
        ("cu121 blessed", True),
        ("cu124", False),
        ("deprecated", False),
        ("cudnn 9.1", False),
    ],
)
def test_a_filter_keeps_entries_that_allow_the_versions(
    text: str, keeps: bool, facts: Facts, places: list[Place]
) -> None:
    one = entry(torch="2.4.*", cuda="12.1.*")
    assert bool(read_filter(text, places).keep_entries([one], facts)) is keeps


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("A100", ["prod-a100"]),
        ("A100 & driver<580", ["prod-a100"]),
        ("driver>=580", ["lab"]),
        ("driver 535", ["prod-a100"]),
        ("tier=prod, torch 2.4", ["prod-a100"]),
        ("prod-*", ["prod-a100"]),
        ("T4 driver<580", []),
    ],
)
def test_a_filter_keeps_places(text: str, kept: list[str], places: list[Place]) -> None:
    wanted = read_filter(text, places)
    assert [place[0] for place in places if wanted.keeps_place(*place)] == kept


@pytest.mark.parametrize("text", ["zebra", "torch", "torch 2.8 & mars", "H200", "driver<5x"])
def test_a_term_that_means_nothing_is_an_error(text: str, places: list[Place]) -> None:
    with pytest.raises(BadInput) as caught:
        read_filter(text, places)
    assert caught.value.hint
