"""Show and list proposals with their requirements."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct
from sqlalchemy.orm import Session

from compatgate.core.facts import Facts
from compatgate.documents.specs import Kind, key_of
from compatgate.kit.database.database import Database
from compatgate.kit.database.tables import DEFAULT_LIMIT, Page
from compatgate.service.gate.snapshot_reader import Snapshots
from compatgate.service.matrix.repository import DocumentLookup
from compatgate.service.proposals import repository as proposals
from compatgate.service.proposals.models import ProposalRow, ProposalState
from compatgate.service.proposals.readiness import Readiness, assess, assess_agreement
from compatgate.service.tokens.principal import Principal


class ProposalView(Struct, frozen=True):
    """A proposal with its requirements."""

    row: ProposalRow
    readiness: Readiness

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
