"""Find the open requirements of a proposal before its merge, and show proposals with them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy.orm import Session

from compatgate.core.facts import Facts
from compatgate.documents.specs import Kind, key_of
from compatgate.documents.words import describe_change, diff_yaml
from compatgate.kit.database.database import Database
from compatgate.kit.database.tables import DEFAULT_LIMIT, Page
from compatgate.service.gate.snapshot import Snapshot
from compatgate.service.gate.snapshot_reader import Snapshots
from compatgate.service.matrix.blessing import EvidenceState, assess_evidence
from compatgate.service.matrix.repository import DocumentLookup
from compatgate.service.proposals import repository as proposals
from compatgate.service.proposals.agreement import Demand, find_demands, list_lacks
from compatgate.service.proposals.drafting import find_conflicts
from compatgate.service.proposals.models import ProposalRow, ProposalState
from compatgate.service.tokens.principal import Principal


class Readiness(Struct, frozen=True):
    """The requirements of a proposal, and how far they are met.

    Attributes:
        demands: of the policies.
        conflicts: kind, name and present revision of documents that changed meanwhile.
    """

    demands: tuple[Demand, ...] = ()
    conflicts: tuple[tuple[Kind, str, int | None], ...] = ()
    evidence: EvidenceState = EvidenceState()

    def list_lacks(self, row: ProposalRow) -> list[str]:
        """Return which approvals are missing, in words."""
        return list_lacks(self.demands, row.approvals)

    def state_of(self, row: ProposalRow) -> ProposalState:
        """Return the state of a proposal."""
        if not row.is_open:
            return "merged" if row.state == "merged" else "closed"
        if self.conflicts:
            return "conflicted"
        asked = any(demand.people > 1 for demand in self.demands)
        agreed = not self.list_lacks(row) and (asked or bool(row.approvals))
        return "approved" if agreed else "open"

    def list_blockers(self, row: ProposalRow) -> list[str]:
        """Return why a proposal cannot be merged now, in words; empty: it can be."""
        if row.state == "merged":
            return []
        if not row.is_open:
            return ["it is closed" if row.state == "closed" else "it has expired"]
        changed = [
            f"{kind} {name} was {'deleted' if at is None else f'changed by revision {at}'} since"
            for kind, name, at in self.conflicts
        ]
        return [
            *changed,
            *self.list_lacks(row),
            *(need.describe() for need in self.evidence.required),
        ]


def assess(session: Session, row: ProposalRow, snapshot: Snapshot, facts: Facts) -> Readiness:
    """Return what an open proposal needs and has; of one that has ended nothing is asked."""
    found = assess_agreement(DocumentLookup(session), row)
    if not row.is_open:
        return found
    return replace(found, evidence=assess_evidence(row.edits, snapshot, facts))


def assess_agreement(lookup: DocumentLookup, row: ProposalRow) -> Readiness:
    """Return what decides the state of a proposal: all that `assess` does but for evidence."""
    if not row.is_open:
        return Readiness()
    demands = find_demands(lookup, row.edits, row.author)
    return Readiness(tuple(demands), tuple(find_conflicts(lookup, row)))


def summarize(row: ProposalRow, readiness: Readiness) -> dict[str, Any]:
    """Return a proposal as a list shows it."""
    return {
        "id": row.id,
        "state": readiness.state_of(row),
        "author": row.author,
        "reason": row.reason,
        "made_at": row.made_at,
        "changed_at": row.changed_at,
        "expires_at": row.expires_at,
        "base": row.base,
        "digest": row.digest,
        "merge": "approved" if row.automatic else "manual",
        "action": row.action,
        "targets": row.targets,
        "documents": [f"{change.kind} {change.name}" for change in row.changes],
        "approvals": [
            {"by": one.actor, "at": one.at, "comment": one.text} for one in row.approvals
        ],
        "decided_by": row.decided_by,
        "decided_at": row.decided_at,
        "revision": row.revision,
        "override": row.override,
    }


def describe(row: ProposalRow, readiness: Readiness) -> dict[str, Any]:
    """Return a proposal in full."""
    evidence = readiness.evidence
    return {
        **summarize(row, readiness),
        "summary": [line for change in row.changes for line in describe_change(change)],
        "diff": "\n".join(diff_yaml(change) for change in row.changes),
        "changes": [change.to_json() for change in row.changes],
        "demands": [
            {
                "target": one.target,
                "people": one.people,
                "approvers": one.approvers,
                "approvals": one.count(row.approvals),
                "proposed": one.proposed,
            }
            for one in readiness.demands
        ],
        "conflicts": [
            {"kind": kind, "name": name, "revision": at} for kind, name, at in readiness.conflicts
        ],
        "evidence": {
            "runs": evidence.runs,
            "needs": [
                {
                    "entry": need.entry,
                    "target": need.run.target,
                    "sku": need.run.sku,
                    "driver": need.run.driver,
                    "suite": need.run.suite,
                    "failed": need.run.failed,
                    "required": need.required,
                }
                for need in evidence.needs
            ],
        },
        "blockers": readiness.list_blockers(row),
        "events": [
            {
                "at": one.at,
                "actor": one.actor,
                "action": one.action,
                "text": one.text,
                "current": one.digest == row.digest,
            }
            for one in row.events
        ],
        "backtest": row.backtest if row.backtest_digest == row.digest else None,
    }


class ProposalView(Struct, frozen=True):
    """A proposal with its requirements; ``warnings``: what ``force`` let through just now."""

    row: ProposalRow
    readiness: Readiness
    warnings: tuple[str, ...] = ()

    @property
    def state(self) -> ProposalState:
        """Return the state of the proposal."""
        return self.readiness.state_of(self.row)


class ProposalViews:
    """The proposals of one database, to read.

    Args:
        database: open, with its schema.
        facts: the catalog.
        snapshots: of the gate.
    """

    def __init__(self, database: Database, facts: Facts, snapshots: Snapshots) -> None:
        self._database = database
        self._facts = facts
        self._snapshots = snapshots

    def show(self, number: str) -> ProposalView:
        """Return a proposal with what it needs and has.

        Raises:
            NotFound: there is none of that id.
        """
        with self._database.reading() as session:
            return self._view(session, number)

    def list(
        self,
        *,
        state: ProposalState | None = None,
        target: str | None = None,
        author: str | None = None,
        asked: bool | None = None,
        is_open: bool | None = None,
        within: Principal | None = None,
        cursor: str | None = None,
        limit: int = DEFAULT_LIMIT,
    ) -> Page[ProposalView]:
        """Return proposals, the newest first; of their readiness what decides the state.

        Args:
            state: only these; None: all.
            target: that they concern.
            author: who proposed.
            asked: made of a change that the gate refused; None: all.
            is_open: may still be merged; None: all.
            within: a caller who sees only proposals for its targets.
            cursor: of the page.
            limit: most rows.
        """
        stored: Any = "open" if state in ("approved", "conflicted") else state
        limited = within if within is not None and within.targets is not None else None

        def keeps(view: ProposalView) -> bool:
            row = view.row
            return (
                (state is None or view.state == state)
                and (target is None or target in row.targets or "*" in row.targets)
                and (limited is None or any(map(limited.reaches, row.targets)))
            )

        with self._database.reading() as session:
            lookup = DocumentLookup(session)
            while True:
                found = proposals.list_proposals(
                    session,
                    state=stored,
                    is_open=is_open,
                    author=author,
                    asked=asked,
                    cursor=cursor,
                    limit=limit,
                )
                lookup.find(_list_documents(found.items))
                views = [ProposalView(row, assess_agreement(lookup, row)) for row in found.items]
                kept = tuple(filter(keeps, views))
                if kept or found.next is None:
                    return Page(kept, found.next)
                cursor = found.next

    def _view(self, session: Session, number: str) -> ProposalView:
        row = proposals.find_proposal(session, number)
        return ProposalView(row, assess(session, row, self._snapshots.current(), self._facts))


def _list_documents(rows: Iterable[ProposalRow]) -> set[tuple[Kind, str]]:
    """Return the documents that the state of open proposals depends on: edited, and targets."""
    open_rows = [row for row in rows if row.is_open]
    edited = {key_of(edit.document) for row in open_rows for edit in row.edits}
    return edited | {("Target", name) for row in open_rows for name in row.targets}
