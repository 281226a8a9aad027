"""Store verdicts by content, and list and summarise decisions: who asked, when, and the answer.

`compatgate.service.gate.batch_store` writes them. Each summary reads a bounded number of rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import date, datetime
from itertools import pairwise
from typing import Any

import msgspec
from msgspec import Struct
from sqlalchemy import (
    Boolean,
    ColumnElement,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    Subquery,
    Text,
    and_,
    case,
    func,
    literal,
    not_,
    or_,
    select,
    type_coerce,
    union_all,
)
from sqlalchemy.orm import Mapped, Session, mapped_column

from compatgate.errors import NotFound
from compatgate.kit.clock import iso
from compatgate.kit.database.tables import (
    DEFAULT_LIMIT,
    Base,
    BigKey,
    Page,
    UtcTime,
    page,
    to_plain,
)
from compatgate.service.gate.batches import NUMBERS, StoredBatch, far_gate_of
from compatgate.service.gate.decider import NewDecision
from compatgate.service.gate.verdict_bodies import read_body
from compatgate.service.tokens.principal import TargetPatterns, in_limit


class Verdict(Base):
    """A verdict; its id is a digest of its basis, so each verdict is stored once."""

    __tablename__ = "verdicts"

    id: Mapped[str] = mapped_column(Text, primary_key=True, comment="vd_...")
    body: Mapped[str] = mapped_column(Text, comment="The answer as JSON, as first given")
    packed: Mapped[bytes | None] = mapped_column(
        LargeBinary, comment="The answer as JSON, Zstandard"
    )
    batch: Mapped[int | None] = mapped_column(
        BigKey, comment="That brought it; null: an audit link did"
    )
    image: Mapped[str | None] = mapped_column(Text, comment="Of its decisions")


class Decision(Base):
    """An answered question."""

    __tablename__ = "decisions"
    __table_args__ = (
        Index(None, "target", "id"),
        Index(None, "decided_at"),
        Index(None, "verdict_id"),
    )

    id: Mapped[int] = mapped_column(
        BigKey,
        primary_key=True,
        autoincrement=False,
        comment="1000 x its batch, plus its place in it",
    )
    verdict_id: Mapped[str] = mapped_column(ForeignKey("verdicts.id"))
    decided_at: Mapped[datetime] = mapped_column(UtcTime)
    target: Mapped[str | None] = mapped_column(Text, comment="Null: the question described a pool")
    outcome: Mapped[str] = mapped_column(Text, comment="pass, warn, unknown or fail")
    allowed: Mapped[bool] = mapped_column(Boolean)
    matrix_revision: Mapped[int] = mapped_column(Integer)
    image: Mapped[str | None] = mapped_column(
        Text, comment="Null: that of the verdict; empty: none"
    )
    asked_by: Mapped[str] = mapped_column(Text, comment="Name of the token, or anonymous")
    source: Mapped[str] = mapped_column(Text, comment="rest, cli, hook:kubernetes, ...")
    duration_us: Mapped[int] = mapped_column(Integer, comment="Microseconds that deciding took")


_IMAGE_OF_VERDICT = select(Verdict.image).where(Verdict.id == Decision.verdict_id)
IMAGE = func.nullif(func.coalesce(Decision.image, _IMAGE_OF_VERDICT.scalar_subquery()), "").label(
    "image"
)
"""The image of a decision; a verdict's id covers its image, so its decisions have the same one."""
_ROW = [IMAGE if column.name == "image" else column for column in Decision.__table__.columns]


class DecisionRow(Struct, frozen=True):
    """An answered question, as listed."""

    id: int
    verdict_id: str
    decided_at: datetime
    target: str | None
    outcome: str
    allowed: bool
    matrix_revision: int
    image: str | None
    asked_by: str
    source: str
    duration_us: int

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return to_plain(self)


_encode = msgspec.json.Encoder().encode


def encode_decision_lines(lines: Sequence[Sequence[Any]]) -> bytes:
    """Return lines as JSON; until schema 0006 audit links had the digest of these bytes."""
    return _encode(lines)


def find_verdict(session: Session, verdict_id: str) -> str:
    """Return the JSON of a verdict as first given.

    Raises:
        NotFound: this gate never gave that verdict.
    """
    query = select(Verdict.body, Verdict.packed).where(Verdict.id == verdict_id)
    row = session.execute(query).first()
    if row is None:
        hint = "each gate stores its own verdicts: ask the gate that gave it"
        raise NotFound(
            f"there is no verdict {verdict_id!r}", field="id", value=verdict_id, hint=hint
        )
    return read_body(row.body, row.packed)


def find_verdict_ids(session: Session, beginning: str, *, limit: int) -> list[str]:
    """Return the ids of verdicts that begin with a text, in order.

    Args:
        session: to read from.
        beginning: ``vd_`` and hexadecimal digits.
        limit: most ids.
    """
    within = Verdict.id.between(beginning, f"{beginning}g")  # g follows the last digit
    query = select(Verdict.id).where(within).order_by(Verdict.id).limit(limit)
    return list(session.execute(query).scalars())


def find_far_gate(session: Session, verdict_id: str) -> str | None:
    """Return the name of the far gate that brought a verdict; None: this gate gave it first."""
    query = (
        select(StoredBatch.writer)
        .join(Verdict, Verdict.batch == StoredBatch.id)
        .where(Verdict.id == verdict_id)
    )
    writer: str | None = session.execute(query).scalar()
    return far_gate_of(writer) if writer else None


def last_given_at(session: Session, verdict_id: str) -> datetime | None:
    """Return the time when a verdict was last given; None: its decisions were deleted."""
    query = select(func.max(Decision.decided_at)).where(Decision.verdict_id == verdict_id)
    last: datetime | None = session.execute(query).scalar()
    return last


def show_decision(session: Session, number: int) -> DecisionRow:
    """Return one decision.

    Raises:
        NotFound: there is no such decision.
    """
    row = session.execute(select(*_ROW).where(Decision.id == number)).first()
    if row is None:
        raise NotFound(f"there is no decision {number}", field="id", value=number)
    return _to_row(row)


def read_decision_lines(session: Session, first: int = 0, last: int = 2**62) -> Iterator[list[Any]]:
    """Yield stored decisions, in order: the number, and the values as they were hashed.

    Args:
        session: to read from.
        first: smallest number.
        last: largest number.
    """
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
) -> Page[DecisionRow]:
    """Return decisions, newest first.

    Args:
        session: to read from.
        target: of the question.
        verdict: ``pass``, ``warn``, ``unknown`` or ``fail``.
        verdict_id: of the answer.
        allowed: decision of the policy.
        asked_by: name of the token.
        source: channel of the question; one without a detail stands for all its details.
        image: exact reference.
        since: earliest time.
        until: latest time.
        verdict_ids: of the answer; None: any.
        beginnings: target, token, source and image are given by their beginning.
        within: limit of the caller to targets; None: no limit.
        cursor: of the page.
        limit: most rows.
    """
    query = select(*_ROW)
    texts = {"target": target, "asked_by": asked_by, "source": source, "image": image}
    exact = {"outcome": verdict, "verdict_id": verdict_id, "allowed": allowed}
    query = query.where(*_text_filters(texts, beginnings=beginnings))
    query = query.where(
        *(getattr(Decision, name) == value for name, value in exact.items() if value is not None)
    )
    if verdict_ids is not None:
        query = query.where(Decision.verdict_id.in_(verdict_ids))
    if since:
        query = query.where(Decision.decided_at >= since)
    if until:
        query = query.where(Decision.decided_at <= until)
    if within is not None:
        query = query.where(in_limit(session, Decision.target, within))
    return page(session, query, Decision.id, _to_row, cursor=cursor, limit=limit, descending=True)


def _text_filters(
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


def _to_row(row: Any) -> DecisionRow:
    return DecisionRow(**row._mapping)


MAX_DECISIONS = 200_000
"""Most decisions that a summary reads; a chart does not need more."""
_CLOCK_DISORDER = 1000
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


class DecisionCounts(Struct, frozen=True):
    """Numbers of decisions by day.

    Attributes:
        days: in order; days without decisions are missing.
        complete: all decisions count; else only the newest `MOST`.
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
    conditions = list(_text_filters(texts, beginnings=True))
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


MAX_VERDICTS = 5000
"""Most verdicts that a summary reads, the latest."""
_VERDICTS_PER_QUERY = 500


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


_MAX_ASKERS = 20


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


def read_bodies(session: Session, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the verdicts of these ids as first given; missing ones are left out."""
    found: dict[str, dict[str, Any]] = {}
    for start in range(0, len(ids), _VERDICTS_PER_QUERY):
        some = ids[start : start + _VERDICTS_PER_QUERY]
        query = select(Verdict.id, Verdict.body, Verdict.packed).where(Verdict.id.in_(some))
        rows = session.execute(query)
        found.update((row.id, msgspec.json.decode(read_body(row.body, row.packed))) for row in rows)
    return found
