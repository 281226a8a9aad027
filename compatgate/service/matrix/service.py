"""Read and change the matrix: one document at a time, or whole files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

from msgspec import Struct
from sqlalchemy.orm import Session

from compatgate.core.facts import Facts
from compatgate.core.matrix import Status
from compatgate.documents.read import read_body
from compatgate.documents.sources import Source
from compatgate.documents.specs import Change, Document, Kind, to_body
from compatgate.errors import BadInput, Conflict, NotFound
from compatgate.kit import clock
from compatgate.kit.database.database import Database
from compatgate.kit.database.tables import Page
from compatgate.service.gate.decision_summaries import asked_stacks
from compatgate.service.gate.snapshot_reader import Snapshots
from compatgate.service.matrix import files, packages_report, revisions
from compatgate.service.matrix import repository as lists
from compatgate.service.matrix.files import ImportResult
from compatgate.service.matrix.models import PoolRow, RevisionRow, StoredDocument
from compatgate.service.matrix.revisions import Edit
from compatgate.service.matrix.schemas import DAYS, DECISIONS, PackagesReportBody
from compatgate.service.waivers import service as waiver_limits

T = TypeVar("T")


class MatrixReader:
    """What one database holds, and held."""

    def __init__(self, database: Database, facts: Facts) -> None:
        self._database = database
        self._facts = facts

    def get(self, kind: Kind, name: str) -> StoredDocument:
        """Return one document.

        Raises:
            NotFound: there is none of that name; names near ones.
        """
        return self._read(lambda session: found(session, kind, name))

    def export(self, *, revision: int | None = None) -> list[dict[str, Any]]:
        """Return every document now, or as it was: targets, entries, waivers, each by name.

        Raises:
            NotFound: there is no such revision.
        """
        return self._read(lambda session: files.export(session, revision))

    def diff(self, older: int, newer: int | None = None) -> list[Change]:
        """What changed between two revisions; None: up to now.

        Raises:
            NotFound: there is no such revision.
        """
        return self._read(lambda session: files.diff(session, older, newer))

    def diff_files(self, sources: Sequence[Source]) -> list[Change]:
        """What would turn the stored matrix into that of some files.

        Raises:
            ManyProblems: every mistake in the files.
        """
        read = files.read(self._database, sources, self._facts.gpus)
        return self._read(lambda session: files.diff_files(session, read))

    def list_targets(self, **filters: Any) -> Page[StoredDocument]:
        """Targets by name; filters of `compatgate.service.matrix.repository.list_targets`."""
        return self._read(lambda session: lists.list_targets(session, **filters))

    def list_entries(self, **filters: Any) -> Page[StoredDocument]:
        """Entries by name; filters of `compatgate.service.matrix.repository.list_entries`."""
        return self._read(lambda session: lists.list_entries(session, **filters))

    def list_waivers(self, **filters: Any) -> Page[StoredDocument]:
        """Waivers by name; filters of `compatgate.service.matrix.repository.list_waivers`."""
        return self._read(lambda session: lists.list_waivers(session, **filters))

    def list_pools(self, **filters: Any) -> Page[PoolRow]:
        """Return pools by target and name; filters of `list_pools`."""
        return self._read(lambda session: lists.list_pools(session, **filters))

    def list_revisions(self, **filters: Any) -> Page[RevisionRow]:
        """Return revisions, newest first; filters of `list_revisions`."""
        return self._read(lambda session: revisions.list_revisions(session, **filters))

    def list_changes(self, kind: Kind, name: str, **paging: Any) -> Page[RevisionRow]:
        """Return revisions that changed one document, newest first, each with that change alone."""
        return self._read(lambda session: revisions.list_changes(session, kind, name, **paging))

    def show_revision(self, number: int) -> RevisionRow:
        """Return a revision with all its changes.

        Raises:
            NotFound: there is no such revision.
        """
        return self._read(lambda session: revisions.show(session, number))

    def revision_at(self, when: datetime) -> int:
        """Return the revision that held at a moment; 0 before the first."""
        return self._read(lambda session: revisions.revision_at(session, when))

    def _read(self, query: Callable[[Session], T]) -> T:
        with self._database.reading() as session:
            return query(session)


def found(session: Session, kind: Kind, name: str) -> StoredDocument:
    """Return one document.

    Raises:
        NotFound: there is none of that name; names near ones.
    """
    stored = lists.get(session, kind, name)
    if stored is None:
        hint = lists.hint(session, kind, name)
        raise NotFound(f"there is no {kind.lower()} {name!r}", field="name", value=name, hint=hint)
    return stored


VERBS: dict[Status, str] = {"blessed": "Bless", "deprecated": "Deprecate", "revoked": "Revoke"}
"""What may become of an entry, and what that is called."""


def with_status(
    document: Mapping[str, Any], status: str, reason: str, replacement: str = ""
) -> dict[str, Any]:
    """Return the document of an entry with another status.

    Args:
        document: as it is stored.
        status: one of `VERBS`.
        reason: why; the entry says so from then on.
        replacement: what to use instead; a blessed entry has none.

    Raises:
        BadInput: it is no such status, or the entry has it, or it would replace itself.
    """
    old = document["spec"]
    name = document["metadata"]["name"]
    if status not in VERBS:
        hint = f"one of {', '.join(VERBS)}"
        raise BadInput("is not what an entry can become", field="status", value=status, hint=hint)
    if status == old["status"]:
        raise BadInput(f"the entry is {status} already", field="status", value=status)
    if replacement == name:
        hint = "name another entry, or say in words what to use"
        raise BadInput("an entry cannot replace itself", field="replacement", hint=hint)
    spec = {key: value for key, value in old.items() if key not in ("reason", "replacement")}
    spec |= {"status": status, "reason": reason}
    if replacement and status != "blessed":
        spec["replacement"] = replacement
    return {**document, "spec": spec}


_LONGEST_REASON = 8192


class Authorship(Struct, frozen=True):
    """Who changes the matrix, and why; both are kept with the revision."""

    author: str
    reason: str

    def check(self) -> Authorship:
        """Itself, when both say something.

        Raises:
            BadInput: one is empty, too long, or holds a NUL character.
        """
        for field, text in (("author", self.author), ("reason", self.reason)):
            if not text.strip():
                raise BadInput("must not be empty", field=field, hint="say who and why")
            try:
                storable = "\0" not in text and len(text.encode()) <= _LONGEST_REASON
            except UnicodeEncodeError:
                storable = False
            if not storable:
                hint = f"Unicode text of at most {_LONGEST_REASON} bytes, without NUL"
                raise BadInput("is not text that can be kept", field=field, hint=hint)
        return self


class MatrixService(MatrixReader):
    """The matrix of one database. Every change makes exactly one revision, or none at all."""

    def __init__(self, database: Database, facts: Facts, snapshots: Snapshots) -> None:
        super().__init__(database, facts)
        self._snapshots = snapshots

    def create(self, kind: Kind, body: Mapping[str, Any], by: Authorship) -> StoredDocument:
        """Make a document.

        Args:
            kind: what it is.
            body: the document; ``apiVersion`` and ``kind`` may be left out.
            by: who and why.

        Raises:
            ManyProblems: everything that is wrong with the body, by field path.
            Conflict: the name is taken.
        """
        by.check()

        def write(session: Session) -> StoredDocument:
            document = self._parse(session, kind, body)
            name = document.metadata.name
            if lists.get(session, kind, name):
                hint = "change it instead, or choose another name"
                raise Conflict(f"the {kind} {name!r} exists", field="name", value=name, hint=hint)
            _revise(session, Edit(None, document), by)
            return found(session, kind, name)

        return self._write(write)

    def change(
        self,
        kind: Kind,
        name: str,
        body: Mapping[str, Any],
        by: Authorship,
        *,
        expected: int | None = None,
    ) -> StoredDocument:
        """Replace a document by a new version; an equal one makes no revision.

        Args:
            kind: what it is.
            name: of the document; a name cannot be changed.
            body: the whole new document.
            by: who and why.
            expected: the revision of the version that the change was made from.

        Raises:
            NotFound: there is none of that name.
            ManyProblems: everything that is wrong with the body, by field path.
            Conflict: someone else changed it since ``expected``.
        """
        by.check()

        def write(session: Session) -> StoredDocument:
            before = _expected(session, kind, name, expected)
            after = self._parse(session, kind, body, name)
            if before != after:
                _revise(session, Edit(before, after), by)
            return found(session, kind, name)

        return self._write(write)

    def restate(
        self,
        name: str,
        status: str,
        by: Authorship,
        *,
        replacement: str = "",
        expected: int | None = None,
    ) -> StoredDocument:
        """Give an entry another status, and the reason for it.

        Args:
            name: of the entry.
            status: ``blessed``, ``deprecated`` or ``revoked``.
            by: who and why; the entry keeps the reason.
            replacement: what to use instead of a deprecated or revoked one.
            expected: the revision of the version that was looked at.

        Raises:
            NotFound: there is no such entry.
            BadInput: it cannot become that.
            Conflict: someone else changed it since ``expected``.
        """
        by.check()

        def write(session: Session) -> StoredDocument:
            before = _expected(session, "Entry", name, expected)
            body = with_status(to_body(before), status, by.reason, replacement)
            _revise(session, Edit(before, self._parse(session, "Entry", body, name)), by)
            return found(session, "Entry", name)

        return self._write(write)

    def delete(self, kind: Kind, name: str, by: Authorship, *, expected: int | None = None) -> int:
        """Delete a document; its history stays.

        Returns:
            The revision that this made.

        Raises:
            NotFound: there is none of that name.
            Conflict: someone else changed it since ``expected``, or entries or waivers name the
                target.
        """
        by.check()

        def write(session: Session) -> int:
            before = _expected(session, kind, name, expected)
            if kind == "Target" and (uses := lists.uses_of(session, name)):
                named_by = ", ".join(f"{kind} {user}" for kind, user in uses)
                raise Conflict(
                    f"the target {name!r} is named by {named_by}",
                    field="name",
                    value=name,
                    hint="change or delete these first",
                )
            return _revise(session, Edit(before, None), by)

        return self._write(write)

    def import_documents(
        self, sources: Sequence[Source], by: Authorship, *, dry_run: bool = False
    ) -> ImportResult:
        """Create and change every document of some files, in one revision or not at all.

        Documents that the files do not hold stay as they are.

        Raises:
            ManyProblems: every mistake, with file, line and path; nothing was changed.
            Conflict: a target that the files rely on was deleted meanwhile.
        """
        by.check()
        read = files.read(self._database, sources, self._facts.gpus)
        if dry_run:
            return self._read(lambda session: files.plan(session, read)[0])
        return self._write(
            lambda session: files.apply(session, read, by.author, by.reason, clock.now())
        )

    def packages_report(
        self,
        *,
        target: str | None = None,
        since: datetime | None = None,
        decisions: int = DECISIONS,
    ) -> PackagesReportBody:
        """Say what ``packages: enforce`` would stop on the targets that audit packages.

        Args:
            target: only this one; none that enforces already has anything to report.
            since: look at decisions from then on; None: of the last 30 days.
            decisions: look at so many, the newest.

        Raises:
            NotFound: there is no such target.
        """
        snapshot, now = self._snapshots.current(), clock.now()
        since = since or now - timedelta(days=DAYS)
        names = packages_report.audited_targets(snapshot, target)
        asked = self._read(lambda session: asked_stacks(session, names, since, most=decisions))
        return packages_report.packages_report(snapshot, names, asked, since, now)

    def _parse(
        self, session: Session, kind: Kind, body: Mapping[str, Any], name: str | None = None
    ) -> Document:
        known = lists.target_names(session) if kind != "Target" else ()
        judge = waiver_limits.judge(session)
        return read_body(body, kind, self._facts.gpus, known, name=name, judge=judge)

    def _write(self, change: Callable[[Session], T]) -> T:
        with self._database.writing() as session:
            result = change(session)
        self._snapshots.refresh()
        return result


def _revise(session: Session, edit: Edit, by: Authorship) -> int:
    return revisions.make(
        session, [edit], author=by.author, reason=by.reason, action=edit.action, at=clock.now()
    )


def _expected(session: Session, kind: Kind, name: str, expected: int | None) -> Document:
    """Return the stored document, if it is the version that the change was made from."""
    stored = found(session, kind, name)
    if expected is not None and stored.revision != expected:
        raise Conflict(
            f"the {kind} {name!r} was changed meanwhile, by revision {stored.revision}",
            field="revision",
            value=expected,
            hint="read it again and repeat the change",
        )
    return lists.find(session, [(kind, name)])[kind, name]
