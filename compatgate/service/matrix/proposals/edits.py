"""Turn a request into edits of the stored matrix, and check that edits fit together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
from sqlalchemy.orm import Session

from compatgate.documents.sources import Source
from compatgate.documents.specs import KINDS, Document, Kind, PoolSpec, key_of
from compatgate.errors import BadInput, Conflict
from compatgate.service.matrix.documents import imports, revisions
from compatgate.service.matrix.documents import repository as documents
from compatgate.service.matrix.documents.imports import ChangeReader
from compatgate.service.matrix.documents.revisions import Edit
from compatgate.service.matrix.documents.service import require_document, set_status
from compatgate.service.matrix.proposals.repository import Proposal
from compatgate.service.matrix.proposals.schemas import ProposalRequest, ProposedPool

Key = tuple[Kind, str]
_MAX_USES = 1000
_POOL_FIELDS = [name for name in PoolSpec.__struct_encode_fields__ if name != "name"]


def make_edits(
    session: Session, request: ProposalRequest, reason: str, reader: ChangeReader, most: int | None
) -> list[Edit]:
    """Return the edits of a request, in the order of an export; each document is edited once.

    The reason is that of entries with another status; ``most``: values that the documents may hold.
    """
    wanted: dict[Key, Document | None] = {}
    for (kind, name), after in _list_wanted(session, request, reason, reader, most):
        if (kind, name) in wanted:
            what = f"{kind} {name} is edited twice"
            raise BadInput(what, field="documents", value=name, hint="state each document once")
        wanted[kind, name] = after
    stored = documents.find_documents(session, [*wanted])
    edits = [
        Edit(stored.get(key), wanted[key])
        for key in sorted(wanted, key=lambda key: (KINDS.index(key[0]), key[1]))
        if stored.get(key) != wanted[key]
    ]
    if not edits:
        hint = "propose a document that differs from the stored one"
        raise BadInput("changes nothing", field="documents", hint=hint)
    _check_base(session, edits, request.base)
    check_together(session, edits)
    return edits


def _list_wanted(
    session: Session, request: ProposalRequest, reason: str, reader: ChangeReader, most: int | None
) -> Iterator[tuple[Key, Document | None]]:
    """Yield the documents of a request; None: to delete."""
    sources = [Source(one.file, one.text, most) for one in request.files]
    if request.documents:
        text = msgspec.json.encode(request.documents).decode()
        sources.append(Source("documents", text, most))
    for document in reader.read_files(sources) if sources else ():
        yield key_of(document), document
    for status in request.entries:
        stored = require_document(session, "Entry", status.entry).document
        body = set_status(stored, status.status, reason, status.replacement)
        yield ("Entry", status.entry), reader.read_one("Entry", body, status.entry)
    pools: dict[str, list[ProposedPool]] = {}
    for one in request.pools:
        pools.setdefault(one.target, []).append(one)
    for name, changed in pools.items():
        body = _with_pools(require_document(session, "Target", name).document, changed)
        yield ("Target", name), reader.read_one("Target", body, name)
    for gone in request.delete:
        require_document(session, gone.kind, gone.name)
        yield (gone.kind, gone.name), None


def _with_pools(body: dict[str, Any], changed: Sequence[ProposedPool]) -> dict[str, Any]:
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
            what = f"revision {stored.revision} changed the {kind} {name!r} since revision {base}"
            hint = "read the document again and propose the change on top of it"
            raise Conflict(what, field="base", value=base, hint=hint)


def check_together(session: Session, edits: Sequence[Edit]) -> None:
    """Check that edits fit the stored matrix: every named target exists afterwards."""
    imports.check_import(session, [edit.after for edit in edits if edit.after])
    for target, uses in imports.find_uses_left(session, edits, _MAX_USES):
        named_by = ", ".join(f"{kind} {user}" for kind, user in uses[:5])
        what = f"the target {target!r} is still used by {named_by}"
        hint = "change or delete them as well"
        raise Conflict(what, field="name", value=target, hint=hint)


def make_reverting_edits(session: Session, number: int) -> list[Edit]:
    """Return the edits that restore what a revision changed, unless a later one changed it too."""
    made = revisions.read_edits(session, number)
    stored = documents.find_documents(session, [key_of(edit.document) for edit in made])
    late = [key for edit in made if stored.get(key := key_of(edit.document)) != edit.after]
    if late:
        named = []
        for kind, name in late[:5]:
            later = revisions.list_later(session, kind, name, number)[:5]
            named.append(f"{kind} {name} by revision {', '.join(map(str, later))}")
        more = f"; and {len(late) - 5} more" if len(late) > 5 else ""
        what = f"later revisions changed documents of revision {number}: {'; '.join(named)}{more}"
        hint = "revert the later revisions first, or propose the documents as they should be"
        raise Conflict(what, field="revision", value=number, hint=hint)
    return [Edit(edit.after, edit.before) for edit in made]


def find_conflicts(lookup: documents.DocumentLookup, row: Proposal) -> list[Key]:
    """Return the documents that are no longer those which a proposal was made from."""
    keys = [key_of(edit.document) for edit in row.edits]
    stored = lookup.find(keys)
    return [
        key for key, edit in zip(keys, row.edits, strict=True) if stored.get(key) != edit.before
    ]
