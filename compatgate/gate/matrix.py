"""Changing the matrix: a document at a time, or all of some files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

from msgspec import Struct
from sqlalchemy.orm import Session

from compatgate.core.facts import Facts
from compatgate.documents.read import read_body
from compatgate.documents.sources import Source
from compatgate.documents.specs import Document, Kind, to_body
from compatgate.errors import BadInput, Conflict
from compatgate.gate import imports, packages_report, waiver_limits
from compatgate.gate.imports import ImportResult
from compatgate.gate.matrix_reader import MatrixReader, found
from compatgate.gate.restating import restated
from compatgate.gate.snapshots import Snapshots
from compatgate.store import clock, documents, revisions
from compatgate.store.asked_stacks import asked_stacks
from compatgate.store.database import Database
from compatgate.store.revisions import Edit
from compatgate.store.rows import Stored
from compatgate.wire.packages import DAYS, DECISIONS, PackagesReportBody

T = TypeVar("T")
_LONGEST_REASON = 8192


class By(Struct, frozen=True):
    """Who changes the matrix, and why; both are kept with the revision."""

    author: str
    reason: str

    def check(self) -> By:
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

    def create(self, kind: Kind, body: Mapping[str, Any], by: By) -> Stored:
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

        def write(session: Session) -> Stored:
            document = self._parse(session, kind, body)
            name = document.metadata.name
            if documents.get(session, kind, name):
                hint = "change it instead, or choose another name"
                raise Conflict(f"the {kind} {name!r} exists", field="name", value=name, hint=hint)
            _revise(session, Edit(None, document), by)
            return found(session, kind, name)

        return self._write(write)

    def change(
        self, kind: Kind, name: str, body: Mapping[str, Any], by: By, *, expected: int | None = None
    ) -> Stored:
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

        def write(session: Session) -> Stored:
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
        by: By,
        *,
        replacement: str = "",
        expected: int | None = None,
    ) -> Stored:
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

        def write(session: Session) -> Stored:
            before = _expected(session, "Entry", name, expected)
            body = restated(to_body(before), status, by.reason, replacement)
            _revise(session, Edit(before, self._parse(session, "Entry", body, name)), by)
            return found(session, "Entry", name)

        return self._write(write)

    def delete(self, kind: Kind, name: str, by: By, *, expected: int | None = None) -> int:
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
            if kind == "Target" and (uses := documents.uses_of(session, name)):
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
        self, sources: Sequence[Source], by: By, *, dry_run: bool = False
    ) -> ImportResult:
        """Create and change every document of some files, in one revision or not at all.

        Documents that the files do not hold stay as they are.

        Raises:
            ManyProblems: every mistake, with file, line and path; nothing was changed.
            Conflict: a target that the files rely on was deleted meanwhile.
        """
        by.check()
        read = imports.read(self._database, sources, self._facts.gpus)
        if dry_run:
            return self._read(lambda session: imports.plan(session, read)[0])
        return self._write(
            lambda session: imports.apply(session, read, by.author, by.reason, clock.now())
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
        known = documents.target_names(session) if kind != "Target" else ()
        judge = waiver_limits.judge(session)
        return read_body(body, kind, self._facts.gpus, known, name=name, judge=judge)

    def _write(self, change: Callable[[Session], T]) -> T:
        with self._database.writing() as session:
            result = change(session)
        self._snapshots.refresh()
        return result


def _revise(session: Session, edit: Edit, by: By) -> int:
    return revisions.make(
        session, [edit], author=by.author, reason=by.reason, action=edit.action, at=clock.now()
    )


def _expected(session: Session, kind: Kind, name: str, expected: int | None) -> Document:
    """The stored document, if it is the version that the change was made from."""
    stored = found(session, kind, name)
    if expected is not None and stored.revision != expected:
        raise Conflict(
            f"the {kind} {name!r} was changed meanwhile, by revision {stored.revision}",
            field="revision",
            value=expected,
            hint="read it again and repeat the change",
        )
    return documents.find(session, [(kind, name)])[kind, name]
