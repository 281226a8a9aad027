"""Change the matrix: one document at a time, or whole files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, partialmethod
from typing import Any, TypeVar

from msgspec.structs import replace
from sqlalchemy.orm import Session

from compatgate.core.facts import Facts
from compatgate.core.matrix import EntryStatus
from compatgate.core.performance import pause_garbage_collection
from compatgate.documents.sources import Source
from compatgate.documents.specs import Document, Kind, to_body
from compatgate.errors import BadInput, Conflict, NotFound
from compatgate.kit import clock
from compatgate.kit.database.database import Database, in_reading
from compatgate.kit.principal import Authorship
from compatgate.service.matrix.documents import imports, revisions
from compatgate.service.matrix.documents import repository as lists
from compatgate.service.matrix.documents.blessing import check_edits, list_blessed, require_evidence
from compatgate.service.matrix.documents.imports import (
    ChangeReader,
    ImportResult,
    SyncOptions,
    UnknownSuites,
)
from compatgate.service.matrix.documents.models import StoredDocument
from compatgate.service.matrix.documents.revisions import Edit
from compatgate.service.matrix.documents.schemas import SyncBody
from compatgate.service.matrix.proposals.agreement import propose_refused, require_consent
from compatgate.service.matrix.snapshots.reader import Snapshots

R = TypeVar("R", ImportResult, SyncBody)
STATUS_VERBS: dict[EntryStatus, str] = {
    "blessed": "Bless",
    "deprecated": "Deprecate",
    "revoked": "Revoke",
}
"""Possible new statuses of an entry, with the verb for each."""
_OF_STATUS = ("reason", "replacement", "blessedBy", "evidenceOverride")


def set_status(
    document: Mapping[str, Any],
    status: str,
    reason: str,
    replacement: str = "",
    evidence_override: str = "",
) -> dict[str, Any]:
    """Return the document of an entry with another status."""
    old = document["spec"]
    name = document["metadata"]["name"]
    if status not in STATUS_VERBS:
        hint = f"one of {', '.join(STATUS_VERBS)}"
        raise BadInput("cannot be the new status", field="status", value=status, hint=hint)
    if status == old["status"]:
        raise BadInput(f"the entry is {status} already", field="status", value=status)
    if replacement == name:
        hint = "name another entry, or describe what to use"
        raise BadInput("an entry cannot replace itself", field="replacement", hint=hint)
    spec = {key: value for key, value in old.items() if key not in _OF_STATUS}
    spec |= {"status": status, "reason": reason}
    if replacement and status != "blessed":
        spec["replacement"] = replacement
    if evidence_override and status == "blessed":
        spec["evidenceOverride"] = evidence_override
    return {**document, "spec": spec}


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


class MatrixService:
    """The matrix of one database; every change makes exactly one revision, or none."""

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

    def __init__(
        self, database: Database, facts: Facts, snapshots: Snapshots, find_unknown: UnknownSuites
    ) -> None:
        self._database = database
        self._facts = facts
        self._snapshots = snapshots
        self._writing = partial(propose_refused, database, snapshots)
        self._find_unknown = find_unknown

    def open_reader(self, session: Session, *, force: bool = False) -> ChangeReader:
        """Return the reader of a change's documents; ``force``: as for `ChangeReader`."""
        return ChangeReader(session, self._facts.gpus, self._find_unknown, force=force)

    def create(self, kind: Kind, body: Mapping[str, Any], by: Authorship) -> StoredDocument:
        """Create a document."""
        by.check()
        with self._writing() as session:
            reader = self.open_reader(session, force=by.force)
            document = reader.read_one(kind, body)
            name = document.metadata.name
            check_edits(session, [Edit(None, document)], by.principal)
            if lists.get_document(session, kind, name):
                hint = "change the document, or choose another name"
                what = f"the {kind} {name!r} already exists"
                raise Conflict(what, field="name", value=name, hint=hint)
            self._revise(session, [Edit(None, document)], by, "create")
            return _show_stored(session, kind, name, reader)

    def change(
        self,
        kind: Kind,
        name: str,
        body: Mapping[str, Any],
        by: Authorship,
        *,
        expected: int | None = None,
    ) -> StoredDocument:
        """Replace a document; an equal one makes no revision.

        ``expected`` is the revision of the version that the caller changed.
        """
        by.check()
        with self._writing() as session:
            before = _require_revision(session, kind, name, expected)
            reader = self.open_reader(session, force=by.force)
            after = reader.read_one(kind, body, name)
            check_edits(session, [Edit(before, after)], by.principal)
            if before != after:
                self._revise(session, [Edit(before, after)], by, "change")
            return _show_stored(session, kind, name, reader)

    def restate(
        self,
        name: str,
        status: str,
        by: Authorship,
        *,
        replacement: str = "",
        evidence_override: str = "",
        expected: int | None = None,
    ) -> StoredDocument:
        """Change the status and the reason of an entry.

        The entry takes the reason of the change; ``expected`` is the revision that the caller saw.
        """
        by.check()
        with self._writing() as session:
            before = _require_revision(session, "Entry", name, expected)
            body = set_status(to_body(before), status, by.reason, replacement, evidence_override)
            edit = Edit(before, self.open_reader(session).read_one("Entry", body, name))
            check_edits(session, [edit], by.principal)
            self._revise(session, [edit], by, "change")
            return require_document(session, "Entry", name)

    def delete(self, kind: Kind, name: str, by: Authorship, *, expected: int | None = None) -> int:
        """Delete a document, and return the new revision; its history stays."""
        by.check()
        with self._writing() as session:
            before = _require_revision(session, kind, name, expected)
            check_edits(session, [Edit(before, None)], by.principal)
            if kind == "Target" and (uses := lists.list_uses(session, name)):
                named_by = ", ".join(f"{kind} {user}" for kind, user in uses)
                what = f"the target {name!r} is still used by {named_by}"
                hint = "change or delete them first"
                raise Conflict(what, field="name", value=name, hint=hint)
            return self._revise(session, [Edit(before, None)], by, "delete")

    def import_documents(
        self, sources: Sequence[Source], by: Authorship, *, dry_run: bool = False
    ) -> ImportResult:
        """Create and change the documents of files, as one revision or not at all.

        Other documents do not change.
        """
        read, warnings = self._read_files(sources, by)
        plan = partial(imports.plan_import, imported=read)
        if dry_run:
            planned, edits = self._check_plan(plan, by)
            return replace(planned, edits=tuple(edits), warnings=warnings)
        return replace(self._apply_plan(read, plan, by, "import"), warnings=warnings)

    def _read_files(
        self, sources: Sequence[Source], by: Authorship
    ) -> tuple[list[Document], tuple[str, ...]]:
        by.check()
        with self._database.reading() as session:
            reader = self.open_reader(session, force=by.force)
            return reader.read_files(sources), tuple(reader.warnings)

    def sync(
        self,
        sources: Sequence[Source],
        options: SyncOptions,
        by: Authorship,
        *,
        dry_run: bool = False,
    ) -> SyncBody:
        """Make the stored matrix equal to files, as one revision or not at all."""
        read, warnings = self._read_files(sources, by)
        plan = partial(imports.plan_sync, read=read, options=options)
        if dry_run:
            found, _ = self._check_plan(plan, by)
        else:
            found = self._apply_plan(read, plan, by, "sync", {"sync": options.name})
        return replace(found, warnings=[*warnings])

    def _check_plan(
        self, plan: Callable[[Session], tuple[R, list[Edit]]], by: Authorship
    ) -> tuple[R, list[Edit]]:
        with self._database.reading() as session:
            found, edits = plan(session)
            check_edits(session, edits, by.principal)
            return found, edits

    def _apply_plan(
        self,
        read: Sequence[Document],
        plan: Callable[[Session], tuple[R, list[Edit]]],
        by: Authorship,
        action: str,
        detail: Mapping[str, Any] = revisions.NO_DETAIL,
    ) -> R:
        """Make the edits that files plan one revision; the files were read before."""
        with self._writing() as session:
            imports.check_import(session, read)
            with pause_garbage_collection():
                found, edits = plan(session)
                check_edits(session, edits, by.principal)
                if not edits:
                    return found
                return replace(found, revision=self._revise(session, edits, by, action, detail))

    def _revise(
        self,
        session: Session,
        edits: Sequence[Edit],
        by: Authorship,
        action: str,
        detail: Mapping[str, Any] = revisions.NO_DETAIL,
    ) -> int:
        """Make a revision, after what the policies of the edits' targets ask for is there."""
        about: dict[str, Any] = {"author": by.author, "reason": by.reason, "action": action}
        consent = require_consent(session, edits, identity=by.identity, **about)
        if list_blessed(edits):
            require_evidence(edits, self._snapshots.refresh(), self._facts)
        return revisions.make_revision(
            session, edits, at=clock.now(), consent=consent, detail=detail, **about
        )


def _show_stored(session: Session, kind: Kind, name: str, reader: ChangeReader) -> StoredDocument:
    return replace(require_document(session, kind, name), warnings=tuple(reader.warnings))


def _require_revision(session: Session, kind: Kind, name: str, expected: int | None) -> Document:
    """Return the stored document, unless its revision is not the expected one."""
    stored = require_document(session, kind, name)
    if expected is not None and stored.revision != expected:
        what = f"revision {stored.revision} changed the {kind} {name!r} meanwhile"
        hint = "read the document again and repeat the change"
        raise Conflict(what, field="revision", value=expected, hint=hint)
    return lists.find_documents(session, [(kind, name)])[kind, name]
