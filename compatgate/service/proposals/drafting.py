"""Turn a request into edits of the stored matrix, and check that edits fit together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
from sqlalchemy.orm import Session

from compatgate.documents.sources import Source
from compatgate.documents.specs import (
    KINDS,
    Document,
    Kind,
    PoolSpec,
    key_of,
)
from compatgate.errors import BadInput, Conflict
from compatgate.service.matrix import imports, revisions
from compatgate.service.matrix import repository as documents
from compatgate.service.matrix.imports import ChangeReader
from compatgate.service.matrix.reader import require_document
from compatgate.service.matrix.revisions import Edit
from compatgate.service.matrix.service import set_status
from compatgate.service.proposals.models import ProposalRow
from compatgate.service.proposals.schemas import ProposalRequest, ProposedPool

Key = tuple[Kind, str]
_MAX_USES = 1000
_POOL_FIELDS = tuple(
    field.encode_name for field in msgspec.structs.fields(PoolSpec) if field.name != "name"
)


def make_edits(
    session: Session, request: ProposalRequest, reason: str, reader: ChangeReader, most: int | None
) -> list[Edit]:
    """Return the edits of a request, in the order of an export.

    Args:
        session: to read the stored documents from.
        request: what is proposed.
        reason: of the author, which entries with another status take.
        reader: checks the documents.
        most: values that the documents may hold; None: any number.

    Raises:
        ManyProblems: every mistake in the documents.
        BadInput: a document is edited twice, or nothing would change.
        NotFound: a document to change or delete does not exist.
        Conflict: a document has changed since the base, or the edits do not fit together.
    """
    wanted = _Wanted()
    for document in _read_sources(request, reader, most):
        wanted.add(key_of(document), document)
    for status in request.entries:
        stored = require_document(session, "Entry", status.entry).document
        body = set_status(stored, status.status, reason, status.replacement)
        wanted.add(("Entry", status.entry), reader.read_one("Entry", body, status.entry))
    for name, pools in _by_target(request.pools).items():
        body = _with_pools(require_document(session, "Target", name).document, pools)
        wanted.add(("Target", name), reader.read_one("Target", body, name))
    for gone in request.delete:
        require_document(session, gone.kind, gone.name)
        wanted.add((gone.kind, gone.name), None)
    stored_now = documents.find_documents(session, wanted.keys())
    edits = [
        Edit(stored_now.get(key), after)
        for key, after in wanted.items()
        if stored_now.get(key) != after
    ]
    if not edits:
        raise BadInput(
            "changes nothing",
            field="documents",
            hint="propose a document that differs from the stored one",
        )
    _check_base(session, edits, request.base)
    check_together(session, edits)
    return edits


class _Wanted:
    """The wanted documents; each is named once."""

    def __init__(self) -> None:
        self._after: dict[Key, Document | None] = {}

    def add(self, key: Key, after: Document | None) -> None:
        if key in self._after:
            what = f"{key[0]} {key[1]} is edited twice"
            raise BadInput(what, field="documents", value=key[1], hint="state each document once")
        self._after[key] = after

    def keys(self) -> list[Key]:
        return list(self._after)

    def items(self) -> list[tuple[Key, Document | None]]:
        return sorted(self._after.items(), key=lambda one: (KINDS.index(one[0][0]), one[0][1]))


def _read_sources(
    request: ProposalRequest, reader: ChangeReader, most: int | None
) -> list[Document]:
    sources = [Source(one.file, one.text, most) for one in request.files]
    if request.documents:
        text = msgspec.json.encode(request.documents).decode()
        sources.append(Source("documents", text, most))
    return reader.read_files(sources) if sources else []


def _by_target(pools: Iterable[ProposedPool]) -> dict[str, list[ProposedPool]]:
    found: dict[str, list[ProposedPool]] = {}
    for one in pools:
        found.setdefault(one.target, []).append(one)
    return found


def _with_pools(body: dict[str, Any], changed: Sequence[ProposedPool]) -> dict[str, Any]:
    """Return a target's document with other values of its pools."""
    pools = [dict(pool) for pool in body["spec"]["pools"]]
    for one in changed:
        for name in one.values:
            if name not in _POOL_FIELDS:
                hint = f"one of {', '.join(_POOL_FIELDS)}"
                raise BadInput("is not a pool value", field="set", value=name, hint=hint)
        chosen = [pool for pool in pools if one.pool in (None, pool["name"])]
        if not chosen:
            hint = f"one of {', '.join(pool['name'] for pool in pools)}"
            what = f"the target {one.target} has no such pool"
            raise BadInput(what, field="pool", value=one.pool, hint=hint)
        for pool in chosen:
            pool.update(one.values)
    return {**body, "spec": {**body["spec"], "pools": pools}}


def _check_base(session: Session, edits: Iterable[Edit], base: int | None) -> None:
    if base is None:
        return
    latest = revisions.latest_revision(session)
    if base > latest:
        hint = f"the latest revision is {latest}"
        raise BadInput("is not a known revision", field="base", value=base, hint=hint)
    for edit in edits:
        kind, name = key_of(edit.document)
        stored = documents.get_document(session, kind, name)
        if stored is not None and stored.revision > base:
            raise Conflict(
                f"revision {stored.revision} changed the {kind} {name!r} since revision {base}",
                field="base",
                value=base,
                hint="read the document again and propose the change on top of it",
            )


def check_together(session: Session, edits: Sequence[Edit]) -> None:
    """Check that edits fit the stored matrix: every named target exists afterwards.

    Raises:
        Conflict: an entry or a waiver names a target that does not exist, or that goes.
        ManyProblems: a policy forbids a waiver.
    """
    imports.check_import(session, [edit.after for edit in edits if edit.after])
    for target, uses in imports.find_uses_left(session, edits, _MAX_USES):
        named_by = ", ".join(f"{kind} {user}" for kind, user in uses[:5])
        raise Conflict(
            f"the target {target!r} is still used by {named_by}",
            field="name",
            value=target,
            hint="change or delete them as well",
        )


def make_reverting_edits(session: Session, number: int) -> list[Edit]:
    """Return the edits that restore what a revision changed.

    Raises:
        Conflict: a later revision changed one of its documents.
    """
    made = revisions.read_edits(session, number)
    stored = documents.find_documents(session, [key_of(edit.document) for edit in made])
    late = [edit for edit in made if stored.get(key_of(edit.document)) != edit.after]
    if late:
        named = "; ".join(_describe_later(session, number, edit) for edit in late[:5])
        more = f"; and {len(late) - 5} more" if len(late) > 5 else ""
        raise Conflict(
            f"later revisions changed documents of revision {number}: {named}{more}",
            field="revision",
            value=number,
            hint="revert the later revisions first, or propose the documents as they should be",
        )
    return [Edit(edit.after, edit.before) for edit in made]


def _describe_later(session: Session, number: int, edit: Edit) -> str:
    kind, name = key_of(edit.document)
    later = revisions.list_later(session, kind, name, number)
    return f"{kind} {name} by revision {', '.join(map(str, later[:5]))}"


def find_conflicts(
    lookup: documents.DocumentLookup, row: ProposalRow
) -> Iterator[tuple[Kind, str, int | None]]:
    """Yield the documents that are no longer those which a proposal was made from.

    Yields:
        Kind, name, and the revision of the stored version; None: it is deleted.
    """
    keys = [key_of(edit.document) for edit in row.edits]
    stored = lookup.find(keys)
    for key, edit in zip(keys, row.edits, strict=True):
        if stored.get(key) != edit.before:
            found = documents.get_document(lookup.session, *key)
            yield *key, found.revision if found else None
