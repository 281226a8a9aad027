"""GitHub workflow commands."""

from __future__ import annotations

from typing import Any

import pytest

from compatgate.check.reports import Answer, Place, render, render_all

Json = dict[str, Any]


def test_failures_are_errors_and_warnings_warnings(denied: Json) -> None:
    lines = render("github", denied).splitlines()
    assert lines[0].startswith("::error title=CG101 driver-too-old::message of CG101%0A")
    assert lines[1].startswith("::warning title=CG104 driver-branch-eol::")
    assert lines[2].startswith("DENIED: ")
    assert "fix: raise the driver (--set driver=525.60.13)" in lines[0]


def test_what_was_not_checked_is_no_annotation(denied: Json) -> None:
    assert "CG301" not in render("github", denied)


def test_no_decision_is_an_error(unknown: Json) -> None:
    assert render("github", unknown).startswith("::error title=CG901")


def test_a_failure_that_the_mode_lets_pass_is_a_warning(denied: Json) -> None:
    shown = {**denied, "allowed": True, "mode": "warn"}
    assert render("github", shown).startswith("::warning title=CG101")


def test_a_waived_finding_is_a_notice_that_names_its_pools(on_target: Json) -> None:
    line = render("github", on_target).splitlines()[0]
    assert line.startswith("::notice title=CG803")
    assert "pools: a, b" in line


def test_no_text_can_make_a_command_of_its_own(hostile: Json) -> None:
    lines = render("github", hostile).splitlines()
    assert sum(line.startswith("::") for line in lines) == 1
    assert lines[0].startswith("::error title=CG101 a%3Ab%2Cc::::error::x%250A%0A")


def test_an_annotation_stands_at_the_line_of_its_component(denied: Json) -> None:
    places = {"driver": Place("a,b:c\n%/uv.lock", 17)}
    lines = render_all("github", [Answer(denied, places=places)]).splitlines()
    assert lines[0].startswith(
        "::error file=a%2Cb%3Ac%0A%25/uv.lock,line=17,title=CG101 driver-too-old::message"
    )


def test_the_answers_of_several_files_are_told_apart(denied: Json, passing: Json) -> None:
    text = render_all("github", [Answer(denied, "a/uv.lock"), Answer(passing, "::b/uv.lock")])
    assert "\na/uv.lock: DENIED: CUDA 12.1" in text
    assert "\n: :b/uv.lock: ALLOWED: CUDA 12.1" in text


@pytest.mark.parametrize("start", ["::error::x", "  ::error::x", "x ##[add-mask]y", "\t::a::b"])
def test_nothing_but_annotations_is_obeyed_by_the_runner(hostile: Json, start: str) -> None:
    """The runner leaves blanks before a command aside, and finds ``##[`` anywhere."""
    verdict = {**hostile, "stack": {"torch": start}, "target": start, "id": start}
    lines = render_all("github", [Answer(verdict, start)]).splitlines()
    for line in lines[1:]:
        assert not line.lstrip().startswith("::")
        assert "##[" not in line


def test_the_log_and_the_test_report_lead_to_the_page_of_a_denial(denied: Json) -> None:
    link = "https://gate.example/v/vd_1?key=1795262400.AAAA"
    assert f"why: {link}" in render("github", {**denied, "link": link}).splitlines()
    assert f'name="link" value="{link}"' in render("junit", {**denied, "link": link})
