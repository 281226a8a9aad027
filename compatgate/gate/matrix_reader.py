"""Looking at the matrix: now, before, and compared with files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy.orm import Session

from compatgate.core.facts import Facts
from compatgate.documents.changes import Change
from compatgate.documents.sources import Source
from compatgate.documents.specs import Kind
from compatgate.errors import NotFound
from compatgate.gate import imports
from compatgate.store import documents, lists, revisions
from compatgate.store.database import Database
from compatgate.store.paging import Page
from compatgate.store.rows import PoolRow, RevisionRow, Stored

T = TypeVar("T")


class MatrixReader:
    """What one database holds, and held."""

    def __init__(self, database: Database, facts: Facts) -> None:
        self._database = database
        self._facts = facts

    def get(self, kind: Kind, name: str) -> Stored:
        """One document.

        Raises:
            NotFound: there is none of that name; names near ones.
        """
        return self._read(lambda session: found(session, kind, name))

    def export(self, *, revision: int | None = None) -> list[dict[str, Any]]:
        """Every document now, or as it was: targets, entries, waivers, each by name.

        Raises:
            NotFound: there is no such revision.
        """
        return self._read(lambda session: imports.export(session, revision))

    def diff(self, older: int, newer: int | None = None) -> list[Change]:
        """What changed between two revisions; None: up to now.

        Raises:
            NotFound: there is no such revision.
        """
        return self._read(lambda session: imports.diff(session, older, newer))

    def diff_files(self, sources: Sequence[Source]) -> list[Change]:
        """What would turn the stored matrix into that of some files.

        Raises:
            ManyProblems: every mistake in the files.
        """
        read = imports.read(self._database, sources, self._facts.gpus)
        return self._read(lambda session: imports.diff_files(session, read))

    def list_targets(self, **filters: Any) -> Page[Stored]:
        """Targets by name; filters of `compatgate.store.lists.list_targets`."""
        return self._read(lambda session: lists.list_targets(session, **filters))

    def list_entries(self, **filters: Any) -> Page[Stored]:
        """Entries by name; filters of `compatgate.store.lists.list_entries`."""
        return self._read(lambda session: lists.list_entries(session, **filters))

    def list_waivers(self, **filters: Any) -> Page[Stored]:
        """Waivers by name; filters of `compatgate.store.lists.list_waivers`."""
        return self._read(lambda session: lists.list_waivers(session, **filters))

    def list_pools(self, **filters: Any) -> Page[PoolRow]:
        """Pools by target and name; filters of `compatgate.store.lists.list_pools`."""
        return self._read(lambda session: lists.list_pools(session, **filters))

    def list_revisions(self, **filters: Any) -> Page[RevisionRow]:
        """Revisions, newest first; filters of `compatgate.store.revisions.list_revisions`."""
        return self._read(lambda session: revisions.list_revisions(session, **filters))

    def list_changes(self, kind: Kind, name: str, **paging: Any) -> Page[RevisionRow]:
        """Revisions that changed one document, newest first, each with that change alone."""
        return self._read(lambda session: revisions.list_changes(session, kind, name, **paging))

    def show_revision(self, number: int) -> RevisionRow:
        """A revision with all its changes.

        Raises:
            NotFound: there is no such revision.
        """
        return self._read(lambda session: revisions.show(session, number))

    def revision_at(self, when: datetime) -> int:
        """The revision that held at a moment; 0 before the first."""
        return self._read(lambda session: revisions.revision_at(session, when))

    def _read(self, query: Callable[[Session], T]) -> T:
        with self._database.reading() as session:
            return query(session)


def found(session: Session, kind: Kind, name: str) -> Stored:
    """One document.

    Raises:
        NotFound: there is none of that name; names near ones.
    """
    stored = documents.get(session, kind, name)
    if stored is None:
        hint = documents.hint(session, kind, name)
        raise NotFound(f"there is no {kind.lower()} {name!r}", field="name", value=name, hint=hint)
    return stored
