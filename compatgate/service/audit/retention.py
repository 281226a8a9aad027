"""Archive the decisions of whole months, and remove what is archived.

A segment is a run of batches, in the order of their numbers, up to the last one of a month. Its
archive is written and read again before a link of the audit chain seals it with the digest of the
file. Then its decisions may be removed, and the verdicts that no other decision has. The rows of
batches stay, some 150 bytes each: anchors of the chain and later batches need their hashes.

Decisions are removed a few thousand at a time, each in a short transaction, so those who log
decisions never wait for long. What was interrupted goes on at the next call.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from sqlalchemy import delete, exists, func, select
from sqlalchemy.orm import Session

from compatgate.errors import Conflict
from compatgate.kit import clock
from compatgate.kit.clock import iso
from compatgate.kit.database.database import Database
from compatgate.service.audit import repository as audit
from compatgate.service.audit.archive import (
    FORMAT,
    ArchivedBatch,
    ArchivedVerdict,
    ArchiveHead,
    ArchiveReport,
    Line,
    verify_archive,
    write_archive,
)
from compatgate.service.audit.repository import AuditRecord
from compatgate.service.gate.batches import NUMBERS, StoredBatch, decode_claims
from compatgate.service.gate.repository import Decision, Verdict, read_decision_lines
from compatgate.service.gate.verdict_bodies import read_body

ARCHIVE = "decisions.archive"
"""Action of a link that seals an archive."""
_SETTLED = timedelta(hours=1)
"""Decisions that are younger stay: a transaction that is open may have older ones."""
_DECISIONS_PER_STEP = 2000
_PAUSE_SECONDS = 0.02
_VERDICTS_PER_QUERY = 500


class Segment(Struct, frozen=True):
    """Batches of a month.

    Attributes:
        month: ``2026-09``.
        first: number of the first batch.
        last: number of the last batch.
    """

    month: str
    first: int
    last: int


class Archived(Struct, frozen=True):
    """A sealed archive.

    Attributes:
        path: of the file.
        removed: number of decisions that were removed now.
    """

    path: str
    report: ArchiveReport
    link: int
    removed: int = 0


class Retention:
    """The archives of a database.

    Args:
        database: with its schema.
        actor: who archives, for the audit chain.
    """

    def __init__(self, database: Database, actor: str) -> None:
        self._database = database
        self._actor = actor

    def archive(self, before: date, folder: Path, *, drop: bool) -> Iterator[Archived]:
        """Archive each month that ended before a day, the oldest first.

        Args:
            before: first day that stays.
            folder: for the files, ``decisions-2026-09.jsonl.zst`` each.
            drop: remove decisions that are archived, also those of earlier calls.

        Raises:
            Unavailable: a file cannot be written, or the database does not answer.
            Conflict: what is stored is not what was answered; nothing is removed.
        """
        if drop:
            self._remove_archived()
        for segment in self._find_segments(before):
            path = folder / f"decisions-{segment.month}.jsonl.zst"
            if path.exists():
                path = folder / f"decisions-{segment.month}-{segment.first}.jsonl.zst"
            report = self._write(segment, path)
            link = self._seal(segment, path, report)
            removed = self._remove(segment.first, segment.last) if drop else 0
            yield Archived(str(path), report, link, removed)

    def _find_segments(self, before: date) -> list[Segment]:
        """Return the segments that no archive has."""
        with self._database.reading() as session:
            done = find_archived(session)
            end = datetime(before.year, before.month, before.day, tzinfo=UTC)
            end = min(end, clock.now() - _SETTLED)
            oldest_kept = select(func.min(StoredBatch.id)).where(
                StoredBatch.decided_at >= end, StoredBatch.late.is_(False)
            )
            stop = session.execute(oldest_kept).scalar()
            query = select(StoredBatch.id, StoredBatch.decided_at).where(StoredBatch.id > done)
            if stop is not None:
                query = query.where(StoredBatch.id < stop)
            found: dict[str, list[int]] = {}
            month = ""
            rows = session.execute(query.order_by(StoredBatch.id).execution_options(yield_per=5000))
            for number, decided_at in rows:
                if decided_at >= end:
                    break
                month = max(month, f"{decided_at:%Y-%m}")  # a late batch goes with its neighbours
                found.setdefault(month, []).append(number)
            return [Segment(name, some[0], some[-1]) for name, some in found.items()]

    def _write(self, segment: Segment, path: Path) -> ArchiveReport:
        """Write a segment's archive, and read it again."""
        with self._database.reading() as session:
            head = ArchiveHead(
                FORMAT, segment.month, segment.first, segment.last, _previous(session, segment)
            )
            digest = write_archive(path, head, _read_segment(session, segment))
        report = verify_archive(path)
        if report.sha256 != digest or not report.ok:
            problem = report.problems[0] if report.problems else "it is not what was written"
            raise Conflict(
                f"the archive {path} does not verify: {problem}",
                value=str(path),
                hint="nothing was removed; run: compatgate audit verify --full",
            )
        return report

    def _seal(self, segment: Segment, path: Path, report: ArchiveReport) -> int:
        with self._database.writing() as session:
            return audit.append(
                session,
                at=clock.now(),
                actor=self._actor,
                action=ARCHIVE,
                subject=path.name,
                detail={
                    "month": segment.month,
                    "first": segment.first,
                    "last": segment.last,
                    "sha256": report.sha256,
                    **msgspec.structs.asdict(report.tail),
                },
            )

    def _remove_archived(self) -> None:
        """Go on with what an earlier call left."""
        with self._database.reading() as session:
            done = find_archived(session)
            first = session.execute(select(func.min(StoredBatch.id))).scalar() or 0
        if first <= done:
            self._remove(first, done)

    def _remove(self, first: int, last: int) -> int:
        """Remove the decisions of batches, and return their number."""
        removed = 0
        while step := self._remove_some(first, last):
            removed += step
            time.sleep(_PAUSE_SECONDS)
        return removed

    def _remove_some(self, first: int, last: int) -> int:
        with self._database.working() as session:
            numbers = select(Decision.id, Decision.verdict_id).where(
                Decision.id >= first * NUMBERS, Decision.id < (last + 1) * NUMBERS
            )
            rows = session.execute(numbers.order_by(Decision.id).limit(_DECISIONS_PER_STEP)).all()
            if not rows:
                return 0
            session.execute(
                delete(Decision).where(Decision.id >= rows[0].id, Decision.id <= rows[-1].id)
            )
            _remove_unused_verdicts(session, sorted({row.verdict_id for row in rows}))
            return len(rows)


def find_archived(session: Session) -> int:
    """Return the number of the last batch that an archive has; 0: there is none."""
    query = select(AuditRecord.detail).where(AuditRecord.action == ARCHIVE)
    detail = session.execute(query.order_by(AuditRecord.seq.desc()).limit(1)).scalar()
    return int(msgspec.json.decode(detail)["last"]) if detail else 0


def _remove_unused_verdicts(session: Session, ids: list[str]) -> None:
    for start in range(0, len(ids), _VERDICTS_PER_QUERY):
        some = ids[start : start + _VERDICTS_PER_QUERY]
        used = exists().where(Decision.verdict_id == Verdict.id)
        session.execute(delete(Verdict).where(Verdict.id.in_(some), ~used))


def _previous(session: Session, segment: Segment) -> dict[str, tuple[int, str]]:
    """Return the batch before the segment, of each writer that continues in it."""
    within = StoredBatch.id.between(segment.first, segment.last)
    begins = (
        select(StoredBatch.writer, func.min(StoredBatch.sequence).label("sequence"))
        .where(within)
        .group_by(StoredBatch.writer)
        .subquery()
    )
    query = select(StoredBatch.writer, StoredBatch.sequence, StoredBatch.hash).join(
        begins,
        (begins.c.writer == StoredBatch.writer) & (begins.c.sequence == StoredBatch.sequence + 1),
    )
    return {row.writer: (row.sequence, bytes(row.hash).hex()) for row in session.execute(query)}


def _read_segment(session: Session, segment: Segment) -> Iterator[Line]:
    """Yield the lines of a segment: each verdict before the first batch that gave it."""
    told: set[str] = set()
    lines = read_decision_lines(session, segment.first * NUMBERS)
    following = next(lines, None)
    query = select(StoredBatch.__table__).where(StoredBatch.id.between(segment.first, segment.last))
    rows = session.execute(query.order_by(StoredBatch.id).execution_options(yield_per=500))
    for row in rows:
        values = []
        while following is not None and following[0] < (row.id + 1) * NUMBERS:
            values.append(following[1:])
            following = next(lines, None)
        yield from _read_verdicts(session, {one[0] for one in values} - told)
        told.update(one[0] for one in values)
        yield _to_line(row, values)


def _to_line(row: Any, values: list[list[Any]]) -> ArchivedBatch:
    return ArchivedBatch(
        row.id,
        row.writer,
        row.sequence,
        iso(row.decided_at),
        row.late,
        decode_claims(row.verdicts),
        bytes(row.hash).hex(),
        values,
    )


def _read_verdicts(session: Session, ids: set[str]) -> Iterator[ArchivedVerdict]:
    wanted = sorted(ids)
    for start in range(0, len(wanted), _VERDICTS_PER_QUERY):
        some = wanted[start : start + _VERDICTS_PER_QUERY]
        for row in session.execute(select(Verdict.__table__).where(Verdict.id.in_(some))):
            yield ArchivedVerdict(row.id, row.batch, read_body(row.body, row.packed))
