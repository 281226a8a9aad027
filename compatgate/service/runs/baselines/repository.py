"""Store baselines: the expected distribution of a metric, in versions."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import Index, Integer, Text, UniqueConstraint, and_, select, update
from sqlalchemy.orm import Mapped, Session, aliased, mapped_column

from compatgate.canary.judge.baseline import Baseline
from compatgate.errors import Conflict, NotFound
from compatgate.kit.database.tables import (
    DEFAULT_LIMIT,
    Base,
    BigKey,
    JsonText,
    Page,
    UtcTime,
    page,
)

Key = tuple[str, str, str, str]
"""Workload, SKU, stack family, metric."""
_KEY = ("workload", "sku", "family", "metric")


class BaselineRow(Base):
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
    body: Mapped[dict[str, Any]] = mapped_column(
        JsonText, comment="The distribution, as the judge reads it"
    )
    proposed_at: Mapped[datetime] = mapped_column(UtcTime)
    proposed_by: Mapped[str] = mapped_column(Text)
    decided_at: Mapped[datetime | None] = mapped_column(UtcTime)
    decided_by: Mapped[str | None] = mapped_column(Text)

    @property
    def key(self) -> Key:
        """Return what this is a version of."""
        return self.workload, self.sku, self.family, self.metric

    @property
    def learned(self) -> Baseline:
        """Return the distribution, as the judge takes it."""
        return msgspec.convert(self.body, Baseline)

    @property
    def unit(self) -> str:
        """Return the unit of the values."""
        return str(self.body["unit"])

    @property
    def learnt_from(self) -> int:
        """Return the number of runs."""
        return len(self.body["runs"])

    @property
    def values(self) -> int:
        """Return the number of values."""
        return sum(len(run["values"]) for run in self.body["runs"])


def latest_version(session: Session, key: Key) -> BaselineRow | None:
    """Return the last version of a metric's baseline, in any state."""
    query = select(BaselineRow).filter_by(**dict(zip(_KEY, key, strict=True)))
    return session.scalars(query.order_by(BaselineRow.version.desc()).limit(1)).first()


def approved_baselines(
    session: Session, *, workload: str, sku: str, family: str
) -> dict[str, BaselineRow]:
    """Return the approved baselines of a workload, SKU and family, by metric."""
    query = select(BaselineRow).filter_by(workload=workload, sku=sku, family=family)
    approved = query.where(BaselineRow.state == "approved")
    return {row.metric: row for row in session.scalars(approved)}


def oldest_baselines(
    session: Session, *, workload: str, sku: str, family: str
) -> dict[str, BaselineRow]:
    """Return the oldest baselines that were approved and not refused since, by metric."""
    query = select(BaselineRow).filter_by(workload=workload, sku=sku, family=family)
    accepted = query.where(BaselineRow.state.in_(("approved", "replaced")))
    newest_first = session.scalars(accepted.order_by(BaselineRow.version.desc()))
    return {row.metric: row for row in newest_first}


def approved_by_family(session: Session, key: Key) -> dict[str, BaselineRow]:
    """Return the approved baselines of the metric's other families, by family."""
    workload, sku, family, metric = key
    query = select(BaselineRow).filter_by(workload=workload, sku=sku, metric=metric)
    others = query.where(BaselineRow.family != family, BaselineRow.state == "approved")
    return {row.family: row for row in session.scalars(others)}


def approved_before(session: Session, numbers: Collection[int]) -> dict[int, BaselineRow]:
    """Return the other approved version of the metric of each version, by the version's id."""
    mine = aliased(BaselineRow)
    same = and_(*(getattr(mine, name) == getattr(BaselineRow, name) for name in _KEY))
    query = select(mine.id, BaselineRow).join(BaselineRow, same)
    query = query.where(mine.id.in_(numbers), BaselineRow.state == "approved")
    found: Any = session.execute(query.where(BaselineRow.id != mine.id))
    return dict(found.all())


def propose_version(
    session: Session, key: Key, body: dict[str, Any], *, by: str, at: datetime
) -> None:
    """Propose a version, or renew the proposed one; a run or a user proposes."""
    row = latest_version(session, key)
    if row is None or row.state != "proposed":
        version = row.version + 1 if row else 1
        row = BaselineRow(**dict(zip(_KEY, key, strict=True)), version=version, state="proposed")
        session.add(row)
    row.body, row.proposed_at, row.proposed_by = body, at, by
    session.flush()


def find_baseline(session: Session, number: int) -> BaselineRow:
    """Return a baseline by its id."""
    row = session.get(BaselineRow, number)
    if row is None:
        hint = "compatgate canary baselines list shows every baseline"
        what = f"baseline {number} does not exist"
        raise NotFound(what, field="baseline", value=number, hint=hint)
    return row


def approve_version(session: Session, row: BaselineRow, *, by: str, at: datetime) -> None:
    """Approve a proposed version, which the judge reads from now on."""
    if row.state != "proposed":
        by_whom = f" by {row.decided_by}" if row.decided_by else ""
        what = f"the baseline {row.id} is {row.state}{by_whom}"
        raise Conflict(what, field="baseline", value=row.id)
    former = update(BaselineRow).filter_by(**dict(zip(_KEY, row.key, strict=True)))
    session.execute(former.where(BaselineRow.state == "approved").values(state="replaced"))
    row.state, row.decided_by, row.decided_at = "approved", by, at


def refuse_version(row: BaselineRow, *, by: str, at: datetime) -> None:
    """Refuse a proposed version, or retire one that was approved."""
    if row.state == "refused":
        raise Conflict(f"the baseline {row.id} is {row.state}", field="baseline", value=row.id)
    row.state, row.decided_by, row.decided_at = "refused", by, at


def list_baselines(
    session: Session, /, *, cursor: str | None = None, limit: int = DEFAULT_LIMIT, **filters: Any
) -> Page[BaselineRow]:
    """Return versions of baselines, newest first; a filter is named as its column."""
    wanted = {name: value for name, value in filters.items() if value}
    query = select(BaselineRow).filter_by(**wanted)
    return page(session, query, BaselineRow.id, cursor=cursor, limit=limit, descending=True)
