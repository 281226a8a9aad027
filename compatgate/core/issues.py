"""Which known issues are about a stack on a GPU, whatever the driver."""

from __future__ import annotations

from compatgate.core.constraints import parse_constraint
from compatgate.core.facts import KnownIssue, KnownIssues
from compatgate.core.stack import Stack
from compatgate.core.target import Pool


def issues_about(stack: Stack, pool: Pool, table: KnownIssues) -> list[KnownIssue]:
    """The issues whose components the stack has, on GPUs and processors that they name.

    Args:
        stack: to look at.
        pool: where it is to run; one whose GPU is not known is on no list of GPUs.
        table: the known issues.
    """
    return [issue for issue in table.issues if _is_about(issue, stack, pool)]


def _is_about(issue: KnownIssue, stack: Stack, pool: Pool) -> bool:
    if issue.capabilities and (pool.gpu is None or pool.gpu.capability not in issue.capabilities):
        return False
    if issue.cpus and pool.cpu not in issue.cpus:
        return False
    have = stack.components
    if issue.wheels and (stack.arch is not None or _is_own_build(issue, stack)):
        return False
    for name in issue.components:  # most issues are told apart by this alone
        if name not in have and name != "driver":
            return False
    for name, text in issue.components.items():
        if name != "driver" and not parse_constraint(name, text).allows(have[name]):
            return False
    return True


def _is_own_build(issue: KnownIssue, stack: Stack) -> bool:
    """Tell whether a component has a label that is none of a CUDA build (``+nv25.02``)."""
    versions = [stack.components[name] for name in issue.components if name in stack.components]
    return any(version.local and version.cuda is None for version in versions)
