"""GitLab's code quality report."""

from __future__ import annotations

import json
from typing import Any

import pytest

from compatgate.check.reports import Answer, Place, render_all

Json = dict[str, Any]


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
