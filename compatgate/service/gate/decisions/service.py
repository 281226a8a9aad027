"""List decisions and verdicts; count decisions by day, hour or minute, and who asked for what.

Each summary reads a bounded number of rows, the newest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime, time, timedelta
from typing import Any

import msgspec
from msgspec import Struct
from sqlalchemy import String, Subquery, and_, case, func, not_, select, type_coerce
from sqlalchemy.orm import Session

from compatgate.errors import Conflict
from compatgate.kit import clock
from compatgate.kit.clock import iso
from compatgate.kit.database.database import Database, in_reading
from compatgate.service.gate.decisions import repository as decisions
from compatgate.service.gate.decisions.batches import NUMBERS, StoredBatch
from compatgate.service.gate.decisions.repository import Decision, read_bodies, text_filters

MAX_DECISIONS = 200_000
_MAX_IMAGE_DECISIONS = 20_000
"""Most decisions that a summary reads; a chart does not need more."""
MAX_VERDICTS = 5000
"""Most verdicts that a summary reads, the latest."""
DAY, HOUR, MINUTE = timedelta(days=1), timedelta(hours=1), timedelta(minutes=1)
_CLOCK_DISORDER = 1000
"""Numbers may run ahead of the clock by so many: threads write at the same time."""
_MAX_ASKERS = 20
_LABELS = {DAY: (10, "YYYY-MM-DD"), HOUR: (13, 'YYYY-MM-DD"T"HH24'),
           MINUTE: (16, 'YYYY-MM-DD"T"HH24:MI')}  # fmt: skip
"""How a time in UTC begins that names a span: its length on SQLite, its form on PostgreSQL."""


class Bar(Struct, frozen=True):
    """Decisions of a day, an hour or a minute, in UTC.

    ``undecided``: the verdict was unknown, and the policy did not allow it.
    """

    begin: datetime
    allowed: int = 0
    denied: int = 0
    undecided: int = 0

    @property
    def total(self) -> int:
        """Return the number of decisions."""
        return self.allowed + self.denied + self.undecided


class BarCounts(Struct, frozen=True):
    """Numbers of decisions by span.

    ``complete``: all decisions of the time count; else only the newest.
    """

    bars: tuple[Bar, ...]
    complete: bool


def count_bars(
    session: Session,
    edges: Sequence[datetime],
    *,
    target: str | None = None,
    texts: Mapping[str, str | None] | None = None,
    verdict_ids: Collection[str] | None = None,
    most: int = MAX_DECISIONS,
) -> BarCounts:
    """Count decisions of whole days, hours or minutes in UTC."""
    within = [Decision.decided_at >= edges[0], Decision.decided_at < edges[-1]]
    order: Any = Decision.decided_at
    if target is not None:  # the index on the target ends in the number
        order, first = Decision.id, find_first_since(session, edges[0])
        within += [Decision.target == target, Decision.id >= (first or 0)]
    older = select(order).where(*within).order_by(order.desc()).offset(most).limit(1)
    floor = session.execute(older).scalar()
    if floor is not None:
        within.append(order > floor)
    within += text_filters(texts or {}, beginnings=True)
    if verdict_ids is not None:
        within.append(Decision.verdict_id.in_(verdict_ids))
    length, form = _LABELS[edges[1] - edges[0]]
    if session.get_bind().dialect.name == "sqlite":
        label = func.substr(type_coerce(Decision.decided_at, String), 1, length)
    else:
        label = func.to_char(func.timezone("UTC", Decision.decided_at), form)
    unknown, stopped = Decision.outcome == "unknown", not_(Decision.allowed)
    kinds = (Decision.allowed, and_(stopped, not_(unknown)), and_(stopped, unknown))
    sums = [func.sum(case((kind, 1), else_=0)) for kind in kinds]
    rows = session.execute(select(label, *sums).where(*within).group_by(label))
    counts = {row[0]: map(int, row[1:]) for row in rows}
    bars = (Bar(begin, *counts.get(iso(begin)[:length], ())) for begin in edges[:-1])
    return BarCounts(tuple(bars), floor is None)


def count_stopped_by_target(
    session: Session, since: datetime, *, most: int = MAX_DECISIONS
) -> dict[str, int]:
    """Count the decisions that did not allow the stack, by target; of very many, the newest."""
    newest = _select_newest_on(session, None, since, most)
    if newest is None:
        return {}
    stopped = select(newest.c.target, func.count()).where(not_(newest.c.allowed))
    rows = session.execute(stopped.group_by(newest.c.target))
    return {str(target): count for target, count in rows}


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


class DeniedVerdict(Struct, frozen=True):
    """A denied verdict on a target, and how often and when it was last given."""

    verdict_id: str
    target: str | None
    count: int
    last: datetime


def list_denied_verdicts(
    session: Session, since: datetime, until: datetime, *, limit: int
) -> list[DeniedVerdict]:
    """Return the verdicts that denied most often in a time."""
    wanted = select(Decision.verdict_id, Decision.target, Decision.decided_at)
    wanted = wanted.where(not_(Decision.allowed), Decision.decided_at.between(since, until))
    newest = wanted.order_by(Decision.decided_at.desc()).limit(MAX_DECISIONS).subquery()
    count, last = func.count().label("count"), func.max(newest.c.decided_at)
    query = select(newest.c.verdict_id, newest.c.target, count, last)
    query = query.group_by(newest.c.verdict_id, newest.c.target)
    rows = session.execute(query.order_by(count.desc(), newest.c.verdict_id).limit(limit))
    return [DeniedVerdict(*row) for row in rows]


class AskedStack(Struct, frozen=True):
    """A verdict and the decisions that gave it."""

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
    """Return the verdicts on some targets; ``targets``: their names; None: all targets."""
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
    """Return who asked for the verdicts of `list_asked_stacks`, the latest first, by verdict."""
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
    wanted = select(
        Decision.verdict_id,
        Decision.target,
        Decision.decided_at,
        Decision.asked_by,
        Decision.allowed,
    ).where(Decision.id >= first, Decision.decided_at >= since)
    of_targets = Decision.target.is_not(None)
    if targets is not None:
        of_targets = Decision.target.in_(targets)
    return wanted.where(of_targets).order_by(Decision.id.desc()).limit(most).subquery()


def list_allowed_images(
    session: Session, target: str, pool: str | None, entry: str, since: datetime
) -> Iterator[tuple[str, str]]:
    """Yield images that decisions allowed by an entry, newest first, each with its verdict's id.

    ``pool`` is None: the first pool of a decision counts.
    """
    asked = list_asked_stacks(session, [target], since, most=_MAX_IMAGE_DECISIONS)
    for one in asked.found:
        pools = one.body.get("entries") or {}
        named = pools.get(pool) if pool else next(iter(pools.values()), None)
        image = one.body.get("image")
        if image and one.body.get("allowed") and named == entry:
            yield image, one.verdict_id


class Decisions:
    """The decisions of a database, read only."""

    list_decisions = in_reading(decisions.list_decisions)
    show_decision = in_reading(decisions.show_decision)
    find_verdict_ids = in_reading(decisions.find_verdict_ids)
    count_bars = in_reading(count_bars)
    list_denied = in_reading(list_denied_verdicts)

    def __init__(self, database: Database) -> None:
        self._database = database

    def show_verdict(self, verdict_id: str) -> dict[str, Any]:
        """Return a verdict as first given."""
        with self._database.reading() as session:
            body = decisions.find_verdict(session, verdict_id)
        stored: dict[str, Any] = msgspec.json.decode(body)
        return stored

    def read_own(self, verdict_id: str) -> tuple[str, datetime | None]:
        """Return a verdict of this gate, and when it was last given; refuse a far gate's."""
        with self._database.reading() as session:
            stored = decisions.find_verdict(session, verdict_id)
            far = decisions.find_far_gate(session, verdict_id)
            confirmed = decisions.last_given_at(session, verdict_id)
        if far is not None:
            what = f"the far gate {far} gave this verdict, not this gate"
            hint = "a gate signs its own verdicts; ask this gate about the image by its digest"
            raise Conflict(what, field="id", value=verdict_id, hint=hint)
        return stored, confirmed

    def read_verdicts(self, ids: Collection[str]) -> dict[str, dict[str, Any]]:
        """Return the verdicts of these ids as first given; missing ones are left out."""
        with self._database.reading() as session:
            return decisions.read_bodies(session, sorted(set(ids)))

    def decisions_per_day(self, days: int, *, target: str | None = None) -> BarCounts:
        """Return decisions per day of the last days in UTC, 1 to 366, with today and empty days."""
        today = datetime.combine(clock.today(), time(), UTC)
        back = range(min(max(days, 1), 366) - 1, -2, -1)
        edges = [today - timedelta(days=n) for n in back]
        with self._database.reading() as session:
            return count_bars(session, edges, target=target)

    def stopped_per_target(self, days: int) -> dict[str, int]:
        """Return the number of denied decisions of the last days, by target."""
        since = clock.now() - timedelta(days=days)
        with self._database.reading() as session:
            return count_stopped_by_target(session, since)
