"""From rules to one verdict: pools, policy, and what the verdict rests on."""

from datetime import UTC, datetime

import pytest

from compatgate.core.constraints import parse_constraint
from compatgate.core.evaluate import evaluate, is_allowed
from compatgate.core.matrix import Entry, EntryIndex, Matrix
from compatgate.core.request import Policy, Target
from compatgate.core.rule import OUTCOME_RANK, exit_code
from compatgate.core.stack import parse_stack

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)

GOOD = "driver=580.65.06,gpu=A100-SXM4-80GB,name=good"
OLD = "driver=535.183.01,gpu=A100-SXM4-80GB,name=old"
TOO_OLD = "driver=470.256.02,gpu=A100-SXM4-80GB,name=too-old"
OTHER = "driver=580.65.06,gpu=L4,name=other"
UNKNOWN = "driver=999.10.01,gpu=A100-SXM4-80GB,name=unknown"
STACK = "cuda=12.4,arch=sm_80"


def findings(verdict, rule):
    return [finding for finding in verdict.findings if finding.rule == rule]


# --- several pools ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pools", "expected"),
    [
        ([GOOD], "pass"),
        ([OLD], "warn"),
        ([UNKNOWN], "unknown"),
        ([TOO_OLD], "fail"),
        ([GOOD, OLD], "warn"),
        ([OLD, GOOD], "warn"),
        ([OLD, UNKNOWN], "unknown"),
        ([UNKNOWN, TOO_OLD, GOOD], "fail"),
        ([GOOD, OTHER], "pass"),
    ],
)
def test_the_verdict_on_a_target_is_the_worst_over_its_pools(pools, expected, ask):
    assert ask(pools, STACK, target="t").verdict == expected


def test_what_all_pools_share_is_said_once(ask):
    verdict = ask([GOOD, OTHER], "cuda=12.4,arch=sm_90", target="t")
    twice = ask([TOO_OLD, TOO_OLD.replace("too-old", "too")], STACK, target="t")
    assert [f.pools for f in findings(twice, "CG101")] == [("too-old", "too")]
    assert sorted(f.pools for f in findings(verdict, "CG201")) == [("good",), ("other",)]


def test_what_one_pool_has_names_that_pool(ask):
    verdict = ask([GOOD, TOO_OLD], STACK, target="t")
    assert [f.pools for f in findings(verdict, "CG101")] == [("too-old",)]


def test_a_rule_that_objects_on_one_pool_is_not_listed_as_passed(ask):
    verdict = ask([GOOD, TOO_OLD], STACK, target="t")
    assert "CG101" not in verdict.checked.passed
    assert "CG203" in verdict.checked.passed


def test_every_rule_is_a_finding_or_passed_or_not_applicable(ask):
    from compatgate.core.rules import RULES

    verdict = ask([GOOD, OLD, TOO_OLD], STACK, target="t")
    said = {f.rule for f in verdict.findings}
    assert said | {*verdict.checked.passed, *verdict.checked.not_applicable} == {
        rule.id for rule in RULES
    }
    assert not said & {*verdict.checked.passed, *verdict.checked.not_applicable}
    assert not set(verdict.checked.passed) & set(verdict.checked.not_applicable)


def test_findings_come_worst_first(ask):
    verdict = ask([GOOD, OLD, TOO_OLD, UNKNOWN], f"{STACK},cudnn=9.1.0", target="t")
    ranks = [OUTCOME_RANK[f.outcome] for f in verdict.findings]
    assert ranks == sorted(ranks, reverse=True)
    assert verdict.failing[0].outcome == "fail"


def test_a_target_without_pools_is_not_a_pass(facts):
    verdict = evaluate(parse_stack({"cuda": "12.4"}), Target("t", ()), facts=facts, now=NOW)
    assert verdict.verdict == "unknown"
    assert not verdict.allowed
    assert findings(verdict, "CG901")


# --- policy ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["enforce", "warn", "audit"])
@pytest.mark.parametrize("on_unknown", ["fail", "warn", "allow"])
@pytest.mark.parametrize("outcome", ["pass", "warn", "unknown", "fail"])
def test_only_enforce_denies_and_only_what_fails(mode, on_unknown, outcome):
    allowed = is_allowed(outcome, Policy(mode=mode, on_unknown=on_unknown))
    denied = mode == "enforce" and (
        outcome == "fail" or (outcome == "unknown" and on_unknown == "fail")
    )
    assert allowed is not denied


@pytest.mark.parametrize(
    ("pool", "mode", "allowed"),
    [(TOO_OLD, "enforce", False), (TOO_OLD, "warn", True), (TOO_OLD, "audit", True)],
)
def test_the_verdict_is_the_truth_whatever_the_mode(pool, mode, allowed, ask):
    verdict = ask(pool, STACK, target="t", policy=Policy(mode=mode))
    assert (verdict.verdict, verdict.allowed, verdict.mode) == ("fail", allowed, mode)


@pytest.mark.parametrize(
    ("on_unknown", "allowed"), [("fail", False), ("warn", True), ("allow", True)]
)
def test_what_unknown_means_is_the_policys_choice(on_unknown, allowed, ask):
    verdict = ask(UNKNOWN, STACK, target="t", policy=Policy(on_unknown=on_unknown))
    assert (verdict.verdict, verdict.allowed) == ("unknown", allowed)


@pytest.mark.parametrize(
    ("outcome", "allowed", "status"),
    [
        ("pass", True, 0),
        ("warn", True, 0),
        ("fail", True, 0),
        ("unknown", True, 0),
        ("fail", False, 1),
        ("unknown", False, 3),
    ],
)
def test_the_exit_status_follows_what_is_allowed(outcome, allowed, status):
    assert exit_code(outcome, allowed=allowed) == status


# --- what it rests on ------------------------------------------------------------------------


def test_a_verdict_names_the_facts_the_revision_and_the_entry_it_rests_on(ask, facts):
    blessed = Entry("torch24", ("t",), {"cuda": parse_constraint("cuda", "12.4.*")}, "blessed")
    matrix = Matrix(revision=42, entries=EntryIndex([blessed]))
    verdict = ask(GOOD, STACK, target="t", matrix=matrix, policy=Policy(require_entry=True))
    assert verdict.verdict == "pass"
    assert verdict.facts == facts.digest
    assert verdict.facts.startswith("sha256:")
    assert verdict.matrix_revision == 42
    assert verdict.entries == {"good": "torch24"}


def test_the_cuda_of_a_label_is_completed_and_shown(ask):
    verdict = ask(GOOD, "torch=2.4.1+cu121")
    assert verdict.stack == {"cuda": "12.1", "torch": "2.4.1+cu121"}


def test_a_stated_cuda_is_not_replaced_by_a_label(ask):
    assert ask(GOOD, "torch=2.4.1+cu121,cuda=12.4").stack["cuda"] == "12.4"
