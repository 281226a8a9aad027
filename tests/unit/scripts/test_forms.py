"""A thing is declared in few places, and no struct is written twice."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import forms
import pytest

MOST = {"run": 5, "pool of a target": 8, "waiver": 4}
"""Today's counts; they only fall."""
MOST_GROUPS = 14


@cache
def every_form() -> list[forms.Form]:
    """Return the forms of the package, read once: not while tests are collected."""
    return list(forms.list_forms(forms.PACKAGE))


@pytest.mark.parametrize("thing", forms.THINGS)
def test_a_thing_is_declared_in_few_places(thing: str) -> None:
    found = forms.forms_of(thing, every_form())
    places = "\n".join(f"{one.path}:{one.line} {one.name}" for one in found)
    assert len(found) <= MOST[thing], f"declare {thing} once:\n{places}"


def test_few_structs_mirror_another() -> None:
    groups = forms.mirrors(every_form())
    assert len(groups) <= MOST_GROUPS, [[one.name for one in group] for group in groups]


def test_classes_parameters_and_options_are_forms(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(
        "class Waiver:\n    rules: int\n    owner: int\n    expires: int\n    match: int\n"
        "class Copy:\n    rules: int\n    owner: int\n    expires: int\n    reason: int\n"
        "class Same:\n    rules: int\n    owner: int\n    expires: int\n    match: int\n"
        "def waive(rules, owner, expires): ...\n"
        "def add(parser):\n    for name in ():\n        parser.add('--rules')\n"
        "    parser.add('--owner')\n    parser.add('--expires')\n"
        "waive(rules=1, owner=2, expires=3)\nwaive(rules=1)\n"
    )
    every = list(forms.list_forms(tmp_path))
    found = forms.forms_of("waiver", every)
    assert sorted(one.name for one in found) == [
        "call", "class Copy", "class Same", "class Waiver", "options of add", "waive",
    ]  # fmt: skip
    (group,) = forms.mirrors(every)
    assert [one.name for one in group] == ["class Waiver", "class Same"]
