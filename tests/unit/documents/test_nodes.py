"""YAML and JSON into plain values: traps, lines, and bounds on what a file may cost."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatgate.documents.sources import Problems, Source
from compatgate.documents.text import RawDocument, read_nodes


@pytest.fixture
def load() -> Callable[[str], tuple[list[RawDocument], Problems]]:
    def loading(text: str) -> tuple[list[RawDocument], Problems]:
        problems = Problems()
        return list(read_nodes(Source("f.yaml", text), problems)), problems

    return loading


Load = Callable[[str], tuple[list[RawDocument], Problems]]


def test_a_key_that_is_stated_twice_is_a_mistake_on_its_second_line(load: Load) -> None:
    documents, problems = load("a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\n")
    (problem,) = problems
    assert (problem.line, problem.field) == (5, "b.c")
    assert problem.problem == "c is stated twice; first on line 3"
    assert documents[0].value["b"]["c"] == 1


@pytest.mark.parametrize("key", ["yes", "1", "1.5", "2027-01-31", "null", "~"])
def test_a_key_must_be_text(load: Load, key: str) -> None:
    _, problems = load(f"{key}: 1\n")
    if key == "2027-01-31":
        assert not list(problems)
    else:
        assert [p.problem for p in problems] == [f"the key {key} must be text"]


def test_anchors_and_merge_keys_work_and_own_keys_win(load: Load) -> None:
    (document,), problems = load("base: &b {x: 1, y: 2}\nmine:\n  <<: *b\n  y: 3\nlist: [*b]\n")
    assert not list(problems)
    assert document.value["mine"] == {"x": 1, "y": 3}
    assert document.value["list"] == [{"x": 1, "y": 2}]
    assert document.line(("mine", "x")) == 1
    assert document.line(("mine", "y")) == 4


def test_a_bomb_of_aliases_is_refused_quickly(load: Load) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    began = time.monotonic()
    _, problems = load("\n".join(lines))
    assert [p.problem for p in problems] == ["aliases expand to far more than the file holds"]
    assert time.monotonic() - began < 5


def test_an_alias_that_contains_itself_is_refused(load: Load) -> None:
    _, problems = load("a: &a [*a]\n")
    assert [p.problem for p in problems] == ["nested too deeply, or an alias contains itself"]


@pytest.mark.parametrize("text", ["[" * 100_000, "{a: " * 100_000, "- " * 50_000, "a: " + "[" * 40])
def test_deep_nesting_is_refused_without_a_crash(load: Load, text: str) -> None:
    _, problems = load(text)
    assert len(list(problems)) == 1


@pytest.mark.parametrize("tag", ["!!python/object:os.system", "!mine", "!!binary", "!!set"])
def test_tags_are_refused(load: Load, tag: str) -> None:
    _, problems = load(f"a: {tag} x\n")
    assert len(list(problems)) == 1


def test_a_syntax_error_names_its_line_and_what_came_before_is_still_read(load: Load) -> None:
    documents, problems = load("a: 1\n---\nb: [1\nc: 2\n")
    assert [d.value for d in documents] == [{"a": 1}]
    (problem,) = problems
    assert problem.line in (3, 4)
    assert problem.problem.startswith("not valid YAML")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("a:\n\tb: 1\n", "begins with a tab"),
        ("a:\n  - b: 1\n   c: 2\n", "indent the line like the lines around it"),
        ("a: [1, 2\nb: 3\n", "close every bracket"),
        ("reason: seen: works\n", "quote text with a colon"),
    ],
)
def test_a_syntax_error_says_what_it_mostly_comes_from(load: Load, text: str, hint: str) -> None:
    (problem,) = load(text)[1]
    assert hint in problem.hint


def test_json_may_be_indented_with_tabs_and_hold_a_list_of_documents(load: Load) -> None:
    documents, problems = load('[\n\t{"a": "x\\ty"},\n\t{"b": "\\ud83d\\ude00"}\n]')
    assert not list(problems)
    assert [d.value for d in documents] == [{"a": "x\ty"}, {"b": "😀"}]
    assert documents[1].line() == 3


def test_half_of_a_surrogate_pair_is_refused(load: Load) -> None:
    _, problems = load('{"a": "\\ud83d"}')
    assert len(list(problems)) == 1


def test_what_was_written_is_remembered(load: Load) -> None:
    (document,), _ = load("a: 12.10\nb: {c: 0777}\nd: 1:30\n")
    assert document.value == {"a": 12.1, "b": {"c": "0777"}, "d": "1:30"}
    assert document.written(("a",)) == "12.10"
    assert document.written(("b",)) is None


def test_a_path_that_does_not_exist_has_the_line_of_what_is_above_it(load: Load) -> None:
    (document,), _ = load("a: 1\nspec:\n  pools:\n    - x: 1\n    - y: 1\n")
    assert document.line(("spec", "missing", "deep")) == 2
    assert document.line(("spec", "pools", 1, "z")) == 5
    assert document.line(("spec", "pools", 9)) == 3


_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(st.dictionaries(st.text(min_size=1, max_size=8), _values, max_size=5))
def test_whatever_json_says_is_read_as_json_reads_it(value: dict[str, Any]) -> None:
    problems = Problems()
    text = json.dumps(value)
    documents = list(read_nodes(Source("f.json", text), problems))
    if not list(problems):
        assert [d.value for d in documents] == [value]
    else:  # YAML knows characters that it does not take, JSON does
        assert any(not c.isprintable() or "\\u" in text for c in text) or "\\" in text


@given(st.text(max_size=200))
def test_no_text_breaks_the_reader(text: str) -> None:
    list(read_nodes(Source("f.yaml", text), Problems()))
