"""Compare two verdicts on one stack cause by cause.

Each cause is compared by itself: a canary run that is missing anyway must not hide a fact.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from compatgate.core.rule import OUTCOME_RANK, Finding, Verdict
from compatgate.core.rules import BY_ID

Change = Literal["breaks", "worsens", "same", "improves"]
"""``breaks``: a rule fails that did not fail before."""
Cause = Literal["facts", "matrix", "evidence"]
CHANGE_ORDER: dict[Change, int] = {"improves": 0, "same": 1, "worsens": 2, "breaks": 3}
CAUSES: tuple[Cause, ...] = ("facts", "matrix", "evidence")


class VerdictChange(Struct, frozen=True):
    """What differs between two verdicts on one stack.

    Attributes:
        change: the worst change of a cause's findings.
        cause: cause of a worse answer, facts first; None: the answer is not worse.
        is_open: it is not known that the stack continues to work.
        worked: the vendors' facts did not stand against the stack before.
        lost: new or worse findings.
        gained: resolved findings.
    """

    change: Change = "same"
    cause: Cause | None = None
    is_open: bool = False
    worked: bool = True
    lost: tuple[Finding, ...] = ()
    gained: tuple[Finding, ...] = ()


def compare_verdicts(before: Verdict, after: Verdict) -> VerdictChange:
    """Return what differs between the verdicts on a stack before and after a change."""
    lost = new_findings(before, after)
    weights = {cause: (weight_of(before, cause), weight_of(after, cause)) for cause in CAUSES}
    changes: dict[Cause, Change] = {}
    open_causes = {cause_of(f) for f in lost if f.outcome == "unknown"}
    for cause, (old, new) in weights.items():
        if any(f.outcome == "fail" and cause_of(f) == cause for f in lost):
            changes[cause] = "breaks"  # a stack that failed already may break as well
        else:
            changes[cause] = "worsens" if new > old else "improves" if new < old else "same"
        if new == OUTCOME_RANK["unknown"] and old < OUTCOME_RANK["fail"]:
            open_causes.add(cause)
    worst = max(changes.values(), key=CHANGE_ORDER.__getitem__)
    if worst == "same" and "improves" in changes.values():
        worst = "improves"
    is_worse = CHANGE_ORDER[worst] > CHANGE_ORDER["same"]
    better = [cause for cause, (old, new) in weights.items() if new <= old]
    return VerdictChange(
        worst,
        next(cause for cause in CAUSES if changes[cause] == worst) if is_worse else None,
        bool(open_causes),
        weights["facts"][0] <= OUTCOME_RANK["warn"],
        lost,
        tuple(f for f in new_findings(after, before) if cause_of(f) in better),
    )


def new_findings(before: Verdict, after: Verdict) -> tuple[Finding, ...]:
    """Return the findings of the later verdict that are worse than those on the same component."""
    known: dict[tuple[str, str], int] = {}
    for finding in before.findings:
        key = (finding.rule, finding.component)
        known[key] = max(known.get(key, 0), OUTCOME_RANK[finding.outcome])
    return tuple(
        f for f in after.findings if OUTCOME_RANK[f.outcome] > known.get((f.rule, f.component), 0)
    )


def weight_of(verdict: Verdict, cause: Cause) -> int:
    """Return the worst rank of one cause's findings."""
    ranks = (OUTCOME_RANK[f.outcome] for f in verdict.findings if cause_of(f) == cause)
    return max(ranks, default=0)


def cause_of(finding: Finding) -> Cause:
    """Return the cause of a finding: the basis of its rule."""
    return BY_ID[finding.rule].cause
