"""Make revisions, read the matrix at a revision, and import, export and compare documents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, Protocol

import msgspec
from msgspec import Struct
from sqlalchemy import exists, func, insert, select
from sqlalchemy.orm import Session

from compatgate.core.facts.nvidia import Gpus
from compatgate.core.matrix import ANY_TARGET
from compatgate.documents import specs as compared
from compatgate.documents.convert import pause_garbage_collection
from compatgate.documents.sources import Source
from compatgate.documents.specs import (
    KINDS,
    Change,
    Document,
    Kind,
    TargetDoc,
    compare_document,
    compare_documents,
    decode,
    encode,
    key_of,
    kind_of,
    target_refs,
    to_body,
)
from compatgate.documents.validation import read_documents
from compatgate.errors import Conflict, NotFound
from compatgate.kit.clock import iso
from compatgate.kit.database.database import Database
from compatgate.kit.database.tables import DEFAULT_LIMIT, Page, page
from compatgate.service.audit import repository as audit
from compatgate.service.matrix import repository as documents
from compatgate.service.matrix.models import DocumentChange, Revision, RevisionRow
from compatgate.service.waivers import service as waiver_limits

DocumentVersion = tuple[Kind, str, Document | None, int]
"""Kind, name and content of a document (None: deleted), and the revision of that version."""


_NO_DETAIL: Mapping[str, Any] = MappingProxyType({})


class Edit(Struct, frozen=True):
    """A document before and after a change; None: created or deleted."""

    before: Document | None
    after: Document | None

    @property
    def document(self) -> Document:
        """Return the document after the change; of a deletion, the one before."""
        document = self.after or self.before
        if document is None:
            raise ValueError("an edit of nothing")
        return document

    @property
    def action(self) -> compared.Action:
        """Return the kind of change."""
        if self.before is None:
            return "create"
        return "delete" if self.after is None else "change"


class Consent(Protocol):
    """Who agreed to edits."""

    def to_detail(self) -> dict[str, Any]:
        """Return the members of the revision's audit record."""

    def note(self, session: Session, revision: int) -> None:
        """Store which revision the edits became."""


def latest_revision(session: Session) -> int:
    """Return the number of the last revision; 0 before the first."""
    return session.execute(select(func.max(Revision.number))).scalar() or 0


def find_revision_at(session: Session, when: datetime) -> int:
    """Return the latest revision at a moment; 0 before the first."""
    query = select(func.max(Revision.number)).where(Revision.made_at <= when)
    return session.execute(query).scalar() or 0


def make_revision(
    session: Session,
    edits: Sequence[Edit],
    *,
    author: str,
    reason: str,
    action: str,
    at: datetime,
    detail: Mapping[str, Any] = _NO_DETAIL,
) -> int:
    """Make one revision: write history, current state and audit record.

    Args:
        session: in an exclusive write transaction.
        edits: at least one, each of another document.
        author: name of the token or user.
        reason: of the author.
        action: ``create``, ``change``, ``delete`` or ``import``.
        at: now; a revision is never older than the previous one.
        detail: further members of the audit record, such as who approved.

    Returns:
        The number of the revision.
    """
    query = select(Revision.number, Revision.made_at).order_by(Revision.number.desc()).limit(1)
    last = session.execute(query).first()
    number, made_at = (last.number + 1, max(at, last.made_at)) if last else (1, at)
    revision = {
        "number": number,
        "made_at": made_at,
        "author": author,
        "reason": reason,
        "action": action,
        "count": len(edits),
    }
    rows = [_change_row(edit, number) for edit in edits]
    session.execute(insert(Revision), [revision])
    session.execute(insert(DocumentChange), rows)
    documents.apply_edits(
        session, [(e.before, e.after) for e in edits], revision=number, at=made_at
    )
    digest = digest_revision(revision, rows)
    audited = {**detail, "revision": number, "reason": reason, "sha256": digest}
    subject = f"{rows[0]['kind']} {rows[0]['name']}" if len(rows) == 1 else f"{len(rows)} documents"
    audit.append(
        session,
        at=made_at,
        actor=author,
        action=f"matrix.{action}",
        subject=subject,
        detail=audited,
    )
    return number


def digest_revision(revision: dict[str, Any], changes: Iterable[dict[str, Any]]) -> str:
    """Return the digest of a revision for the audit chain."""
    head = [revision[key] for key in ("number", "author", "reason", "action", "count")]
    head.append(iso(revision["made_at"]))
    keys = ("kind", "name", "action", "before", "after")
    rows = sorted([change[key] for key in keys] for change in changes)
    return audit.digest_rows([head, *rows])


def _change_row(edit: Edit, revision: int) -> dict[str, Any]:
    return {
        "revision": revision,
        "kind": kind_of(edit.document),
        "name": edit.document.metadata.name,
        "action": edit.action,
        "before": encode(edit.before) if edit.before else None,
        "after": encode(edit.after) if edit.after else None,
    }


def read_versions_at(session: Session, number: int) -> Iterator[DocumentVersion]:
    """Yield every document at a revision."""
    newest = (
        select(
            DocumentChange.kind,
            DocumentChange.name,
            func.max(DocumentChange.revision).label("revision"),
        )
        .where(DocumentChange.revision <= number)
        .group_by(DocumentChange.kind, DocumentChange.name)
        .subquery()
    )
    query = select(
        DocumentChange.kind, DocumentChange.name, DocumentChange.after, DocumentChange.revision
    ).join(
        newest,
        (DocumentChange.kind == newest.c.kind)
        & (DocumentChange.name == newest.c.name)
        & (DocumentChange.revision == newest.c.revision),
    )
    return _read_versions(session, query.where(DocumentChange.after.is_not(None)))


def read_versions_since(session: Session, number: int) -> Iterator[DocumentVersion]:
    """Yield the versions of documents after a revision, in order; None: deleted."""
    query = select(
        DocumentChange.kind, DocumentChange.name, DocumentChange.after, DocumentChange.revision
    )
    return _read_versions(
        session, query.where(DocumentChange.revision > number).order_by(DocumentChange.revision)
    )


def _read_versions(session: Session, query: Any) -> Iterator[DocumentVersion]:
    for kind, name, after, revision in session.execute(query.execution_options(yield_per=5000)):
        yield kind, name, decode(kind, after) if after else None, revision


def read_documents_at(session: Session, number: int) -> Iterator[tuple[Document, int]]:
    """Yield every document at a revision, with the revision of its version."""
    for _, _, document, revision in read_versions_at(session, number):
        if document is not None:
            yield document, revision


def require_revision(session: Session, number: int) -> Any:
    """Return the row of a revision.

    Raises:
        NotFound: there is no such revision; the hint names the last one.
    """
    last = latest_revision(session)
    row = None
    if 0 < number <= last:
        row = session.execute(select(Revision.__table__).where(Revision.number == number)).first()
    if row is None:
        hint = f"the latest revision is {last}" if last else "there are no revisions yet"
        raise NotFound(f"there is no revision {number}", field="revision", value=number, hint=hint)
    return row


def show_revision(session: Session, number: int) -> RevisionRow:
    """Return a revision with all its changes.

    Raises:
        NotFound: there is no such revision.
    """
    row = require_revision(session, number)
    query = (
        select(DocumentChange.__table__)
        .where(DocumentChange.revision == number)
        .order_by(DocumentChange.id)
    )
    return _to_row(row, tuple(_to_change(one, one.action) for one in session.execute(query)))


def list_revisions(
    session: Session,
    *,
    author: str | None = None,
    kind: Kind | None = None,
    name: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    cursor: str | None = None,
    limit: int = DEFAULT_LIMIT,
) -> Page[RevisionRow]:
    """Return revisions, newest first; ``kind`` and ``name`` select by changed document."""
    query = select(Revision.__table__)
    if author:
        query = query.where(Revision.author == author)
    if kind or name:
        touched = exists().where(DocumentChange.revision == Revision.number)
        touched = touched.where(DocumentChange.kind == kind) if kind else touched
        query = query.where(touched.where(DocumentChange.name == name) if name else touched)
    if since:
        query = query.where(Revision.made_at >= since)
    if until:
        query = query.where(Revision.made_at <= until)
    return page(
        session, query, Revision.number, _to_row, cursor=cursor, limit=limit, descending=True
    )


def list_changes(
    session: Session,
    kind: Kind,
    name: str,
    *,
    cursor: str | None = None,
    limit: int = DEFAULT_LIMIT,
) -> Page[RevisionRow]:
    """Return the revisions of one document, newest first, each with only that change."""
    of_change = (
        DocumentChange.kind,
        DocumentChange.name,
        DocumentChange.action.label("did"),
        DocumentChange.before,
        DocumentChange.after,
    )
    query = select(*Revision.__table__.columns, *of_change).join(
        DocumentChange, DocumentChange.revision == Revision.number
    )
    query = query.where(DocumentChange.kind == kind, DocumentChange.name == name)
    return page(
        session,
        query,
        Revision.number,
        lambda row: _to_row(row, (_to_change(row, row.did),)),
        cursor=cursor,
        limit=limit,
        descending=True,
    )


def _to_row(row: Any, changes: tuple[compared.Change, ...] = ()) -> RevisionRow:
    return RevisionRow(
        row.number, row.made_at, row.author, row.reason, row.action, row.count, changes
    )


def _to_change(row: Any, action: compared.Action) -> compared.Change:
    before, after = (msgspec.json.decode(t) if t else None for t in (row.before, row.after))
    return compared.Change(row.kind, row.name, action, before, after)


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


def read_files(database: Database, sources: Sequence[Source], gpus: Gpus) -> list[Document]:
    """Read documents from files, and check them against the stored targets and waivers.

    Raises:
        ManyProblems: every mistake, with file, line and path.
    """
    with database.reading() as session:
        known = documents.target_names(session)
        return read_documents(sources, gpus, known, judge=waiver_limits.make_waiver_check(session))


def plan_import(session: Session, imported: Sequence[Document]) -> tuple[ImportResult, list[Edit]]:
    """Return the expected result of an import, and its edits."""
    stored = documents.find_documents(session, [key_of(document) for document in imported])
    edits = [
        Edit(stored.get(key_of(document)), document)
        for document in _sort_documents(imported)
        if stored.get(key_of(document)) != document
    ]
    changes = [c for edit in edits if (c := compare_document(edit.before, edit.after))]
    return ImportResult(tuple(changes), len(imported) - len(edits)), edits


def apply_import(
    session: Session,
    imported: Sequence[Document],
    author: str,
    reason: str,
    at: datetime,
    permit: Callable[[Sequence[Edit]], Consent],
) -> ImportResult:
    """Import documents as one revision.

    Args:
        session: a writing one.
        imported: the documents.
        author: of the change.
        reason: of the author.
        at: now.
        permit: called with the edits; raises if the author may not make them alone.

    Raises:
        Conflict: a target that the documents name was deleted since they were read.
        ManyProblems: a policy that changed since forbids a waiver.
        AccessRefused: from ``permit``.
    """
    check_import(session, imported)
    with pause_garbage_collection():
        result, edits = plan_import(session, imported)
        consent = permit(edits)
        if not edits:
            return result
        revision = make_revision(
            session,
            edits,
            author=author,
            reason=reason,
            action="import",
            at=at,
            detail=consent.to_detail(),
        )
        consent.note(session, revision)
        return ImportResult(result.changes, result.unchanged, revision)


def check_import(session: Session, imported: Sequence[Document]) -> None:
    """Check documents again in the transaction that writes them; they were read before.

    Raises:
        Conflict: a target that the documents name was deleted since.
        ManyProblems: a policy that changed since forbids a waiver.
    """
    _check_targets(session, imported)
    waiver_limits.check_waivers(session, imported)


def _check_targets(session: Session, imported: Iterable[Document]) -> None:
    known = documents.target_names(session) | {ANY_TARGET}
    known |= {d.metadata.name for d in imported if isinstance(d, TargetDoc)}
    for document in imported:
        for name in target_refs(document):
            if name not in known:
                kind, user = key_of(document)
                what = f"{kind} {user} names the target {name!r}, which was deleted meanwhile"
                raise Conflict(what, field="targets", value=name)


def export_documents(session: Session, revision: int | None) -> list[dict[str, Any]]:
    """Return every document, now or at a revision: targets, entries, waivers, each by name."""
    with pause_garbage_collection():
        return [
            to_body(document) for document in _sort_documents(_load_documents(session, revision))
        ]


def diff_revisions(session: Session, older: int, newer: int | None) -> list[Change]:
    """Return the changes between two revisions; None: the stored matrix."""
    with pause_garbage_collection():
        return compare_documents(_load_documents(session, older), _load_documents(session, newer))


def diff_with_files(session: Session, imported: Sequence[Document]) -> list[Change]:
    """Return the changes from the stored matrix to the imported one."""
    return compare_documents(_load_documents(session, None), imported)


def _load_documents(session: Session, revision: int | None) -> list[Document]:
    if revision is None:
        return [
            document for kind in KINDS for document, _ in documents.load_documents(session, kind)
        ]
    if revision != 0:
        require_revision(session, revision)
    return [document for document, _ in read_documents_at(session, revision)]


def _sort_documents(found: Iterable[Document]) -> list[Document]:
    def order(document: Document) -> tuple[int, str]:
        kind, name = key_of(document)
        return KINDS.index(kind), name

    return sorted(found, key=order)
