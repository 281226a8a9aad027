"""Find the open requirements of a proposal before its merge, and describe it with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import unified_diff
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict
from sqlalchemy.orm import Session

from compatgate.core.facts import Facts
from compatgate.documents.specs import Change, FieldChange
from compatgate.documents.text import to_yaml
from compatgate.service.matrix.documents import repository as documents
from compatgate.service.matrix.documents.blessing import EvidenceState, assess_evidence
from compatgate.service.matrix.documents.repository import DocumentLookup
from compatgate.service.matrix.proposals.agreement import Demand, find_demands, list_lacks
from compatgate.service.matrix.proposals.edits import find_conflicts
from compatgate.service.matrix.proposals.repository import Proposal, ProposalState
from compatgate.service.matrix.proposals.schemas import (
    ApprovalOfProposal,
    ConflictBody,
    ProposalSummary,
)
from compatgate.service.matrix.snapshots.snapshot import Snapshot

_SAME = (
    "id", "author", "reason", "made_at", "changed_at", "expires_at", "base", "digest", "action",
    "decided_by", "decided_at", "revision", "override",
)  # fmt: skip
_MAX_NAMED = 5
_LONGEST = 160


class Readiness(Struct, frozen=True):
    """The requirements of a proposal, and how far they are met: demands, conflicts, evidence."""

    demands: tuple[Demand, ...] = ()
    conflicts: tuple[ConflictBody, ...] = ()
    evidence: EvidenceState = EvidenceState()

    def list_lacks(self, row: Proposal) -> list[str]:
        """Return which approvals are missing, in words."""
        return list_lacks(self.demands, row.approvals)

    def state_of(self, row: Proposal) -> ProposalState:
        """Return the state of a proposal."""
        if not row.is_open:
            return "merged" if row.state == "merged" else "closed"
        if self.conflicts:
            return "conflicted"
        asked = any(demand.people > 1 for demand in self.demands)
        agreed = not self.list_lacks(row) and (asked or bool(row.approvals))
        return "approved" if agreed else "open"

    def list_blockers(self, row: Proposal) -> list[str]:
        """Return why a proposal cannot be merged now, in words; empty: it can be."""
        if row.state == "merged":
            return []
        if not row.is_open:
            return ["it is closed" if row.state == "closed" else "it has expired"]
        changed = [
            f"{one.kind} {one.name} was "
            f"{'deleted' if one.revision is None else f'changed by revision {one.revision}'} since"
            for one in self.conflicts
        ]
        needs = [need.describe() for need in self.evidence.required]
        return [*changed, *self.list_lacks(row), *needs]


class ProposalView(Struct, frozen=True):
    """A proposal with its requirements; ``warnings``: what ``force`` let through just now."""

    row: Proposal
    readiness: Readiness
    warnings: tuple[str, ...] = ()

    @property
    def state(self) -> ProposalState:
        """Return the state of the proposal."""
        return self.readiness.state_of(self.row)


def assess(session: Session, row: Proposal, snapshot: Snapshot, facts: Facts) -> Readiness:
    """Return what an open proposal needs and has; of one that has ended nothing is asked."""
    if not row.is_open:
        return Readiness()
    lookup = DocumentLookup(session)
    conflicts = []
    for kind, name in find_conflicts(lookup, row):
        stored = documents.get_document(session, kind, name)
        conflicts.append(ConflictBody(kind, name, stored.revision if stored else None))
    demands = find_demands(lookup, row.edits, row.names)
    evidence = assess_evidence(row.edits, snapshot, facts)
    return Readiness(tuple(demands), tuple(conflicts), evidence)


def assess_state(lookup: DocumentLookup, row: Proposal) -> Readiness:
    """Return what decides the state of a proposal: without evidence, and revisions of conflicts."""
    if not row.is_open:
        return Readiness()
    conflicts = tuple(ConflictBody(*key, None) for key in find_conflicts(lookup, row))
    return Readiness(tuple(find_demands(lookup, row.edits, row.names)), conflicts)


def summarize(view: ProposalView) -> ProposalSummary:
    """Return a proposal as a list shows it."""
    row = view.row
    return ProposalSummary(
        state=view.state,
        merge="approved" if row.automatic else "manual",
        targets=[*row.targets],
        documents=[f"{change.kind} {change.name}" for change in row.changes],
        approvals=[ApprovalOfProposal(one.actor, one.at, one.text) for one in row.approvals],
        **{name: getattr(row, name) for name in _SAME},
    )


def describe(view: ProposalView) -> dict[str, Any]:
    """Return a proposal in full, as `ProposalBody`."""
    row, readiness = view.row, view.readiness
    evidence = readiness.evidence
    return {
        **asdict(summarize(view)),
        "summary": [line for change in row.changes for line in describe_change(change)],
        "diff": "\n".join(diff_yaml(change) for change in row.changes),
        "changes": row.changes,
        "demands": [
            {**asdict(one), "approvals": one.count(row.approvals)} for one in readiness.demands
        ],
        "conflicts": readiness.conflicts,
        "evidence": {"runs": evidence.runs, "needs": evidence.needs},
        "blockers": readiness.list_blockers(row),
        "events": [
            {
                **{name: getattr(one, name) for name in ("at", "actor", "action", "text")},
                "current": one.digest == row.digest,
            }
            for one in row.events
        ],
        "backtest": row.backtest if row.backtest_digest == row.digest else None,
        "warnings": view.warnings,
    }


def describe_change(change: Change) -> list[str]:
    """Return what a change does, a sentence for each value."""
    one = f"{change.kind.lower()} {change.name}"
    if change.after is None or change.before is None:
        spec = (change.after or change.before or {}).get("spec", {})
        summary = _shorten("".join(f", {part}" for part in _parts(change.kind, spec)))
        return [f"{'delete' if change.after is None else 'add'} {one}{summary}"]
    return [f"{one}: {_describe_field(field)}" for field in change.fields]


def diff_yaml(change: Change) -> str:
    """Return a change as a unified difference of YAML."""
    before, after = (
        to_yaml([body]).splitlines() if body else [] for body in (change.before, change.after)
    )
    name = f"{change.kind}/{change.name}"
    sides = (name if change.before else "/dev/null", name if change.after else "/dev/null")
    return "\n".join(unified_diff(before, after, *sides, lineterm=""))


def _parts(kind: str, spec: Mapping[str, Any]) -> Iterator[str]:
    if kind == "Target":
        for pool in spec.get("pools", [])[:_MAX_NAMED]:
            yield f"pool {pool.get('name')} with {pool.get('gpu')} and driver {pool.get('driver')}"
        return
    if kind == "Entry":
        yield str(spec.get("status"))
    else:
        yield f"rules {' '.join(spec.get('rules', ()))}"
        yield f"until {spec.get('expires')}"
    named = ["every target" if name == "*" else str(name) for name in spec.get("targets", ())]
    more = f" and {len(named) - _MAX_NAMED} more" if len(named) > _MAX_NAMED else ""
    yield f"for {' '.join(named[:_MAX_NAMED])}{more}"
    if kind == "Entry":
        yield from (f"{name} {text}" for name, text in spec.get("components", {}).items())


def _describe_field(field: FieldChange) -> str:
    path = field.path.removeprefix("spec.").removeprefix("policy.")
    if path.startswith("pools"):
        pool, _, name = path.removeprefix("pools").strip(".").rpartition(".")
        named = (pool or name).strip('[]"')
        path = f"{name} of pool {named}" if pool else f"pool {named}"
    before, after = _to_text(field.before), _to_text(field.after)
    if field.before is None:
        return f"set {path} to {after}"
    if field.after is None:
        return f"remove {path}, which was {before}"
    return f"change {path} from {before} to {after}"


def _to_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return _shorten(", ".join(map(_to_text, value)))
    if isinstance(value, dict):
        return _shorten(", ".join(f"{key} {_to_text(item)}" for key, item in value.items()))
    return _shorten(str(value))


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
