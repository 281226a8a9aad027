"""Two verdicts compared: what is new, what is gone, and what makes it worse."""

from __future__ import annotations

from compatgate.core.rules import BY_ID
from compatgate.core.verdict import RANK, Finding, Verdict
from compatgate.core.whatif.model import CAUSES, ORDER, Cause, Change


def changes(before: Verdict, after: Verdict) -> dict[Cause, Change]:
    """How what each cause says changes."""
    return {cause: _change(before, after, cause) for cause in CAUSES}


def worst(found: dict[Cause, Change]) -> Change:
    """The worst; an improvement where nothing else changes."""
    change = max(found.values(), key=ORDER.__getitem__)
    return "improves" if change == "same" and "improves" in found.values() else change


def is_open(before: Verdict, after: Verdict) -> bool:
    """Whether it is not known that something goes on working, which is not known to fail."""
    return any(_is_open(before, after, cause) for cause in CAUSES)


def new_findings(before: Verdict, after: Verdict) -> tuple[Finding, ...]:
    """Findings of one verdict that weigh more than the other's on the same thing."""
    known: dict[tuple[str, str], int] = {}
    for finding in before.findings:
        key = (finding.rule, finding.component)
        known[key] = max(known.get(key, 0), RANK[finding.outcome])
    return tuple(f for f in after.findings if RANK[f.outcome] > known.get((f.rule, f.component), 0))


def gained(before: Verdict, after: Verdict) -> tuple[Finding, ...]:
    """Findings that are gone, except where worse of the same kind took their place."""
    better = [cause for cause in CAUSES if weight(after, cause) <= weight(before, cause)]
    return tuple(f for f in new_findings(after, before) if _cause_of(f) in better)


def weight(verdict: Verdict, cause: Cause) -> int:
    """How bad what one cause says is."""
    said = (RANK[f.outcome] for f in verdict.findings if _cause_of(f) == cause)
    return max(said, default=0)


def _change(before: Verdict, after: Verdict, cause: Cause) -> Change:
    """How what one cause says changes; what failed for another reason may break as well."""
    if any(f.outcome == "fail" and _cause_of(f) == cause for f in new_findings(before, after)):
        return "breaks"
    step = weight(after, cause) - weight(before, cause)
    return "worsens" if step > 0 else "improves" if step < 0 else "same"


def _is_open(before: Verdict, after: Verdict, cause: Cause) -> bool:
    if any(f.outcome == "unknown" and _cause_of(f) == cause for f in new_findings(before, after)):
        return True
    unknown = weight(after, cause) == RANK["unknown"]
    return unknown and weight(before, cause) < RANK["fail"]


def _cause_of(finding: Finding) -> Cause:
    return BY_ID[finding.rule].cause
