"""Store which judged runs a person has discarded: neither pass nor failure counts any more."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime

from sqlalchemy import ForeignKey, Text, func, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from compatgate.kit.clock import iso
from compatgate.kit.database.tables import Base, BigKey, UtcTime
from compatgate.service.audit.events import repository as audit


class DiscardedRun(Base):
    """A judged run that a person has discarded. Rows are only ever added."""

    __tablename__ = "discarded_runs"

    seq: Mapped[int] = mapped_column(BigKey, primary_key=True, autoincrement=False)
    run: Mapped[str] = mapped_column(ForeignKey("runs.id"), unique=True)
    discarded_by: Mapped[str] = mapped_column(Text)
    reason: Mapped[str] = mapped_column(Text)
    discarded_at: Mapped[datetime] = mapped_column(UtcTime)

    @property
    def fingerprint(self) -> str:
        """Return the digest by which the audit chain vouches for the row."""
        row = [self.run, self.discarded_by, self.reason, iso(self.discarded_at)]
        return audit.digest_rows([row])

    def to_json(self) -> dict[str, str]:
        """Return who discarded the run, when and why, as plain data."""
        return {"by": self.discarded_by, "reason": self.reason, "at": iso(self.discarded_at)}


def latest_discard(session: Session, *, until: datetime | None = None) -> int:
    """Return the number of the last row, perhaps as of a moment; 0 before the first."""
    query = select(func.max(DiscardedRun.seq))
    query = query.where(DiscardedRun.discarded_at <= until) if until is not None else query
    return session.execute(query).scalar() or 0


def add_discard(session: Session, run: str, *, by: str, reason: str, at: datetime) -> DiscardedRun:
    """Store that a run was discarded, in a writing session."""
    seq = latest_discard(session) + 1
    row = DiscardedRun(seq=seq, run=run, discarded_by=by, reason=reason, discarded_at=at)
    session.add(row)
    return row


def find_discards(session: Session, runs: Iterable[str]) -> dict[str, DiscardedRun]:
    """Return the discards of some runs, by the run's id."""
    query = select(DiscardedRun).where(DiscardedRun.run.in_(list(runs)))
    return {row.run: row for row in session.scalars(query)}


def load_discarded(session: Session, *, until: int | None = None) -> Collection[str]:
    """Return the ids of the discarded runs; ``until``: number of the last row that counts."""
    query = select(DiscardedRun.run)
    query = query.where(DiscardedRun.seq <= until) if until is not None else query
    return frozenset(session.execute(query).scalars())
