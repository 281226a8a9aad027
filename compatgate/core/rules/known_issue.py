"""CG701: combinations that are known to break although every published rule holds."""

from __future__ import annotations

from collections.abc import Iterator

from compatgate.core.case import Case
from compatgate.core.constraints import parse_constraint
from compatgate.core.facts import KnownIssue
from compatgate.core.parts import VERSIONS
from compatgate.core.rules.base import NOT_APPLICABLE, PASS, Answer, Candidate, Problem, rule


@rule("CG701", "known-issue", reads=VERSIONS | {"arch"}, states_outcome=True)
def known_issue(case: Case) -> Answer:
    """The combination is on the known-issues list.

    The list is data, each with a link: ``compatgate facts show known_issues``. Operators lay their
    own over it.

    Fix: what the issue's record advises.

    Source: the issue's own.
    """
    if not case.facts.known_issues.issues:
        return NOT_APPLICABLE
    return [_problem(case, issue) for issue in case.issues if _on_driver(case, issue)] or PASS


def _on_driver(case: Case, issue: KnownIssue) -> bool:
    """Whether the pool's driver is one that the issue is about, where it names any."""
    text = issue.components.get("driver")
    if text is None:
        return True
    return case.driver is not None and parse_constraint("driver", text).allows(case.driver)


def _problem(case: Case, issue: KnownIssue) -> Problem:
    component = next(iter(issue.components))
    have = case.driver if component == "driver" else case.stack.get(component)
    return Problem(
        "fail" if issue.outcome == "fail" else "warn",
        component,
        f"{issue.id} {issue.title}: {issue.message}",
        have=have.text if have else None,
        need=issue.advice or None,
        source=issue.source,
        candidates=lambda: _fixes(issue),
    )


def _fixes(issue: KnownIssue) -> Iterator[Candidate]:
    for change in issue.fixes:
        what = ", ".join(f"{name} {version}" for name, version in change.items())
        yield Candidate(dict(change), f"use {what}")
