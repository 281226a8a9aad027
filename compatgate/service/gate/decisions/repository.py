"""Store verdicts by content, and list decisions: who asked, when, and the answer.

`compatgate.service.gate.decisions.batch_store` writes them; `service` summarises them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct, convert
from msgspec.structs import replace
from sqlalchemy import (
    Boolean,
    ColumnElement,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Text,
    and_,
    func,
    not_,
    or_,
    select,
)
from sqlalchemy.orm import Mapped, Session, mapped_column

from compatgate.core.rule import Outcome
from compatgate.errors import NotFound
from compatgate.kit.clock import iso
from compatgate.kit.database.tables import (
    DEFAULT_LIMIT,
    Base,
    BigKey,
    Page,
    UtcTime,
    in_limit,
    page,
)
from compatgate.kit.principal import TargetPatterns
from compatgate.service.gate.decisions.batches import NUMBERS, StoredBatch, far_gate_of
from compatgate.service.gate.questions.decider import NewDecision
from compatgate.service.gate.questions.schemas import DecisionBody
from compatgate.service.gate.questions.verdict_bodies import read_body


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


_encode = msgspec.json.Encoder().encode


def encode_decision_lines(lines: Sequence[Sequence[Any]]) -> bytes:
    """Return lines as JSON; until schema 0006 audit links had the digest of these bytes."""
    return _encode(lines)


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
    """Return when this gate last gave a verdict; None: its decisions were deleted.

    Decisions that a far gate delivered do not count.
    """
    query = (
        select(Decision.decided_at)
        .join(StoredBatch, StoredBatch.id == Decision.id // NUMBERS)
        .where(Decision.verdict_id == verdict_id, not_(StoredBatch.writer.contains(":")))
        .order_by(Decision.id.desc())
        .limit(1)
    )
    last: datetime | None = session.execute(query).scalar()
    return last


def show_decision(session: Session, number: int) -> DecisionBody:
    """Return one decision."""
    row = session.execute(select(*_ROW).where(Decision.id == number)).first()
    if row is None:
        raise NotFound(f"decision {number} does not exist", field="id", value=number)
    return _to_row(row)


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
    query = select(*_ROW)
    texts = {"target": target, "asked_by": asked_by, "source": source, "image": image}
    exact = {"outcome": verdict, "verdict_id": verdict_id, "allowed": allowed}
    query = query.where(*text_filters(texts, beginnings=beginnings))
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


class GivenAnswer(Struct, frozen=True):
    """A verdict, and the decisions of a period that gave it.

    Attributes:
        matrix_revision: the first that it was decided on.
        asked_by: who asked, the latest first.
    """

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


def _to_row(row: Any) -> DecisionBody:
    return convert(row, DecisionBody, from_attributes=True)


_VERDICTS_PER_QUERY = 500


def read_bodies(session: Session, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the verdicts of these ids as first given; missing ones are left out."""
    found: dict[str, dict[str, Any]] = {}
    for start in range(0, len(ids), _VERDICTS_PER_QUERY):
        some = ids[start : start + _VERDICTS_PER_QUERY]
        query = select(Verdict.id, Verdict.body, Verdict.packed).where(Verdict.id.in_(some))
        rows = session.execute(query)
        found.update((row.id, msgspec.json.decode(read_body(row.body, row.packed))) for row in rows)
    return found
