"""JUnit XML."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import xmlschema

from compatgate.formats.reports import Answer, render, render_all

Json = dict[str, Any]
SCHEMA = Path(__file__).parents[2] / "fixtures" / "schemas" / "junit-10.xsd"


def suite(verdict: Json) -> ElementTree.Element:
    found = ElementTree.fromstring(render("junit", verdict)).find("testsuite")
    assert found is not None
    return found


def cases(verdict: Json) -> dict[str, ElementTree.Element]:
    return {case.get("name", ""): case for case in suite(verdict).findall("testcase")}


def test_every_rule_that_was_checked_is_a_case(denied: Json) -> None:
    assert list(cases(denied)) == [
        "CG101 driver-too-old",
        "CG104 driver-branch-eol",
        "CG105 driver-gpu",
        "CG201 no-kernel-image",
        "CG301 a-rule",
    ]


def test_the_counts_are_those_of_the_cases(denied: Json) -> None:
    found = suite(denied)
    counts = {key: found.get(key) for key in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": "5", "failures": "1", "errors": "0", "skipped": "1"}


def test_outcomes_are_what_ci_servers_know(denied: Json, unknown: Json) -> None:
    found = cases(denied)
    failure = found["CG101 driver-too-old"].find("failure")
    assert failure is not None
    assert failure.get("message") == "message of CG101"
    assert "fix: raise the driver (--set driver=525.60.13)" in (failure.text or "")
    assert found["CG104 driver-branch-eol"].find("system-out") is not None
    assert found["CG301 a-rule"].find("skipped") is not None
    assert not list(found["CG201 no-kernel-image"])
    assert cases(unknown)["CG901 a-rule"].find("error") is not None


def test_any_text_is_well_formed_xml(hostile: Json) -> None:
    failure = cases(hostile)["CG101 a:b,c"].find("failure")
    assert failure is not None
    assert '<script>"&|`]]>' in (failure.get("message") or "")


@pytest.mark.parametrize("name", ["passing", "denied", "unknown", "on_target", "hostile"])
def test_every_report_is_valid_for_jenkins(name: str, request: pytest.FixtureRequest) -> None:
    verdict = request.getfixturevalue(name)
    schema = xmlschema.XMLSchema(SCHEMA)
    several = [Answer(verdict, "a/uv.lock"), Answer(verdict, "b/uv.lock")]
    for text in (render("junit", verdict), render_all("junit", several), render_all("junit", [])):
        schema.validate(text)


def test_several_files_are_suites_whose_counts_add_up(denied: Json, unknown: Json) -> None:
    text = render_all("junit", [Answer(denied, "a/uv.lock"), Answer(unknown, "b/uv.lock")])
    root = ElementTree.fromstring(text)
    names = [suite.get("name", "") for suite in root.findall("testsuite")]
    assert [name.split(": ")[1] for name in names] == ["a/uv.lock", "b/uv.lock"]
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("8", "1", "1")


def test_what_the_mode_lets_pass_does_not_fail_the_build(denied: Json) -> None:
    found = suite({**denied, "allowed": True, "mode": "audit"})
    assert found.get("failures") == "0"
    (output,) = found.findall("testcase[@name='CG101 driver-too-old']/system-out")
    assert (output.text or "").startswith("fail, allowed by mode 'audit': message of CG101")
