"""Delete the decisions of whole months, once the audit chain with all that it covers is verified.

A segment is a run of batches, in the order of their numbers, up to the last one of a month. A link
of the chain names it before its decisions go, with the verdicts that no other decision has. The
rows of batches stay, some 150 bytes each: anchors of the chain and later batches need their hashes.

Decisions go a few thousand at a time, each in a short transaction, so those who log decisions never
wait for long. What was interrupted goes on at the next call.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta

import msgspec
from msgspec import Struct
from sqlalchemy import delete, exists, func, select
from sqlalchemy.orm import Session

from compatgate.errors import Conflict
from compatgate.kit import clock
from compatgate.kit.database.database import Database
from compatgate.kit.database.tables import in_parts
from compatgate.service.audit import chain as audit
from compatgate.service.audit.chain import AuditRecord
from compatgate.service.audit.schemas import ChainBody
from compatgate.service.gate.decisions.batches import NUMBERS, Decision, StoredBatch, Verdict

DELETE = "decisions.delete"
ARCHIVE = "decisions.archive"
"""Action of older releases, which wrote the decisions to a file; then they might be deleted."""
_SETTLED = timedelta(hours=1)
"""Decisions that are younger stay: a transaction that is open may have older ones."""
_DECISIONS_PER_STEP = 2000
_PAUSE_SECONDS = 0.02


class DeletedMonth(Struct, frozen=True):
    """A month whose decisions were deleted; ``month``: ``2026-09``."""

    month: str
    first: int
    last: int
    decisions: int
    link: int


class Retention:
    """The decisions of a database, of which the oldest may go."""

    def __init__(self, database: Database, verify: Callable[[], ChainBody], actor: str) -> None:
        self._database = database
        self._verify = verify
        self._actor = actor

    def delete(self, before: date) -> Iterator[DeletedMonth]:
        """Delete the decisions of each month that ended before a day, the oldest first."""
        with self._database.reading() as session:
            interrupted = find_deleted(session, (DELETE,))
            oldest = session.execute(select(func.min(StoredBatch.id))).scalar() or 0
        if interrupted:
            self._delete_batches(oldest, interrupted)
        segments = self._find_segments(before)
        if segments and not (report := self._verify()).ok:
            raise Conflict(
                f"the audit log does not verify: {report.problems[0]}",
                hint="nothing was deleted; run: compatgate audit verify --full",
            )
        for month, numbers in segments.items():
            first, last = numbers[0], numbers[-1]
            detail = {"month": month, "first": first, "last": last}
            with self._database.writing() as session:
                link = audit.append(session, self._actor, DELETE, month, detail)
            yield DeletedMonth(month, first, last, self._delete_batches(first, last), link)

    def _find_segments(self, before: date) -> dict[str, list[int]]:
        end = min(datetime(before.year, before.month, before.day, tzinfo=UTC),
                  clock.now() - _SETTLED)  # fmt: skip
        found: dict[str, list[int]] = {}
        month = ""
        with self._database.reading() as session:
            oldest_to_stay = select(func.min(StoredBatch.id)).where(
                StoredBatch.decided_at >= end, StoredBatch.late.is_(False)
            )
            stop = session.execute(oldest_to_stay).scalar()
            first = session.execute(select(func.min(StoredBatch.id))).scalar() or 0
            oldest = select(func.min(Decision.id)).where(Decision.id >= first * NUMBERS)
            start = (session.execute(oldest).scalar() or 0) // NUMBERS
            query = select(StoredBatch.id, StoredBatch.decided_at).order_by(StoredBatch.id)
            query = query.where(StoredBatch.id >= start)
            if stop is not None:
                query = query.where(StoredBatch.id < stop)
            for number, decided_at in session.execute(query.execution_options(yield_per=5000)):
                if decided_at >= end:
                    break
                month = max(month, f"{decided_at:%Y-%m}")  # a late batch goes with its neighbours
                found.setdefault(month, []).append(number)
        return found

    def _delete_batches(self, first: int, last: int) -> int:
        deleted = 0
        while step := self._delete_some(first, last):
            deleted += step
            time.sleep(_PAUSE_SECONDS)
        return deleted

    def _delete_some(self, first: int, last: int) -> int:
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
            used = exists().where(Decision.verdict_id == Verdict.id)
            for some in in_parts(sorted({row.verdict_id for row in rows})):
                session.execute(delete(Verdict).where(Verdict.id.in_(some), ~used))
            return len(rows)


def find_deleted(session: Session, actions: tuple[str, ...] = (DELETE, ARCHIVE)) -> int:
    """Return the number of the last batch whose decisions may be gone; 0: there is none."""
    query = select(AuditRecord.detail).where(AuditRecord.action.in_(actions))
    details = session.execute(query).scalars()
    return max((int(msgspec.json.decode(detail)["last"]) for detail in details), default=0)
