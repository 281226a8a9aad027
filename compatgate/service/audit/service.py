"""List decisions and audit records, and verify the audit chain with the rows that it covers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, time, timedelta
from typing import Any

import msgspec
from msgspec import Struct
from sqlalchemy import select
from sqlalchemy.orm import Session

from compatgate.core.performance import sha256
from compatgate.documents.specs import KINDS, encode, key_of
from compatgate.kit import clock
from compatgate.kit.database.database import Database
from compatgate.kit.database.tables import Page
from compatgate.service.audit import repository as audit
from compatgate.service.audit.repository import AuditRecord, AuditRow
from compatgate.service.gate import repository as decisions
from compatgate.service.gate.repository import (
    DayRow,
    Decision,
    DecisionCounts,
    DecisionRow,
    DeniedRow,
    Verdict,
)
from compatgate.service.matrix import repository as documents
from compatgate.service.matrix import revisions
from compatgate.service.matrix.models import DocumentChange, Revision
from compatgate.service.runs import evidence

_MAX_PROBLEMS = 100
"""Maximum number of reported problems."""


class ChainReport(Struct, frozen=True):
    """The result of a verification.

    Attributes:
        links: number of links.
        decisions: number of decisions that the chain covers.
        revisions: number of revisions that the chain covers.
        evidence: number of evidence rows that the chain covers.
        head: hash of the last link; store it elsewhere to detect truncation.
        problems: mismatches, in words; empty: the chain is intact.
    """

    links: int
    decisions: int
    revisions: int
    evidence: int
    head: str
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Return whether the chain is intact."""
        return not self.problems

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {"ok": self.ok, **msgspec.structs.asdict(self), "problems": list(self.problems)}


def verify_chain(session: Session, *, expected_head: str | None = None) -> ChainReport:
    """Recompute every hash, and compare revisions, decisions, verdicts and the current matrix.

    Args:
        session: to read from; one moment of the database is checked.
        expected_head: a hash stored earlier, which must still be in the chain.
    """
    walk = _ChainWalk(session)
    problems = []
    for problem in (*walk.problems(), *_check_whole_chain(session, walk, expected_head)):
        problems.append(problem)
        if len(problems) >= _MAX_PROBLEMS:
            break
    counts = (walk.seq, walk.decisions, walk.revisions, walk.evidence)
    return ChainReport(*counts, walk.head, tuple(problems))


class _ChainWalk:
    """A pass over the chain, from its first link."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.seq = 0
        self.head = audit.GENESIS
        self.heads: set[str] = {audit.GENESIS}
        self.decisions = 0
        self.revisions = 0
        self.evidence = 0
        self._judged = evidence.iter_rows(session)
        self._lines = decisions.read_decision_lines(session)
        self._next = next(self._lines, None)

    def problems(self) -> Iterator[str]:
        query = select(AuditRecord.__table__).order_by(AuditRecord.seq)
        for row in self._session.execute(query.execution_options(yield_per=1000)):
            link = dict(row._mapping)
            yield from self._link(link)
            self.seq, self.head = link["seq"], link["hash"]
            self.heads.add(self.head)

    def _link(self, link: dict[str, Any]) -> Iterator[str]:
        seq = link["seq"]
        if seq != self.seq + 1:
            yield f"link {seq}: links {self.seq + 1} to {seq - 1} are missing"
        elif link["previous"] != self.head:
            yield f"link {seq}: does not continue link {self.seq}"
        if audit.hash_of(link) != link["hash"]:
            yield f"link {seq}: was changed after it was written"
            return
        detail = msgspec.json.decode(link["detail"])
        if link["action"] == "decisions":
            yield from self._decisions(seq, detail)
        elif link["action"].startswith("matrix."):
            yield from self._revision(seq, detail)
        elif link["action"].startswith("run.") and "evidence" in detail:
            yield from self._evidence(seq, detail)

    def _decisions(self, seq: int, detail: dict[str, Any]) -> Iterator[str]:
        first, count = detail["first"], detail["count"]
        if first != self.decisions + 1:
            yield f"link {seq}: decisions {self.decisions + 1} to {first - 1} have no link"
        self.decisions = first + count - 1
        lines = self._take_decisions(self.decisions)
        found = sha256(decisions.encode_decision_lines(lines))
        if len(lines) != count or found != detail["sha256"]:
            yield f"decisions {first} to {self.decisions}: changed or missing (link {seq})"
        for verdict_id, digest in detail.get("verdicts", {}).items():
            body = self._session.execute(select(Verdict.body).where(Verdict.id == verdict_id))
            if sha256((body.scalar() or "").encode()) != digest:
                yield f"verdict {verdict_id}: changed or missing (link {seq})"

    def _take_decisions(self, last: int) -> list[list[Any]]:
        """Return the next stored decisions, up to a number."""
        taken = []
        while self._next is not None and self._next[0] <= last:
            taken.append(self._next)
            self._next = next(self._lines, None)
        return taken

    def _evidence(self, seq: int, detail: dict[str, Any]) -> Iterator[str]:
        self.evidence += 1
        row = next(self._judged, None)
        if row is None or (row.seq, evidence.fingerprint(row)) != (
            detail["evidence"],
            detail["sha256"],
        ):
            yield f"evidence {detail['evidence']}: changed or missing (link {seq})"

    def _revision(self, seq: int, detail: dict[str, Any]) -> Iterator[str]:
        number = detail["revision"]
        if number != self.revisions + 1:
            yield f"link {seq}: revisions {self.revisions + 1} to {number - 1} have no link"
        self.revisions = number
        query = select(Revision.__table__).where(Revision.number == number)
        revision = self._session.execute(query).first()
        changes = self._session.execute(
            select(DocumentChange.__table__).where(DocumentChange.revision == number)
        ).all()
        found = [dict(change._mapping) for change in changes]
        if (
            revision is None
            or revisions.digest_revision(dict(revision._mapping), found) != detail["sha256"]
        ):
            yield f"revision {number}: changed or missing (link {seq})"


def _check_whole_chain(
    session: Session, walk: _ChainWalk, expected_head: str | None
) -> Iterable[str]:
    """Yield problems that need the whole chain; call it after the walk."""
    if expected_head is not None and expected_head not in walk.heads:
        yield f"the chain does not contain the expected head {expected_head}"
    last = session.execute(select(Decision.id).order_by(Decision.id.desc()).limit(1)).scalar()
    if (last or 0) > walk.decisions:
        yield f"decisions {walk.decisions + 1} to {last} have no link"
    if (latest := revisions.latest_revision(session)) > walk.revisions:
        yield f"revisions {walk.revisions + 1} to {latest} have no link"
    if (last := evidence.latest_number(session)) > walk.evidence:
        yield f"evidence {walk.evidence + 1} to {last} has no link"
    yield from _changed_documents(session, latest)


def _changed_documents(session: Session, latest: int) -> Iterator[str]:
    """Yield documents that differ from their last revision."""
    history = {
        key_of(document): (encode(document), revision)
        for document, revision in revisions.read_documents_at(session, latest)
    }
    for kind in KINDS:
        for document, revision in documents.load_documents(session, kind):
            key = key_of(document)
            if history.pop(key, None) != (encode(document), revision):
                yield f"{kind} {key[1]}: differs from its last revision"
    for kind, name in history:
        yield f"{kind} {name}: is missing, and no revision deleted it"


class History:
    """The decisions and audit records of a database, read only."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def list_decisions(self, **filters: Any) -> Page[DecisionRow]:
        """Return decisions, newest first; filters of `list_decisions`."""
        with self._database.reading() as session:
            return decisions.list_decisions(session, **filters)

    def show_decision(self, number: int) -> DecisionRow:
        """Return one decision.

        Raises:
            NotFound: there is no such decision.
        """
        with self._database.reading() as session:
            return decisions.show_decision(session, number)

    def decisions_per_day(self, days: int, *, target: str | None = None) -> DecisionCounts:
        """Return decisions per day of the last days in UTC, with today and empty days.

        Args:
            days: how many, 1 to 366.
            target: only decisions about it.
        """
        last = clock.today()
        wanted = [last - timedelta(days=n) for n in reversed(range(min(max(days, 1), 366)))]
        since = datetime.combine(wanted[0], time(), UTC)
        with self._database.reading() as session:
            found = decisions.count_by_day(session, since, target=target)
        known = {row.day: row for row in found.days}
        return DecisionCounts(tuple(known.get(d) or DayRow(d) for d in wanted), found.complete)

    def stopped_per_target(self, days: int) -> dict[str, int]:
        """Return the number of denied decisions of the last days, by target."""
        since = clock.now() - timedelta(days=days)
        with self._database.reading() as session:
            return decisions.count_stopped_by_target(session, since)

    def most_denied(self, days: int, *, limit: int = 10) -> list[DeniedRow]:
        """Return the denied verdicts of the last days, the most frequent first."""
        since = clock.now() - timedelta(days=days)
        with self._database.reading() as session:
            return decisions.list_most_denied(session, since, limit=limit)

    def list_audit(self, **filters: Any) -> Page[AuditRow]:
        """Return links of the chain, newest first; filters of `list_records`."""
        with self._database.reading() as session:
            return audit.list_records(session, **filters)

    def verify(self, *, expected_head: str | None = None) -> ChainReport:
        """Verify the chain and every row that it covers."""
        with self._database.reading() as session:
            return verify_chain(session, expected_head=expected_head)
