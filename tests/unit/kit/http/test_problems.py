"""An error becomes a problem that repeats no more than is safe."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatgate.documents.sources import DocumentProblem
from compatgate.errors import BadInput, CompatgateError, Conflict, ManyProblems, NotFound
from compatgate.kit.http.replies import to_problem


def test_a_problem_has_the_members_of_rfc_9457_and_ours() -> None:
    error = NotFound("target 'x' does not exist", field="target", value="x", hint="did you mean y?")
    assert to_problem(error) == {
        "type": "https://compatgate.dev/problems/not-found",
        "title": "Not found",
        "status": 404,
        "detail": "target: target 'x' does not exist (did you mean y?)",
        "field": "target",
        "value": "x",
        "hint": "did you mean y?",
    }


def test_several_problems_are_listed_with_their_places() -> None:
    one = DocumentProblem("is wrong", path=("spec", 0), file="a.yaml", line=3, document="Entry e")
    problem = to_problem(ManyProblems("2 problems", [one, BadInput("is odd", field="b")]))
    assert problem["detail"] == "2 problems"
    assert problem["problems"][0] == {
        "file": "a.yaml",
        "line": 3,
        "document": "Entry e",
        "field": "spec[0]",
        "problem": "is wrong",
        "value": None,
        "hint": None,
    }
    assert problem["problems"][1]["file"] is None


def test_a_long_value_is_cut_short() -> None:
    assert len(to_problem(BadInput("x", value="a" * 10_000))["value"]) == 203


@pytest.mark.parametrize("value", [math.nan, math.inf, {"a": 1}, [1], b"x", 2**70, object()])
def test_a_value_that_json_cannot_carry_is_left_out(value: object) -> None:
    assert to_problem(BadInput("x", value=value))["value"] is None


@given(st.text(st.characters(), max_size=300), st.sampled_from([BadInput, Conflict, NotFound]))
def test_any_text_makes_a_problem_that_encodes(text: str, kind: type[CompatgateError]) -> None:
    surrogate = text + "\ud800"
    problem = to_problem(kind("x", field="f", value=surrogate))
    assert msgspec.json.decode(msgspec.json.encode(problem))["field"] == "f"
