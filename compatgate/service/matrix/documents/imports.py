"""Read documents of a change; import, sync, export and compare documents of the matrix.

A sync makes the stored matrix equal to files. It may have a name, which every document that it
stores then carries as a label. It deletes only documents with its own label; it adopts documents
without one, since the files name them, and takes those of another sync only if told so. A sync
without a name owns and deletes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from sqlalchemy.orm import Session

from compatgate.core.facts.nvidia import Gpus
from compatgate.core.matrix import ANY_TARGET
from compatgate.core.performance import pause_garbage_collection
from compatgate.documents.ownership import SYNC_LABEL, Key, owner_of, set_owner
from compatgate.documents.sources import DocumentProblem, FieldPath, Source
from compatgate.documents.specs import (
    KINDS,
    NAME_PATTERN,
    Change,
    Document,
    Kind,
    TargetDoc,
    compare_document,
    key_of,
    order_of,
    suite_refs,
    target_refs,
    to_sorted_body,
)
from compatgate.documents.text import RawDocument
from compatgate.documents.validation import ParsedDocuments, read_body, read_documents
from compatgate.errors import BadInput, Conflict, ManyProblems
from compatgate.service.matrix.documents import repository as documents
from compatgate.service.matrix.documents import waivers as waiver_limits
from compatgate.service.matrix.documents.revisions import (
    Edit,
    decode_edit,
    read_texts_at,
    read_versions_at,
    require_revision,
)
from compatgate.service.matrix.documents.schemas import DocumentName, SyncBody

SYNC_NAME_PATTERN = NAME_PATTERN
_MAX_USES = 10_000
_MAX_NAMED = 5


class ImportResult(Struct, frozen=True):
    """The result of an import, or of a dry run: then without a revision, but with its edits."""

    changes: tuple[Change, ...]
    unchanged: int
    revision: int | None = None
    edits: tuple[Edit, ...] = ()
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "changes": self.changes,
            "unchanged": self.unchanged,
            "revision": self.revision,
            "warnings": list(self.warnings),
        }


UnknownSuites = Callable[[Session, Collection[str]], Mapping[str, str]]
"""Returns the suites, of some names, that nothing can run, each with a hint."""


class ChangeReader:
    """Reads the documents of a change; every change of the matrix passes here.

    Targets must exist, waivers must fit their policies, and something must be able to run the
    suites that policies name. What is stored already stays valid. ``force`` accepts suites that
    nothing can run, with a warning: a worker will bring them.
    """

    def __init__(
        self, session: Session, gpus: Gpus, find_unknown: UnknownSuites, *, force: bool = False
    ) -> None:
        self._session = session
        self._gpus = gpus
        self._find_unknown = find_unknown
        self._force = force
        self._check_waivers = waiver_limits.make_waiver_check(session)
        self.warnings: list[str] = []

    def read_files(self, sources: Sequence[Source]) -> list[Document]:
        """Read the documents of files."""
        targets = documents.target_names(self._session)
        return read_documents(sources, self._gpus, targets, judge=self._judge)

    def read_one(self, kind: Kind, body: Mapping[str, Any], name: str | None = None) -> Document:
        """Read the document of a request; ``name``: as its path says."""
        targets = documents.target_names(self._session) if kind != "Target" else ()
        return read_body(body, kind, self._gpus, targets, name=name, judge=self._judge)

    def _judge(self, read: ParsedDocuments) -> Iterator[DocumentProblem]:
        yield from self._check_waivers(read)
        for problem in self._check_suites(read):
            if self._force:
                self.warnings.append(f"{problem.document}: {problem.problem} ({problem.hint})")
            else:
                problem.hint += "; force accepts a suite that a worker will bring later"
                yield problem

    def _check_suites(self, read: ParsedDocuments) -> Iterator[DocumentProblem]:
        """Yield the suites that nothing can run, but for those that the stored target names."""
        targets = [(raw, one) for raw, one in read if isinstance(one, TargetDoc)]
        stored = documents.find_documents(self._session, [key_of(one) for _, one in targets])
        named: list[tuple[RawDocument, FieldPath, str]] = []
        for raw, target in targets:
            before = stored.get(key_of(target))
            kept = {name for _, name in suite_refs(before)} if before else set()
            named += [(raw, path, name) for path, name in suite_refs(target) if name not in kept]
        unknown = self._find_unknown(self._session, {name for _, _, name in named})
        for raw, path, name in named:
            if name in unknown:
                what = f"nothing can run the suite {name!r}"
                yield raw.problem(path, what, value=name, hint=unknown[name])


def plan_import(session: Session, imported: Sequence[Document]) -> tuple[ImportResult, list[Edit]]:
    """Return the expected result of an import, and its edits."""
    edits = _list_edits(imported, documents.find_documents(session, [*map(key_of, imported)]))
    return ImportResult(tuple(_list_changes(edits)), len(imported) - len(edits)), edits


def _list_edits(read: Iterable[Document], stored: Mapping[Key, Document]) -> list[Edit]:
    edits = (Edit(stored.get(key_of(one)), one) for one in sorted(read, key=order_of))
    return [edit for edit in edits if edit.before != edit.after]


def _list_changes(edits: Iterable[Edit]) -> list[Change]:
    return [c for edit in edits if (c := compare_document(edit.before, edit.after))]


def check_import(session: Session, imported: Sequence[Document]) -> None:
    """Check documents again in the transaction that writes them; they were read before."""
    known = documents.target_names(session) | {ANY_TARGET}
    known |= {d.metadata.name for d in imported if isinstance(d, TargetDoc)}
    for document in imported:
        for name in target_refs(document):
            if name not in known:
                kind, user = key_of(document)
                what = f"{kind} {user} names the target {name!r}, which was deleted meanwhile"
                raise Conflict(what, field="targets", value=name)
    waiver_limits.check_waivers(session, imported)


def find_uses_left(
    session: Session, edits: Sequence[Edit], most: int
) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield each target that edits delete and that documents still name afterwards.

    Of each target at most ``most`` stored documents are read; they come first. Each is its kind and
    name.
    """
    touched = {key_of(edit.document) for edit in edits}
    for edit in edits:
        if edit.after is not None or not isinstance(edit.before, TargetDoc):
            continue
        target = edit.before.metadata.name
        uses = [use for use in documents.list_uses(session, target, most) if use not in touched]
        uses += [
            key_of(one.after)
            for one in edits
            if one.after is not None and target in target_refs(one.after)
        ]
        if uses:
            yield target, uses


def export_documents(session: Session, *, revision: int | None = None) -> list[dict[str, Any]]:
    """Return every document, now or at a revision: targets, entries, waivers, each by name."""
    with pause_garbage_collection():
        if revision is None:
            versions = documents.read_versions(session)
        else:
            if revision != 0:
                require_revision(session, revision)
            versions = read_versions_at(session, revision)
        found = [document for _, _, document, _ in versions if document]
        return [to_sorted_body(document) for document in sorted(found, key=order_of)]


def diff_revisions(session: Session, older: int, newer: int | None = None) -> list[Edit]:
    """Return the edits between two revisions, by kind, then by name; None: the stored matrix.

    Only documents whose texts differ are read.
    """
    with pause_garbage_collection():
        old, new = _load_texts(session, older), _load_texts(session, newer)
        keys = [key for key in old.keys() | new.keys() if old.get(key) != new.get(key)]
        keys.sort(key=lambda key: (KINDS.index(key[0]), key[1]))
        edits = [decode_edit(key[0], old.get(key), new.get(key)) for key in keys]
        return [edit for edit in edits if edit.before != edit.after]


def _load_texts(session: Session, revision: int | None) -> dict[tuple[Kind, str], str]:
    if revision is None:
        return {
            (kind, name): text
            for kind in KINDS
            for name, text, _ in documents.read_texts(session, kind)
        }
    if revision != 0:
        require_revision(session, revision)
    return {(kind, name): text for kind, name, text, _ in read_texts_at(session, revision)}


class SyncOptions(Struct, frozen=True):
    """Options of a sync: its name, to delete what the files lack, and to take over from others."""

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
    keys = {key_of(document) for document in read}
    stored = documents.find_documents(session, keys)
    _refuse_foreign(read, stored, options)
    own = [set_owner(one, options.name) if options.name else one for one in read]
    edits = _list_edits(own, stored)
    mine: dict[Key, Document] = {}
    if options.name is not None:
        mine = documents.find_documents_with_label(session, SYNC_LABEL, options.name)
    lacking = sorted((one for key, one in mine.items() if key not in keys), key=order_of)
    if options.prune:
        edits += [Edit(one, None) for one in reversed(lacking)]  # targets go last
        for target, uses in find_uses_left(session, edits, _MAX_USES):
            named = ", ".join(f"{kind} {name}" for kind, name in uses[:_MAX_NAMED])
            what = f"the files lack the target {target!r}, but {named} use it"
            hint = "keep the target in the files, or change the documents that use it"
            raise Conflict(what, field="prune", value=target, hint=hint)
    result = SyncBody(
        options.name,
        _list_changes(edits),
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
    problems = []  # as they are stored, or as the files label them
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
