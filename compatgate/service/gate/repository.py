"""Store verdicts by content, and list decisions: who asked, when, and the answer.

`compatgate.service.gate.decision_writer` writes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import astuple
from sqlalchemy import Boolean, ForeignKey, Index, Integer, Text, func, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from compatgate.errors import NotFound
from compatgate.kit.clock import iso
from compatgate.kit.database.tables import DEFAULT, Base, BigKey, Page, UtcTime, page, to_plain


class Verdict(Base):
    """A verdict; its id is a digest of its basis, so each verdict is stored once."""

    __tablename__ = "verdicts"

    id: Mapped[str] = mapped_column(Text, primary_key=True, comment="vd_...")
    body: Mapped[str] = mapped_column(Text, comment="The answer as JSON, as first given")


class Decision(Base):
    """An answered question."""

    __tablename__ = "decisions"
    __table_args__ = (
        Index(None, "target", "id"),
        Index(None, "decided_at"),
        Index(None, "verdict_id"),
    )

    id: Mapped[int] = mapped_column(
        BigKey, primary_key=True, autoincrement=False, comment="1, 2, 3, ... without gaps"
    )
    verdict_id: Mapped[str] = mapped_column(ForeignKey("verdicts.id"))
    decided_at: Mapped[datetime] = mapped_column(UtcTime)
    target: Mapped[str | None] = mapped_column(Text, comment="Null: the question described a pool")
    outcome: Mapped[str] = mapped_column(Text, comment="pass, warn, unknown or fail")
    allowed: Mapped[bool] = mapped_column(Boolean)
    matrix_revision: Mapped[int] = mapped_column(Integer)
    image: Mapped[str | None] = mapped_column(Text)
    asked_by: Mapped[str] = mapped_column(Text, comment="Name of the token, or anonymous")
    source: Mapped[str] = mapped_column(Text, comment="rest, cli, hook:kubernetes, ...")
    duration_us: Mapped[int] = mapped_column(Integer, comment="Microseconds that deciding took")


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


class NewDecision(Struct, frozen=True):
    """A decision before it has a number."""

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


def line(number: int, decision: NewDecision) -> list[Any]:
    """Return a decision as the stored and hashed values, in the order of the columns."""
    verdict_id, decided_at, *others = astuple(decision)
    return [number, verdict_id, iso(decided_at), *others]


def encode_lines(lines: Sequence[Sequence[Any]]) -> bytes:
    """Return lines as JSON; the audit chain holds the digest of these bytes."""
    return _encode(lines)


def verdict(session: Session, verdict_id: str) -> str:
    """Return the JSON of a verdict as first given.

    Raises:
        NotFound: this gate never gave that verdict.
    """
    query = select(Verdict.body).where(Verdict.id == verdict_id)
    body: str | None = session.execute(query).scalar()
    if body is None:
        hint = "each gate stores its own verdicts: ask the gate that gave it"
        raise NotFound(
            f"there is no verdict {verdict_id!r}", field="id", value=verdict_id, hint=hint
        )
    return body


def confirmed_at(session: Session, verdict_id: str) -> datetime | None:
    """Return the time when a verdict was last given; None: its decisions were deleted."""
    query = select(func.max(Decision.decided_at)).where(Decision.verdict_id == verdict_id)
    last: datetime | None = session.execute(query).scalar()
    return last


def show(session: Session, number: int) -> DecisionRow:
    """Return one decision.

    Raises:
        NotFound: there is no such decision.
    """
    row = session.execute(select(Decision.__table__).where(Decision.id == number)).first()
    if row is None:
        raise NotFound(f"there is no decision {number}", field="id", value=number)
    return _row(row)


def stored_lines(session: Session) -> Iterator[list[Any]]:
    """Yield every stored decision as a `line`, in order."""
    query = select(*(getattr(Decision, name) for name in ("id", *NewDecision.__struct_fields__)))
    rows = session.execute(query.order_by(Decision.id).execution_options(yield_per=2000))
    for number, *values in rows:
        yield line(number, NewDecision(*values))


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
    cursor: str | None = None,
    limit: int = DEFAULT,
) -> Page[DecisionRow]:
    """Return decisions, newest first.

    Args:
        session: to read from.
        target: of the question.
        verdict: ``pass``, ``warn``, ``unknown`` or ``fail``.
        verdict_id: of the answer.
        allowed: decision of the policy.
        asked_by: name of the token.
        source: channel of the question.
        image: exact reference.
        since: earliest time.
        until: latest time.
        cursor: of the page.
        limit: most rows.
    """
    query = select(Decision.__table__)
    wanted = (
        (Decision.target, target),
        (Decision.outcome, verdict),
        (Decision.verdict_id, verdict_id),
        (Decision.asked_by, asked_by),
        (Decision.source, source),
        (Decision.image, image),
        (Decision.allowed, allowed),
    )
    for column, value in wanted:
        if value is not None:
            query = query.where(column == value)
    if since:
        query = query.where(Decision.decided_at >= since)
    if until:
        query = query.where(Decision.decided_at <= until)
    return page(session, query, Decision.id, _row, cursor=cursor, limit=limit, descending=True)


def _row(row: Any) -> DecisionRow:
    return DecisionRow(**row._mapping)
