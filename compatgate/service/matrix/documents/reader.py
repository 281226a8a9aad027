"""Read the matrix: documents, lists, revisions, and what differs between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partialmethod
from typing import Any

from sqlalchemy.orm import Session

from compatgate.core.facts import Facts
from compatgate.documents.specs import Kind
from compatgate.errors import NotFound
from compatgate.kit.database.database import Database, in_reading
from compatgate.service.matrix.documents import imports, revisions
from compatgate.service.matrix.documents import repository as lists
from compatgate.service.matrix.documents.models import StoredDocument


def require_document(session: Session, kind: Kind, name: str) -> StoredDocument:
    """Return one document."""
    stored = lists.get_document(session, kind, name)
    if stored is None:
        hint = lists.suggest_names(session, kind, name)
        what = f"{kind.lower()} {name!r} does not exist"
        raise NotFound(what, field="name", value=name, hint=hint)
    return stored


class EvidenceRemarks:
    """Knows what runs say of entries; another room keeps these."""

    def remarks(self, entries: Iterable[str]) -> Mapping[str, Any]:
        """Return the remarks on entries by name; ``to_json`` of each gives members of its entry."""
        raise NotImplementedError


class MatrixReader:
    """Read access to the matrix of one database and to its history."""

    get = in_reading(require_document)
    export = in_reading(imports.export_documents)
    diff = in_reading(imports.diff_revisions)
    list_documents = in_reading(lists.list_documents)
    list_targets = partialmethod(list_documents, "Target")
    list_entries = partialmethod(list_documents, "Entry")
    list_waivers = partialmethod(list_documents, "Waiver")
    list_pools = in_reading(lists.list_pools)
    list_revisions = in_reading(revisions.list_revisions)
    list_changes = in_reading(revisions.list_changes)
    show_revision = in_reading(revisions.show_revision)

    def __init__(self, database: Database, facts: Facts) -> None:
        self._database = database
        self._facts = facts
