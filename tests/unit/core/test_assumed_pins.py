"""CG804: a stack that leaves out what its wheel pins is blessed under that assumption."""

from datetime import UTC, datetime

import pytest

from compatgate.core.constraints import parse_constraint
from compatgate.core.evaluate import evaluate
from compatgate.core.matrix import Entry, EntryIndex, Matrix
from compatgate.core.request import Policy, Target, parse_request
from compatgate.core.stack import parse_stack

NOW = datetime(2026, 11, 3, 9, 30, tzinfo=UTC)
NEEDED = Policy(require_entry=True)
PARTS = {"cuda": "12.4.*", "cudnn": "9.1.*", "nccl": "2.20.*", "torch": "~=2.4.0"}
SHORT = {"torch": "2.4.1+cu124"}
WHOLE = {**SHORT, "cudnn": "9.1.0", "nccl": "2.20.5"}


def entry(status="blessed", name="torch24", **parts):
    stated = {n: parse_constraint(n, text) for n, text in (parts or PARTS).items()}
    return Entry(name, ("t",), stated, status)


@pytest.fixture
def judge(facts):
    def judged(stack, *entries, policy=NEEDED, image=None, pool=None):
        body = {"pool": pool or {"driver": "580.65.06", "gpu": "A100-SXM4-80GB"}, "stack": stack}
        place = parse_request(body, facts.gpus).pool
        matrix = Matrix(7, EntryIndex(entries))
        asked = parse_stack(stack, image=image)
        target = Target("t", (place,), policy)
        return evaluate(asked, target, facts=facts, matrix=matrix, now=NOW)

    return judged


def rules(verdict):
    return [(f.rule, f.outcome) for f in verdict.findings if f.rule.startswith("CG80")]


def test_a_stack_without_the_pins_of_its_wheel_is_blessed_with_a_warning(judge):
    verdict = judge(SHORT, entry())
    assert (verdict.verdict, verdict.allowed) == ("warn", True)
    (finding,) = [f for f in verdict.findings if f.rule == "CG804"]
    assert finding.message == (
        "blessed as torch24, if its cuDNN and NCCL are the wheel's"
        " (cuDNN 9.1.0 and NCCL 2.20.5 for torch 2.4.1+cu124)"
    )
    assert set(verdict.entries.values()) == {"torch24"}


def test_the_fix_states_the_versions_and_gives_a_plain_pass(judge):
    (finding,) = [f for f in judge(SHORT, entry()).findings if f.rule == "CG804"]
    (fix,) = finding.fixes
    assert fix.set == {"cudnn": "9.1.0", "nccl": "2.20.5"}
    assert judge({**SHORT, **fix.set}, entry()).verdict == "pass"


def test_the_answer_names_the_stack_as_it_was_stated(judge):
    assert {"cudnn", "nccl"}.isdisjoint(judge(SHORT, entry()).stack)


def test_only_the_parts_that_the_entry_names_are_assumed(judge):
    parts = {"cuda": "12.4.*", "cudnn": "9.1.*", "torch": "~=2.4.0"}
    (finding,) = [f for f in judge(SHORT, entry(**parts)).findings if f.rule == "CG804"]
    assert finding.need == "cuDNN 9.1.0"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"policy": Policy(require_entry=True, entries="strict")}, "strict"),
        ({"image": "registry.example/app:1"}, "an image that was not read"),
        ({"stack": {**SHORT, "content": "sha256:" + "0" * 64}}, "an image that was read"),
        ({"stack": {"torch": "2.4.1+cu999"}}, "no published build"),
        ({"stack": {**SHORT, "cudnn": "8.9.7"}}, "what is stated counts"),
        ({"pool": {"driver": "580.88", "gpu": "L4", "os": "windows"}}, "the wheel pins nothing"),
    ],
)
def test_nothing_is_assumed_for(judge, changes, why):
    given = {"stack": SHORT, **changes}
    stack = given.pop("stack")
    found = rules(judge(stack, entry(), **given))
    assert ("CG804", "warn") not in found, why
    assert ("CG801", "fail") in found


def test_a_policy_without_entries_takes_no_assumption(judge):
    assert rules(judge(SHORT, entry(), policy=Policy())) == []


def test_a_pin_that_the_entry_refuses_is_no_blessing(judge):
    assert rules(judge(SHORT, entry(**{**PARTS, "cudnn": "9.5.*"}))) == [("CG801", "fail")]


def test_a_candidate_is_not_blessed_by_an_assumption(judge):
    assert rules(judge(SHORT, entry("candidate"))) == [("CG801", "fail")]


def test_a_deprecated_entry_keeps_its_warning(judge):
    assert rules(judge(SHORT, entry("deprecated"))) == [("CG803", "warn"), ("CG804", "warn")]


def test_a_revoked_entry_is_no_blessing(judge):
    assert ("CG804", "warn") not in rules(judge(SHORT, entry("revoked")))


def test_an_entry_that_matches_what_is_stated_needs_no_assumption(judge):
    plain = entry(name="plain", cuda="12.4.*", torch="~=2.4.0")
    assert rules(judge(SHORT, entry(), plain)) == []


def test_the_assumed_versions_are_judged_like_stated_ones(judge):
    """What the rules say of the whole stack, they say of the short one."""
    short, whole = judge(SHORT, entry()), judge(WHOLE, entry())
    extra = [f.rule for f in short.findings if f.rule not in [g.rule for g in whole.findings]]
    assert extra == ["CG804"]
