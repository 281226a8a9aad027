"""Propose changes of the matrix, review them, merge or close them, and revert revisions.

`views` shows proposals, `drafting` makes their edits, `agreement` and `readiness` say who and what
is missing, and `merging` makes the revision.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from msgspec.structs import replace
from sqlalchemy.orm import Session

from compatgate.core.facts import Facts
from compatgate.errors import BadInput, Conflict
from compatgate.kit import clock
from compatgate.kit.database.database import Database
from compatgate.service.gate.snapshot_reader import Snapshots
from compatgate.service.matrix import revisions
from compatgate.service.matrix.blessing import check_edits
from compatgate.service.matrix.imports import ChangeReader
from compatgate.service.matrix.revisions import Edit
from compatgate.service.matrix.service import Authorship
from compatgate.service.proposals import drafting
from compatgate.service.proposals import repository as proposals
from compatgate.service.proposals.agreement import (
    require_consent,
    write_or_propose,
)
from compatgate.service.proposals.merging import (
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
from compatgate.service.proposals.models import ProposalRow
from compatgate.service.proposals.readiness import ProposalView, ProposalViews
from compatgate.service.proposals.schemas import ProposalRequest
from compatgate.service.tokens.principal import Principal

T = TypeVar("T")


class Backtester(Protocol):
    """Re-evaluates recorded questions with the edits applied."""

    def __call__(self, edits: Sequence[Edit], days: int) -> dict[str, Any]:
        """Return the result as plain data.

        Args:
            edits: to test.
            days: age of the oldest decision.
        """


class ProposalService(ProposalViews):
    """The proposals of one database.

    Args:
        database: open, with its schema.
        facts: the catalog.
        snapshots: of the gate.
        backtest: decides recorded questions again with edits made.
        open_reader: `MatrixService.open_reader`, which checks the documents of a change.
    """

    def __init__(
        self,
        database: Database,
        facts: Facts,
        snapshots: Snapshots,
        backtest: Backtester,
        open_reader: Callable[..., ChangeReader],
    ) -> None:
        super().__init__(database, facts, snapshots)
        self._backtest = backtest
        self._open_reader = open_reader

    def propose(
        self, request: ProposalRequest, by: Authorship, *, most: int | None = None
    ) -> ProposalView:
        """Store a proposal; the matrix does not change.

        Args:
            request: the edits.
            by: author and reason.
            most: values that the documents may hold; None: any number.

        Raises:
            CompatgateError: as `drafting.make_edits`.
            AccessRefused: the author does not reach a target.
        """
        by.check()

        def write(session: Session) -> ProposalView:
            reader = self._open_reader(session, force=by.force)
            edits = drafting.make_edits(session, request, by.reason, reader, most)
            automatic = request.merge == "approved"
            view = self._store(session, edits, by, "merge", automatic=automatic)
            return replace(view, warnings=tuple(reader.warnings))

        return self._write(write)

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
        return self._view(session, made["id"])

    def change(
        self, number: str, request: ProposalRequest, by: Authorship, *, most: int | None = None
    ) -> ProposalView:
        """Replace the edits of your own proposal, on top of the present matrix.

        Approvals of the former edits count no longer, unless the edits are the same.

        Raises:
            CompatgateError: as `propose`.
            AccessRefused: somebody else proposed it.
            Conflict: it is merged or closed.
        """
        by.check()

        def write(session: Session) -> ProposalView:
            row = require_open(proposals.find_proposal(session, number))
            if row.identity != by.identity:
                what = f"{row.author} proposed {number}: only the author may change it"
                raise make_refusal(by.principal, what, number)
            reader = self._open_reader(session, force=by.force)
            edits = drafting.make_edits(session, request, by.reason, reader, most)
            check_reach(session, edits, by.principal)
            base = revisions.latest_revision(session)
            digest = proposals.replace_edits(session, row, edits, base=base, reason=by.reason)
            note(session, replace(row, digest=digest), "change", by, by.reason)
            return replace(self._view(session, number), warnings=tuple(reader.warnings))

        return self._write(write)

    def comment(self, number: str, text: str, by: Principal) -> ProposalView:
        """Comment on a proposal, also on one that has ended.

        Raises:
            NotFound: there is none of that id.
            BadInput: the comment is empty.
        """
        if not text.strip():
            raise BadInput("must not be empty", field="comment", hint="write a comment")

        def write(session: Session) -> ProposalView:
            row = proposals.find_proposal(session, number)
            check_reach(session, row.edits, by)
            note(session, row, "comment", by, text)
            return self._view(session, number)

        return self._write(write)

    def approve(
        self, number: str, by: Principal, digest: str | None, *, text: str = ""
    ) -> ProposalView:
        """Approve the present edits of another person's proposal.

        The last approval merges it where its author asked for that and the approver may.

        Args:
            number: id of the proposal.
            by: who approves.
            digest: of the edits that the approver read; None: the caller does not say.
            text: a comment.

        Raises:
            NotFound: there is none of that id.
            AccessRefused: the caller proposed it, or does not reach a target.
            DigestNeeded: the digest is not that of the present edits.
            Conflict: it is merged or closed, or a document that it changes has changed since.
        """

        def write(session: Session) -> ProposalView:
            row = require_open(proposals.find_proposal(session, number))
            if row.identity == by.identity:
                what = f"{by.name} proposed {number}: another person approves it"
                raise make_refusal(by, what, number)
            check_reach(session, row.edits, by)
            require_digest(row, digest, "approve")
            require_unchanged(session, row)
            if by.identity not in {one.identity for one in row.approvals}:
                note(session, row, "approve", by, text)
            view = self._view(session, number)
            if (
                row.automatic
                and not view.readiness.list_blockers(view.row)
                and may_merge(session, view.row, by)
            ):
                make_merge(session, view, by, None)
                return self._view(session, number)
            return view

        return self._write(write)

    def retract(self, number: str, by: Principal, *, text: str = "") -> ProposalView:
        """Withdraw your approval.

        Raises:
            NotFound: there is none of that id.
            Conflict: it is merged or closed, or the caller has not approved it.
        """

        def write(session: Session) -> ProposalView:
            row = require_open(proposals.find_proposal(session, number))
            check_reach(session, row.edits, by)
            if by.identity not in {one.identity for one in row.approvals}:
                raise Conflict(f"{by.name} has not approved {number}", field="id", value=number)
            note(session, row, "retract", by, text)
            return self._view(session, number)

        return self._write(write)

    def merge(
        self,
        number: str,
        by: Principal,
        digest: str | None,
        *,
        override: str | None = None,
    ) -> ProposalView:
        """Make the edits of a proposal, as one revision.

        Args:
            number: id of the proposal.
            by: who merges; needs the scope for the edits, as for a direct change.
            digest: of the edits that the caller read; None: the caller does not say.
            override: why it is merged without the evidence that a policy asks for.

        Raises:
            NotFound: there is none of that id.
            AccessRefused: the caller may not make such edits.
            ApprovalNeeded: too few people have approved the present edits.
            EvidenceNeeded: a policy asks for canary runs that have not passed.
            DigestNeeded: the digest is not that of the present edits.
            Conflict: it is merged or closed, a document that it changes has changed since, or its
                edits no longer fit the matrix.
            ManyProblems: a policy that changed since forbids a waiver.
        """
        self._snapshots.refresh()

        def write(session: Session) -> ProposalView:
            row = require_open(proposals.find_proposal(session, number))
            require_merger(session, row, by)
            require_digest(row, digest, "merge")
            make_merge(session, self._view(session, number), by, override)
            return self._view(session, number)

        return self._write(write)

    def close(self, number: str, by: Principal, *, text: str = "") -> ProposalView:
        """Close a proposal without merging it; the author withdraws it so.

        Raises:
            NotFound: there is none of that id.
            AccessRefused: the caller is not the author, and may not approve it.
            Conflict: it is merged or closed.
        """

        def write(session: Session) -> ProposalView:
            row = require_open(proposals.find_proposal(session, number))
            if row.identity != by.identity:
                by.require("approve")
                check_reach(session, row.edits, by)
            proposals.end_proposal(session, number, "closed", by=by.name)
            note(session, row, "close", by, text)
            return self._view(session, number)

        return self._write(write)

    def revert(
        self, revision: int, by: Authorship, *, propose: bool = False
    ) -> tuple[int | None, ProposalRow | None, tuple[Edit, ...]]:
        """Restore the documents that a revision changed, as a new revision or a proposal.

        Args:
            revision: number of the one to revert.
            by: author and reason.
            propose: make a proposal, also where a direct change is allowed.

        Returns:
            The new revision, or the new proposal; and the edits.

        Raises:
            NotFound: the revision does not exist.
            AccessRefused: the author may not make such edits.
            Conflict: a later revision changed one of its documents; names it.
            ProposalNeeded: a policy asks for a proposal, which is open now.
        """
        by.check()

        def write(session: Session) -> tuple[int | None, ProposalRow | None, tuple[Edit, ...]]:
            revisions.require_revision(session, revision)
            check_reach(session, revisions.read_edits(session, revision), by.principal)
            edits = tuple(drafting.make_reverting_edits(session, revision))
            drafting.check_together(session, edits)
            if propose:
                return None, self._store(session, edits, by, "revert").row, edits
            check_edits(session, edits, by.principal)
            consent = require_consent(
                session,
                edits,
                author=by.author,
                reason=by.reason,
                action="revert",
                identity=by.identity,
            )
            made = revisions.make_revision(
                session,
                edits,
                author=by.author,
                reason=by.reason,
                action="revert",
                at=clock.now(),
                consent=consent,
                detail={"reverts": revision},
            )
            return made, None, edits

        return self._write(write)

    def run_backtest(self, number: str, days: int, by: Principal) -> ProposalView:
        """Test an open proposal on recorded decisions, and store the result with it.

        Args:
            number: id of the proposal.
            days: age of the oldest decision.
            by: the caller.

        Raises:
            NotFound: there is none of that id.
            AccessRefused: the caller does not reach a target.
            Conflict: it is merged or closed, or a document that it changes has changed since.
        """
        row = require_open(self.show(number).row)
        with self._database.reading() as session:
            check_reach(session, row.edits, by)
            require_unchanged(session, row)
        result = self._backtest(row.edits, days)

        def write(session: Session) -> ProposalView:
            proposals.store_backtest(session, number, row.digest, result)
            return self._view(session, number)

        return self._write(write)

    def _write(self, change: Callable[[Session], T]) -> T:
        result = write_or_propose(self._database, change)
        self._snapshots.refresh()
        return result
