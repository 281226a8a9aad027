"""Read decisions and verdicts back: list them, count them by time, and tell who asked for what.

Each summary reads a bounded number of rows, the newest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime, time, timedelta
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct, convert
from msgspec.structs import replace
from sqlalchemy import (
    ColumnElement,
    String,
    Subquery,
    and_,
    case,
    func,
    not_,
    or_,
    select,
    type_coerce,
)
from sqlalchemy.orm import Session

from compatgate.core.rule import Outcome
from compatgate.errors import Conflict, NotFound
from compatgate.kit import clock
from compatgate.kit.clock import iso
from compatgate.kit.database.database import Database, in_reading
from compatgate.kit.database.tables import DEFAULT_LIMIT, Page, in_limit, in_parts, narrow, page
from compatgate.kit.principal import TargetPatterns
from compatgate.service.gate.decisions.batches import (
    NUMBERS,
    Decision,
    StoredBatch,
    Verdict,
    far_gate_of,
)
from compatgate.service.gate.questions.decider import NewDecision
from compatgate.service.gate.questions.schemas import DecisionBody
from compatgate.service.gate.questions.verdict_bodies import read_body

MAX_DECISIONS = 200_000
_MAX_IMAGE_DECISIONS = 20_000
"""Most decisions that a summary reads; a chart does not need more."""
MAX_VERDICTS = 5000
"""Most verdicts that a summary reads, the latest."""
DAY, HOUR, MINUTE = timedelta(days=1), timedelta(hours=1), timedelta(minutes=1)
_CLOCK_DISORDER = 1000
"""Numbers may run ahead of the clock by so many: threads write at the same time."""
_MAX_ASKERS = 20
_IMAGE_OF_VERDICT = select(Verdict.image).where(Verdict.id == Decision.verdict_id)
IMAGE = func.nullif(func.coalesce(Decision.image, _IMAGE_OF_VERDICT.scalar_subquery()), "").label(
    "image"
)
"""The image of a decision; a verdict's id covers its image, so its decisions have the same one."""
_ROW = [IMAGE if column.name == "image" else column for column in Decision.__table__.columns]
_LABELS = {DAY: (10, "YYYY-MM-DD"), HOUR: (13, 'YYYY-MM-DD"T"HH24'),
           MINUTE: (16, 'YYYY-MM-DD"T"HH24:MI')}  # fmt: skip
"""How a time in UTC begins that names a span: its length on SQLite, its form on PostgreSQL."""


def find_verdict(session: Session, verdict_id: str) -> str:
    """Return the JSON of a verdict as first given."""
    query = select(Verdict.body, Verdict.packed).where(Verdict.id == verdict_id)
    row = session.execute(query).first()
    if row is None:
        hint = "each gate stores its own verdicts: ask the gate that gave it"
        raise NotFound(
            f"verdict {verdict_id!r} does not exist", field="id", value=verdict_id, hint=hint
        )
    return read_body(row.body, row.packed)


def find_verdict_ids(session: Session, beginning: str, *, limit: int) -> list[str]:
    """Return the ids of verdicts that begin with a text, in order."""
    within = Verdict.id.between(beginning, f"{beginning}g")  # g follows the last digit
    query = select(Verdict.id).where(within).order_by(Verdict.id).limit(limit)
    return list(session.execute(query).scalars())


def show_decision(session: Session, number: int) -> DecisionBody:
    """Return one decision."""
    row = session.execute(select(*_ROW).where(Decision.id == number)).first()
    if row is None:
        raise NotFound(f"decision {number} does not exist", field="id", value=number)
    return convert(row, DecisionBody, from_attributes=True)


def read_decision_lines(session: Session, first: int = 0, last: int = 2**62) -> Iterator[list[Any]]:
    """Yield stored decisions, in order: the number, and the values as they were hashed."""
    columns = {column.name: column for column in _ROW}
    query = select(*(columns[name] for name in ("id", *NewDecision.__struct_fields__)))
    query = query.where(Decision.id.between(first, last)).order_by(Decision.id)
    for number, verdict_id, decided_at, *others in session.execute(
        query.execution_options(yield_per=2000)
    ):
        yield [number, verdict_id, iso(decided_at), *others]


def list_decisions(
    session: Session,
    *,
    target: str | None = None,
    verdict: str | None = None,
    verdict_id: str | None = None,
    allowed: bool | None = None,
    asked_by: str | None = None,
    source: str | None = None,
    image: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    verdict_ids: Collection[str] | None = None,
    beginnings: bool = False,
    within: TargetPatterns | None = None,
    cursor: str | None = None,
    limit: int = DEFAULT_LIMIT,
) -> Page[DecisionBody]:
    """Return decisions, newest first.

    ``source``: channel of the question; one without a detail stands for all its details.
    """
    texts = {"target": target, "asked_by": asked_by, "source": source, "image": image}
    equal = {
        Decision.outcome: verdict, Decision.verdict_id: verdict_id, Decision.allowed: allowed
    }  # fmt: skip
    query = select(*_ROW).where(*text_filters(texts, beginnings=beginnings))
    query = narrow(query, equal, at=Decision.decided_at, since=since, until=until)
    if verdict_ids is not None:
        query = query.where(Decision.verdict_id.in_(verdict_ids))
    if within is not None:
        query = query.where(in_limit(session, Decision.target, within))
    to_row = partial(convert, type=DecisionBody, from_attributes=True)
    return page(session, query, Decision.id, to_row, cursor=cursor, limit=limit, descending=True)


class GivenAnswer(Struct, frozen=True):
    """A verdict, and the decisions of a period that gave it, from its first matrix revision on."""

    verdict_id: str
    outcome: Outcome
    allowed: bool
    decisions: int
    first: datetime
    last: datetime
    matrix_revision: int
    asked_by: list[str]
    sources: list[str]


def list_answers(
    session: Session, target: str | None, since: datetime, until: datetime
) -> list[GivenAnswer]:
    """Return the answers of a period; the database counts, since there may be very many."""
    given = (Decision.verdict_id, Decision.outcome, Decision.allowed)
    asked = (Decision.asked_by, Decision.source)
    last = func.max(Decision.decided_at)
    sums = (func.count(), func.min(Decision.decided_at), last, func.min(Decision.matrix_revision))
    query = select(*given, *sums, *asked).where(Decision.decided_at.between(since, until))
    query = query.where(*text_filters({"target": target}, beginnings=False))
    found: dict[str, GivenAnswer] = {}
    for row in session.execute(query.group_by(*given, *asked).order_by(last.desc())):
        *counted, asked_by, source = row
        values: list[Any] = [*counted, [asked_by], [source]]
        one = GivenAnswer(*values)
        if known := found.get(one.verdict_id):
            one = replace(
                known,
                decisions=known.decisions + one.decisions,
                first=min(known.first, one.first),
                matrix_revision=min(known.matrix_revision, one.matrix_revision),
                asked_by=[*dict.fromkeys((*known.asked_by, asked_by))],
                sources=[*dict.fromkeys((*known.sources, source))],
            )
        found[one.verdict_id] = one
    return list(found.values())


def text_filters(
    texts: Mapping[str, str | None], *, beginnings: bool
) -> Iterator[ColumnElement[bool]]:
    """Yield the conditions of filters by text: the whole text, or its beginning."""

    def matches(column: Any, text: str) -> ColumnElement[bool]:
        found: ColumnElement[bool] = (
            column.startswith(text, autoescape=True) if beginnings else column == text
        )
        return found

    for name in ("target", "asked_by", "source"):
        if (text := texts.get(name)) is None:
            continue
        column = getattr(Decision, name)
        condition = matches(column, text)
        if name == "source" and not beginnings:  # the Kubernetes hook adds who placed the workload
            condition = or_(condition, column.startswith(f"{text}/", autoescape=True))
        yield condition
    if (image := texts.get("image")) is not None:
        with_image = select(Verdict.id).where(matches(Verdict.image, image))
        its_verdicts = and_(Decision.image.is_(None), Decision.verdict_id.in_(with_image))
        yield or_(matches(Decision.image, image), its_verdicts)


def read_bodies(session: Session, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the verdicts of these ids as first given; missing ones are left out."""
    found: dict[str, dict[str, Any]] = {}
    for some in in_parts(ids):
        query = select(Verdict.id, Verdict.body, Verdict.packed).where(Verdict.id.in_(some))
        rows = session.execute(query)
        found.update((row.id, msgspec.json.decode(read_body(row.body, row.packed))) for row in rows)
    return found


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
    """Verdicts on targets, the latest first; ``complete``: all decisions were read."""

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
    target = Decision.target
    of_targets = target.is_not(None) if targets is None else target.in_(targets)
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

    list_decisions = in_reading(list_decisions)
    show_decision = in_reading(show_decision)
    find_verdict_ids = in_reading(find_verdict_ids)
    count_bars = in_reading(count_bars)
    list_denied = in_reading(list_denied_verdicts)

    def __init__(self, database: Database) -> None:
        self._database = database

    def show_verdict(self, verdict_id: str) -> dict[str, Any]:
        """Return a verdict as first given."""
        with self._database.reading() as session:
            body = find_verdict(session, verdict_id)
        stored: dict[str, Any] = msgspec.json.decode(body)
        return stored

    def read_own(self, verdict_id: str) -> tuple[str, datetime | None]:
        """Return a verdict of this gate, and when it was last given; refuse a far gate's.

        What a far gate delivered never renews it. None: the decisions were deleted.
        """
        by_writer = select(StoredBatch.writer).join(Verdict, Verdict.batch == StoredBatch.id)
        own = select(Decision.decided_at).join(
            StoredBatch, StoredBatch.id == Decision.id // NUMBERS
        )
        own = own.where(Decision.verdict_id == verdict_id, not_(StoredBatch.writer.contains(":")))
        with self._database.reading() as session:
            stored = find_verdict(session, verdict_id)
            writer = session.execute(by_writer.where(Verdict.id == verdict_id)).scalar()
            last = session.execute(own.order_by(Decision.id.desc()).limit(1)).scalar()
        if writer and (far := far_gate_of(writer)) is not None:
            what = f"the far gate {far} gave this verdict, not this gate"
            hint = "a gate signs its own verdicts; ask this gate about the image by its digest"
            raise Conflict(what, field="id", value=verdict_id, hint=hint)
        return stored, last

    def read_verdicts(self, ids: Collection[str]) -> dict[str, dict[str, Any]]:
        """Return the verdicts of these ids as first given; missing ones are left out."""
        with self._database.reading() as session:
            return read_bodies(session, sorted(set(ids)))

    def decisions_per_day(self, days: int, *, target: str | None = None) -> BarCounts:
        """Return decisions per day of the last days in UTC, 1 to 366, with today and empty days."""
        today = datetime.combine(clock.today(), time(), UTC)
        edges = [today - timedelta(days=n) for n in range(min(max(days, 1), 366) - 1, -2, -1)]
        with self._database.reading() as session:
            return count_bars(session, edges, target=target)

    def stopped_per_target(self, days: int) -> dict[str, int]:
        """Count the denied decisions of the last days by target; of very many, the newest."""
        since = clock.now() - timedelta(days=days)
        with self._database.reading() as session:
            newest = _select_newest_on(session, None, since, MAX_DECISIONS)
            if newest is None:
                return {}
            stopped = select(newest.c.target, func.count()).where(not_(newest.c.allowed))
            rows = session.execute(stopped.group_by(newest.c.target))
            return {str(target): count for target, count in rows}
