"""CG701: find combinations that are known to break although every published rule holds."""

from __future__ import annotations

from collections.abc import Iterator

from compatgate.core.constraints import parse_constraint
from compatgate.core.facts.frameworks import KnownIssue
from compatgate.core.rule import (
    NOT_APPLICABLE,
    PASS,
    VERSIONS,
    Candidate,
    Problem,
    RuleAnswer,
    rule,
)
from compatgate.core.rule_context import RuleContext


@rule("CG701", "known-issue", reads=VERSIONS | {"arch"}, states_outcome=True)
def known_issue(context: RuleContext) -> RuleAnswer:
    """The combination is on the known-issues list.

    The list is data, each with a link: ``compatgate facts show known_issues``. Operators lay their
    own over it.

    Fix: what the issue's record advises.

    Source: the issue's own.
    """
    if not context.facts.known_issues.issues:
        return NOT_APPLICABLE
    return [
        _problem(context, issue) for issue in context.issues if _on_driver(context, issue)
    ] or PASS


def _on_driver(context: RuleContext, issue: KnownIssue) -> bool:
    """Return whether the pool's driver is one that the issue is about, where it names any."""
    text = issue.components.get("driver")
    if text is None:
        return True
    return context.driver is not None and parse_constraint("driver", text).allows(context.driver)


def _problem(context: RuleContext, issue: KnownIssue) -> Problem:
    component = next(iter(issue.components))
    have = context.driver if component == "driver" else context.stack.get(component)
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
