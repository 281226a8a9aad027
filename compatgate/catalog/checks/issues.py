"""Known issues can be read, and what they offer as a fix leads out of them."""

from __future__ import annotations

from collections.abc import Iterator

from compatgate.catalog.checks import Check, Context, Problem
from compatgate.core.constraints import parse_constraint
from compatgate.core.versions import parse_version


def issue_fixes(context: Context) -> Iterator[Problem]:
    """A stack with the fix is no longer one that the issue is about."""
    for issue in context.facts.known_issues.issues:
        for fix in issue.fixes:
            changed = [name for name in issue.components if name in fix]
            left = any(
                not parse_constraint(name, issue.components[name]).allows(
                    parse_version(name, fix[name])
                )
                for name in changed
            )
            if not left:
                shown = ", ".join(f"{name} {version}" for name, version in fix.items())
                yield Problem("issue-fixes", f"known_issues {issue.id}", f"{shown} is still in it")


CHECKS: tuple[Check, ...] = (issue_fixes,)
