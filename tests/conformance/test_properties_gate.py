"""What must hold for every answer, on stacks and pools drawn from the facts."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from functools import cache

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from compatgate.catalog import load_facts
from compatgate.core.case import Case
from compatgate.core.evaluate import evaluate
from compatgate.core.fixes import apply_changes
from compatgate.core.matrix import Matrix
from compatgate.core.request import change_stack, parse_pool
from compatgate.core.rules import BY_ID, RULES
from compatgate.core.stack import complete, parse_stack
from compatgate.core.target import Target
from compatgate.core.verdict import RANK
from compatgate.core.versions import show

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
NAMES_WHY = {"CG103", "CG105", "CG601", "CG701"}
"""Rules that may object to a newer driver, and say why."""


def at_least(examples):
    """More than the profile asks for, where what is drawn is wide."""
    return settings(max_examples=max(examples, settings.default.max_examples))


@cache
def facts():
    return load_facts(overlays=[])


@cache
def drivers():
    """Every Linux driver that the facts name."""
    branches = facts().driver_branches.branches.values()
    named = [v for b in branches for v in (b.first, b.last) if v]
    named += [t.driver["linux"] for t in facts().cuda_driver.toolkits if "linux" in t.driver]
    return sorted(
        {v.text for v in named if len(v.parts) > 1}, key=lambda t: [*map(int, t.split("."))]
    )


@cache
def gpus():
    bare = list(facts().arch.capabilities)
    return [*facts().gpus.gpus, *bare]


@cache
def frameworks():
    """Name to releases with their builds, as ``(version, label or None, cuda)``."""
    found = {}
    for name in sorted(facts().framework_names):
        found[name] = [
            (release.version.text, build.label, show(build.cuda or (build.cuda_major, 0)))
            for release in facts().framework(name).releases
            for build in release.builds
        ]
    return found


def series():
    return [show(pair) for pair in facts().toolkits_of]


codes = st.lists(
    st.sampled_from(
        [f"{kind}_{c.replace('.', '')}" for c in facts().arch.capabilities for kind in
         ("sm", "compute")] + ["sm_90a", "sm_100f", "compute_90a"]
    ),
    max_size=3,
    unique=True,
)  # fmt: skip


@st.composite
def stacks(draw, compat=True):
    """A stack of one or two frameworks on a CUDA, or of CUDA and libraries alone."""
    stack = {}
    for name in draw(st.lists(st.sampled_from(sorted(frameworks())), max_size=2, unique=True)):
        version, label, cuda = draw(st.sampled_from(frameworks()[name]))
        stack[name] = f"{version}+{label}" if label and draw(st.booleans()) else version
        stack.setdefault("cuda", cuda)
    if "cuda" not in stack or draw(st.integers(0, 3)) == 0:
        stack["cuda"] = draw(st.sampled_from(series()))
    if draw(st.booleans()):
        stack["cudnn"] = draw(st.sampled_from([r.version.text for r in facts().cudnn.releases]))
    if draw(st.integers(0, 2)) == 0:
        stack["nccl"] = draw(st.sampled_from([r.version.text for r in facts().nccl.releases]))
    if draw(st.integers(0, 2)) == 0:
        stack["python"] = draw(st.sampled_from([f"3.{minor}" for minor in range(8, 16)]))
    if draw(st.booleans()):
        stack["arch"] = draw(codes)
    if compat and draw(st.integers(0, 3)) == 0:
        stack["cuda-compat"] = draw(st.sampled_from(sorted(facts().forward_compat.packages)))
    if draw(st.integers(0, 5)) == 0:
        stack["require"] = [draw(st.sampled_from(["cuda>=9.0", "cuda>=12.4", "driver>=535"]))]
    return stack


@st.composite
def pools(draw):
    """A pool on Linux of a known GPU and a known driver."""
    gpu = draw(st.sampled_from(gpus()))
    return {"name": "pool", "gpu": gpu, "driver": draw(st.sampled_from(drivers()))}


FLEET = [
    "A100-SXM4-80GB", "A100-SXM4-80GB-MIG-1g.10gb", "H100-SXM5-80GB", "L4", "L40S", "T4", "A10",
    "V100-SXM2-32GB", "B200", "GeForce-RTX-4090", "GeForce-RTX-5090", "RTX-A6000", "8.0", "8.7",
]  # fmt: skip


@st.composite
def plausible(draw, compat=True):
    """What somebody would deploy: a published build with its own pins on a GPU of a fleet.

    Mostly passes; one thing at most is off.
    """
    name = draw(st.sampled_from(sorted(frameworks())))
    release = draw(st.sampled_from(facts().framework(name).releases))
    build = draw(st.sampled_from(release.builds))
    own = build.cuda or next(p for p in facts().toolkits_of if p[0] == build.cuda_major)
    pool = {"name": "pool", "gpu": draw(st.sampled_from(FLEET))}
    gpu = parse_pool(pool, facts().gpus).gpu
    floor = facts().cuda_driver.minor_compat.get(own[0])
    lowest = max(gpu.first_branch or 450, floor.minimum["linux"].major if floor else 0)
    fitting = [d for d in drivers() if int(d.split(".")[0]) >= lowest]
    pool["driver"] = draw(st.sampled_from(fitting if draw(st.integers(0, 5)) else drivers()))
    stack = {name: release.version.text, "cuda": show(own)}
    for component, pin in build.pins.items():
        if pin.floor and draw(st.booleans()):
            stack[component] = pin.floor.text
    if release.python and draw(st.booleans()):
        stack["python"] = draw(st.sampled_from(release.python))
    device = show(gpu.capability).replace(".", "")
    arch = draw(st.sampled_from([None, [f"sm_{device}"], ["compute_70"], ["sm_80", "compute_80"]]))
    if arch:
        stack["arch"] = arch
    if compat and draw(st.integers(0, 3)) == 0:
        stack["cuda-compat"] = show(own)
    if draw(st.integers(0, 4)) == 0:
        stack["require"] = [f"cuda>={show(own)}"]
    off = draw(st.sampled_from(["nothing", "nothing", "cuda", "cudnn", "nccl", "python"]))
    known = {
        "cuda": series(),
        "cudnn": [r.version.text for r in facts().cudnn.releases],
        "nccl": [r.version.text for r in facts().nccl.releases],
        "python": ["3.8", "3.10", "3.13"],
    }
    if off in known:
        stack[off] = draw(st.sampled_from(known[off]))
    return stack, pool


def questions(compat=True):
    """Plausible ones, mostly, and any at all."""
    any_at_all = st.tuples(stacks(compat=compat), pools())
    return st.integers(0, 3).flatmap(lambda n: plausible(compat=compat) if n else any_at_all)


def ask(stack, *described, fixes=False, now=NOW):
    made = tuple(parse_pool(pool, facts().gpus) for pool in described)
    target = Target("t", made)
    read = parse_stack(stack)
    return evaluate(read, target, facts=facts(), now=now, with_fixes=fixes)


def case_of(stack, pool):
    made = parse_pool(pool, facts().gpus)
    read = complete(parse_stack(stack))
    return Case(
        read, made, Target("t", (made,)), facts(), Matrix(), today="2026-11-21", now=NOW.timestamp()
    )


def outcomes(case):
    """What every rule about facts says of every component: rule and component to rank."""
    found = {}
    for rule in RULES:
        answer = rule.check(case)
        if rule.about_facts and not isinstance(answer, str):
            for problem in answer:
                key = (rule.id, problem.component)
                found[key] = max(found.get(key, 0), RANK[problem.outcome])
    return found


def worst(case, rule):
    answer = BY_ID[rule].check(case)
    return 0 if isinstance(answer, str) else max(RANK[problem.outcome] for problem in answer)


# --- every answer ----------------------------------------------------------------------------


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
    assert RANK[together.verdict] == max(RANK[verdict.verdict] for verdict in alone)
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
    fact = facts().arch.capabilities.get(show(gpu.capability))
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
    if worst(before, "CG101") < RANK["fail"]:
        assert worst(after, "CG102") <= worst(before, "CG102")


# --- more code -------------------------------------------------------------------------------


@at_least(200)
@given(questions())
def test_machine_code_for_the_gpu_never_makes_its_code_rules_worse(question):
    stack, pool = question
    before = case_of(stack, pool)
    own = "sm_" + show(before.capability).replace(".", "")
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
                if rank > had.get(other, 0) and rank > RANK["warn"]
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
                name: value[2:] if isinstance(value, str) and value.startswith(">=") else value
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
