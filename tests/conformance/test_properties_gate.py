"""What must hold for every answer, on stacks and pools drawn from the facts."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

from drawn import NOW, at_least, case_of, codes, drivers, facts, pools, questions
from hypothesis import assume, example, given
from hypothesis import strategies as st

from compatgate.core.evaluate import evaluate, find_applicable_rules
from compatgate.core.fixes import apply_changes
from compatgate.core.request import Target, change_stack, parse_pool
from compatgate.core.rule import NOT_APPLICABLE, OUTCOME_RANK
from compatgate.core.rules import BY_ID, RULES
from compatgate.core.stack import parse_stack
from compatgate.core.versions import format_parts

NAMES_WHY = {"CG103", "CG105", "CG601", "CG701"}
"""Rules that may object to a newer driver, and say why."""


def ask(stack, *described, fixes=False, now=NOW):
    made = tuple(parse_pool(pool, facts().gpus) for pool in described)
    target = Target("t", made)
    read = parse_stack(stack)
    return evaluate(read, target, facts=facts(), now=now, with_fixes=fixes)


def outcomes(case):
    """What every rule about facts says of every component: rule and component to rank."""
    found = {}
    for rule in RULES:
        answer = rule.answer(case)
        if rule.about_facts and not isinstance(answer, str):
            for problem in answer:
                key = (rule.id, problem.component)
                found[key] = max(found.get(key, 0), OUTCOME_RANK[problem.outcome])
    return found


def worst(case, rule):
    answer = BY_ID[rule].answer(case)
    return (
        0 if isinstance(answer, str) else max(OUTCOME_RANK[problem.outcome] for problem in answer)
    )


# --- every answer ----------------------------------------------------------------------------


@at_least(150)
@given(questions())
def test_a_rule_that_is_not_asked_does_not_apply(question):
    stack, pool = question
    case = case_of(stack, pool)
    asked = find_applicable_rules(case.optional_parts)
    silent = [one for one in RULES if one not in asked]
    assert [one.id for one in silent if one.answer(case) != NOT_APPLICABLE] == []


@at_least(150)
@given(questions())
def test_every_question_from_the_facts_is_answered_in_json(question):
    stack, pool = question
    verdict = ask(stack, pool, fixes=True)
    assert json.loads(json.dumps(verdict.to_json()))["verdict"] == verdict.verdict
    assert verdict.allowed is (verdict.verdict in ("pass", "warn"))
    for finding in verdict.findings:
        assert finding.message
        assert finding.rule in BY_ID


@given(questions())
def test_the_same_question_has_the_same_id_at_any_time_of_the_day(question):
    stack, pool = question
    later = ask(stack, pool, now=NOW + timedelta(hours=9))
    assert later.id == ask(stack, pool).id


@given(questions(), st.randoms(use_true_random=False))
def test_the_order_of_json_keys_does_not_matter(question, random):
    stack, pool = question

    def shuffled(body):
        items = list(body.items())
        random.shuffle(items)
        return dict(items)

    one, other = ask(stack, pool), ask(shuffled(stack), shuffled(pool))
    assert one.id == other.id
    assert one.findings == other.findings


@given(questions(), st.lists(pools(), min_size=1, max_size=3))
def test_the_verdict_on_several_pools_is_the_worst_of_each_alone(question, others):
    stack, pool = question
    named = [{**one, "name": f"p{index}"} for index, one in enumerate([pool, *others])]
    together = ask(stack, *named)
    alone = [ask(stack, pool) for pool in named]
    assert OUTCOME_RANK[together.verdict] == max(OUTCOME_RANK[verdict.verdict] for verdict in alone)
    said = {(f.rule, f.message, pool) for f in together.findings for pool in f.pools}
    assert said == {(f.rule, f.message, p) for v in alone for f in v.findings for p in f.pools}


@given(questions())
def test_what_if_with_what_is_already_there_changes_nothing(question):
    stack, pool = question
    read = parse_stack(stack)
    again = change_stack(read, read.to_json())
    assert again == read
    assert ask(again.to_json(), pool).id == ask(stack, pool).id


@given(questions())
def test_a_verdict_holds_to_the_second_before_its_end(question):
    stack, pool = question
    verdict = ask(stack, pool)
    if verdict.valid_until is None:
        assert ask(stack, pool, now=NOW + timedelta(days=5000)).findings == verdict.findings
        return
    end = datetime.fromisoformat(verdict.valid_until)
    assert end > NOW
    assert ask(stack, pool, now=end - timedelta(seconds=1)).findings == verdict.findings


# --- a newer driver --------------------------------------------------------------------------


@st.composite
def raised(draw, compat=True):
    """A question, and the same on a newer driver, both within the branches that drive the GPU."""
    stack, pool = draw(questions(compat=compat))
    gpu = parse_pool(pool, facts().gpus).gpu
    fact = facts().arch.capabilities.get(format_parts(gpu.capability))
    first = gpu.first_branch or 0
    last = gpu.last_branch or (fact.last_branch if fact else None) or 9999
    within = [d for d in drivers() if first <= int(d.split(".")[0]) <= last]
    assume(len(within) > 1)
    index = draw(st.integers(0, len(within) - 2))
    newer = draw(st.integers(index + 1, len(within) - 1))
    return stack, ({**pool, "driver": within[index]}, {**pool, "driver": within[newer]})


@at_least(200)
@given(raised())
def test_a_newer_driver_fails_only_by_a_rule_that_names_why(question):
    stack, pair = question
    before, after = (ask(stack, pool) for pool in pair)
    if before.verdict in ("pass", "warn") and after.verdict == "fail":
        assert {f.rule for f in after.failing} & NAMES_WHY, [f.message for f in after.failing]


@at_least(200)
@given(raised(compat=False))
def test_without_forward_compatibility_a_newer_driver_makes_no_other_rule_worse(question):
    stack, pair = question
    before, after = (case_of(stack, pool) for pool in pair)
    for rule in RULES:
        if rule.id not in NAMES_WHY | {"CG104", "CG102"}:
            assert worst(after, rule.id) <= worst(before, rule.id), rule.id


@at_least(200)
@given(raised(compat=False))
def test_a_newer_driver_fails_the_limits_only_from_below_the_floor(question):
    """Below the floor CG102 leaves the word to CG101."""
    stack, pair = question
    before, after = (case_of(stack, pool) for pool in pair)
    if worst(before, "CG101") < OUTCOME_RANK["fail"]:
        assert worst(after, "CG102") <= worst(before, "CG102")


# --- more code -------------------------------------------------------------------------------


@at_least(200)
@given(questions())
@example(
    (
        {"cupy": "4.0.0", "cuda": "8.0", "arch": ["compute_20"]},
        {"name": "pool", "gpu": "B300", "driver": "346.46"},
    )
)
def test_machine_code_for_the_gpu_never_makes_its_code_rules_worse(question):
    stack, pool = question
    before = case_of(stack, pool)
    own = "sm_" + format_parts(before.capability).replace(".", "")
    after = case_of({**stack, "arch": [*stack.get("arch", []), own]}, pool)
    assert worst(after, "CG201") <= worst(before, "CG201")
    assert worst(after, "CG202") <= worst(before, "CG202")
    assert worst(after, "CG201") == 0


@given(questions(), codes)
def test_more_code_never_takes_away_what_ran(question, more):
    stack, pool = question
    before = case_of({**stack, "arch": stack.get("arch", [])}, pool)
    after = case_of({**stack, "arch": [*stack.get("arch", []), *more]}, pool)
    assert worst(after, "CG201") <= worst(before, "CG201")


# --- fixes -----------------------------------------------------------------------------------


@at_least(250)
@given(questions())
def test_a_fix_applied_mends_its_finding_and_makes_no_other_fact_rule_worse(question):
    stack, pool = question
    case = case_of(stack, pool)
    had = outcomes(case)
    for finding in ask(stack, pool, fixes=True).findings:
        for fix in finding.fixes:
            has = outcomes(apply_changes(case, fix.set))
            key = (finding.rule, finding.component)
            assert has.get(key, 0) < had[key], (key, fix.set)
            worse = {
                other: rank
                for other, rank in has.items()
                if rank > had.get(other, 0) and rank > OUTCOME_RANK["warn"]
            }
            assert not worse, (finding.rule, fix.set, worse)


@given(questions())
def test_a_fix_is_a_change_that_set_accepts(question):
    stack, pool = question
    from compatgate.core.request import change_pool

    read, made = parse_stack(stack), parse_pool(pool, facts().gpus)
    for finding in ask(stack, pool, fixes=True).findings:
        for fix in finding.fixes:
            plain = {
                name: value[2:].partition(",")[0]  # the lowest that it allows
                if isinstance(value, str) and value.startswith(">=")
                else value
                for name, value in fix.set.items()
            }
            change_stack(read, plain)
            change_pool(made, plain, facts().gpus)
            assert fix.message


@given(questions())
def test_every_fix_offered_is_another_one(question):
    stack, pool = question
    for finding in ask(stack, pool, fixes=True).findings:
        sets = [json.dumps(fix.set, sort_keys=True) for fix in finding.fixes]
        assert len(set(sets)) == len(sets)
