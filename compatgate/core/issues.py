"""Which known issues are about a stack on a GPU, whatever the driver."""

from __future__ import annotations

from compatgate.core.constraints import parse_constraint
from compatgate.core.facts import KnownIssue, KnownIssues, Pair
from compatgate.core.stack import Stack


def issues_about(stack: Stack, capability: Pair | None, table: KnownIssues) -> list[KnownIssue]:
    """The issues whose components the stack has, on GPUs that they name.

    Args:
        stack: to look at.
        capability: of the pool's GPU, None where it is not known.
        table: the known issues.
    """
    return [issue for issue in table.issues if _is_about(issue, stack, capability)]


def _is_about(issue: KnownIssue, stack: Stack, capability: Pair | None) -> bool:
    if issue.capabilities and capability not in issue.capabilities:
        return False
    have = stack.components
    for name in issue.components:  # most issues are told apart by this alone
        if name not in have and name != "driver":
            return False
    for name, text in issue.components.items():
        if name != "driver" and not parse_constraint(name, text).allows(have[name]):
            return False
    return True
