"""What a rule does not judge is left out of the question, cannot stop the stack, or is unknown."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import drawn
import pytest
from tables import read_table

from compatgate.check.question import read_pool
from compatgate.core.request import Policy
from compatgate.core.rule import Verdict

RULES = Path(__file__).parents[2] / "compatgate" / "core" / "rules"
PLACES: list[dict[str, Any]] = read_table(Path(__file__).parent / "not_checked.yaml")
SHOWN = [place for place in PLACES if "rule" in place]
CALLS = {
    "report_left_out": "left-out",
    "report_no_effect": "no-effect",
    "report_missing_fact": "missing-fact",
}

Ask = Callable[..., Verdict]


def name_of(place: dict[str, Any]) -> str:
    """Return a test's name."""
    return f"{place['at']} {place['reason']}"


def outcomes(verdict: Verdict, rule: str) -> set[str]:
    """Return the outcomes of a rule."""
    return {finding.outcome for finding in verdict.findings if finding.rule == rule}


def test_the_table_lists_every_place_with_its_reason() -> None:
    found: Counter[tuple[str, str]] = Counter()
    for file in sorted(RULES.glob("*.py")):
        for function in ast.walk(ast.parse(file.read_text())):
            if not isinstance(function, ast.FunctionDef):
                continue
            for call in ast.walk(function):
                called = getattr(call.func, "id", "") if isinstance(call, ast.Call) else ""
                if reason := CALLS.get(called):
                    found[f"{file.stem}.{function.name}", reason] += 1
    assert found == Counter((place["at"], place["reason"]) for place in PLACES)


def test_no_rule_says_not_checked_without_a_reason() -> None:
    for file in sorted(RULES.glob("*.py")):
        assert '"not-checked"' not in file.read_text(), file.name


def test_every_place_without_effect_says_why() -> None:
    assert all(("why" in place) == (place["reason"] == "no-effect") for place in PLACES)


@pytest.mark.parametrize("place", SHOWN, ids=name_of)
def test_the_question_shows_the_place(place: dict[str, Any], ask: Ask) -> None:
    verdict = ask(read_pool(place["pool"]), place["stack"], with_fixes=False)
    expected = "unknown" if place["reason"] == "missing-fact" else "not-checked"
    assert expected in outcomes(verdict, place["rule"])


@pytest.mark.parametrize("place", [one for one in SHOWN if "states" in one], ids=name_of)
def test_what_was_left_out_is_judged_once_it_is_stated(place: dict[str, Any], ask: Ask) -> None:
    pool = read_pool(place["pool"])
    verdict = ask(pool, place["stack"], changes=place["states"], with_fixes=False)
    assert "not-checked" not in outcomes(verdict, place["rule"])


@pytest.mark.parametrize("place", [one for one in SHOWN if one.get("why") == "warns"], ids=name_of)
def test_a_rule_that_only_warns_denies_with_no_value(place: dict[str, Any], ask: Ask) -> None:
    pool = read_pool(place["pool"])
    for driver in drawn.drivers():
        verdict = ask(pool, place["stack"], changes={"driver": driver}, with_fixes=False)
        assert outcomes(verdict, place["rule"]) <= {"warn", "not-checked"}, driver


@pytest.mark.parametrize(
    "place", [one for one in SHOWN if one["reason"] == "missing-fact"], ids=name_of
)
def test_a_missing_fact_names_what_settles_it_and_warns_where_it_is_audited(
    place: dict[str, Any], ask: Ask
) -> None:
    pool = read_pool(place["pool"])
    verdict = ask(pool, place["stack"], policy=Policy(missing_facts="audit"), with_fixes=False)
    said = [one for one in verdict.findings if one.rule == place["rule"] and one.outcome == "warn"]
    assert any(one.need and "missingFacts: enforce" in one.message for one in said)
    assert "unknown" not in outcomes(verdict, place["rule"])
