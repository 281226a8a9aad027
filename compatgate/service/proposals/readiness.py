"""Find the open requirements of a proposal before its merge."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy.orm import Session

from compatgate.core.facts import Facts
from compatgate.documents.specs import Kind
from compatgate.documents.words import describe_change, diff_yaml
from compatgate.service.gate.snapshot import Snapshot
from compatgate.service.matrix.blessing import EvidenceState, assess_evidence
from compatgate.service.matrix.repository import DocumentLookup
from compatgate.service.proposals.agreement import Demand, find_demands, list_lacks
from compatgate.service.proposals.drafting import find_conflicts
from compatgate.service.proposals.models import ProposalRow, ProposalState


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
    return Readiness(tuple(find_demands(lookup, row.edits)), tuple(find_conflicts(lookup, row)))


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
