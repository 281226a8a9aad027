"""Read the matrix: documents, lists, revisions, and what differs between them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy.orm import Session

from compatgate.core.facts import Facts
from compatgate.documents.specs import Kind
from compatgate.errors import NotFound
from compatgate.kit.database.database import Database
from compatgate.kit.database.tables import Page
from compatgate.service.matrix.documents import imports, revisions
from compatgate.service.matrix.documents import repository as lists
from compatgate.service.matrix.documents.models import Pool, StoredDocument
from compatgate.service.matrix.documents.revisions import Edit
from compatgate.service.matrix.documents.schemas import RevisionBody, RevisionDetail

T = TypeVar("T")


class MatrixReader:
    """Read access to the matrix of one database and to its history."""

    def __init__(self, database: Database, facts: Facts) -> None:
        self._database = database
        self._facts = facts

    def get(self, kind: Kind, name: str) -> StoredDocument:
        """Return one document."""
        return self._read(lambda session: require_document(session, kind, name))

    def export(self, *, revision: int | None = None) -> list[dict[str, Any]]:
        """Return every document, now or at a revision: targets, entries, waivers, each by name."""
        return self._read(lambda session: imports.export_documents(session, revision))

    def diff(self, older: int, newer: int | None = None) -> list[Edit]:
        """Return the edits between two revisions; None: the stored matrix."""
        return self._read(lambda session: imports.diff_revisions(session, older, newer))

    def list_targets(self, **filters: Any) -> Page[StoredDocument]:
        """Return targets by name; filters: `repository.list_documents`."""
        return self._read(lambda session: lists.list_documents(session, "Target", **filters))

    def list_entries(self, **filters: Any) -> Page[StoredDocument]:
        """Return entries by name; filters as of targets."""
        return self._read(lambda session: lists.list_documents(session, "Entry", **filters))

    def list_waivers(self, **filters: Any) -> Page[StoredDocument]:
        """Return waivers by name; filters as of targets."""
        return self._read(lambda session: lists.list_documents(session, "Waiver", **filters))

    def list_pools(self, **filters: Any) -> Page[Pool]:
        """Return pools by target and name; filters: `repository.list_pools`."""
        return self._read(lambda session: lists.list_pools(session, **filters))

    def list_revisions(self, **filters: Any) -> Page[RevisionBody]:
        """Return revisions, newest first; filters: `revisions.list_revisions`."""
        return self._read(lambda session: revisions.list_revisions(session, **filters))

    def list_changes(self, kind: Kind, name: str, **paging: Any) -> Page[RevisionDetail]:
        """Return the revisions of one document, newest first, each with only that change."""
        return self._read(lambda session: revisions.list_changes(session, kind, name, **paging))

    def show_revision(self, number: int) -> RevisionDetail:
        """Return a revision with all its changes."""
        return self._read(lambda session: revisions.show_revision(session, number))

    def revision_at(self, when: datetime) -> int:
        """Return the latest revision at a moment; 0 before the first."""
        return self._read(lambda session: revisions.find_revision_at(session, when))

    def _read(self, query: Callable[[Session], T]) -> T:
        with self._database.reading() as session:
            return query(session)


def require_document(session: Session, kind: Kind, name: str) -> StoredDocument:
    """Return one document."""
    stored = lists.get_document(session, kind, name)
    if stored is None:
        hint = lists.suggest_names(session, kind, name)
        raise NotFound(
            f"{kind.lower()} {name!r} does not exist", field="name", value=name, hint=hint
        )
    return stored
