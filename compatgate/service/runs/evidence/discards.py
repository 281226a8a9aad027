"""Store which judged runs a person has discarded, with the reason.

A discarded run counts for nothing: neither its pass nor its failure. Rows are only ever added.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime

from msgspec import Struct
from sqlalchemy import ForeignKey, Text, func, insert, select
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


class Discard(Struct, frozen=True):
    """The person who discarded a run, with time and reason."""

    run: str
    discarded_by: str
    reason: str
    discarded_at: datetime


_COLUMNS = [getattr(DiscardedRun, name) for name in Discard.__struct_fields__]


def latest_discard(session: Session, *, until: datetime | None = None) -> int:
    """Return the number of the last row, perhaps as of a moment; 0 before the first."""
    query = select(func.max(DiscardedRun.seq))
    query = query.where(DiscardedRun.discarded_at <= until) if until is not None else query
    return session.execute(query).scalar() or 0


def add_discard(session: Session, made: Discard) -> int:
    """Store that a run was discarded, in a writing session; return its number."""
    seq = latest_discard(session) + 1
    values = {name: getattr(made, name) for name in Discard.__struct_fields__}
    session.execute(insert(DiscardedRun), [{"seq": seq, **values}])
    return seq


def fingerprint(made: Discard) -> str:
    """Return the digest by which the audit chain vouches for a row."""
    row = [made.run, made.discarded_by, made.reason, iso(made.discarded_at)]
    return audit.digest_rows([row])


def count_discards(session: Session) -> int:
    """Return the number of discarded runs."""
    return session.execute(select(func.count()).select_from(DiscardedRun)).scalar_one()


def find_discards(session: Session, runs: Iterable[str]) -> dict[str, Discard]:
    """Return the discards of some runs, by the run's id."""
    query = select(*_COLUMNS).where(DiscardedRun.run.in_(list(runs)))
    return {row.run: Discard(*row) for row in session.execute(query)}


def load_discarded(session: Session, *, until: int | None = None) -> Collection[str]:
    """Return the ids of the discarded runs.

    Args:
        until: number of the last row that counts; None: every row.
    """
    query = select(DiscardedRun.run)
    query = query.where(DiscardedRun.seq <= until) if until is not None else query
    return frozenset(session.execute(query).scalars())
