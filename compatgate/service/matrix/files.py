"""Import, export and compare whole files of documents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct
from sqlalchemy.orm import Session

from compatgate.core.facts.nvidia import Gpus
from compatgate.core.matrix import ANY_TARGET
from compatgate.documents.convert import many_objects
from compatgate.documents.read import read_documents
from compatgate.documents.sources import Source
from compatgate.documents.specs import (
    KINDS,
    Change,
    Document,
    TargetDoc,
    change,
    compare,
    key_of,
    target_refs,
    to_body,
)
from compatgate.errors import Conflict
from compatgate.kit.database.database import Database
from compatgate.service.matrix import repository as documents
from compatgate.service.matrix import revisions
from compatgate.service.matrix.revisions import Edit
from compatgate.service.waivers import service as waiver_limits


class ImportResult(Struct, frozen=True):
    """The result of an import or of a dry run.

    Attributes:
        unchanged: number of documents that are stored already.
        revision: made by the import; None: a dry run, or nothing to change.
    """

    changes: tuple[Change, ...]
    unchanged: int
    revision: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "changes": [c.to_json() for c in self.changes],
            "unchanged": self.unchanged,
            "revision": self.revision,
        }


def read(database: Database, sources: Sequence[Source], gpus: Gpus) -> list[Document]:
    """Read documents from files, and check them against the stored targets and waivers.

    Raises:
        ManyProblems: every mistake, with file, line and path.
    """
    with database.reading() as session:
        known = documents.target_names(session)
        return read_documents(sources, gpus, known, judge=waiver_limits.judge(session))


def plan(session: Session, imported: Sequence[Document]) -> tuple[ImportResult, list[Edit]]:
    """Return the expected result of an import, and its edits."""
    stored = documents.find(session, [key_of(document) for document in imported])
    edits = [
        Edit(stored.get(key_of(document)), document)
        for document in _sorted(imported)
        if stored.get(key_of(document)) != document
    ]
    changes = [c for edit in edits if (c := change(edit.before, edit.after))]
    return ImportResult(tuple(changes), len(imported) - len(edits)), edits


def apply(
    session: Session, imported: Sequence[Document], author: str, reason: str, at: datetime
) -> ImportResult:
    """Import documents as one revision.

    Raises:
        Conflict: a target that the documents name was deleted since they were read.
        ManyProblems: a policy that changed since forbids a waiver.
    """
    _check_targets(session, imported)
    waiver_limits.check(session, imported)
    with many_objects():
        return _apply(session, imported, author, reason, at)


def _apply(
    session: Session, imported: Sequence[Document], author: str, reason: str, at: datetime
) -> ImportResult:
    result, edits = plan(session, imported)
    if not edits:
        return result
    revision = revisions.make(session, edits, author=author, reason=reason, action="import", at=at)
    return ImportResult(result.changes, result.unchanged, revision)


def _check_targets(session: Session, imported: Iterable[Document]) -> None:
    known = documents.target_names(session) | {ANY_TARGET}
    known |= {d.metadata.name for d in imported if isinstance(d, TargetDoc)}
    for document in imported:
        for name in target_refs(document):
            if name not in known:
                kind, user = key_of(document)
                what = f"{kind} {user} names the target {name!r}, which was deleted meanwhile"
                raise Conflict(what, field="targets", value=name)


def export(session: Session, revision: int | None) -> list[dict[str, Any]]:
    """Return every document, now or at a revision: targets, entries, waivers, each by name."""
    with many_objects():
        return [to_body(document) for document in _sorted(_all(session, revision))]


def diff(session: Session, older: int, newer: int | None) -> list[Change]:
    """Return the changes between two revisions; None: the stored matrix."""
    with many_objects():
        return compare(_all(session, older), _all(session, newer))


def diff_files(session: Session, imported: Sequence[Document]) -> list[Change]:
    """Return the changes from the stored matrix to the imported one."""
    return compare(_all(session, None), imported)


def _all(session: Session, revision: int | None) -> list[Document]:
    if revision is None:
        return [document for kind in KINDS for document, _ in documents.load(session, kind)]
    if revision != 0:
        revisions.require(session, revision)
    return [document for document, _ in revisions.documents_at(session, revision)]


def _sorted(found: Iterable[Document]) -> list[Document]:
    def order(document: Document) -> tuple[int, str]:
        kind, name = key_of(document)
        return KINDS.index(kind), name

    return sorted(found, key=order)
