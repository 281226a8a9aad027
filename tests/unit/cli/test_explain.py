"""The documentation of rules, on the command line."""

from __future__ import annotations

import json

import pytest

from compatgate.cli.explain import find_rule
from compatgate.cli.main import main
from compatgate.core.rules import RULES


@pytest.mark.parametrize("text", ["CG101", "cg101", "driver-too-old", "Driver_Too_Old", " CG101 "])
def test_a_rule_is_found_by_id_or_name_in_any_case(text: str) -> None:
    assert find_rule(text).id == "CG101"


def test_an_unknown_rule_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "driver-to-old"]) == 2
    assert "did you mean driver-too-old" in capsys.readouterr().err


def test_all_rules_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [rule.id for rule in RULES]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rules_docstring_is_what_is_shown(
    rule: object, capsys: pytest.CaptureFixture[str]
) -> None:
    found = find_rule(rule.id)  # type: ignore[attr-defined]
    assert main(["explain", found.id]) == 0
    out = capsys.readouterr().out
    words = found.documentation.replace("``", "").split()
    assert " ".join(out.split()) == " ".join([found.id, found.name, *words])


def test_json_has_the_sections(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "CG101", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["id"] == "CG101"
    assert document["example"].startswith("CUDA 12.1")
    assert document["fix"].startswith("raise the driver")
    assert document["source"].startswith("CUDA Toolkit Release Notes")
    assert "Fix:" not in document["description"]


def test_json_of_all_rules_is_a_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--format", "json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == len(RULES)


def test_markdown_has_a_heading_a_rule(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--format", "markdown"]) == 0
    out = capsys.readouterr().out
    assert out.count("## CG") == len(RULES)
    assert "**Fix:** " in out
    assert "``" not in out
