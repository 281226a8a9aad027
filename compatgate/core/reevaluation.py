"""Evaluate stacks before and after a change, and compare the verdicts cause by cause.

What-if questions, plans, differences of facts and backtests share this.
"""

from __future__ import annotations

from datetime import datetime

import msgspec
from msgspec.structs import replace

from compatgate.core.evaluate import assess
from compatgate.core.facts import Facts
from compatgate.core.matrix import Matrix
from compatgate.core.request import Target
from compatgate.core.rule import OUTCOME_RANK, Finding, Verdict
from compatgate.core.rules import BY_ID
from compatgate.core.stack import Stack
from compatgate.core.whatif_result import CAUSES, CHANGE_ORDER, Cause, Change

_MAX_FIXED = 50
"""Stacks whose fixes are computed; fixes cost more than all the rest."""
_encode = msgspec.json.Encoder(order="deterministic").encode


class Reevaluator:
    """Evaluates stacks on targets; equal questions are evaluated once.

    Questions are equal where only their images differ, and no waiver and no binding of evidence
    tells these apart.

    Args:
        facts: the catalog.
        matrix: entries, waivers and evidence.
        now: for ends of life, waivers and the age of evidence.
    """

    def __init__(self, facts: Facts, matrix: Matrix, now: datetime) -> None:
        self._facts, self._matrix, self._now = facts, matrix, now
        self._known: dict[bytes, Verdict] = {}
        self._fixed = 0

    def __call__(self, stack: Stack, target: Target, *, with_fixes: bool = False) -> Verdict:
        """Return the verdict, without id and image.

        Args:
            stack: to evaluate.
            target: with the pools that count.
            with_fixes: compute fixes, for the first `_MAX_FIXED` stacks.
        """
        of_image = self._matrix.describe_image(stack.image, target.name, target.policy.canary)
        key = _encode((replace(stack, image=None), of_image, target, with_fixes))
        if key not in self._known:
            self._fixed += with_fixes
            self._known[key] = assess(
                stack,
                target,
                facts=self._facts,
                matrix=self._matrix,
                now=self._now,
                with_fixes=with_fixes and self._fixed <= _MAX_FIXED,
            )
        return self._known[key]

    @property
    def decided(self) -> int:
        """Return the number of different questions so far."""
        return len(self._known)


def change_by_cause(before: Verdict, after: Verdict) -> dict[Cause, Change]:
    """Return the change of each cause's findings."""
    return {cause: _change_of_cause(before, after, cause) for cause in CAUSES}


def worst_change(found: dict[Cause, Change]) -> Change:
    """Return the worst change; an improvement where nothing else changes."""
    change = max(found.values(), key=CHANGE_ORDER.__getitem__)
    return "improves" if change == "same" and "improves" in found.values() else change


def leaves_open(before: Verdict, after: Verdict) -> bool:
    """Return whether it is not known that a stack continues to work."""
    return any(_is_open(before, after, cause) for cause in CAUSES)


def new_findings(before: Verdict, after: Verdict) -> tuple[Finding, ...]:
    """Return the findings of the later verdict that are worse than those on the same component."""
    known: dict[tuple[str, str], int] = {}
    for finding in before.findings:
        key = (finding.rule, finding.component)
        known[key] = max(known.get(key, 0), OUTCOME_RANK[finding.outcome])
    return tuple(
        f for f in after.findings if OUTCOME_RANK[f.outcome] > known.get((f.rule, f.component), 0)
    )


def resolved_findings(before: Verdict, after: Verdict) -> tuple[Finding, ...]:
    """Return resolved findings, except where the same cause has worse findings now."""
    better = [cause for cause in CAUSES if weight_of(after, cause) <= weight_of(before, cause)]
    return tuple(f for f in new_findings(after, before) if cause_of(f) in better)


def weight_of(verdict: Verdict, cause: Cause) -> int:
    """Return the worst rank of one cause's findings."""
    said = (OUTCOME_RANK[f.outcome] for f in verdict.findings if cause_of(f) == cause)
    return max(said, default=0)


def _change_of_cause(before: Verdict, after: Verdict, cause: Cause) -> Change:
    """Return the change of one cause's findings; a stack that failed already may break, too."""
    if any(f.outcome == "fail" and cause_of(f) == cause for f in new_findings(before, after)):
        return "breaks"
    step = weight_of(after, cause) - weight_of(before, cause)
    return "worsens" if step > 0 else "improves" if step < 0 else "same"


def _is_open(before: Verdict, after: Verdict, cause: Cause) -> bool:
    if any(f.outcome == "unknown" and cause_of(f) == cause for f in new_findings(before, after)):
        return True
    unknown = weight_of(after, cause) == OUTCOME_RANK["unknown"]
    return unknown and weight_of(before, cause) < OUTCOME_RANK["fail"]


def cause_of(finding: Finding) -> Cause:
    """Return the cause of a finding: the basis of its rule."""
    return BY_ID[finding.rule].cause
