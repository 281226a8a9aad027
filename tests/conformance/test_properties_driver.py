"""What is said not to look at the driver does not: fixes that change nothing else rely on it."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
import yaml
from drawn import at_least, case_of, drivers, questions
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from compatgate.core.case import WITHOUT_DRIVER, Case
from compatgate.core.rules import READING_DRIVERS, RULES
from compatgate.core.stack import parse_stack_text
from compatgate.core.versions import parse_version

LESSONS = yaml.safe_load((Path(__file__).parent / "lessons.yaml").read_text())
BLIND_RULES = [rule for rule in RULES if not rule.reads_driver]


class Looked(AssertionError):
    """Something looked at the driver."""


class NoDriver:
    """A pool that has everything but a driver to look at."""

    def __init__(self, pool):
        self._pool = pool

    def __getattr__(self, name):
        return getattr(self._pool, name)

    @property
    def driver(self):
        raise Looked


def blind(case):
    return Case(
        case.stack, NoDriver(case.pool), case.target, case.facts, case.matrix,
        today=case.today, now=case.now, brief=case.brief,
    )  # fmt: skip


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
        if not isinstance(row.get("pool"), str) or not isinstance(row.get("stack"), str):
            continue
        pool = dict(item.split("=", 1) for item in row["pool"].split(","))
        if {"driver", "gpu"} <= pool.keys() and "banana" not in row["stack"]:
            found.append(case_of(parse_stack_text(row["stack"]), {"name": "pool", **pool}))
    return found


def check(case):
    for rule in BLIND_RULES:
        assert said(rule.check(blind(case))) == said(rule.check(case)), rule.id
    unseeing = blind(case)
    for name in WITHOUT_DRIVER:
        assert getattr(unseeing, name) == getattr(case, name), name


def test_every_other_rule_looks_at_the_driver_somewhere():
    """Else it would be asked again for nothing."""
    looked = set()
    for case in lessons():
        for rule in READING_DRIVERS:
            try:
                rule.check(blind(case))
            except Looked:
                looked.add(rule.id)
    need_more = {"CG601", "CG701", "CG801", "CG802", "CG803", "CG811", "CG812", "CG813"}
    assert {rule.id for rule in READING_DRIVERS} - need_more == looked - need_more


def test_the_lessons_are_answered_without_the_driver():
    assert len(lessons()) > 50
    for case in lessons():
        check(case)


@at_least(300)
@given(questions())
def test_any_question_is_answered_without_the_driver(question):
    check(case_of(*question))


@at_least(200)
@given(questions(), st.sampled_from(drivers()))
def test_a_case_on_another_driver_is_the_case_made_anew(question, driver):
    stack, described = question
    case = case_of(stack, described)
    for rule in RULES:  # derives everything that can be derived
        rule.check(case)
    pool = replace(case.pool, driver=parse_version("driver", driver))
    moved = case.on_driver(pool)
    anew = case.on(case.stack, pool)
    for rule in RULES:
        assert said(rule.check(moved)) == said(rule.check(anew)), rule.id


@pytest.mark.parametrize("name", sorted(WITHOUT_DRIVER))
def test_what_is_carried_over_is_something_that_a_case_derives(name):
    assert hasattr(Case, name)
