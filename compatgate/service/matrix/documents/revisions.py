"""Make revisions, list them, and read the matrix at a revision."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import asdict
from sqlalchemy import and_, exists, func, insert, or_, select
from sqlalchemy.orm import Session

from compatgate.documents import specs as compared
from compatgate.documents.specs import Document, Kind, decode, encode, key_of, kind_of, to_body
from compatgate.errors import NotFound
from compatgate.kit.clock import iso
from compatgate.kit.database.tables import DEFAULT_LIMIT, Page, narrow, page
from compatgate.service.audit import chain as audit
from compatgate.service.matrix.documents import repository as documents
from compatgate.service.matrix.documents.models import DocumentChange, Revision
from compatgate.service.matrix.documents.schemas import RevisionBody, RevisionDetail

DocumentVersion = tuple[Kind, str, Document | None, int]
"""Kind, name and content of a document (None: deleted), and the revision of that version."""


NO_DETAIL: Mapping[str, Any] = MappingProxyType({})


class Edit(Struct, frozen=True):
    """A document before and after a change; None: created or deleted."""

    before: Document | None
    after: Document | None

    @property
    def document(self) -> Document:
        """Return the document after the change; of a deletion, the one before."""
        document = self.after or self.before
        if document is None:
            raise ValueError("the edit has no documents")
        return document

    @property
    def action(self) -> compared.Action:
        """Return the kind of change."""
        if self.before is None:
            return "create"
        return "delete" if self.after is None else "change"

    def to_change(self) -> compared.Change:
        """Return the change that it makes, as plain data."""
        before, after = (to_body(side) if side else None for side in (self.before, self.after))
        kind, name = key_of(self.document)
        return compared.make_change(kind, name, self.action, before, after)


class Consent(Protocol):
    """The people who agreed to edits."""

    @property
    def proposal(self) -> str | None:
        """Return the id of the proposal that they agreed to; None: nobody was asked."""

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


def find_time(session: Session, number: int) -> datetime | None:
    """Return when a revision was made; None: it does not exist."""
    query = select(Revision.made_at).where(Revision.number == number)
    return session.execute(query).scalar()


def make_revision(
    session: Session,
    edits: Sequence[Edit],
    *,
    author: str,
    reason: str,
    action: str,
    at: datetime,
    consent: Consent | None = None,
    detail: Mapping[str, Any] = NO_DETAIL,
    write: Callable[..., None] = documents.apply_edits,
) -> int:
    """Make one revision: write history, current state and audit record; return its number.

    The session is in an exclusive write transaction; a revision is never older than the previous
    one. The audit record says whether there was a proposal, also where nobody was asked to consent.
    A migration names its own ``write``, as its schema is older.
    """
    proposal = consent.proposal if consent else None
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
        **({"proposal": proposal} if proposal else {}),  # an older schema lacks the column
    }
    rows = [
        {
            "revision": number,
            "kind": kind_of(edit.document),
            "name": edit.document.metadata.name,
            "action": edit.action,
            "before": encode(edit.before) if edit.before else None,
            "after": encode(edit.after) if edit.after else None,
        }
        for edit in edits
    ]
    session.execute(insert(Revision), [revision])
    session.execute(insert(DocumentChange), rows)
    write(session, [(e.before, e.after) for e in edits], revision=number, at=made_at)
    audited = {
        **(consent.to_detail() if consent else {}),
        **detail,
        "revision": number,
        "reason": reason,
        "sha256": digest_revision(revision, rows),
        "proposal": proposal or None,
    }
    subject = f"{rows[0]['kind']} {rows[0]['name']}" if len(rows) == 1 else f"{len(rows)} documents"
    audit.append(session, author, f"matrix.{action}", subject, audited, made_at)
    if consent:
        consent.note(session, number)
    return number


def digest_revision(revision: dict[str, Any], changes: Iterable[dict[str, Any]]) -> str:
    """Return the digest of a revision for the audit chain."""
    head = [revision[key] for key in ("number", "author", "reason", "action", "count")]
    head.append(iso(revision["made_at"]))
    keys = ("kind", "name", "action", "before", "after")
    rows = sorted([change[key] for key in keys] for change in changes)
    return audit.digest_rows([head, *rows])


def read_versions_at(session: Session, number: int) -> Iterator[DocumentVersion]:
    """Yield every document at a revision."""
    return _read_versions(session, _select_versions_at(number))


def read_texts_at(session: Session, number: int) -> Iterator[tuple[Kind, str, str, int]]:
    """Yield kind, name and stored text of every document at a revision, and its own revision."""
    for row in session.execute(_select_versions_at(number).execution_options(yield_per=5000)):
        yield row.kind, row.name, row.after, row.revision


def _select_versions_at(number: int) -> Any:
    one, key = DocumentChange, (DocumentChange.kind, DocumentChange.name)
    last = func.max(one.revision).label("revision")
    newest = select(*key, last).where(one.revision <= number).group_by(*key).subquery()
    same = (getattr(one, name) == newest.c[name] for name in ("kind", "name", "revision"))
    query = select(*key, one.after, one.revision).join(newest, and_(*same))
    return query.where(one.after.is_not(None))


def find_document_at(session: Session, kind: Kind, name: str, number: int) -> Document | None:
    """Return a document at a revision; None: it was not there."""
    query = select(DocumentChange.after).filter_by(kind=kind, name=name)
    query = query.where(DocumentChange.revision <= number)
    text = session.execute(query.order_by(DocumentChange.revision.desc()).limit(1)).scalar()
    return decode(kind, text) if text else None


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


def require_revision(session: Session, number: int) -> Any:
    """Return the row of a revision."""
    last = latest_revision(session)
    query = select(Revision.__table__).where(Revision.number == number)
    row = session.execute(query).first() if 0 < number <= last else None
    if row is None:
        hint = f"the latest revision is {last}" if last else "no revisions yet"
        what = f"revision {number} does not exist"
        raise NotFound(what, field="revision", value=number, hint=hint)
    return row


def show_revision(session: Session, number: int) -> RevisionDetail:
    """Return a revision with all its changes."""
    row = require_revision(session, number)
    return _to_detail(row, read_changes_with(session, [number]).get(number, []))


def read_changes_with(
    session: Session,
    numbers: Collection[int],
    name: str | None = None,
    words: Collection[str] = (),
    most: int | None = None,
) -> dict[int, list[compared.Change]]:
    """Return the changes of revisions that may concern a name (None: all), in order.

    ``words`` are JSON strings: changes whose document before or after has one are returned, too.
    ``most``: only so many, the newest.
    """
    sides = (DocumentChange.before, DocumentChange.after)
    wanted = [side.contains(word, autoescape=True) for side in sides for word in words]
    query = select(DocumentChange.__table__).where(DocumentChange.revision.in_(numbers))
    if name is not None:
        query = query.where(or_(DocumentChange.name == name, *wanted))
    query = query.order_by(DocumentChange.id.desc()).limit(most)
    found: dict[int, list[compared.Change]] = {}
    for row in session.execute(query).all()[::-1]:
        found.setdefault(row.revision, []).append(_to_change(row, row.action))
    return found


def count_changes(session: Session, numbers: Collection[int]) -> int:
    """Count the changes of revisions."""
    query = select(func.count()).select_from(DocumentChange)
    return session.execute(query.where(DocumentChange.revision.in_(numbers))).scalar_one()


def read_edits(session: Session, number: int) -> list[Edit]:
    """Return what a revision changed: each document before and after."""
    query = select(DocumentChange.kind, DocumentChange.before, DocumentChange.after)
    query = query.where(DocumentChange.revision == number).order_by(DocumentChange.id)
    return [decode_edit(kind, before, after) for kind, before, after in session.execute(query)]


def decode_edit(kind: str, before: str | None, after: str | None) -> Edit:
    """Return the edit of a document, whose sides are text as `encode` writes it."""
    return Edit(*(decode(kind, side) if side else None for side in (before, after)))


def list_later(session: Session, kind: Kind, name: str, number: int) -> list[int]:
    """Return the revisions after one that changed a document, oldest first."""
    query = select(DocumentChange.revision).where(
        DocumentChange.kind == kind, DocumentChange.name == name, DocumentChange.revision > number
    )
    return list(session.execute(query.order_by(DocumentChange.revision)).scalars())


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
) -> Page[RevisionBody]:
    """Return revisions, newest first; ``kind`` and ``name`` select by changed document."""
    query = select(Revision.__table__)
    query = narrow(query, {Revision.author: author}, at=Revision.made_at, since=since, until=until)
    if kind or name:
        touched = exists().where(DocumentChange.revision == Revision.number)
        about = {DocumentChange.kind: kind, DocumentChange.name: name}
        query = query.where(narrow(touched, about))
    return page(
        session, query, Revision.number, _to_body, cursor=cursor, limit=limit, descending=True
    )


def list_changes(
    session: Session,
    kind: Kind,
    name: str,
    *,
    cursor: str | None = None,
    limit: int = DEFAULT_LIMIT,
) -> Page[RevisionDetail]:
    """Return the revisions of one document, newest first, each with only that change."""
    one = DocumentChange
    of_change = (one.kind, one.name, one.action.label("did"), one.before, one.after)
    query = select(*Revision.__table__.columns, *of_change)
    query = query.join(one, one.revision == Revision.number)
    return page(
        session, query.where(one.kind == kind, one.name == name), Revision.number,
        lambda row: _to_detail(row, [_to_change(row, row.did)]),
        cursor=cursor, limit=limit, descending=True,
    )  # fmt: skip


def _to_body(row: Any) -> RevisionBody:
    return msgspec.convert(row, RevisionBody, from_attributes=True)


def _to_detail(row: Any, changes: list[compared.Change]) -> RevisionDetail:
    return RevisionDetail(**asdict(_to_body(row)), changes=changes)


def _to_change(row: Any, action: compared.Action) -> compared.Change:
    before, after = (msgspec.json.decode(t) if t else None for t in (row.before, row.after))
    return compared.make_change(row.kind, row.name, action, before, after)
