"""The documents as they are now: one of them, all of them, and the writing of edits."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec
from sqlalchemy import delete, insert, select, update
from sqlalchemy.orm import Session

from compatgate.documents.names import did_you_mean
from compatgate.documents.specs import (
    KINDS,
    Document,
    EntryDoc,
    Kind,
    TargetDoc,
    WaiverDoc,
    decode,
    encode,
    key_of,
    kind_of,
    target_refs,
)
from compatgate.store.models import Entry, Pool, Target, TargetUse, Waiver
from compatgate.store.rows import Stored

Model = type[Target] | type[Entry] | type[Waiver]
MODELS: dict[Kind, Model] = {"Target": Target, "Entry": Entry, "Waiver": Waiver}
T = TypeVar("T")

_CHUNK = 500
"""Values in one ``IN (...)``; SQLite bounds the parameters of a statement."""


def get(session: Session, kind: Kind, name: str) -> Stored | None:
    """One document, None when there is none of that name."""
    model = MODELS[kind]
    row = session.execute(columns(model).where(model.name == name)).first()
    return stored(kind, row) if row else None


def columns(model: Model) -> Any:
    """A select of what `stored` reads."""
    return select(model.name, model.document, model.revision, model.created_at, model.updated_at)


def stored(kind: Kind, row: Any) -> Stored:
    """A row of `columns` as it is answered."""
    document = msgspec.json.decode(row.document)
    return Stored(kind, row.name, document, row.revision, row.created_at, row.updated_at)


def load(session: Session, kind: Kind) -> Iterator[tuple[Document, int]]:
    """Every document of a kind by name, with the revision that made it."""
    model = MODELS[kind]
    query = select(model.document, model.revision).order_by(model.name)
    for text, revision in session.execute(query.execution_options(yield_per=5000)):
        yield decode(kind, text), revision


def versions(session: Session) -> Iterator[tuple[Kind, str, Document | None, int]]:
    """Every document as kind, name, document, and the revision that made it."""
    for kind in KINDS:
        for document, revision in load(session, kind):
            yield kind, document.metadata.name, document, revision


def find(session: Session, keys: Collection[tuple[Kind, str]]) -> dict[tuple[Kind, str], Document]:
    """The documents of these kinds and names that exist."""
    found: dict[tuple[Kind, str], Document] = {}
    for kind in KINDS:
        model = MODELS[kind]
        names = [name for k, name in keys if k == kind]
        for chunk in _chunks(names):
            query = select(model.name, model.document).where(model.name.in_(chunk))
            for name, text in session.execute(query):
                found[kind, name] = decode(kind, text)
    return found


def target_names(session: Session) -> set[str]:
    """Names of all targets."""
    return set(session.execute(select(Target.name)).scalars())


def hint(session: Session, kind: Kind, name: str) -> str:
    """What may have been meant by a name that does not exist."""
    if not name:
        return ""
    column = MODELS[kind].name
    near = select(column).where(column.icontains(name[:3], autoescape=True))
    known = session.execute(near).scalars().all() or session.execute(select(column)).scalars().all()
    return did_you_mean(name, known)


def uses_of(session: Session, target: str, limit: int = 10) -> list[tuple[str, str]]:
    """Kind and name of entries and waivers that name a target."""
    query = select(TargetUse.kind, TargetUse.name).where(TargetUse.target == target)
    rows = session.execute(query.order_by(TargetUse.kind, TargetUse.name).limit(limit))
    return [(row.kind, row.name) for row in rows]


def apply(
    session: Session,
    edits: Sequence[tuple[Document | None, Document | None]],
    *,
    revision: int,
    at: datetime,
) -> None:
    """Bring the tables to the newer side of each edit; `compatgate.store.revisions` calls it."""
    for kind in KINDS:
        mine = [(b, a) for b, a in edits if kind_of(a or b) == kind]  # type: ignore[arg-type]
        if mine:
            _apply_kind(session, kind, mine, revision, at)


def _apply_kind(
    session: Session,
    kind: Kind,
    edits: Sequence[tuple[Document | None, Document | None]],
    revision: int,
    at: datetime,
) -> None:
    model = MODELS[kind]
    _forget(session, kind, [key_of(before)[1] for before, _ in edits if before])
    gone = [key_of(before)[1] for before, after in edits if before and not after]
    for chunk in _chunks(gone):
        session.execute(delete(model).where(model.name.in_(chunk)))
    rows = [(before, after, _row(after, revision, at)) for before, after in edits if after]
    made = [{**row, "created_at": at} for before, _, row in rows if before is None]
    changed = [row for before, _, row in rows if before is not None]
    if made:
        session.execute(insert(model), made)
    if changed:
        session.execute(update(model), changed)
    _remember(session, [after for _, after, _ in rows])


def _row(document: Document, revision: int, at: datetime) -> dict[str, Any]:
    row = {
        "name": document.metadata.name,
        "document": encode(document),
        "revision": revision,
        "updated_at": at,
    }
    match document:
        case TargetDoc():
            row["labels"] = spaced(f"{k}={v}" for k, v in document.metadata.labels.items())
        case EntryDoc():
            row["status"] = document.spec.status
            row["components"] = spaced(document.spec.components)
        case WaiverDoc():
            row["owner"] = document.spec.owner
            row["expires"] = document.spec.expires
    return row


def spaced(words: Any) -> str:
    """Words with a space on both sides of each, so that a filter can look for a whole one."""
    return f" {' '.join(sorted(words))} "


def _forget(session: Session, kind: Kind, names: Sequence[str]) -> None:
    for chunk in _chunks(names):
        if kind == "Target":
            session.execute(delete(Pool).where(Pool.target.in_(chunk)))
        else:
            uses = delete(TargetUse).where(TargetUse.kind == kind, TargetUse.name.in_(chunk))
            session.execute(uses)


def _remember(session: Session, documents: Sequence[Document]) -> None:
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


def _chunks(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), _CHUNK):
        yield items[start : start + _CHUNK]
