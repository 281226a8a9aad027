"""Read, list and write the current documents of the matrix.

Lists have filters and pages, and are ordered by name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, delete, exists, insert, or_, select, update
from sqlalchemy.orm import Session

from compatgate.core.matrix import ANY_TARGET
from compatgate.documents.sources import suggest_name
from compatgate.documents.specs import (
    KINDS,
    Document,
    EntryDoc,
    Kind,
    TargetDoc,
    WaiverDoc,
    decode,
    encode,
    kind_of,
    target_refs,
)
from compatgate.kit.database.tables import DEFAULT_LIMIT, Page, in_limit, in_parts, narrow, page
from compatgate.kit.principal import TargetPatterns
from compatgate.service.matrix.documents.models import (
    Entry,
    Pool,
    StoredDocument,
    Target,
    TargetUse,
    Waiver,
)

Model = type[Target] | type[Entry] | type[Waiver]
MODELS: dict[Kind, Model] = {"Target": Target, "Entry": Entry, "Waiver": Waiver}


def get_document(session: Session, kind: Kind, name: str) -> StoredDocument | None:
    """Return a document; None: no document has that name."""
    model = MODELS[kind]
    row = session.execute(select_documents(model).where(model.name == name)).first()
    return to_stored_document(kind, row) if row else None


def select_documents(model: Model) -> Any:
    """Return a query of the columns for `stored`."""
    return select(model.name, model.document, model.revision, model.created_at, model.updated_at)


def to_stored_document(kind: Kind, row: Any) -> StoredDocument:
    """Return a row of `columns` as a stored document."""
    document = msgspec.json.decode(row.document)
    return StoredDocument(kind, row.name, document, row.revision, row.created_at, row.updated_at)


def load_documents(session: Session, kind: Kind) -> Iterator[tuple[Document, int]]:
    """Yield every document of a kind by name, with the revision of its version."""
    for _, text, revision in read_texts(session, kind):
        yield decode(kind, text), revision


def read_texts(session: Session, kind: Kind) -> Iterator[tuple[str, str, int]]:
    """Yield name, stored text and revision of every document of a kind, by name."""
    model = MODELS[kind]
    query = select(model.name, model.document, model.revision).order_by(model.name)
    for row in session.execute(query.execution_options(yield_per=5000)):
        yield row.name, row.document, row.revision


def read_versions(session: Session) -> Iterator[tuple[Kind, str, Document | None, int]]:
    """Yield kind, name, content and revision of every document."""
    for kind in KINDS:
        for document, revision in load_documents(session, kind):
            yield kind, document.metadata.name, document, revision


def find_documents(
    session: Session, keys: Collection[tuple[Kind, str]]
) -> dict[tuple[Kind, str], Document]:
    """Return the documents of these kinds and names that exist."""
    found: dict[tuple[Kind, str], Document] = {}
    for kind in KINDS:
        model = MODELS[kind]
        names = [name for k, name in keys if k == kind]
        for chunk in in_parts(names):
            query = select(model.name, model.document).where(model.name.in_(chunk))
            for name, text in session.execute(query):
                found[kind, name] = decode(kind, text)
    return found


class DocumentLookup:
    """Looks documents up in one transaction that changes none; reads each once."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._known: dict[tuple[Kind, str], Document | None] = {}
        self._targets: tuple[TargetDoc, ...] | None = None

    def find(self, keys: Collection[tuple[Kind, str]]) -> dict[tuple[Kind, str], Document]:
        """Return the documents of these kinds and names that exist."""
        missing = [key for key in keys if key not in self._known]
        if missing:
            found = find_documents(self.session, missing)
            self._known |= {key: found.get(key) for key in missing}
        return {key: one for key in keys if (one := self._known[key]) is not None}

    def targets(self, names: Collection[str] = (ANY_TARGET,)) -> Sequence[TargetDoc]:
        """Return targets of some names; of every one, by name, where ``*`` is among these."""
        if ANY_TARGET not in names:
            found = self.find([("Target", name) for name in names])
            return [one for one in found.values() if isinstance(one, TargetDoc)]
        if self._targets is None:
            stored = (document for document, _ in load_documents(self.session, "Target"))
            self._targets = tuple(one for one in stored if isinstance(one, TargetDoc))
        return self._targets


def find_documents_with_label(
    session: Session, key: str, value: str
) -> dict[tuple[Kind, str], Document]:
    """Return the documents that have a label with this value."""
    written = msgspec.json.encode({key: value}).decode()[1:-1]
    found: dict[tuple[Kind, str], Document] = {}
    for kind in KINDS:
        model = MODELS[kind]
        having = model.document.contains(written, autoescape=True)
        for name, text in session.execute(select(model.name, model.document).where(having)):
            document = decode(kind, text)
            if document.metadata.labels.get(key) == value:
                found[kind, name] = document
    return found


def target_names(session: Session) -> set[str]:
    """Return the names of all targets."""
    return set(session.execute(select(Target.name)).scalars())


def suggest_names(session: Session, kind: Kind, name: str) -> str:
    """Suggest names similar to one that does not exist."""
    if not name:
        return ""
    column = MODELS[kind].name
    near = select(column).where(column.icontains(name[:3], autoescape=True))
    known = session.execute(near).scalars().all() or session.execute(select(column)).scalars().all()
    return suggest_name(name, known)


def list_uses(session: Session, target: str, limit: int = 10) -> list[tuple[str, str]]:
    """Return kind and name of the entries and waivers that name a target."""
    query = select(TargetUse.kind, TargetUse.name).where(TargetUse.target == target)
    rows = session.execute(query.order_by(TargetUse.kind, TargetUse.name).limit(limit))
    return [(row.kind, row.name) for row in rows]


def apply_edits(
    session: Session,
    edits: Sequence[tuple[Document | None, Document | None]],
    *,
    revision: int,
    at: datetime,
) -> None:
    """Write the newer side of each edit to the tables; called by `revisions`."""
    for kind in KINDS:
        mine = [(b, a) for b, a in edits if kind_of(a or b) == kind]  # type: ignore[arg-type]
        if mine:
            _apply_kind_edits(session, kind, mine, revision, at)


def _apply_kind_edits(
    session: Session,
    kind: Kind,
    edits: Sequence[tuple[Document | None, Document | None]],
    revision: int,
    at: datetime,
) -> None:
    model = MODELS[kind]
    for chunk in in_parts([before.metadata.name for before, _ in edits if before]):
        references = delete(TargetUse).where(TargetUse.kind == kind, TargetUse.name.in_(chunk))
        if kind == "Target":
            references = delete(Pool).where(Pool.target.in_(chunk))
        session.execute(references)
    for chunk in in_parts(
        [before.metadata.name for before, after in edits if before and not after]
    ):
        session.execute(delete(model).where(model.name.in_(chunk)))
    rows = [(before, after, _to_columns(after, revision, at)) for before, after in edits if after]
    made = [{**row, "created_at": at} for before, _, row in rows if before is None]
    changed = [row for before, _, row in rows if before is not None]
    if made:
        session.execute(insert(model), made)
    if changed:
        session.execute(update(model), changed)
    _insert_references(session, [after for _, after, _ in rows])


def _to_columns(document: Document, revision: int, at: datetime) -> dict[str, Any]:
    row = {
        "name": document.metadata.name,
        "document": encode(document),
        "revision": revision,
        "updated_at": at,
    }
    if isinstance(document, WaiverDoc):
        return row | {"owner": document.spec.owner, "expires": document.spec.expires}
    labels = join_spaced(f"{key}={value}" for key, value in document.metadata.labels.items())
    row |= {"labels": labels, "owner": document.metadata.owner or ""}
    if isinstance(document, EntryDoc):
        components = join_spaced(document.spec.components)
        row |= {"status": document.spec.status, "components": components}
    return row


def join_spaced(words: Any) -> str:
    """Join words with spaces around each, so that a filter can find a whole word."""
    return f" {' '.join(sorted(words))} "


def _insert_references(session: Session, documents: Sequence[Document]) -> None:
    pools = [
        {"target": document.metadata.name, **msgspec.to_builtins(pool)}
        for document in documents
        if isinstance(document, TargetDoc)
        for pool in document.spec.pools
    ]
    uses = [
        {"target": target, "kind": kind_of(document), "name": document.metadata.name}
        for document in documents
        for target in target_refs(document)
    ]
    if pools:
        session.execute(insert(Pool), pools)
    if uses:
        session.execute(insert(TargetUse), uses)


def list_documents(
    session: Session,
    /,
    kind: Kind,
    *,
    search: str | None = None,
    within: TargetPatterns | None = None,
    cursor: str | None = None,
    limit: int = DEFAULT_LIMIT,
    gpu: str | None = None,
    driver: str | None = None,
    **filters: Any,
) -> Page[StoredDocument]:
    """Return documents of a kind by name.

    ``search`` is a part of the name, ``within`` the limit of the caller to targets. A target has
    a pool with both ``gpu`` and ``driver``, as written. Others: see `_CONDITIONS`.
    """
    model = MODELS[kind]
    query = select_documents(model)
    for name, value in filters.items():
        if value:
            query = query.where(_CONDITIONS[name](kind, value))
    if gpu or driver:
        has = exists().where(Pool.target == Target.name)
        query = query.where(narrow(has, {Pool.gpu: gpu, Pool.driver: driver}))
    if within is not None and kind == "Target":
        query = query.where(in_limit(session, Target.name, within))
    elif within is not None:
        query = query.where(_names(kind, in_limit(session, TargetUse.target, within)))
    if search:
        query = query.where(model.name.icontains(search, autoescape=True))
    read = partial(to_stored_document, kind)
    return page(session, query, model.name, read, cursor=cursor, limit=limit)


def _names(kind: Kind, wanted: ColumnElement[bool]) -> ColumnElement[bool]:
    uses = exists().where(TargetUse.kind == kind, TargetUse.name == MODELS[kind].name)
    return uses.where(or_(wanted, TargetUse.target == ANY_TARGET))


def _contains_word(column: str) -> Callable[[Kind, str], ColumnElement[bool]]:
    return lambda kind, word: getattr(MODELS[kind], column).contains(f" {word} ", autoescape=True)


_CONDITIONS: dict[str, Callable[[Kind, Any], ColumnElement[bool]]] = {
    "target": lambda kind, name: _names(kind, TargetUse.target == name),
    "label": _contains_word("labels"),
    "component": _contains_word("components"),
    "owner": lambda kind, owner: MODELS[kind].owner == owner,
    "status": lambda kind, status: Entry.status == status,
    "active_on": lambda kind, day: Waiver.expires >= day.isoformat(),
}
"""Filters of lists: a label like ``tier=prod``, a canonical component, the last day of a waiver."""


def list_pools(
    session: Session,
    *,
    target: str | None = None,
    gpu: str | None = None,
    driver: str | None = None,
    within: TargetPatterns | None = None,
    cursor: str | None = None,
    limit: int = DEFAULT_LIMIT,
) -> Page[Pool]:
    """Return the pools of all targets, by target and name; GPU and driver as written."""
    query = narrow(select(Pool), {Pool.target: target, Pool.gpu: gpu, Pool.driver: driver})
    if within is not None:
        query = query.where(in_limit(session, Pool.target, within))
    return page(session, query, (Pool.target, Pool.name), cursor=cursor, limit=limit)
