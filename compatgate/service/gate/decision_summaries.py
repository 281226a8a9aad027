"""Summarise recent decisions: by day, by target, by denied stack, and which stacks were asked.

Each summary reads a bounded number of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from typing import Any

import msgspec
from msgspec import Struct
from sqlalchemy import ColumnElement, String, Subquery, and_, case, func, not_, select, type_coerce
from sqlalchemy.orm import Session

from compatgate.service.gate.repository import Decision, Verdict

MOST = 200_000
"""Most decisions that a summary reads; a chart does not need more."""
_DISORDER = 1000
"""Numbers may run ahead of the clock by so many: threads write at the same time."""


class DayRow(Struct, frozen=True):
    """Decisions of one day, in UTC.

    Attributes:
        undecided: the verdict was unknown, and the policy did not allow it.
    """

    day: date
    allowed: int = 0
    denied: int = 0
    undecided: int = 0


class Counted(Struct, frozen=True):
    """Numbers of decisions by day.

    Attributes:
        days: in order; days without decisions are missing.
        complete: all decisions count; else only the newest `MOST`.
    """

    days: tuple[DayRow, ...]
    complete: bool


def per_day(
    session: Session, since: datetime, *, target: str | None = None, most: int = MOST
) -> Counted:
    """Count decisions by day.

    Args:
        session: to read from.
        since: earliest time.
        target: only decisions on this target.
        most: most decisions to count, the newest.
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
    """Count the decisions that did not allow the stack, by target; targets without any are missing.

    Args:
        session: to read from.
        since: earliest time.
        most: most decisions to read, the newest.
    """
    newest = _newest(session, since, None, most)
    if newest is None:
        return {}
    query = select(newest.c.target, func.count()).where(not_(newest.c.allowed))
    rows = session.execute(query.group_by(newest.c.target)).all()
    return {target: count for target, count in rows if target is not None}


def _newest(session: Session, since: datetime, target: str | None, most: int) -> Subquery | None:
    """Return a query of the newest decisions since a moment; None: there are none."""
    first = first_since(session, since)
    if first is None:
        return None
    wanted = select(Decision.decided_at, Decision.allowed, Decision.outcome, Decision.target)
    wanted = wanted.where(Decision.id >= first, Decision.decided_at >= since)
    if target is not None:
        wanted = wanted.where(Decision.target == target)
    return wanted.order_by(Decision.id.desc()).limit(most).subquery()


def _counts(newest: Subquery) -> list[ColumnElement[int]]:
    """Return columns that count allowed, denied and undecided decisions."""
    allowed, unknown = newest.c.allowed, newest.c.outcome == "unknown"
    wanted = (allowed, and_(not_(allowed), not_(unknown)), and_(not_(allowed), unknown))
    return [func.sum(case((condition, 1), else_=0)) for condition in wanted]


def first_since(session: Session, since: datetime) -> int | None:
    """Return the smallest decision number since a moment; None: there is none.

    Queries filter by number, since every index ends in it.
    """
    early = select(Decision.id).where(Decision.decided_at >= since)
    early = early.order_by(Decision.decided_at).limit(_DISORDER)
    found: int | None = session.execute(select(func.min(early.subquery().c.id))).scalar()
    return found


def _day(session: Session, at: ColumnElement[datetime]) -> ColumnElement[str]:
    """Return an expression for the day in UTC, ``2026-11-03``."""
    if session.get_bind().dialect.name == "sqlite":
        return func.substr(type_coerce(at, String), 1, 10)
    return func.to_char(func.timezone("UTC", at), "YYYY-MM-DD")


class DeniedRow(Struct, frozen=True):
    """A verdict that denied.

    Attributes:
        count: decisions with this verdict.
        image: of one of the decisions.
    """

    verdict_id: str
    target: str | None
    outcome: str
    count: int
    last: datetime
    image: str | None


def most_denied(session: Session, since: datetime, *, limit: int) -> list[DeniedRow]:
    """Return the verdicts that denied most often.

    Args:
        session: to read from.
        since: earliest time; of more than `MOST` decisions, the newest count.
        limit: most rows.
    """
    first = first_since(session, since)
    if first is None:
        return []
    columns = (
        Decision.verdict_id,
        Decision.target,
        Decision.outcome,
        Decision.decided_at,
        Decision.image,
    )
    denied = select(*columns).where(Decision.id >= first, Decision.decided_at >= since)
    denied = denied.where(Decision.allowed.is_(False))
    newest = denied.order_by(Decision.id.desc()).limit(MOST).subquery()
    count = func.count().label("count")
    key = (newest.c.verdict_id, newest.c.target, newest.c.outcome)
    last = func.max(newest.c.decided_at).label("last")
    query = select(*key, count, last, func.max(newest.c.image).label("image")).group_by(*key)
    rows = session.execute(query.order_by(count.desc(), newest.c.verdict_id).limit(limit))
    return [DeniedRow(*row) for row in rows]


MOST_VERDICTS = 5000
"""Most verdicts that a summary reads, the latest."""
_AT_ONCE = 500


class AskedStack(Struct, frozen=True):
    """A verdict and the decisions that gave it.

    Attributes:
        body: the verdict as first given.
        count: decisions with the verdict.
    """

    verdict_id: str
    target: str
    body: dict[str, Any]
    count: int
    first: datetime
    last: datetime


class AskedStacks(Struct, frozen=True):
    """Verdicts on targets.

    Attributes:
        found: the latest first.
        decisions: number of their decisions.
        complete: all decisions since the moment were read; else only the newest.
    """

    found: tuple[AskedStack, ...] = ()
    decisions: int = 0
    complete: bool = True


def asked_stacks(
    session: Session, targets: Sequence[str], since: datetime, *, most: int
) -> AskedStacks:
    """Return the verdicts on some targets.

    Args:
        session: to read from.
        targets: their names.
        since: earliest time.
        most: most decisions to read, the newest.
    """
    first = first_since(session, since)
    if first is None or not targets:
        return AskedStacks()
    wanted = select(Decision.verdict_id, Decision.target, Decision.decided_at).where(
        Decision.id >= first, Decision.decided_at >= since, Decision.target.in_(targets)
    )
    newest = wanted.order_by(Decision.id.desc()).limit(most).subquery()
    key = (newest.c.verdict_id, newest.c.target)
    last = func.max(newest.c.decided_at)
    query = select(*key, func.count(), func.min(newest.c.decided_at), last).group_by(*key)
    rows = session.execute(query.order_by(last.desc()).limit(MOST_VERDICTS + 1)).all()
    decisions = sum(row[2] for row in rows)
    kept = rows[:MOST_VERDICTS]
    bodies = _bodies(session, [row[0] for row in kept])
    found = tuple(AskedStack(row[0], row[1], bodies[row[0]], *row[2:]) for row in kept)
    return AskedStacks(found, decisions, decisions < most and len(rows) == len(kept))


def _bodies(session: Session, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for start in range(0, len(ids), _AT_ONCE):
        some = ids[start : start + _AT_ONCE]
        rows = session.execute(select(Verdict.id, Verdict.body).where(Verdict.id.in_(some)))
        found.update((row[0], msgspec.json.decode(row[1])) for row in rows)
    return found
