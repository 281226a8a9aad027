"""Store baselines: the expected distribution of a metric, in versions."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct
from sqlalchemy import Index, Integer, Text, UniqueConstraint, insert, select, update
from sqlalchemy.orm import Mapped, Session, mapped_column

from compatgate.errors import Conflict, NotFound
from compatgate.kit.database.tables import (
    DEFAULT_LIMIT,
    Base,
    BigKey,
    Page,
    UtcTime,
    page,
    to_plain,
)


class Baseline(Base):
    """A version of a metric's expected distribution, for a workload, a SKU and a stack family."""

    __tablename__ = "baselines"
    __table_args__ = (
        UniqueConstraint("workload", "sku", "family", "metric", "version"),
        Index(None, "state", "id"),
    )

    id: Mapped[int] = mapped_column(BigKey, primary_key=True)
    workload: Mapped[str] = mapped_column(Text)
    sku: Mapped[str] = mapped_column(Text)
    family: Mapped[str] = mapped_column(Text, comment="Of the stack")
    metric: Mapped[str] = mapped_column(Text)
    version: Mapped[int] = mapped_column(Integer, comment="1, 2, ... for each metric")
    state: Mapped[str] = mapped_column(Text, comment="proposed, approved, replaced or refused")
    body: Mapped[str] = mapped_column(Text, comment="The distribution, as the judge reads it")
    proposed_at: Mapped[datetime] = mapped_column(UtcTime)
    proposed_by: Mapped[str] = mapped_column(Text)
    decided_at: Mapped[datetime | None] = mapped_column(UtcTime)
    decided_by: Mapped[str | None] = mapped_column(Text)


class BaselineRow(Struct, frozen=True):
    """A version of a baseline; ``body`` is what the judge reads, as plain data."""

    id: int
    workload: str
    sku: str
    family: str
    metric: str
    version: int
    state: str
    body: dict[str, Any]
    proposed_at: datetime
    proposed_by: str
    decided_at: datetime | None
    decided_by: str | None

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return to_plain(self)


_COLUMNS = [getattr(Baseline, name) for name in BaselineRow.__struct_fields__]
_encode = msgspec.json.Encoder(order="deterministic").encode
Key = tuple[str, str, str, str]
"""Workload, SKU, stack family, metric."""


def latest_version(session: Session, key: Key) -> BaselineRow | None:
    """Return the last version of a metric's baseline, in any state."""
    query = select(*_COLUMNS).where(*_has_key(key)).order_by(Baseline.version.desc()).limit(1)
    found = session.execute(query).first()
    return _row(found) if found else None


def approved_baselines(
    session: Session, *, workload: str, sku: str, family: str
) -> dict[str, BaselineRow]:
    """Return the approved baselines of a workload, SKU and family, by metric."""
    query = select(*_COLUMNS).where(
        Baseline.workload == workload,
        Baseline.sku == sku,
        Baseline.family == family,
        Baseline.state == "approved",
    )
    return {row.metric: row for row in map(_row, session.execute(query))}


def approved_by_family(session: Session, key: Key) -> dict[str, BaselineRow]:
    """Return the approved baselines of the metric's other families, by family."""
    workload, sku, family, metric = key
    query = select(*_COLUMNS).where(
        Baseline.workload == workload,
        Baseline.sku == sku,
        Baseline.family != family,
        Baseline.metric == metric,
        Baseline.state == "approved",
    )
    return {row.family: row for row in map(_row, session.execute(query))}


def propose_version(
    session: Session, key: Key, body: dict[str, Any], *, by: str, at: datetime
) -> int:
    """Propose a version, or renew the proposed one; return its id.

    Args:
        session: a writing one.
        key: of the metric.
        body: as the judge reads it.
        by: who proposes: a run, or a user.
        at: now.
    """
    last = latest_version(session, key)
    text = _encode(body).decode()
    if last is not None and last.state == "proposed":
        renewed = update(Baseline).where(Baseline.id == last.id)
        session.execute(renewed.values(body=text, proposed_at=at, proposed_by=by))
        return last.id
    names = ("workload", "sku", "family", "metric")
    values = {
        **dict(zip(names, key, strict=True)),
        "version": last.version + 1 if last else 1,
        "state": "proposed",
        "body": text,
        "proposed_at": at,
        "proposed_by": by,
    }
    session.execute(insert(Baseline), [values])
    made = latest_version(session, key)
    assert made is not None  # noqa: S101 - it was just made
    return made.id


def find_baseline(session: Session, number: int) -> BaselineRow:
    """Return a baseline by its id.

    Raises:
        NotFound: there is none.
    """
    found = session.execute(select(*_COLUMNS).where(Baseline.id == number)).first()
    if found is None:
        hint = "compatgate canary baselines list shows every baseline"
        raise NotFound(
            f"baseline {number} does not exist", field="baseline", value=number, hint=hint
        )
    return _row(found)


def approve_version(
    session: Session, number: int, *, by: str, at: datetime, body: dict[str, Any]
) -> BaselineRow:
    """Approve a proposed version, with the body that the judge reads from now on.

    Raises:
        NotFound: the baseline does not exist.
        Conflict: the version is no longer proposed.
    """
    row = find_baseline(session, number)
    if row.state != "proposed":
        by_whom = f" by {row.decided_by}" if row.decided_by else ""
        what = f"the baseline {number} is {row.state}{by_whom}"
        raise Conflict(what, field="baseline", value=number)
    key = (row.workload, row.sku, row.family, row.metric)
    before = update(Baseline).where(*_has_key(key), Baseline.state == "approved")
    session.execute(before.values(state="replaced"))
    mine = update(Baseline).where(Baseline.id == number)
    text = _encode(body).decode()
    session.execute(mine.values(state="approved", body=text, decided_by=by, decided_at=at))
    return find_baseline(session, number)


def refuse_version(session: Session, number: int, *, by: str, at: datetime) -> BaselineRow:
    """Refuse a proposed version, or retire an approved one.

    Raises:
        NotFound: the baseline does not exist.
        Conflict: the version has another state.
    """
    row = find_baseline(session, number)
    if row.state not in ("proposed", "approved"):
        raise Conflict(f"the baseline {number} is {row.state}", field="baseline", value=number)
    mine = update(Baseline).where(Baseline.id == number)
    session.execute(mine.values(state="refused", decided_by=by, decided_at=at))
    return find_baseline(session, number)


def list_baselines(
    session: Session,
    *,
    workload: str | None = None,
    sku: str | None = None,
    family: str | None = None,
    metric: str | None = None,
    state: str | None = None,
    cursor: str | None = None,
    limit: int = DEFAULT_LIMIT,
) -> Page[BaselineRow]:
    """Return versions of baselines, newest first."""
    query = select(*_COLUMNS)
    wanted = (
        (Baseline.workload, workload),
        (Baseline.sku, sku),
        (Baseline.family, family),
        (Baseline.metric, metric),
        (Baseline.state, state),
    )
    for column, value in wanted:
        query = query.where(column == value) if value else query
    return page(session, query, Baseline.id, _row, cursor=cursor, limit=limit, descending=True)


def _has_key(key: Key) -> tuple[Any, ...]:
    columns = (Baseline.workload, Baseline.sku, Baseline.family, Baseline.metric)
    return tuple(column == value for column, value in zip(columns, key, strict=True))


def _row(found: Any) -> BaselineRow:
    values = dict(found._mapping)
    return BaselineRow(**{**values, "body": msgspec.json.decode(values["body"])})
