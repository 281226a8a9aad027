"""Fixes: the smallest changes that mend a finding, each one evaluated before it is offered."""

import pytest

from compatgate.core.fixes import apply_changes
from compatgate.core.matrix import Matrix
from compatgate.core.request import Target
from compatgate.core.rule_context import RuleContext
from compatgate.core.rules import RULES
from compatgate.errors import BadInput


@pytest.fixture
def case_of(facts, stack_of, pool_of):
    def made(pool, stack):
        pool = pool_of(pool)
        target = Target("", (pool,))
        return RuleContext(
            stack_of(stack), pool, target, facts, Matrix(), today="2026-11-21", now=1.795e9
        )

    return made


def offered(verdict, rule):
    return [fix.set for f in verdict.findings if f.rule == rule for fix in f.fixes]


def weights(case):
    """Rule to how bad: 2 fails, 1 unknown, 0 otherwise."""
    found = {}
    for rule in RULES:
        answer = rule.answer(case)
        outcomes = set() if isinstance(answer, str) else {p.outcome for p in answer}
        found[rule.id] = 2 if "fail" in outcomes else 1 if "unknown" in outcomes else 0
    return found


def test_a_lower_bound_is_applied_as_the_bound_itself(case_of):
    case = case_of("driver=520.61.05,gpu=L4", "cuda=12.4")
    assert str(apply_changes(case, {"driver": ">=525.60.13"}).driver) == "525.60.13"


def test_a_change_may_remove_and_replace(case_of):
    case = case_of("driver=535.104.05,gpu=L4", "cuda=12.4,cuda-compat=12.4,cudnn=8.9.7")
    after = apply_changes(case, {"cuda-compat": None, "cudnn": "9.1.0", "gpu": "A100-SXM4-80GB"})
    assert after.stack.to_json() == {"cuda": "12.4", "cudnn": "9.1.0"}
    assert after.pool.gpu.sku == "A100-SXM4-80GB"


def test_a_change_that_is_not_possible_is_refused(case_of):
    case = case_of("driver=535.104.05,gpu=L4", "cuda=12.4")
    with pytest.raises(BadInput):
        apply_changes(case, {"cuda": None})


def test_applying_a_change_leaves_the_case_as_it_was(case_of):
    case = case_of("driver=535.104.05,gpu=L4", "cuda=12.4")
    apply_changes(case, {"driver": "550.54.15", "cuda": "12.6"})
    assert str(case.driver) == "535.104.05"
    assert case.stack.to_json() == {"cuda": "12.4"}


@pytest.mark.parametrize(
    ("pool", "stack", "rule", "fix"),
    [
        ("driver=520.61.05,gpu=A100-SXM4-80GB", "cuda=12.4,arch=sm_80", "CG101",
         {"driver": ">=525.60.13"}),
        ("driver=520.61.05,gpu=A100-SXM4-80GB", "torch=2.4.1+cu124", "CG101",
         {"torch": "2.4.1+cu118", "cuda": "11.8"}),
        ("driver=535.104.05,gpu=A100-SXM4-80GB", "cuda=12.4,arch=sm_80", "CG102",
         {"driver": ">=550.54.14"}),
        ("driver=535.104.05,gpu=A100-SXM4-80GB", "cuda=12.4,arch=compute_80", "CG202",
         {"arch": ["compute_80", "sm_80"]}),
        ("driver=535.104.05,gpu=A100-SXM4-80GB", "cuda=12.4,arch=compute_80", "CG202",
         {"cuda-compat": "12.4"}),
        ("driver=580.65.06,gpu=A100-SXM4-80GB", "cuda=12.4,cuda-compat=12.4,arch=sm_80", "CG103",
         {"cuda-compat": None}),
        ("driver=595.91.07,gpu=V100-SXM2-32GB", "cuda=12.4,arch=sm_70", "CG105",
         {"driver": "580.178.04"}),
        ("driver=535.104.05,gpu=B200", "cuda=12.8,arch=sm_100", "CG105", {"driver": ">=570.26"}),
        ("driver=580.65.06,gpu=L4", "cuda=12.4,arch=sm_90", "CG201", {"arch": ["sm_90", "sm_89"]}),
        ("driver=580.65.06,gpu=V100-SXM2-32GB", "cuda=13.0,arch=sm_70", "CG203", {"cuda": "12.9"}),
        ("driver=580.65.06,gpu=L4", "cuda=12.4,cudnn=8.7.0,arch=sm_89", "CG301",
         {"cudnn": "8.9.0"}),
        ("driver=580.65.06,gpu=L4", "cuda=12.4,cudnn=9.1.0+cu11,arch=sm_89", "CG301",
         {"cudnn": "9.1.0+cu12"}),
        ("driver=580.65.06,gpu=V100-SXM2-32GB", "cuda=12.4,cudnn=9.11.0,arch=sm_70", "CG302",
         {"cudnn": "9.10.2"}),
        ("driver=580.65.06,gpu=L4", "torch=2.4.1,cuda=12.6", "CG401",
         {"torch": "2.4.1+cu124", "cuda": "12.4"}),
        ("driver=580.65.06,gpu=L4", "torch=2.4.1+cu121,cudnn=8.9.7", "CG402", {"cudnn": "9.1.0"}),
        ("driver=580.65.06,gpu=L4", "torch=2.4.1+cu121,nccl=2.19.3", "CG403", {"nccl": "2.20.5"}),
        ("driver=580.65.06,gpu=L4", "torch=2.5.1+cu124,python=3.8", "CG404", {"python": "3.9"}),
        ("driver=580.65.06,gpu=GeForce-RTX-5090", "torch=2.5.1+cu121", "CG405",
         {"torch": "2.7.0+cu128", "cuda": "12.8"}),
        ("driver=580.65.06,gpu=L4", "vllm=0.10.2,torch=2.7.1+cu128", "CG406", {"torch": "2.8.0"}),
        ("driver=580.65.06,gpu=L4", "cuda=13.0,nccl=2.26.2,arch=sm_89", "CG501",
         {"nccl": "2.27.7"}),
    ],
)  # fmt: skip
def test_the_expected_fix_is_among_those_offered(pool, stack, rule, fix, ask):
    fixes = offered(ask(pool, stack), rule)
    assert any(fix.items() <= change.items() for change in fixes), fixes


@pytest.mark.parametrize(
    ("pool", "stack"),
    [
        ("driver=520.61.05,gpu=A100-SXM4-80GB", "cuda=12.4,cudnn=9.1.0,torch=2.4.1,arch=sm_80"),
        ("driver=580.65.06,gpu=L4", "torch=2.9.1,jax=0.4.30,cuda=12.1"),
        ("driver=580.65.06,gpu=L4", "torch=2.4.1,tensorflow=2.14.0,cuda=11.8,cudnn=8.7.0"),
        ("driver=535.104.05,gpu=GeForce-RTX-5090", "torch=2.5.1+cu121,python=3.8,cudnn=8.9.7"),
        ("driver=470.57.02,gpu=A100-SXM4-80GB", "cuda=12.8,cuda-compat=12.8,arch=compute_80"),
        ("driver=580.65.06,gpu=V100-SXM2-32GB", "cuda=13.0,cudnn=9.12.0,nccl=2.26.2,arch=sm_70"),
        ("driver=580.65.06,gpu=M60", "torch=2.9.1+cu130,cudnn=9.1.0,nccl=2.21.5"),
        ("driver=535.183.01,gpu=L4", "vllm=0.20.0,torch=2.4.1,cuda=12.4"),
        ("driver=580.65.06,gpu=A100-SXM4-80GB", "onnxruntime-gpu=1.27.0,cuda=12.4,cudnn=8.9.7"),
        ("driver=580.65.06,gpu=L4", "cupy=14.0.0,cuda=11.8,torch=2.4.1+cu118"),
    ],
)
def test_an_offered_fix_applied_mends_its_finding_and_worsens_no_component(
    pool, stack, ask, case_of
):
    case = case_of(pool, stack)
    for finding in ask(pool, stack).findings:
        for fix in finding.fixes:
            after = apply_changes(case, fix.set)
            assert not _objects(after, finding), (finding.rule, finding.component, fix.set)
            assert _worsened(case, after) == [], (finding.rule, fix.set)


def _objections(case):
    return {
        (rule.id, problem.component): problem.outcome
        for rule in RULES
        if rule.about_facts and not isinstance(answer := rule.answer(case), str)
        for problem in answer
        if problem.outcome in ("fail", "unknown")
    }


def _objects(case, finding):
    rank = ("fail", "unknown", "warn") if finding.outcome == "warn" else ("fail", "unknown")
    answer = next(rule for rule in RULES if rule.id == finding.rule).answer(case)
    return not isinstance(answer, str) and any(
        p.component == finding.component and p.outcome in rank for p in answer
    )


def _worsened(before, after):
    had = _objections(before)
    return [
        key
        for key, outcome in _objections(after).items()
        if had.get(key) != "fail" and had.get(key) != outcome
    ]


def test_at_most_three_fixes_are_offered_for_what_fails_and_one_for_a_warning(ask):
    verdict = ask("driver=520.61.05,gpu=A100-SXM4-80GB", "cuda=12.4,cudnn=9.1.0,torch=2.4.1")
    for finding in verdict.findings:
        assert len(finding.fixes) <= (1 if finding.outcome == "warn" else 3)


def test_a_larger_change_is_not_offered_beside_the_smaller_one_it_contains(ask):
    verdict = ask("driver=535.104.05,gpu=GeForce-RTX-5090", "torch=2.5.1+cu121,python=3.8")
    for finding in verdict.findings:
        for one in finding.fixes:
            contained = [
                other.set for other in finding.fixes if other.set.items() < one.set.items()
            ]
            assert contained == []


def test_a_fix_that_then_needs_a_blessing_says_so(ask):
    from compatgate.core.constraints import parse_constraint
    from compatgate.core.matrix import Entry, EntryIndex
    from compatgate.core.request import Policy

    blessed = Entry("e", ("t",), {"cuda": parse_constraint("cuda", "12.4.*")}, "blessed")
    verdict = ask(
        "driver=520.61.05,gpu=A100-SXM4-80GB",
        "cuda=12.4,arch=sm_80",
        target="t",
        policy=Policy(require_entry=True),
        matrix=Matrix(entries=EntryIndex([blessed])),
    )
    messages = {
        next(iter(fix.set)): fix.message
        for f in verdict.findings
        for fix in f.fixes
        if f.rule == "CG101"
    }
    assert "blessed entry" in messages["cuda"]
    assert "blessed entry" not in messages["driver"]


def test_the_message_of_a_fix_is_one_that_a_person_understands(ask):
    verdict = ask("driver=520.61.05,gpu=A100-SXM4-80GB", "cuda=12.4,torch=2.4.1,arch=sm_80")
    messages = [fix.message for f in verdict.findings for fix in f.fixes]
    assert "raise the driver to 525.60.13 or newer" in messages
    assert all("{" not in message and "None" not in message for message in messages)


def test_a_finding_that_no_small_change_mends_offers_nothing_false(ask, case_of):
    pool, stack = "driver=390.157,gpu=M2090", "cuda=12.4,arch=sm_20"
    try:
        verdict = ask(pool, stack)
    except BadInput:
        pool = "driver=390.157,gpu=sm_20"
        verdict = ask(pool, stack)
    before = weights(case_of(pool, stack))
    for finding in verdict.findings:
        for fix in finding.fixes:
            after = weights(apply_changes(case_of(pool, stack), fix.set))
            assert after[finding.rule] < before[finding.rule] or before[finding.rule] == 0
