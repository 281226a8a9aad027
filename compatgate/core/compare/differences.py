"""Describe what a change does to its subjects: entries in use, and stacks that were asked about.

Two verdicts on one stack are compared cause by cause, each by itself: a canary run that is missing
anyway must not hide a fact.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from msgspec import Struct

from compatgate.core.matrix import Entry
from compatgate.core.request import Mode, Target
from compatgate.core.rule import OUTCOME_RANK, Finding, Outcome, Verdict
from compatgate.core.rules import BY_ID

Effect = Literal["newly_denied", "newly_unknown", "newly_allowed", "changed"]
EFFECTS: tuple[Effect, ...] = ("newly_denied", "newly_unknown", "newly_allowed", "changed")
"""Worst first. ``newly_unknown`` was allowed and is stopped, because something is not known;
``changed``: another verdict that the policy treats as before."""
Cause = Literal["facts", "matrix", "evidence"]
CAUSES: tuple[Cause, ...] = ("facts", "matrix", "evidence")
ReasonCause = Cause | Literal["policy", "target"]
"""``policy``: the same findings, treated otherwise; ``target``: nothing can be asked there."""

Change = Literal["breaks", "worsens", "same", "improves"]
"""``breaks``: a rule fails that did not fail before."""
CHANGE_ORDER: dict[Change, int] = {"improves": 0, "same": 1, "worsens": 2, "breaks": 3}


class VerdictChange(Struct, frozen=True):
    """What differs between two verdicts on one stack."""

    change: Change = "same"
    # cause of a worse answer, facts first; None: the answer is not worse
    cause: Cause | None = None
    is_open: bool = False  # it is not known that the stack continues to work
    worked: bool = True  # the vendors' facts did not stand against the stack before
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


class Reason(Struct, frozen=True):
    """Why an answer differs, as whoever asks sees it."""

    cause: ReasonCause
    rule: str | None  # that decides the difference; None: the target or its policy does
    message: str
    # target and pool of the nodes that it concerns, with their number
    places: dict[tuple[str, str], int]


class Difference(VerdictChange, frozen=True, kw_only=True):
    """One stack on one pool, or on several as one question, before and after a change."""

    pool: str  # empty: the question is about several pools, and the worst one counts
    stack: dict[str, Any]  # after the change, in JSON form
    before: Outcome | None  # None: there was no answer
    after: Outcome | None  # None: there is no answer
    allowed: tuple[bool, bool]  # what the policy decided before, and what it decides after
    effect: Effect | None = None  # None: the answer is the same for its asker
    reason: Reason | None = None


class Subject(Struct, frozen=True):
    """An entry in use or a stack that was asked about; a comparison adds the last two fields."""

    kind: Literal["entry", "stack", "run"]
    name: str  # of the entry, or id of the newest verdict or of the run
    target: str
    status: str = "running"  # of the entry; ``running`` of a stack
    # the entry itself, whose sample stacks are evaluated, each pool by itself; None: ``stack`` is
    row: Entry | None = None
    stack: dict[str, Any] = {}
    image: str | None = None
    # names of the pools that a question was limited to; empty: every pool
    within: tuple[str, ...] = ()
    # each pool of a stack is evaluated by itself: one that fails already must not hide another that
    # begins to fail
    apart: bool = False
    # where to decide before and after; None: on the target of that name
    places: tuple[Target, Target] | None = None
    decisions: int = 0
    asked_by: tuple[str, ...] = ()  # who asked, the latest first
    first_asked: datetime | None = None
    last_asked: datetime | None = None
    verdicts: tuple[str, ...] = ()  # ids of all verdicts on the question
    cases: tuple[Difference, ...] = ()
    open: tuple[str, ...] = ()  # why it cannot be evaluated, in words

    @property
    def entry(self) -> str:
        """Return the name of the entry."""
        return self.name

    @property
    def pools(self) -> list[Difference]:
        """Return the case that counts on each pool.

        It is the first one, or another that worked before and is worse afterwards.
        """
        counting: dict[str, Difference] = {}
        for case in self.cases:
            known = counting.setdefault(case.pool, case)
            if case.worked and CHANGE_ORDER[case.change] > CHANGE_ORDER[known.change]:
                counting[case.pool] = case
        return list(counting.values())

    @property
    def change(self) -> Change:
        """Return the worst change over the pools; ``same`` if there are none."""
        changes = (pool.change for pool in self.pools)
        return max(changes, key=CHANGE_ORDER.__getitem__, default="same")

    @property
    def cause(self) -> Cause | None:
        """Return the cause of the worst change over the pools; facts come first."""
        worst = self.change
        causes = {pool.cause for pool in self.pools if pool.change == worst}
        return next((cause for cause in CAUSES if cause in causes), None)

    @property
    def is_open(self) -> bool:
        """Return whether it is not known that the subject continues to work."""
        return bool(self.open) or any(pool.is_open for pool in self.pools)

    @property
    def before(self) -> Outcome:
        """Return the worst verdict before the change."""
        return _worst(pool.before for pool in self.pools)

    @property
    def after(self) -> Outcome:
        """Return the worst verdict after the change."""
        return _worst(pool.after for pool in self.pools)

    verdict = after

    @property
    def last(self) -> str | None:
        """Return when the stack was last asked about, as answers carry it."""
        if self.last_asked is None:
            return None
        moment = self.last_asked.astimezone(UTC).isoformat(timespec="microseconds")
        return moment.replace("+00:00", "Z")


def _worst(outcomes: Iterable[Outcome | None]) -> Outcome:
    stated: list[Outcome] = [outcome or "unknown" for outcome in outcomes]
    return max(stated, key=OUTCOME_RANK.__getitem__, default="unknown")


class TargetDifferences(Struct, frozen=True, kw_only=True):
    """What a change of a target's pools and stacks does to all in use there."""

    subjects: tuple[Subject, ...] = ()  # those that concern the changed pools, worst first
    target: str
    set: dict[str, Any]
    # ``fail``: a subject breaks; ``unknown``: none is known to break, and some are not known to
    # work; ``warn``: a subject gets worse
    verdict: Outcome
    allowed: bool
    mode: Mode
    host: tuple[Finding, ...]  # new findings about the changed pools themselves
    remarks: tuple[str, ...] = ()
    before: tuple[dict[str, Any], ...]
    after: tuple[dict[str, Any], ...]
    matrix_revision: int
    facts: str

    @property
    def about(self) -> str:
        """Return the change in words: ``driver 580.95.05 on prod``."""
        changed = ", ".join(f"{name} {value}" for name, value in self.set.items())
        return f"{changed} on {self.target}"

    def of(self, change: Change) -> tuple[Subject, ...]:
        """Return the subjects with one kind of change."""
        return tuple(one for one in self.subjects if one.change == change)


def judge_change(subjects: Sequence[Subject], host: Sequence[Finding]) -> Outcome:
    """Return the verdict on a change of a target, with new findings about its pools themselves."""
    outcomes = {finding.outcome for finding in host}
    changes = {one.change for one in subjects}
    if "breaks" in changes or "fail" in outcomes:
        return "fail"
    if not subjects or "unknown" in outcomes or any(one.is_open for one in subjects):
        return "unknown"
    return "warn" if "worsens" in changes or "warn" in outcomes else "pass"


def count_things(count: int, thing: str) -> str:
    """Return a number with its noun: ``1 node``, ``3 entries``."""
    if count == 1:
        return f"1 {thing}"
    return f"{count} {thing[:-1]}ies" if thing.endswith("y") else f"{count} {thing}s"
