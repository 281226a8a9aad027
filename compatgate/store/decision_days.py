"""Decisions counted by day, for charts; what is counted is bounded."""

from __future__ import annotations

from datetime import date, datetime

from msgspec import Struct
from sqlalchemy import ColumnElement, String, and_, case, func, not_, select, type_coerce
from sqlalchemy.orm import Session

from compatgate.store.models import Decision

MOST = 200_000
"""Decisions that are looked at; a chart is not worth more."""
_DISORDER = 1000
"""Numbers follow the clock but for what threads wrote at the same time."""


class DayRow(Struct, frozen=True):
    """Decisions of one day, in UTC.

    Attributes:
        undecided: the verdict was unknown and the policy stopped there: no decision.
    """

    day: date
    allowed: int = 0
    denied: int = 0
    undecided: int = 0


class Counted(Struct, frozen=True):
    """Decisions by day.

    Attributes:
        days: in order; days without decisions are left out.
        complete: all were counted; else only the newest `MOST`.
    """

    days: tuple[DayRow, ...]
    complete: bool


def per_day(
    session: Session, since: datetime, *, target: str | None = None, most: int = MOST
) -> Counted:
    """Count decisions.

    Args:
        session: to read from.
        since: not before this.
        target: only those about it.
        most: at most so many, the newest.
    """
    first = _first(session, since)
    if first is None:
        return Counted((), complete=True)
    wanted = select(Decision.decided_at, Decision.allowed, Decision.outcome)
    wanted = wanted.where(Decision.id >= first, Decision.decided_at >= since)
    if target is not None:
        wanted = wanted.where(Decision.target == target)
    newest = wanted.order_by(Decision.id.desc()).limit(most).subquery()
    day = _day(session, newest.c.decided_at).label("day")
    stopped = newest.c.outcome == "unknown"
    query = select(
        day,
        _count(newest.c.allowed),
        _count(and_(not_(newest.c.allowed), not_(stopped))),
        _count(and_(not_(newest.c.allowed), stopped)),
    )
    rows = session.execute(query.group_by(day).order_by(day)).all()
    days = tuple(DayRow(date.fromisoformat(row[0]), *map(int, row[1:])) for row in rows)
    return Counted(days, sum(d.allowed + d.denied + d.undecided for d in days) < most)


def _first(session: Session, since: datetime) -> int | None:
    """The smallest number of a decision since a moment: numbers are what the indexes end in."""
    early = select(Decision.id).where(Decision.decided_at >= since)
    early = early.order_by(Decision.decided_at).limit(_DISORDER)
    found: int | None = session.execute(select(func.min(early.subquery().c.id))).scalar()
    return found


def _day(session: Session, at: ColumnElement[datetime]) -> ColumnElement[str]:
    """``2026-11-03``, of the day in UTC."""
    if session.get_bind().dialect.name == "sqlite":
        return func.substr(type_coerce(at, String), 1, 10)
    return func.to_char(func.timezone("UTC", at), "YYYY-MM-DD")


def _count(condition: ColumnElement[bool]) -> ColumnElement[int]:
    return func.sum(case((condition, 1), else_=0))
