"""A derived fact is no reason to deny: what a rule says of it is unknown."""

from types import SimpleNamespace

import pytest

from compatgate.core.facts.nvidia import Source
from compatgate.core.rule import PASS, Problem, Rule
from compatgate.core.rules import BY_ID, RULES

TOLD = Source("the vendor's page", None)


def answer(problem, **options):
    context = SimpleNamespace(infers_cuda=False)
    return Rule("CG001", "a-rule", lambda _: [problem], **options).answer(context)


def problem(outcome, confidence):
    return Problem(
        outcome, "driver", "too old", source=Source("a page", None, confidence=confidence)
    )


def test_a_derived_bound_is_unknown_and_says_why():
    (said,) = answer(problem("fail", "derived"))
    assert said.outcome == "unknown"
    assert said.message == "too old (derived from other sources, so it does not deny)"


@pytest.mark.parametrize("confidence", ["published", "metadata"])
def test_what_was_published_or_measured_denies(confidence):
    assert answer(problem("fail", confidence)) == [problem("fail", confidence)]


@pytest.mark.parametrize("outcome", ["warn", "unknown", "not-checked"])
def test_what_does_not_deny_stays_as_it_is(outcome):
    assert answer(problem(outcome, "derived")) == [problem(outcome, "derived")]


def test_a_record_that_states_its_own_outcome_denies():
    assert answer(problem("fail", "derived"), states_outcome=True)[0].outcome == "fail"
    assert [rule.id for rule in RULES if rule.states_outcome] == ["CG701"]


def test_a_rule_that_holds_is_not_touched():
    assert Rule("CG001", "a-rule", lambda _: PASS).answer(None) == "pass"


def test_the_verdict_softens_a_derived_minimum_of_cudnn(ask):
    verdict = ask("driver=580.65.06,gpu=V100-SXM2-32GB", "cuda=12.4,cudnn=9.12.0,arch=sm_70")
    (found,) = [finding for finding in verdict.findings if finding.rule == "CG302"]
    assert (found.outcome, found.source.confidence) == ("unknown", "derived")
    assert BY_ID["CG302"].about_facts
    assert verdict.verdict == "unknown"
    assert not verdict.allowed
