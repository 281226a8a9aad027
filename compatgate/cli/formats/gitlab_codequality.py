"""GitLab's code quality report: the findings that weigh, beside the lines of a merge request.

Source: GitLab Docs, "Code Quality", section "Code Quality report format"; each issue has a
description, check name, unique fingerprint, severity and a path relative to the repository.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from compatgate.cli.formats import Answer, Json, View, located, words

_SEVERITIES = {"fail": "blocker", "unknown": "critical", "warn": "minor", "waived": "info"}
_ALLOWED = "major"
"""What fails, or is not known, where the target's mode allows it all the same."""


def render(answers: Sequence[Answer], view: View) -> str:
    """A JSON array with one issue per finding."""
    issues = [
        _issue(finding, answer, fingerprint)
        for finding, answer, fingerprint in located.each(answers)
        if finding["outcome"] in _SEVERITIES
    ]
    return msgspec.json.format(msgspec.json.encode(issues), indent=2).decode()


def _issue(finding: Json, answer: Answer, fingerprint: str) -> dict[str, Any]:
    place = located.place(finding, answer)
    severity = _SEVERITIES[finding["outcome"]]
    if answer.verdict["allowed"] and finding["outcome"] in ("fail", "unknown"):
        severity = _ALLOWED
    fixes = "".join(f"; fix: {fix['message']}" for fix in finding["fixes"][:1])
    return {
        "description": f"{words.place(answer.verdict)}: {finding['message']}{fixes}",
        "check_name": f"{finding['rule']} {finding['name']}",
        "fingerprint": fingerprint,
        "severity": severity,
        "location": {"path": place.path, "lines": {"begin": place.line}},
    }
