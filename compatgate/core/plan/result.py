"""Describe a plan as objects and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from compatgate.core.request import Mode
from compatgate.core.rule import OUTCOME_RANK, Finding, FindingOutcome, Outcome
from compatgate.core.stack import Stack
from compatgate.core.whatif_result import (
    Cause,
    Change,
    PoolChange,
    cause_of_change,
    change_of,
)

SubjectKind = Literal["entry", "stack"]
DomainKind = Literal["nvlink", "rack", "node", "pool"]
"""The reason for a failure domain: NVLink, a rack or switch, nothing, or a lack of labels."""


class RunningStack(Struct, frozen=True):
    """A stack that the gate has allowed on the target.

    Attributes:
        verdict_id: of its newest decision.
        pools: names of the pools that it was asked for.
        decisions: number of its decisions.
        last: ISO time of the newest decision.
    """

    verdict_id: str
    stack: Stack
    pools: tuple[str, ...]
    decisions: int
    last: str


class SubjectChange(Struct, frozen=True):
    """The change of an entry in use or of a running stack.

    Attributes:
        name: of the entry, or the verdict id of the stack.
        status: of the entry; ``running`` of a stack.
        open: why it cannot be evaluated, in words.
        decisions: number of decisions about the stack.
    """

    kind: SubjectKind
    name: str
    status: str
    pools: tuple[PoolChange, ...] = ()
    open: tuple[str, ...] = ()
    image: str | None = None
    decisions: int = 0
    last: str | None = None

    @property
    def change(self) -> Change:
        """Return the worst change over the pools."""
        return change_of(self.pools)

    @property
    def cause(self) -> Cause | None:
        """Return the cause of the worst change; facts come first."""
        return cause_of_change(self.pools)

    @property
    def is_open(self) -> bool:
        """Return whether it is not known that the subject continues to work."""
        return bool(self.open) or any(pool.is_open for pool in self.pools)

    def outcome(self, *, after: bool) -> Outcome:
        """Return the worst verdict over the pools, after or before the change."""
        said = [pool.after.verdict if after else pool.before.verdict for pool in self.pools]
        return max(said, key=OUTCOME_RANK.__getitem__, default="unknown")

    def to_json(self) -> dict[str, Any]:
        """Return the form that answers carry."""
        return {
            "kind": self.kind,
            "name": self.name,
            "status": self.status,
            "before": self.outcome(after=False),
            "after": self.outcome(after=True),
            "change": self.change,
            "cause": self.cause,
            "open": list(self.open),
            "image": self.image,
            "decisions": self.decisions,
            "last": self.last,
            "pools": [pool.to_json() for pool in self.pools],
        }


class CauseGroup(Struct, frozen=True):
    """A reason why subjects get worse, with all these subjects.

    Attributes:
        cause: the vendors' ``facts``, the ``matrix``, or missing ``evidence``.
        fix: smallest verified change, in words; None: no change is known.
    """

    cause: Cause
    rule: str
    name: str
    outcome: FindingOutcome
    message: str
    fix: str | None
    pools: tuple[str, ...]
    entries: tuple[str, ...]
    stacks: tuple[str, ...]


class RangeEdit(Struct, frozen=True):
    """An edit of an entry that alone stands between its stacks and the change.

    Attributes:
        components: constraint before and after, by component.
        between: driver branches that the edited range also allows.
        verified: the edited entry blesses the stacks on every pool that it is for.
        becomes: name of the edited entry; another one where the stack itself changes.
    """

    entry: str
    becomes: str
    components: dict[str, tuple[str, str]]
    between: tuple[str, ...]
    verified: bool


class OwedRun(Struct, frozen=True):
    """A canary suite that the policy asks for on the new driver.

    Attributes:
        required: true: the policy denies without this evidence; false: advice.
        entries: names of the entries that lack the run.
        failed: id of a failed run; None: no run was judged recently.
    """

    sku: str
    driver: str
    suite: str
    required: bool
    entries: tuple[str, ...]
    failed: str | None = None


class FrameworkChange(Struct, frozen=True):
    """The releases of a framework that work on some pools, before and after.

    Attributes:
        pools: names of the pools that share this answer.
        before: number of releases that work before.
        lost: releases that no longer work, ascending.
        gained: releases that begin to work, ascending.
        oldest: oldest release that works after the change; None: no release works.
        why: the reason for the newest lost release.
    """

    framework: str
    pools: tuple[str, ...]
    before: int
    after: int
    lost: tuple[str, ...]
    gained: tuple[str, ...]
    oldest: str | None
    newest: str | None
    why: str | None


class FrontierRow(Struct, frozen=True):
    """A driver branch, and what keeps working on its newest release.

    Attributes:
        release: newest known Linux release of the branch.
        eol: last day of support (ISO date); None: no date is published.
        ended: true: support has ended.
        keeps: number of entries and stacks that keep working by the vendors' facts.
        loses: names of the entries and stacks that stop working.
        first: first known release of the branch that keeps all working; None: no release does.
        why: the rules that fail, with the pools.
    """

    branch: int
    type: str | None
    release: str
    eol: str | None
    ended: bool
    keeps: int
    loses: tuple[str, ...]
    unknown: int
    first: str | None
    why: tuple[str, ...] = ()


class DriverFrontier(Struct, frozen=True):
    """The driver branches of the facts, ascending.

    Attributes:
        subjects: number of entries and stacks that work now by the vendors' facts.
        first: oldest release in the facts that keeps every subject working; None: no release does.
        complete: true: every subject was evaluated; false: only the first ones.
    """

    subjects: int
    rows: tuple[FrontierRow, ...]
    first: str | None
    complete: bool = True


class FailureDomain(Struct, frozen=True):
    """Nodes that take a driver together.

    Attributes:
        label: node label that joins the nodes; None: no label.
        nodes: names of the nodes, with the cluster if several clusters exist.
        mixed: current drivers of the nodes, if they differ.
        done: number of nodes that have the new driver already.
    """

    name: str
    kind: DomainKind
    label: str | None
    pools: tuple[str, ...]
    nodes: tuple[str, ...]
    mixed: tuple[str, ...] = ()
    done: int = 0


class UpgradeWave(Struct, frozen=True):
    """Domains that take the driver at the same time."""

    number: int
    pools: tuple[str, ...]
    nodes: int
    domains: tuple[FailureDomain, ...]


class PoolOrder(Struct, frozen=True):
    """A pool in the order of the upgrade.

    Attributes:
        nodes: reported nodes; ``declared`` is the count of the target.
        held: reason why the vendors' facts forbid the change; None: they allow it.
        needed: requirements before the pool may change.
    """

    pool: str
    gpu: str | None
    driver: str | None
    nodes: int
    declared: int
    held: str | None
    needed: tuple[str, ...] = ()


class UpgradeOrder(Struct, frozen=True):
    """Pools in order, and the waves of their nodes.

    Attributes:
        left: number of nodes in no wave: their pool is held, or no pool of the target has them.
    """

    pools: tuple[PoolOrder, ...]
    waves: tuple[UpgradeWave, ...]
    left: int
    remarks: tuple[str, ...] = ()


class Plan(Struct, frozen=True):
    """The plan of an upgrade.

    Attributes:
        changes: the changes in question, resolved to versions.
        verdict: ``fail``: something breaks; ``unknown``: something is not known to work.
        allowed: the decision of the target's policy.
        host: new findings about the pools themselves.
        groups: why subjects get worse: facts first, then matrix, then evidence.
        subjects: entries in use and running stacks, worst first.
        edits: edits of entries that only the matrix breaks.
    """

    target: str
    changes: dict[str, Any]
    verdict: Outcome
    allowed: bool
    mode: Mode
    host: tuple[Finding, ...]
    groups: tuple[CauseGroup, ...]
    subjects: tuple[SubjectChange, ...]
    edits: tuple[RangeEdit, ...]
    owed: tuple[OwedRun, ...]
    frameworks: tuple[FrameworkChange, ...]
    frontier: DriverFrontier
    order: UpgradeOrder
    remarks: tuple[str, ...]
    before: tuple[dict[str, Any], ...]
    after: tuple[dict[str, Any], ...]
    matrix_revision: int
    facts: str

    def count(self, kind: SubjectKind, change: Change) -> int:
        """Count the subjects of a kind with one change."""
        return sum(one.kind == kind and one.change == change for one in self.subjects)

    @property
    def summary(self) -> str:
        """Return the answer in one line."""
        changed = ", ".join(f"{name} {value}" for name, value in self.changes.items())
        about = f"{changed} on {self.target}"
        if not self.subjects and not self.host:
            return f"{about}: no blessed entries and no running stacks, so nothing was evaluated"
        physics = self._broken_by(("facts",))
        paperwork = self._broken_by(("matrix", "evidence"))
        total = _count_subjects(self.subjects)
        parts = [f"facts break {len(physics)}"] if physics else []
        if paperwork:
            parts.append(f"{len(paperwork)} need only an edited entry or evidence")
        if unknown := [s for s in self.subjects if s.is_open and s.change != "breaks"]:
            parts.append(f"{len(unknown)} not known to work")
        if any(finding.outcome == "fail" for finding in self.host):
            parts.insert(0, "pools that the driver does not support")
        return f"{about}: {'; '.join(parts) if parts else 'breaks nothing'} ({total})"

    def _broken_by(self, causes: Sequence[Cause]) -> list[SubjectChange]:
        return [s for s in self.subjects if s.change == "breaks" and s.cause in causes]

    def to_json(self) -> dict[str, Any]:
        """Return the form that answers carry."""
        plain = msgspec.to_builtins
        return {
            "target": self.target,
            "set": self.changes,
            "verdict": self.verdict,
            "allowed": self.allowed,
            "mode": self.mode,
            "summary": self.summary,
            "host": [finding.to_json() for finding in self.host],
            "groups": plain(self.groups),
            "subjects": [one.to_json() for one in self.subjects],
            "edits": [
                {
                    "entry": edit.entry,
                    "becomes": edit.becomes,
                    "components": {
                        name: {"before": before, "after": after}
                        for name, (before, after) in edit.components.items()
                    },
                    "between": list(edit.between),
                    "verified": edit.verified,
                }
                for edit in self.edits
            ],
            "owed": plain(self.owed),
            "frameworks": plain(self.frameworks),
            "frontier": plain(self.frontier),
            "order": plain(self.order),
            "remarks": list(self.remarks),
            "before": list(self.before),
            "after": list(self.after),
            "matrix_revision": self.matrix_revision,
            "facts": self.facts,
        }


def _count_subjects(subjects: Sequence[SubjectChange]) -> str:
    entries = sum(one.kind == "entry" for one in subjects)
    stacks = len(subjects) - entries
    return (
        f"{entries} entr{'y' if entries == 1 else 'ies'}, {stacks} running "
        f"stack{'' if stacks == 1 else 's'}"
    )
