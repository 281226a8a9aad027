"""Make the stored matrix equal to files: create, change and, where asked, delete documents.

A sync may have a name, which every document that it stores then carries as a label. It deletes
only documents with its own label; it adopts documents without one, since the files name them, and
takes those of another sync only if told so. A sync without a name owns and deletes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct
from sqlalchemy.orm import Session

from compatgate.documents.ownership import SYNC_LABEL, Key, owner_of, set_owner
from compatgate.documents.sources import DocumentProblem
from compatgate.documents.specs import (
    NAME_PATTERN,
    Document,
    compare_document,
    key_of,
    order_of,
)
from compatgate.errors import BadInput, Conflict, ManyProblems
from compatgate.service.matrix.documents import imports
from compatgate.service.matrix.documents import repository as documents
from compatgate.service.matrix.documents.revisions import Edit
from compatgate.service.matrix.documents.schemas import DocumentName, SyncBody

SYNC_NAME_PATTERN = NAME_PATTERN
_MAX_USES = 10_000
_MAX_NAMED = 5


class SyncOptions(Struct, frozen=True):
    """Options of a sync for documents of others, and for its own that the files lack.

    Attributes:
        name: of the sync; None: it owns nothing.
        prune: delete its documents that the files lack; needs a name.
        take_over: take documents from other syncs.
    """

    name: str | None = None
    prune: bool = False
    take_over: bool = False


def plan_sync(
    session: Session, read: Sequence[Document], options: SyncOptions
) -> tuple[SyncBody, list[Edit]]:
    """Return the expected result of a sync, and its edits."""
    if options.prune and options.name is None:
        hint = "a sync deletes only documents that carry its name"
        raise BadInput("needs the name of the sync", field="prune", value=True, hint=hint)
    keys = [key_of(document) for document in read]
    stored = documents.find_documents(session, keys)
    _refuse_foreign(read, stored, options)
    own = [set_owner(one, options.name) if options.name else one for one in read]
    edits = [
        Edit(stored.get(key_of(document)), document)
        for document in sorted(own, key=order_of)
        if stored.get(key_of(document)) != document
    ]
    mine: dict[Key, Document] = {}
    if options.name is not None:
        mine = documents.find_documents_with_label(session, SYNC_LABEL, options.name)
    lacking = sorted((one for key, one in mine.items() if key not in {*keys}), key=order_of)
    if options.prune:
        edits += [Edit(one, None) for one in reversed(lacking)]  # targets go last
        _check_uses(session, edits)
    result = SyncBody(
        options.name,
        [c for edit in edits if (c := compare_document(edit.before, edit.after))],
        adopted=[
            DocumentName(*key_of(edit.document))
            for edit in edits
            if edit.before and edit.after and owner_of(edit.before) != owner_of(edit.after)
        ],
        left=[] if options.prune else [DocumentName(*key_of(one)) for one in lacking],
        unchanged=len(read) - sum(edit.after is not None for edit in edits),
        revision=None,
    )
    return result, edits


def _refuse_foreign(
    read: Iterable[Document], stored: dict[Key, Document], options: SyncOptions
) -> None:
    """Refuse documents of other syncs, as they are stored or as the files label them."""
    problems = []
    for document in read:
        kind, name = key_of(document)
        before = stored.get((kind, name))
        stated = owner_of(document)
        owners = {stated, owner_of(before) if before else None} - {options.name or stated}
        for owner in sorted(filter(None, owners)):
            problems.append(
                DocumentProblem(
                    f"{kind} {name} belongs to the sync {owner!r}",
                    path=("metadata", "labels", SYNC_LABEL),
                    document=f"{kind} {name}",
                    value=owner,
                    hint=f"use --name {owner}, or take it over with --take-over",
                )
            )
    if problems and not options.take_over:
        count = "1 document belongs" if len(problems) == 1 else f"{len(problems)} documents belong"
        raise ManyProblems(f"{count} to another sync; nothing was changed", problems)


def _check_uses(session: Session, edits: Sequence[Edit]) -> None:
    """Refuse to delete a target that a document would still name afterwards."""
    for target, uses in imports.find_uses_left(session, edits, _MAX_USES):
        named = ", ".join(f"{kind} {name}" for kind, name in uses[:_MAX_NAMED])
        raise Conflict(
            f"the files lack the target {target!r}, but {named} use it",
            field="prune",
            value=target,
            hint="keep the target in the files, or change the documents that use it",
        )
