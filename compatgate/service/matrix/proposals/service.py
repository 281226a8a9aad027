"""Propose changes of the matrix, review them, merge or close them, and revert revisions.

`edits` makes their edits, `agreement` and `readiness` say who and what is missing, and `merging`
makes the revision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

from msgspec.structs import replace
from sqlalchemy.orm import Session

from compatgate.core.facts import Facts
from compatgate.documents.specs import key_of
from compatgate.errors import Conflict
from compatgate.kit import clock
from compatgate.kit.database.database import Database
from compatgate.kit.database.tables import Page
from compatgate.kit.principal import Authorship, Principal
from compatgate.service.matrix.documents import revisions
from compatgate.service.matrix.documents.blessing import check_edits
from compatgate.service.matrix.documents.imports import ChangeReader
from compatgate.service.matrix.documents.repository import DocumentLookup
from compatgate.service.matrix.documents.revisions import Edit
from compatgate.service.matrix.proposals import edits as drafts
from compatgate.service.matrix.proposals import repository as proposals
from compatgate.service.matrix.proposals.agreement import propose_refused, require_consent
from compatgate.service.matrix.proposals.merging import (
    check_reach,
    make_merge,
    make_refusal,
    may_merge,
    note,
    require_digest,
    require_merger,
    require_open,
    require_unchanged,
)
from compatgate.service.matrix.proposals.readiness import ProposalView, assess, assess_state
from compatgate.service.matrix.proposals.repository import Proposal, ProposalState, StoredState
from compatgate.service.matrix.proposals.schemas import ProposalRequest
from compatgate.service.matrix.snapshots.reader import Snapshots

_STORED: dict[ProposalState, StoredState] = {
    "open": "open", "approved": "open", "conflicted": "open", "merged": "merged",
    "closed": "closed",
}  # fmt: skip


class Backtester(Protocol):
    """Re-evaluates recorded questions with the edits applied."""

    def __call__(self, edits: Sequence[Edit], days: int) -> dict[str, Any]:
        """Return the result as plain data; ``days``: age of the oldest decision."""


class ProposalService:
    """The proposals of one database."""

    def __init__(
        self,
        database: Database,
        facts: Facts,
        snapshots: Snapshots,
        backtest: Backtester,
        open_reader: Callable[..., ChangeReader],
    ) -> None:
        self._database = database
        self._facts = facts
        self._snapshots = snapshots
        self._writing = partial(propose_refused, database, snapshots)
        self._backtest = backtest
        self._open_reader = open_reader

    def show(self, number: str) -> ProposalView:
        """Return a proposal with what it needs and has."""
        with self._database.reading() as session:
            return self._view(session, number)

    def list(
        self,
        *,
        state: ProposalState | None = None,
        target: str | None = None,
        within: Principal | None = None,
        cursor: str | None = None,
        **filters: Any,
    ) -> Page[ProposalView]:
        """Return proposals, the newest first; of their readiness what decides the state.

        ``within`` is a caller who sees only proposals for its targets.
        """
        limited = within if within is not None and within.targets is not None else None
        stored = _STORED[state] if state else None

        def is_wanted(view: ProposalView) -> bool:
            targets = view.row.targets
            return (
                (state is None or view.state == state)
                and (target is None or target in targets or "*" in targets)
                and (limited is None or any(map(limited.reaches, targets)))
            )

        with self._database.reading() as session:
            lookup = DocumentLookup(session)
            while True:
                found = proposals.list_proposals(session, state=stored, cursor=cursor, **filters)
                waiting = [row for row in found.items if row.is_open]
                edited = {key_of(edit.document) for row in waiting for edit in row.edits}
                lookup.find(edited | {("Target", name) for row in waiting for name in row.targets})
                views = [ProposalView(row, assess_state(lookup, row)) for row in found.items]
                wanted = tuple(filter(is_wanted, views))
                if wanted or found.next is None:
                    return Page(wanted, found.next)
                cursor = found.next

    def _view(self, session: Session, number: str) -> ProposalView:
        row = proposals.find_proposal(session, number)
        return ProposalView(row, assess(session, row, self._snapshots.current(), self._facts))

    @contextmanager
    def _changing(self, number: str) -> Iterator[tuple[Session, Proposal]]:
        with self._writing() as session:
            yield session, require_open(proposals.find_proposal(session, number))

    def propose(
        self, request: ProposalRequest, by: Authorship, *, most: int | None = None
    ) -> ProposalView:
        """Store a proposal; the matrix does not change.

        ``most``: values that the documents may hold; None: any number.
        """
        by.check()
        with self._writing() as session:
            reader = self._open_reader(session, force=by.force)
            edits = drafts.make_edits(session, request, by.reason, reader, most)
            automatic = request.merge == "approved"
            view = self._store(session, edits, by, "merge", automatic=automatic)
            return replace(view, warnings=tuple(reader.warnings))

    def _store(
        self,
        session: Session,
        edits: Sequence[Edit],
        by: Authorship,
        action: str,
        *,
        automatic: bool = False,
    ) -> ProposalView:
        check_reach(session, edits, by.principal)
        made = proposals.draft_proposal(
            session,
            edits,
            author=by.author,
            identity=by.identity,
            reason=by.reason,
            action=action,
            base=revisions.latest_revision(session),
            automatic=automatic,
        )
        proposals.store_proposal(session, made)
        return self._view(session, made.id)

    def change(
        self, number: str, request: ProposalRequest, by: Authorship, *, most: int | None = None
    ) -> ProposalView:
        """Replace the edits of your own proposal, on top of the present matrix.

        Approvals of the former edits count no longer, unless the edits are the same.
        """
        by.check()
        with self._changing(number) as (session, row):
            if row.names.isdisjoint(by.names):
                what = f"{row.author} proposed {number}: only the author may change it"
                raise make_refusal(by.principal, what, number)
            reader = self._open_reader(session, force=by.force)
            edits = drafts.make_edits(session, request, by.reason, reader, most)
            check_reach(session, edits, by.principal)
            row.digest, row.edits = proposals.digest_edits(edits), tuple(edits)
            row.changed_at, row.targets = clock.now(), proposals.name_targets(session, edits)
            row.base, row.reason = revisions.latest_revision(session), by.reason
            note(session, row, "change", by, by.reason)
            return replace(self._view(session, number), warnings=tuple(reader.warnings))

    def approve(self, number: str, by: Principal, digest: str | None) -> ProposalView:
        """Approve the present edits, which the digest names, of another person's proposal.

        The last approval merges it where its author asked for that and the approver may.
        """
        with self._changing(number) as (session, row):
            if not row.names.isdisjoint(by.names):
                what = f"{by.name} proposed {number}: another person approves it"
                raise make_refusal(by, what, number)
            check_reach(session, row.edits, by)
            require_digest(row, digest, "approve")
            require_unchanged(session, row)
            if not row.has_approval_of(by.names):
                note(session, row, "approve", by)
            view = self._view(session, number)
            ready = row.automatic and not view.readiness.list_blockers(view.row)
            if ready and may_merge(session, view.row, by):
                make_merge(session, view, by, None)
                view = self._view(session, number)
            return view

    def retract(self, number: str, by: Principal) -> ProposalView:
        """Withdraw your approval."""
        with self._changing(number) as (session, row):
            check_reach(session, row.edits, by)
            if not row.has_approval_of(by.names):
                raise Conflict(f"{by.name} has not approved {number}", field="id", value=number)
            note(session, row, "retract", by)
            return self._view(session, number)

    def merge(
        self, number: str, by: Principal, digest: str | None, *, override: str | None = None
    ) -> ProposalView:
        """Make the edits of a proposal, which the digest names, as one revision.

        The caller needs the scope for the edits, as for a direct change. ``override`` says why it
        is merged without the evidence that a policy asks for.
        """
        self._snapshots.refresh()
        with self._changing(number) as (session, row):
            require_merger(session, row, by)
            require_digest(row, digest, "merge")
            make_merge(session, self._view(session, number), by, override)
            return self._view(session, number)

    def close(self, number: str, by: Principal, *, text: str = "") -> ProposalView:
        """Close a proposal without merging it; the author withdraws it so."""
        with self._changing(number) as (session, row):
            if row.names.isdisjoint(by.names):
                by.require("approve")
                check_reach(session, row.edits, by)
            proposals.end_proposal(row, "closed", by=by.name)
            note(session, row, "close", by, text)
            return self._view(session, number)

    def revert(
        self, revision: int, by: Authorship, *, propose: bool = False
    ) -> tuple[int | None, Proposal | None, tuple[Edit, ...]]:
        """Restore the documents that a revision changed, as a new revision or a proposal.

        Return the new revision, or the new proposal, and the edits.
        """
        by.check()
        with self._writing() as session:
            revisions.require_revision(session, revision)
            check_reach(session, revisions.read_edits(session, revision), by.principal)
            edits = tuple(drafts.make_reverting_edits(session, revision))
            drafts.check_together(session, edits)
            if propose:
                return None, self._store(session, edits, by, "revert").row, edits
            check_edits(session, edits, by.principal)
            about: dict[str, Any] = {"author": by.author, "reason": by.reason, "action": "revert"}
            made = revisions.make_revision(
                session,
                edits,
                at=clock.now(),
                consent=require_consent(session, edits, identity=by.identity, **about),
                detail={"reverts": revision},
                **about,
            )
            return made, None, edits

    def run_backtest(self, number: str, days: int, by: Principal) -> ProposalView:
        """Test an open proposal on the decisions of some days, and store the result with it."""
        row = require_open(self.show(number).row)
        with self._database.reading() as session:
            check_reach(session, row.edits, by)
            require_unchanged(session, row)
        result, digest = self._backtest(row.edits, days), row.digest
        with self._writing() as session:
            stored = proposals.find_proposal(session, number)
            stored.backtest, stored.backtest_digest = result, digest
            session.flush()
            return self._view(session, number)
