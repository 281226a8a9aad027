"""Count decisions by day, target and bar; find denied verdicts, asked stacks and who asked.

Each summary reads a bounded number of rows, the newest.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import date, datetime
from itertools import pairwise
from typing import Any

from msgspec import Struct
from sqlalchemy import (
    ColumnElement,
    String,
    Subquery,
    and_,
    case,
    func,
    literal,
    not_,
    select,
    type_coerce,
    union_all,
)
from sqlalchemy.orm import Session

from compatgate.service.gate.batches import NUMBERS, StoredBatch
from compatgate.service.gate.repository import IMAGE, Decision, read_bodies, text_filters

MAX_DECISIONS = 200_000
"""Most decisions that a summary reads; a chart does not need more."""
MAX_VERDICTS = 5000
"""Most verdicts that a summary reads, the latest."""
_CLOCK_DISORDER = 1000
"""Numbers may run ahead of the clock by so many: threads write at the same time."""
_MAX_ASKERS = 20


class DayRow(Struct, frozen=True):
    """Decisions of one day, in UTC.

    Attributes:
        undecided: the verdict was unknown, and the policy did not allow it.
    """

    day: date
    allowed: int = 0
    denied: int = 0
    undecided: int = 0


class DecisionCounts(Struct, frozen=True):
    """Numbers of decisions by day.

    Attributes:
        days: in order; days without decisions are missing.
        complete: all decisions count; else only the newest `MAX_DECISIONS`.
    """

    days: tuple[DayRow, ...]
    complete: bool


def count_by_day(
    session: Session, since: datetime, *, target: str | None = None, most: int = MAX_DECISIONS
) -> DecisionCounts:
    """Count decisions by day.

    Args:
        session: to read from.
        since: earliest time.
        target: only decisions on this target.
        most: most decisions to count, the newest.
    """
    newest = _select_newest(session, since, target, most)
    if newest is None:
        return DecisionCounts((), complete=True)
    day = _day_column(session, newest.c.decided_at).label("day")
    counts = _count_columns(newest.c.allowed, newest.c.outcome)
    query = select(day, *counts).group_by(day).order_by(day)
    rows = session.execute(query).all()
    days = tuple(DayRow(date.fromisoformat(row[0]), *map(int, row[1:])) for row in rows)
    return DecisionCounts(days, sum(d.allowed + d.denied + d.undecided for d in days) < most)


class BarRow(Struct, frozen=True):
    """Decisions of a span of time."""

    allowed: int = 0
    denied: int = 0
    undecided: int = 0


class BarCounts(Struct, frozen=True):
    """Numbers of decisions by span.

    Attributes:
        bars: one for each span, in order.
        complete: all decisions count; else only the newest `MAX_DECISIONS`.
    """

    bars: tuple[BarRow, ...]
    complete: bool


def count_bars(
    session: Session,
    edges: Sequence[datetime],
    *,
    texts: Mapping[str, str | None],
    verdict_ids: Collection[str] | None = None,
) -> BarCounts:
    """Count decisions between moments; the index on the time finds each span.

    Args:
        session: to read from.
        edges: begins of the spans, in order, and the end of the last one.
        texts: beginnings of target, token, source and image.
        verdict_ids: of the answer; None: any.
    """
    older = select(Decision.id).order_by(Decision.id.desc()).offset(MAX_DECISIONS).limit(1)
    floor: int | None = session.execute(older).scalar()
    conditions = list(text_filters(texts, beginnings=True))
    if verdict_ids is not None:
        conditions.append(Decision.verdict_id.in_(verdict_ids))
    if floor is not None:
        conditions.append(Decision.id > floor)
    spans = [
        select(literal(place).label("place"), *_count_columns(Decision.allowed, Decision.outcome))
        .where(Decision.decided_at >= begin, Decision.decided_at < end, *conditions)
        for place, (begin, end) in enumerate(pairwise(edges))
    ]  # fmt: skip
    found = {row[0]: BarRow(*(int(n or 0) for n in row[1:]))
             for row in session.execute(union_all(*spans))}  # fmt: skip
    return BarCounts(tuple(found[place] for place in range(len(spans))), floor is None)


def count_stopped_by_target(
    session: Session, since: datetime, *, most: int = MAX_DECISIONS
) -> dict[str, int]:
    """Count the decisions that did not allow the stack, by target; targets without any are missing.

    Args:
        session: to read from.
        since: earliest time.
        most: most decisions to read, the newest.
    """
    newest = _select_newest(session, since, None, most)
    if newest is None:
        return {}
    query = select(newest.c.target, func.count()).where(not_(newest.c.allowed))
    rows = session.execute(query.group_by(newest.c.target)).all()
    return {target: count for target, count in rows if target is not None}


def _select_newest(
    session: Session, since: datetime, target: str | None, most: int
) -> Subquery | None:
    """Return a query of the newest decisions since a moment; None: there are none."""
    first = find_first_since(session, since)
    if first is None:
        return None
    wanted = select(Decision.decided_at, Decision.allowed, Decision.outcome, Decision.target)
    wanted = wanted.where(Decision.id >= first, Decision.decided_at >= since)
    if target is not None:
        wanted = wanted.where(Decision.target == target)
    return wanted.order_by(Decision.id.desc()).limit(most).subquery()


def _count_columns(allowed: Any, outcome: Any) -> list[ColumnElement[int]]:
    """Return columns that count allowed, denied and undecided decisions."""
    unknown = outcome == "unknown"
    wanted = (allowed, and_(not_(allowed), not_(unknown)), and_(not_(allowed), unknown))
    return [func.sum(case((condition, 1), else_=0)) for condition in wanted]


def find_first_since(session: Session, since: datetime) -> int | None:
    """Return a decision number before which no decision is newer than a moment; None: none is.

    Queries filter by number, since every index ends in it. Numbers follow the clock, except those
    of decisions that were in a spool first.
    """
    late_batch = StoredBatch.late & (StoredBatch.id == Decision.id // NUMBERS)
    is_late = select(StoredBatch.id).where(late_batch).exists()
    early = select(Decision.id).where(Decision.decided_at >= since, not_(is_late))
    early = early.order_by(Decision.decided_at).limit(_CLOCK_DISORDER)
    found = session.execute(select(func.min(early.subquery().c.id))).scalar()
    late = select(func.min(StoredBatch.id)).where(StoredBatch.late, StoredBatch.decided_at >= since)
    first_late = session.execute(late).scalar()
    numbers = [number for number in (found, first_late and first_late * NUMBERS) if number]
    return min(numbers, default=None)


def _day_column(session: Session, at: ColumnElement[datetime]) -> ColumnElement[str]:
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


def list_most_denied(session: Session, since: datetime, *, limit: int) -> list[DeniedRow]:
    """Return the verdicts that denied most often.

    Args:
        session: to read from.
        since: earliest time; of more than `MOST` decisions, the newest count.
        limit: most rows.
    """
    first = find_first_since(session, since)
    if first is None:
        return []
    columns = (
        Decision.verdict_id,
        Decision.target,
        Decision.outcome,
        Decision.decided_at,
        IMAGE,
    )
    denied = select(*columns).where(Decision.id >= first, Decision.decided_at >= since)
    denied = denied.where(Decision.allowed.is_(False))
    newest = denied.order_by(Decision.id.desc()).limit(MAX_DECISIONS).subquery()
    count = func.count().label("count")
    key = (newest.c.verdict_id, newest.c.target, newest.c.outcome)
    last = func.max(newest.c.decided_at).label("last")
    query = select(*key, count, last, func.max(newest.c.image).label("image")).group_by(*key)
    rows = session.execute(query.order_by(count.desc(), newest.c.verdict_id).limit(limit))
    return [DeniedRow(*row) for row in rows]


class DeniedVerdict(Struct, frozen=True):
    """A denied verdict on a target, and how often and when it was last given."""

    verdict_id: str
    target: str | None
    count: int
    last: datetime


def list_denied_verdicts(
    session: Session, since: datetime, until: datetime, *, limit: int
) -> list[DeniedVerdict]:
    """Return the verdicts that denied most often in a time.

    Args:
        session: to read from.
        since: earliest time; of more than `MAX_DECISIONS` decisions, the newest count.
        until: latest time.
        limit: most rows.
    """
    wanted = select(Decision.verdict_id, Decision.target, Decision.decided_at)
    wanted = wanted.where(not_(Decision.allowed), Decision.decided_at.between(since, until))
    newest = wanted.order_by(Decision.decided_at.desc()).limit(MAX_DECISIONS).subquery()
    count, last = func.count().label("count"), func.max(newest.c.decided_at)
    query = select(newest.c.verdict_id, newest.c.target, count, last)
    query = query.group_by(newest.c.verdict_id, newest.c.target)
    rows = session.execute(query.order_by(count.desc(), newest.c.verdict_id).limit(limit))
    return [DeniedVerdict(*row) for row in rows]


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


def list_asked_stacks(
    session: Session,
    targets: Sequence[str] | None,
    since: datetime,
    *,
    most: int,
    verdicts: int = MAX_VERDICTS,
) -> AskedStacks:
    """Return the verdicts on some targets.

    Args:
        session: to read from.
        targets: their names; None: all targets.
        since: earliest time.
        most: most decisions to read, the newest.
        verdicts: most verdicts to read, the latest.
    """
    newest = _select_newest_on(session, targets, since, most)
    if newest is None:
        return AskedStacks()
    key = (newest.c.verdict_id, newest.c.target)
    last = func.max(newest.c.decided_at)
    query = select(*key, func.count(), func.min(newest.c.decided_at), last).group_by(*key)
    rows = session.execute(query.order_by(last.desc(), *key).limit(verdicts + 1)).all()
    decisions = sum(row[2] for row in rows)
    kept = rows[:verdicts]
    bodies = read_bodies(session, [row[0] for row in kept])
    found = tuple(AskedStack(row[0], row[1], bodies[row[0]], *row[2:]) for row in kept)
    return AskedStacks(found, decisions, decisions < most and len(rows) == len(kept))


def list_askers(
    session: Session, targets: Sequence[str] | None, since: datetime, *, most: int
) -> dict[str, tuple[str, ...]]:
    """Return who asked for the verdicts of `list_asked_stacks`, the latest first, by verdict.

    Args:
        session: to read from.
        targets: as of `list_asked_stacks`.
        since: earliest time.
        most: most decisions to read, the newest.
    """
    newest = _select_newest_on(session, targets, since, most)
    if newest is None:
        return {}
    key = (newest.c.verdict_id, newest.c.asked_by)
    last = func.max(newest.c.decided_at)
    found: dict[str, list[str]] = {}
    query = select(*key).group_by(*key).order_by(last.desc(), newest.c.asked_by)
    for verdict_id, asked_by in session.execute(query):
        names = found.setdefault(verdict_id, [])
        if len(names) < _MAX_ASKERS:
            names.append(asked_by)
    return {verdict_id: tuple(names) for verdict_id, names in found.items()}


def _select_newest_on(
    session: Session, targets: Sequence[str] | None, since: datetime, most: int
) -> Subquery | None:
    """Return a query of the newest decisions on some targets; None: there are none."""
    first = find_first_since(session, since)
    if first is None or (targets is not None and not targets):
        return None
    columns = (Decision.verdict_id, Decision.target, Decision.decided_at, Decision.asked_by)
    wanted = select(*columns).where(Decision.id >= first, Decision.decided_at >= since)
    of_targets = Decision.target.is_not(None)
    if targets is not None:
        of_targets = Decision.target.in_(targets)
    return wanted.where(of_targets).order_by(Decision.id.desc()).limit(most).subquery()
