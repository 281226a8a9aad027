"""A supporting fact that is taken away never lets a stack through: it may fail, or be unknown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from asking import NOW
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import read_table

from compatgate.catalog import build, open_library, sources
from compatgate.catalog import compiled as form
from compatgate.catalog.library import Library
from compatgate.check.question import read_pool
from compatgate.core.evaluate import evaluate
from compatgate.core.facts import Facts
from compatgate.core.request import Target, parse_pool
from compatgate.core.stack import parse_stack, parse_stack_text
from compatgate.errors import BadInput, CatalogError

QUESTIONS = [
    (one["pool"], one["stack"]) for one in read_table(Path(__file__).parent / "removed_facts.yaml")
]
KINDS = ("supporting", "defects")
FIELDS = [
    ("cuda_driver", "minor_version_compat", "12"),
    ("cuda_driver", "releases", "10.1.105", "linux_toolkit_driver_min"),
    ("cuda_driver", "releases", "12.4.0", "linux_toolkit_driver_min"),
    ("frameworks/jax", "releases", "0.4.30", "builds", "cuda12", "pins"),
    ("frameworks/torch", "releases", "2.4.1", "builds", "cu121", "pins"),
    ("frameworks/torch", "releases", "2.4.1", "builds", "cu124", "pins"),
    ("frameworks/torch", "releases", "2.5.1", "builds", "cu121", "code"),
    ("gpus", "gpus", "GeForce-RTX-5090", "first_driver_branch"),
    ("gpus", "gpus", "GeForce-GTX-1080", "last_driver_branch"),
]
"""Fields that decide, by file, list and record: drivers of toolkits, pins, code, branches."""

Step = str | int
Case = tuple[str, tuple[Step, ...]]
Load = Callable[[str, type[Any]], Any]


@cache
def library() -> Library:
    """The pinned catalogue."""
    return open_library([])


@cache
def table(name: str, kind: type[Any]) -> Any:
    """A table as it is."""
    return library().load(name, kind)


@cache
def document(source: str) -> dict[str, Any]:
    """A fact file as it is."""
    return library().document(source)


def facts_by(load: Load) -> Facts:
    """Facts whose tables are loaded by a function."""
    whole = library().facts()
    return Facts(load, "sha256:removed", (), whole.framework_names, whole.recorded)


def facts_without(source: str, path: tuple[Step, ...], *, null: bool = False) -> Facts:
    """Facts without one record or field, or with null for the field."""

    def load(name: str, kind: type[Any]) -> Any:
        if build.table(name).source != source:
            return table(name, kind)
        compiled = form.compile_table(name, without(document(source), path, null), {}, "test")
        return form.decode(compiled, kind)

    return facts_by(load)


def without(node: Any, path: tuple[Step, ...], null: bool) -> Any:
    """A copy of a document without what a path names."""
    step, *rest = path
    if rest:
        changed = list(node) if isinstance(node, list) else dict(node)
        changed[step] = without(node[step], tuple(rest), null)
        return changed
    if isinstance(node, list):
        return [one for index, one in enumerate(node) if index != step]
    rest_of = {name: value for name, value in node.items() if name != step}
    return {**rest_of, step: None} if null else rest_of


def is_allowed(question: tuple[str, str], facts: Facts) -> bool:
    """Tell whether a question is allowed on these facts."""
    pool = parse_pool(read_pool(question[0]), facts.gpus)
    stack = parse_stack(parse_stack_text(question[1]))
    return evaluate(stack, Target("", (pool,)), facts=facts, now=NOW, with_fixes=False).allowed


@cache
def questions_of() -> dict[str, list[tuple[str, str]]]:
    """The questions that read each fact file."""
    reading: dict[str, list[tuple[str, str]]] = {}
    for question in QUESTIONS:
        read: set[str] = set()

        def load(name: str, kind: type[Any], read: set[str] = read) -> Any:
            read.add(build.table(name).source)
            return table(name, kind)

        assert not is_allowed(question, facts_by(load)), question
        for source in read:
            reading.setdefault(source, []).append(question)
    return reading


def kind_of(schema: dict[str, Any], inherited: str) -> str:
    """The kind that a schema states."""
    return str(schema.get("x-kind", inherited))


def records(source: str) -> Iterator[tuple[tuple[Step, ...], str]]:
    """Yield each record that has a source, with its kind; not those that rules name."""
    whole = sources.read_schema(source)

    def walk(
        node: dict[str, Any], schema: dict[str, Any], path: tuple[Step, ...], kind: str
    ) -> Iterator[tuple[tuple[Step, ...], str]]:
        for name, value in node.items():
            described = sources.property_schema(schema, name)
            own = kind_of(described, kind)
            if isinstance(value, dict):
                yield from walk(value, described, (*path, name), own)
            if not (isinstance(value, list) and sources.natural_key(described)):
                continue
            if described.get("x-named") or name == "libraries":  # a part of a wheel's record
                continue
            for index, record in enumerate(value):
                yield (*path, name, index), own
                yield from walk(record, sources.item_schema(described), (*path, name, index), own)

    yield from walk(document(source), whole, (), kind_of(whole, ""))


@cache
def supporting() -> list[Case]:
    """Every record that supports an answer to the questions."""
    return [
        (source, path)
        for source in sorted(questions_of())
        for path, kind in records(source)
        if kind == "supporting"
    ]


def find_step(node: Any, name: str) -> Step:
    """The index of the record of a list that a name is the key of, or the name of a field."""
    if isinstance(node, dict):
        return name
    return next(i for i, one in enumerate(node) if name in map(str, one.values()))


def test_every_fact_file_says_which_kind_it_is() -> None:
    for source in library().names:
        schema = sources.read_schema(source)
        assert schema.get("x-kind") in KINDS, source
        assert {kind for _, kind in records(source)} <= set(KINDS)


def test_the_lists_that_only_object_are_exempt() -> None:
    kinds = {
        (source, path[0]): kind for source in library().names for path, kind in records(source)
    }
    assert kinds["kernel_support", "build_failures"] == "defects"
    assert kinds["kernel_support", "named_kernels"] == "supporting"
    assert kinds["known_issues", "issues"] == "defects"


@settings(max_examples=max(150, settings.default.max_examples))
@given(st.deferred(lambda: st.sampled_from(supporting())))
def test_a_record_that_is_removed_lets_no_stack_through(case: Case) -> None:
    source, path = case
    facts = facts_without(source, path)
    for question in questions_of()[source]:
        try:
            assert not is_allowed(question, facts), question
        except (BadInput, CatalogError):  # a GPU, or a statement that a rule needs, is missing
            continue


@pytest.mark.parametrize("field", FIELDS, ids="/".join)
def test_a_field_that_is_removed_lets_no_stack_through(field: tuple[str, ...]) -> None:
    source, *names = field
    node, path = document(source), list[Step]()
    for name in names:
        step = find_step(node, name)
        path.append(step)
        node = node[step]  # type: ignore[index]
    try:
        facts = facts_without(source, tuple(path))
        allowed = [one for one in questions_of()[source] if is_allowed(one, facts)]
    except CatalogError:  # the field must be there, if only as null
        facts = facts_without(source, tuple(path), null=True)
        allowed = [one for one in questions_of()[source] if is_allowed(one, facts)]
    assert not allowed
