"""GitHub workflow commands.

JSON is the verdict as REST answers it.

The answer as variables.

GitLab's code quality report.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from compatgate.formats.reports import Answer, Place, render, render_all

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


def test_json_is_the_verdict_itself(denied: dict[str, Any]) -> None:
    assert json.loads(render("json", denied)) == denied


def test_the_verdicts_of_several_files_are_an_array(denied: dict[str, Any]) -> None:
    answers = [Answer(denied, "a"), Answer(denied, "b")]
    assert json.loads(render_all("json", answers)) == [denied, denied]
    assert json.loads(render_all("json", [Answer(denied, "a")])) == [denied]
    assert json.loads(render_all("json", [])) == []


def test_the_worst_answer_is_told(denied: Json, passing: Json) -> None:
    text = render_all("dotenv", [Answer(passing), Answer({**denied, "id": "vd_2"})])
    assert text.splitlines() == [
        "COMPATGATE_VERDICT=fail",
        "COMPATGATE_ALLOWED=false",
        "COMPATGATE_ID=vd_2",
    ]


def test_a_warning_that_is_allowed_is_better_than_what_is_not_known(
    on_target: Json, unknown: Json
) -> None:
    text = render_all("dotenv", [Answer(unknown), Answer(on_target)])
    assert "COMPATGATE_VERDICT=unknown" in text


def test_nothing_asked_is_no_verdict() -> None:
    assert render_all("dotenv", []).splitlines()[0] == "COMPATGATE_VERDICT=none"


def test_no_value_is_more_than_a_word_for_a_shell(hostile: Json) -> None:
    text = render("dotenv", {**hostile, "id": "$(rm -rf /)\nPATH=x"})
    assert text.splitlines()[2:] == ["COMPATGATE_ID=rm-rfPATHx"]


def issues(*answers: Answer) -> list[Json]:
    found = json.loads(render_all("gitlab-codequality", answers))
    assert isinstance(found, list)
    return found


def test_an_issue_has_what_gitlab_demands(denied: Json) -> None:
    places = {"driver": Place("./app/uv.lock", 17)}
    first, second = issues(Answer(denied, places=places))
    assert first == {
        "description": "A100-SXM4-80GB, driver 525.60.12: message of CG101; fix: raise the driver",
        "check_name": "CG101 driver-too-old",
        "fingerprint": first["fingerprint"],
        "severity": "blocker",
        "location": {"path": "app/uv.lock", "lines": {"begin": 17}},
    }
    assert second["severity"] == "minor"
    assert first["fingerprint"] != second["fingerprint"]


def test_what_did_not_weigh_is_no_issue_and_a_pass_has_none(denied: Json, passing: Json) -> None:
    assert not any("CG301" in issue["check_name"] for issue in issues(Answer(denied)))
    assert issues(Answer(passing)) == []
    assert issues() == []


@pytest.mark.parametrize(
    ("outcome", "allowed", "severity"),
    [
        ("fail", False, "blocker"),
        ("unknown", False, "critical"),
        ("fail", True, "major"),
        ("unknown", True, "major"),
        ("warn", True, "minor"),
        ("waived", True, "info"),
    ],
)
def test_severities_are_gitlabs(denied: Json, outcome: str, allowed: bool, severity: str) -> None:
    finding = {**denied["findings"][0], "outcome": outcome}
    (issue,) = issues(Answer({**denied, "allowed": allowed, "findings": [finding]}))
    assert issue["severity"] == severity


def test_without_a_file_the_path_names_the_target(on_target: Json) -> None:
    first, _ = issues(Answer({**on_target, "target": "../a b"}))
    assert first["location"] == {"path": "compatgate/..-a-b", "lines": {"begin": 1}}


def test_the_same_finding_in_two_files_is_two_issues(denied: Json) -> None:
    found = issues(Answer(denied, "a.lock"), Answer(denied, "b.lock"))
    assert len({issue["fingerprint"] for issue in found}) == len(found) == 4
