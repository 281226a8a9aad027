"""Describe the effect of a change on the entries in use on a target, as objects and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from msgspec import Struct

from compatgate.core.matrix import EntryStatus
from compatgate.core.request import Mode
from compatgate.core.rule import OUTCOME_RANK, Finding, Outcome, Verdict

Change = Literal["breaks", "worsens", "same", "improves"]
Cause = Literal["facts", "matrix", "evidence"]
CHANGE_ORDER: dict[Change, int] = {"improves": 0, "same": 1, "worsens": 2, "breaks": 3}
CAUSES: tuple[Cause, ...] = ("facts", "matrix", "evidence")
"""Each cause is compared by itself: a canary that is missing anyway must not hide facts."""
_MAX_NAMED = 5


class PoolChange(Struct, frozen=True):
    """The change of one entry on one pool.

    Attributes:
        stack: the stack that represents the entry, in JSON form.
        change: ``breaks``: a rule fails that did not fail before.
        cause: cause of a worse answer: the vendors' facts, or only that the matrix does not bless
            it or that canary runs are missing; None where the answer is not worse.
        is_open: it is not known that the stack continues to work.
        lost: new findings, with fixes.
        gained: resolved findings.
    """

    pool: str
    stack: dict[str, Any]
    before: Verdict
    after: Verdict
    change: Change
    cause: Cause | None
    is_open: bool
    lost: tuple[Finding, ...]
    gained: tuple[Finding, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the form that answers carry."""
        return {
            "pool": self.pool,
            "stack": self.stack,
            "before": self.before.verdict,
            "after": self.after.verdict,
            "change": self.change,
            "cause": self.cause,
            "lost": [finding.to_json() for finding in self.lost],
            "gained": [finding.to_json() for finding in self.gained],
        }


def change_of(pools: Sequence[PoolChange]) -> Change:
    """Return the worst change over pools; ``same`` if there are none."""
    return max((pool.change for pool in pools), key=CHANGE_ORDER.__getitem__, default="same")


def cause_of_change(pools: Sequence[PoolChange]) -> Cause | None:
    """Return the cause of the worst change over pools; facts come first."""
    worst = change_of(pools)
    causes = {pool.cause for pool in pools if pool.change == worst}
    return next((cause for cause in CAUSES if cause in causes), None)


class EntryChange(Struct, frozen=True):
    """The change of one entry.

    Attributes:
        open: why it cannot be evaluated, in words; the entry then has no pools and is unknown.
    """

    entry: str
    status: EntryStatus
    pools: tuple[PoolChange, ...] = ()
    open: tuple[str, ...] = ()

    @property
    def change(self) -> Change:
        """Return the worst over the pools."""
        return change_of(self.pools)

    @property
    def cause(self) -> Cause | None:
        """Return the cause of the worst change; facts come first."""
        return cause_of_change(self.pools)

    @property
    def outcome(self) -> Outcome:
        """Return the verdict after the change, the worst over the pools."""
        if self.open:
            return "unknown"
        return max((pool.after.verdict for pool in self.pools), key=OUTCOME_RANK.__getitem__)

    @property
    def is_open(self) -> bool:
        """Return whether it is not known that the entry continues to work."""
        return bool(self.open) or any(pool.is_open for pool in self.pools)

    def to_json(self) -> dict[str, Any]:
        """Return the form that answers carry."""
        return {
            "entry": self.entry,
            "status": self.status,
            "verdict": self.outcome,
            "change": self.change,
            "cause": self.cause,
            "open": list(self.open),
            "pools": [pool.to_json() for pool in self.pools],
        }


class WhatIf(Struct, frozen=True):
    """The effect of a change of a target.

    Attributes:
        changes: the question's ``set``.
        verdict: ``fail``: an entry breaks; ``unknown``: none is known to break, and some are not
            known to work; ``warn``: an entry gets worse.
        allowed: the decision of the target's policy.
        host: new findings about the changed pools themselves.
        entries: entries in use that concern the changed pools, worst first.
        remarks: further remarks.
        before: the pools before the change, in JSON form.
        after: the pools after the change, in JSON form.
    """

    target: str
    changes: dict[str, Any]
    verdict: Outcome
    allowed: bool
    mode: Mode
    host: tuple[Finding, ...]
    entries: tuple[EntryChange, ...]
    remarks: tuple[str, ...]
    before: tuple[dict[str, Any], ...]
    after: tuple[dict[str, Any], ...]
    matrix_revision: int
    facts: str

    def of(self, change: Change) -> tuple[EntryChange, ...]:
        """Return the entries with one kind of change."""
        return tuple(entry for entry in self.entries if entry.change == change)

    def to_json(self) -> dict[str, Any]:
        """Return the form that answers carry."""
        return {
            "target": self.target,
            "set": self.changes,
            "verdict": self.verdict,
            "allowed": self.allowed,
            "mode": self.mode,
            "summary": self.summary,
            "host": [finding.to_json() for finding in self.host],
            "entries": [entry.to_json() for entry in self.entries],
            "remarks": list(self.remarks),
            "before": list(self.before),
            "after": list(self.after),
            "matrix_revision": self.matrix_revision,
            "facts": self.facts,
        }

    @property
    def summary(self) -> str:
        """Return the answer in one line."""
        changed = ", ".join(f"{name} {value}" for name, value in self.changes.items())
        about = f"{changed} on {self.target}"
        total = _count_entries(len(self.entries))
        if failing := [f for f in self.host if f.outcome == "fail"]:
            return f"{about}: {failing[0].rule} {failing[0].message}"
        if broken := self.of("breaks"):
            return f"{about} breaks {len(broken)} of {total}: {_name_entries(broken)}"
        if not self.entries:
            return f"{about}: no entry is blessed on it, so nothing could be evaluated"
        if left := [entry for entry in self.entries if entry.is_open]:
            return f"{about} is not known to work for {len(left)} of {total}: {_name_entries(left)}"
        if self.verdict == "unknown":
            return f"{about}: {self.host[0].rule} {self.host[0].message}"
        if worse := self.of("worsens"):
            names = _name_entries(worse)
            return f"{about} breaks none of {total} and is worse for {len(worse)}: {names}"
        return f"{about} breaks none of {total}"


def _count_entries(count: int) -> str:
    return f"{count} entr{'y' if count == 1 else 'ies'}"


def _name_entries(entries: Sequence[EntryChange]) -> str:
    names = [entry.entry for entry in entries[:_MAX_NAMED]]
    return ", ".join(names) + (", ..." if len(entries) > _MAX_NAMED else "")
