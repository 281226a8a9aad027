"""Decisions counted by day and by target; what is counted is bounded."""

from __future__ import annotations

from datetime import date, datetime

from msgspec import Struct
from sqlalchemy import ColumnElement, String, Subquery, and_, case, func, not_, select, type_coerce
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
    """Count decisions day by day.

    Args:
        session: to read from.
        since: not before this.
        target: only those about it.
        most: at most so many, the newest.
    """
    newest = _newest(session, since, target, most)
    if newest is None:
        return Counted((), complete=True)
    day = _day(session, newest.c.decided_at).label("day")
    query = select(day, *_counts(newest)).group_by(day).order_by(day)
    rows = session.execute(query).all()
    days = tuple(DayRow(date.fromisoformat(row[0]), *map(int, row[1:])) for row in rows)
    return Counted(days, sum(d.allowed + d.denied + d.undecided for d in days) < most)


def stopped_per_target(session: Session, since: datetime, *, most: int = MOST) -> dict[str, int]:
    """How many decisions did not allow what was asked, by target, where there were any.

    Args:
        session: to read from.
        since: not before this.
        most: among at most so many decisions, the newest.
    """
    newest = _newest(session, since, None, most)
    if newest is None:
        return {}
    query = select(newest.c.target, func.count()).where(not_(newest.c.allowed))
    rows = session.execute(query.group_by(newest.c.target)).all()
    return {target: count for target, count in rows if target is not None}


def _newest(session: Session, since: datetime, target: str | None, most: int) -> Subquery | None:
    """The newest decisions since a moment; None: there are none."""
    first = first_since(session, since)
    if first is None:
        return None
    wanted = select(Decision.decided_at, Decision.allowed, Decision.outcome, Decision.target)
    wanted = wanted.where(Decision.id >= first, Decision.decided_at >= since)
    if target is not None:
        wanted = wanted.where(Decision.target == target)
    return wanted.order_by(Decision.id.desc()).limit(most).subquery()


def _counts(newest: Subquery) -> list[ColumnElement[int]]:
    """Allowed, denied, and not decided."""
    allowed, unknown = newest.c.allowed, newest.c.outcome == "unknown"
    wanted = (allowed, and_(not_(allowed), not_(unknown)), and_(not_(allowed), unknown))
    return [func.sum(case((condition, 1), else_=0)) for condition in wanted]


def first_since(session: Session, since: datetime) -> int | None:
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
