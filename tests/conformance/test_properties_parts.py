"""What says that it looks at some parts of a question looks at no other: fixes rely on it."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from drawn import at_least, case_of, codes, drivers, facts, frameworks, questions, series
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict, replace
from tables import read_table

from compatgate.core import fixes
from compatgate.core.components import COMPONENTS
from compatgate.core.constraints import parse_constraint
from compatgate.core.fixes import FixFinder, apply_changes
from compatgate.core.matrix import Entry, EntryIndex, Matrix
from compatgate.core.parts import EVERYTHING, JETSON, parts_of
from compatgate.core.performance import lazy_property
from compatgate.core.request import Policy, Target
from compatgate.core.rule import OUTCOME_RANK, list_problems
from compatgate.core.rule_context import DERIVED_VALUES, RuleContext
from compatgate.core.rules import BY_ID, RULES
from compatgate.core.stack import parse_stack, parse_stack_text, update_stack
from compatgate.errors import BadInput

LESSONS = read_table(Path(__file__).parent / "lessons.yaml")


class Looked(AssertionError):
    """Something looked at a part that it must not see."""


class Hidden:
    """Stands for a value; whoever looks at it is caught."""

    def __getattribute__(self, name):
        raise Looked(name)

    def __bool__(self):
        raise Looked


class Without:
    """An object of which some attributes cannot be looked at."""

    def __init__(self, whole, hidden, **instead):
        self._whole, self._hidden = whole, hidden
        self.__dict__.update(instead)

    def __getattr__(self, name):
        if name in self._hidden:
            raise Looked(name)
        return getattr(self._whole, name)


RELEASE = ("l4t", "jetpack")


class ReleaseAlone(dict):
    """Parts of a node of which only the release of a Jetson can be looked at."""

    def __contains__(self, name):
        return super().__contains__(name) if name in RELEASE else Hidden().part

    def get(self, name, default=None):
        return super().get(name, default) if name in RELEASE else Hidden().part

    def __bool__(self):
        raise Looked

    __getitem__ = __iter__ = items = keys = values = lambda self, *_: Hidden().part


class HiddenDriver:
    def __get__(self, case, owner):
        raise Looked("driver")

    def __set__(self, case, value):
        pass


class Driverless(RuleContext):
    driver = HiddenDriver()


def blind(case, reads):
    """The case, with nothing to see of the parts that are not among these."""
    versions = {
        name: version if parts_of([name]) <= reads else Hidden()
        for name, version in case.stack.versions.items()
    }
    shown = {name: versions[name] for name in case.stack.components}
    packages = {name: versions[name] for name in case.stack.packages}
    hidden = set() if "arch" in reads else {"arch"}
    hidden |= set() if "cuda-compat" in reads else {"cuda_compat", "compat_use"}
    stack = Without(
        case.stack, hidden, components=shown, packages=packages, versions=versions, get=versions.get
    )  # fmt: skip
    sees = "driver" in reads
    pool = case.pool if "node" in reads else without_node(case.pool)
    pool = pool if sees else Without(pool, {"driver"}, driver=None)
    made = (RuleContext if sees else Driverless)(
        stack, pool, case.target, case.facts, case.matrix,
        today=case.today, now=case.now, brief=case.brief,
    )  # fmt: skip
    if not sees:
        made.pool = Without(made.pool, {"driver"})
    return made


def without_node(pool):
    """The pool without its nodes, but for the release of a Jetson, which is that of its driver."""
    shown = {name: value for name, value in pool.node.items() if name in RELEASE}
    seen = replace(pool, node=shown)

    def node_version(name):
        return seen.node_version(name) if name in RELEASE else Hidden().version

    node = ReleaseAlone(shown)
    return Without(seen, {"platform", "sharing"}, node=node, node_version=node_version)


def answer_of(rule, case):
    """A rule's answer: a word, or its problems."""
    answer = rule.check(case)
    return answer if isinstance(answer, str) else list_problems(answer)


def said(answer):
    """An answer without what it would try to mend it."""
    if isinstance(answer, str):
        return answer
    return [{**asdict(problem), "candidates": None} for problem in answer]


@cache
def lessons():
    """The cases of the lessons whose pool states a driver and a GPU."""
    found = []
    for row in LESSONS:
        pool = row.get("pool")
        if not isinstance(pool, str | dict) or not isinstance(row.get("stack"), str):
            continue
        pool = parse_stack_text(pool) if isinstance(pool, str) else pool
        if {"driver", "gpu"} <= pool.keys() and "banana" not in row["stack"]:
            found.append(case_of(parse_stack_text(row["stack"]), {"name": "pool", **pool}))
    return found


def check(case):
    for rule in RULES:
        if rule.reads != EVERYTHING:
            assert said(answer_of(rule, blind(case, rule.reads))) == said(answer_of(rule, case)), (
                rule.id
            )
    for name, reads in DERIVED_VALUES.items():
        assert getattr(blind(case, reads), name) == getattr(case, name), name


def test_the_lessons_are_answered_by_what_each_rule_says_that_it_reads():
    assert len(lessons()) > 50
    for case in lessons():
        check(case)


def test_a_package_is_answered_for_on_each_driver_whichever_was_asked_first():
    """The notes of an image of Triton name its drivers."""
    for driver, outcomes in (("580.95.05", []), ("450.80.02", ["unknown"]), ("580.95.05", [])):
        pool = {"name": "pool", "gpu": "H100-SXM5-80GB", "driver": driver}
        answer = BY_ID["CG410"].check(case_of({"tritonserver": "24.05"}, pool))
        assert [found.outcome for found in answer if answer != "pass"] == outcomes, driver


@at_least(300)
@given(questions())
def test_any_question_is_answered_by_what_each_rule_says_that_it_reads(question):
    check(case_of(*question))


def test_what_a_rule_says_that_it_reads_it_does_somewhere():
    """Else it would be asked again for nothing."""
    seldom = {"CG403", "CG406", "CG412", "CG601", "CG701", "CG901"}  # no lesson leads that far
    by_product = {"CG142", "CG143"}  # the type of a vGPU says how a GPU is shared
    left_out = seldom | by_product
    asked = [rule for rule in RULES if rule.about_facts and rule.id not in left_out]
    unused = {
        (rule.id, part)
        for rule in asked
        if rule.reads != EVERYTHING
        for part in rule.reads - JETSON  # it changes with the driver, and says who is concerned
    }
    for case in lessons():
        for rule_id, part in [*unused]:
            try:
                BY_ID[rule_id].check(blind(case, BY_ID[rule_id].reads - {part}))
            except Looked:
                unused.remove((rule_id, part))
    rare = {("CG203", "packages"), ("CG203", "python")}  # read where the CUDA is assumed
    rare.add(("CG401", "python"))  # decides which wheel's record stands for an unknown release
    assert unused <= rare


@pytest.mark.parametrize("name", sorted(DERIVED_VALUES))
def test_what_is_carried_over_is_something_that_a_case_derives(name):
    assert isinstance(vars(RuleContext)[name], lazy_property)


# --- a case after a change -------------------------------------------------------------------


@st.composite
def changes(draw):
    """A change as a fix or ``set`` makes it: of some parts, to anything that is known."""
    known = {
        "driver": drivers(),
        "cuda": [*series(), None],
        "cudnn": [*(r.version.text for r in facts().cudnn.releases), None],
        "nccl": [*(r.version.text for r in facts().nccl.releases), None],
        "python": ["3.8", "3.10", "3.12.1", "3.13t", None],
        "cuda-compat": [*facts().forward_compat.packages, None],
        "gpu": ["L4", "V100-SXM2-32GB"],
        **{name: [v + (f"+{b}" if b else "") for v, b, _ in found] for name, found in
           frameworks().items()},
    }  # fmt: skip
    names = draw(st.lists(st.sampled_from(sorted(known)), min_size=1, max_size=3, unique=True))
    change = {name: draw(st.sampled_from(known[name])) for name in names}
    if draw(st.integers(0, 4)) == 0:
        change["arch"] = draw(codes)
    return change


@at_least(300)
@given(questions(), changes())
def test_a_case_after_a_change_is_the_case_made_anew(question, change):
    case = case_of(*question)
    for rule in RULES:  # derives everything that can be derived
        answer_of(rule, case)
    try:
        after = apply_changes(case, change)
    except BadInput:
        return
    anew = case.on(after.stack, after.pool)
    untouched = [rule for rule in RULES if rule.reads.isdisjoint(parts_of(change))]
    for rule in RULES:
        assert said(answer_of(rule, after)) == said(answer_of(rule, anew)), rule.id
    for rule in untouched:
        assert outcomes(answer_of(rule, anew)) == outcomes(answer_of(rule, case)), rule.id


@at_least(200)
@given(questions(), changes())
def test_a_stack_with_changes_is_what_is_read_of_its_json_with_them(question, change):
    stack = parse_stack(question[0])
    ours = {name: value for name, value in change.items() if name not in ("driver", "gpu")}
    body = {name: v for name, v in stack.to_json().items() if name not in ours}
    body |= {name: value for name, value in ours.items() if value is not None}
    assert said_of(update_stack, stack, ours) == said_of(parse_stack, body)


def said_of(make, *arguments):
    try:
        made = make(*arguments)
    except BadInput as error:
        return str(error)
    return made, made.to_json()


def outcomes(answer):
    return answer if isinstance(answer, str) else [(p.component, p.outcome) for p in answer]


def test_a_key_that_nobody_knows_may_change_everything():
    assert parts_of(["gpu"]) == parts_of(["require"]) == parts_of(["no such thing"]) == EVERYTHING
    assert parts_of(["xformers"]) == {"packages"}
    assert parts_of(["pytorch"]) == parts_of(["tensorrt"]) == {"builds", "cuda"}
    assert all(parts_of([name]) < EVERYTHING for name in COMPONENTS)


# --- fixes -----------------------------------------------------------------------------------


def naive(case, answers, problem, rule):
    """The fixes of a finding, each verified by asking every rule about a case made anew."""
    offered = []
    for candidate in list(problem.candidates() if problem.candidates else ())[:16]:
        if not candidate.set or any(fixes._includes(candidate.set, f) for f, _ in offered):
            continue
        try:
            changed = apply_changes(case, candidate.set)
        except BadInput:
            continue
        after = case.on(changed.stack, changed.pool)
        said_after = {r.id: answer_of(r, after) for r in RULES}
        still = weights(said_after[rule.id]).get(problem.component, 0)
        if still >= (1 if problem.outcome == "warn" else 2):
            continue
        worse = {r.id for r in RULES if is_worse(answers[r.id], said_after[r.id])}
        if rule.id in worse or any(r.id in worse for r in RULES if r.about_facts):
            continue
        remark = " (then needs its own blessed entry and evidence)" if worse else ""
        offered.append((candidate.set, candidate.message + remark))
        if len(offered) >= fixes.MAX_FIXES.get(problem.outcome, 0):
            break
    return offered


def weights(answer):
    found = {}
    for problem in () if isinstance(answer, str) else answer:
        found[problem.component] = max(
            found.get(problem.component, 0), OUTCOME_RANK[problem.outcome]
        )
    return found


def is_worse(before, after):
    known = weights(before)
    return any(weight > max(known.get(name, 0), 1) for name, weight in weights(after).items())


def entry(number, components, status):
    parsed = {name: parse_constraint(name, text) for name, text in components.items()}
    return Entry(f"e{number}", ("t",), parsed, status)


ENTRIES = (
    {"driver": ">=535.104.05,<536", "cuda": "12.4.*"}, {"cuda": ">=12.1,<13", "torch": "~=2.4.0"},
    {"driver": ">=550", "cudnn": ">=9.1,<10"}, {"cuda": "11.8", "python": "3.11.*"},
)  # fmt: skip
STATUSES = ("blessed", "blessed", "candidate", "revoked", "deprecated")


@st.composite
def blessed(draw):
    """A question where a policy asks for an entry of a small matrix."""
    case = case_of(*draw(questions()))
    chosen = draw(st.lists(st.tuples(st.sampled_from(ENTRIES), st.sampled_from(STATUSES))))
    matrix = Matrix(1, EntryIndex(entry(n, *row) for n, row in enumerate(chosen)))
    target = replace(case.target, policy=Policy(require_entry=draw(st.booleans())))
    assert isinstance(target, Target)
    return RuleContext(
        case.stack, case.pool, target, case.facts, matrix, today=case.today, now=case.now
    )


@at_least(150)
@given(blessed())
def test_the_fixes_are_those_that_a_full_evaluation_finds(case):
    answers = {rule.id: answer_of(rule, case) for rule in RULES}
    finder = FixFinder(case, answers)
    for rule in RULES:
        for problem in () if isinstance(answers[rule.id], str) else answers[rule.id]:
            found = [(fix.set, fix.message) for fix in finder.fixes(problem, rule)]
            assert found == naive(case, answers, problem, rule), (rule.id, problem.component)
