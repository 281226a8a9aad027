"""Check that the shipped facts agree with each other, beyond schema and references.

`compatgate.catalog.checks` looks at what a person may lay over the facts; the checks here compare
fact files with each other. ``matrix/facts/exceptions.yaml`` lists the known problems, with reasons.
"""

from __future__ import annotations

from collections.abc import Sequence

from compatgate.catalog import checks
from compatgate.catalog.checks import find_known, find_problems
from compatgate.catalog.references import Check, Problem
from fact_checks import drivers, frameworks, gpus, node, platforms, statements, tables

AGREEMENT: tuple[Check, ...] = (
    *drivers.CHECKS,
    *gpus.CHECKS,
    *tables.CHECKS,
    *frameworks.CHECKS,
    *platforms.CHECKS,
    *node.CHECKS,
    *statements.CHECKS,
)
ALL: tuple[Check, ...] = (*checks.CHECKS, *AGREEMENT)


def verify_all(
    overlays: Sequence[str] | None = None, asked: Sequence[Check] = ALL
) -> list[Problem]:
    """Run checks; an exception that matches no problem of theirs is a problem, too."""
    found = find_problems(overlays, asked)
    known = find_known()
    met = {(problem.check, problem.subject) for problem in found}
    stale = [
        Problem("exceptions", f"{check} {subject}", "this exception matches no problem")
        for check, subject in sorted(known - met)
    ]
    return [p for p in found if (p.check, p.subject) not in known] + stale
