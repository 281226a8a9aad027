"""What a user reads of an error: field, value, problem and hint in one line."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from compatgate.errors import BadInput, quote_error


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("torhc", "stack.torch: 'torhc' is not a version"),
        (12, "stack.torch: 12 is not a version"),
        (True, "stack.torch: is not a version"),
        (None, "stack.torch: is not a version"),
        ("", "stack.torch: is not a version"),
        ("a\nb", "stack.torch: is not a version"),
        ("9" * 61, "stack.torch: is not a version"),
        (["2.8"], "stack.torch: is not a version"),
    ],
)
def test_a_problem_that_begins_with_its_verb_gets_the_value_as_its_subject(
    value: object, line: str
) -> None:
    assert BadInput("is not a version", field="stack.torch", value=value).detail == line


@pytest.mark.parametrize("problem", ["'x' is not a version", "is not x", "unknown key"])
def test_a_value_is_neither_said_twice_nor_put_before_a_noun(problem: str) -> None:
    assert BadInput(problem, field="stack", value="x").detail == f"stack: {problem}"


def test_a_problem_without_a_subject_leaves_it_to_the_field() -> None:
    error = BadInput("is empty", field="reason", value="")
    assert (error.statement, error.has_subject) == ("is empty", False)
    error = BadInput("is not a version", field="torch", value="x")
    assert (error.statement, error.has_subject) == ("'x' is not a version", True)
    assert BadInput("unknown key", field="stack", value="x").has_subject


def test_the_hint_ends_the_line() -> None:
    error = BadInput("must be positive", field="hours", value=-1, hint="for example 4")
    assert error.detail == "hours: -1 must be positive (for example 4)"


@pytest.mark.parametrize(
    ("read", "words"),
    [
        (lambda: json.loads('{"a": 1,, }'), "malformed at line 1, column 9"),
        (lambda: b"ab\xff".decode(), "not UTF-8 at byte 3"),
        (lambda: {}["name"], "lacks name"),
        (lambda: len(3), "a value is not of the type that belongs there"),  # type: ignore[arg-type]
    ],
)
def test_an_exception_of_python_is_told_in_words_about_the_input(
    read: Callable[[], object], words: str
) -> None:
    with pytest.raises(Exception) as caught:
        read()
    assert quote_error(caught.value) == words
