"""Stacks that may run in place of a stack: each is judged, and the worst counts."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from compatgate.core.evaluate import evaluate
from compatgate.core.request import Target, parse_request
from compatgate.core.stack import parse_stack, update_stack
from compatgate.errors import BadInput

NOW = datetime(2026, 11, 3, tzinfo=UTC)
OLD, NEW = {"cuda": "12.1", "arch": ["sm_80"]}, {"cuda": "13.0", "arch": ["sm_80"]}
POOL = {"driver": "535.183.01", "gpu": "A100-SXM4-80GB"}


def judge(facts, stack):
    request = parse_request({"stack": stack, "pool": POOL}, facts.gpus)
    return evaluate(request.stack, Target("", (request.pool,)), facts=facts, now=NOW)


@pytest.mark.parametrize(("first", "second"), [(OLD, NEW), (NEW, OLD)])
def test_the_worst_counts_whichever_is_first(facts, first, second):
    assert judge(facts, OLD).allowed
    verdict = judge(facts, {**first, "alternatives": {"opt/venv": second}})
    assert (verdict.verdict, verdict.allowed) == ("fail", False)
    named = [f for f in verdict.findings if f.message.startswith("opt/venv: ")]
    assert any(f.outcome == "fail" for f in named) == (second is NEW)
    assert verdict.stack["alternatives"]["opt/venv"]["cuda"] == second["cuda"]


def test_an_alternative_that_is_open_leaves_the_verdict_unknown(facts):
    open_stack = {**OLD, "open": ["a file was not read"]}
    verdict = judge(facts, {**OLD, "alternatives": {"opt/venv": open_stack}})
    assert verdict.verdict == "unknown"
    assert "opt/venv: left open: a file was not read" in [f.message for f in verdict.findings]


def test_what_both_say_is_said_once(facts):
    alone = judge(facts, NEW)
    both = judge(facts, {**NEW, "alternatives": {"opt/venv": NEW}})
    assert both.findings == alone.findings


def test_a_verdict_can_be_asked_again_by_its_stack(facts):
    stack = {**OLD, "alternatives": {"opt/venv": {**NEW, "torch": "2.9.1+cu130"}}}
    verdict = judge(facts, stack)
    assert judge(facts, verdict.stack).findings == verdict.findings


def test_a_change_is_made_to_every_alternative():
    stack = parse_stack({**OLD, "alternatives": {"opt/venv": NEW}})
    changed = update_stack(stack, {"cuda": "12.4"})
    assert changed.to_json()["alternatives"]["opt/venv"]["cuda"] == "12.4"


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ([], "alternatives"),
        ({"opt": "12.4"}, "alternatives"),
        ({str(n): OLD for n in range(9)}, "alternatives"),
        ({"opt": {"cuda": "twelve"}}, "alternatives.opt.cuda"),
        ({"opt": {**OLD, "alternatives": {"more": OLD}}}, "alternatives.opt"),
    ],
)
def test_what_is_malformed_is_refused_by_its_place(value, field):
    with pytest.raises(BadInput) as caught:
        parse_stack({**OLD, "alternatives": value})
    assert caught.value.field == field
