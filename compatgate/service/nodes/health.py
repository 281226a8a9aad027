"""Store the health of nodes: which periods were observed with which driver, and GPU errors in them.

Upgrades compare the rate of errors on a new driver with the rate of the same nodes before. Reports
may come late, twice and overlapping: periods are joined, and an error counts once by its time and
code.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct
from sqlalchemy import Boolean, Integer, Text, insert, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from compatgate.core.facts import Facts
from compatgate.errors import BadInput
from compatgate.kit import clock
from compatgate.kit.clock import iso
from compatgate.kit.database.database import Database
from compatgate.kit.database.tables import Base, UtcTime
from compatgate.service.nodes import repository as nodes
from compatgate.service.nodes.repository import NodeKey, NodeRow
from compatgate.service.nodes.schemas import (
    HealthOfNode,
    HealthReport,
    HealthStored,
    StoredHealth,
)

LONGEST = timedelta(days=1)
"""Longest period of one report."""
_AHEAD = timedelta(minutes=5)
_JOIN = timedelta(minutes=1)
"""Periods that are no further apart are stored as one; their seconds stay exact."""


class NodeHealth(Base):
    """A period in which somebody watched a node for GPU errors."""

    __tablename__ = "node_health"

    cluster: Mapped[str] = mapped_column(Text, primary_key=True)
    name: Mapped[str] = mapped_column(Text, primary_key=True)
    since: Mapped[datetime] = mapped_column(UtcTime, primary_key=True)
    until: Mapped[datetime] = mapped_column(UtcTime)
    driver: Mapped[str] = mapped_column(Text, comment="Loaded in all of it")
    seconds: Mapped[int] = mapped_column(Integer, comment="Observed, without short gaps")


class NodeXid(Base):
    """A GPU error of a node."""

    __tablename__ = "node_xids"

    cluster: Mapped[str] = mapped_column(Text, primary_key=True)
    name: Mapped[str] = mapped_column(Text, primary_key=True)
    at: Mapped[datetime] = mapped_column(UtcTime, primary_key=True)
    xid: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    driver: Mapped[str] = mapped_column(Text)
    fatal: Mapped[bool] = mapped_column(Boolean, comment="NVIDIA's table says so")


class _Period(Struct, frozen=True):
    field: str
    name: str
    since: datetime
    until: datetime
    driver: str


def store_health(database: Database, report: HealthReport, facts: Facts) -> HealthStored:
    """Add a report to what is stored; what was reported already counts once."""
    now = clock.now()
    names = [one.name for one in report.nodes]
    if doubled := next((name for name in names if names.count(name) > 1), None):
        hint = "send one period for each node"
        raise BadInput("is named twice", field="nodes", value=doubled, hint=hint)
    with database.writing() as session:
        known = nodes.load_nodes(session, report.cluster, names)
        stored = []
        for number, one in enumerate(report.nodes):
            period = _check(one, f"nodes[{number}]", known.get(one.name), now)
            seconds = _add_period(session, report.cluster, period)
            errors = _add_errors(session, report.cluster, period, one, facts)
            stored.append(StoredHealth(one.name, period.driver, seconds, errors))
    return HealthStored(stored)


def _check(one: HealthOfNode, field: str, row: NodeRow | None, now: datetime) -> _Period:
    """Return the period that a report is about; without a driver, since the node loaded it."""
    until = one.until or now
    if until > now + _AHEAD:
        hint = "set the reporter's clock"
        raise BadInput("is in the future", field=f"{field}.until", value=iso(until), hint=hint)
    until = min(until, now)
    begin: dict[str, Any] = {"field": f"{field}.since", "value": iso(one.since)}
    if one.since >= until:
        hint = f"state a time before {iso(until)}"
        raise BadInput("is not before the end of the period", hint=hint, **begin)
    if until - one.since > LONGEST:
        hint = "report at least once a day"
        raise BadInput("makes the period longer than a day", hint=hint, **begin)
    for place, seen in enumerate(one.xids):
        if not one.since <= seen.at <= until:
            raise BadInput(
                "is outside the period", field=f"{field}.xids[{place}].at", value=iso(seen.at),
                hint=f"from {iso(one.since)} to {iso(until)}",
            )  # fmt: skip
    if one.driver is not None:
        return _Period(field, one.name, one.since, until, one.driver)
    if row is None or row.driver is None:
        hint = "state the driver, or report the node first"
        raise BadInput("is not known", field=f"{field}.driver", hint=hint)
    if row.since >= until:
        hint = f"the node reports driver {row.driver} since {iso(row.since)} only: state the driver"
        raise BadInput("is unknown for this period", field=f"{field}.driver", hint=hint)
    return _Period(field, one.name, max(one.since, row.since), until, row.driver)


def _add_period(session: Session, cluster: str, period: _Period) -> int:
    """Store a period, joined with those that it meets; return its new seconds."""
    query = select(NodeHealth).where(
        NodeHealth.cluster == cluster,
        NodeHealth.name == period.name,
        NodeHealth.since <= period.until + _JOIN,
        NodeHealth.until >= period.since - _JOIN,
    )
    near = session.scalars(query.order_by(NodeHealth.since)).all()
    for one in near:
        if one.driver != period.driver and one.since < period.until and period.since < one.until:
            raise BadInput(
                f"overlaps a period with driver {one.driver}", field=f"{period.field}.since",
                value=iso(period.since), hint=f"other period: {iso(one.since)} to {iso(one.until)}",
            )  # fmt: skip
    same = [one for one in near if one.driver == period.driver]
    new = _count_seconds(period.since, period.until)
    for one in same:  # stored periods do not overlap
        covered = max(one.since, period.since), min(one.until, period.until)
        new -= max(_count_seconds(*covered), 0)
    if new <= 0:
        return 0
    joined = NodeHealth(
        cluster=cluster,
        name=period.name,
        since=min([period.since, *(one.since for one in same)]),
        until=max([period.until, *(one.until for one in same)]),
        driver=period.driver,
        seconds=new + sum(one.seconds for one in same),
    )
    for one in same:
        session.delete(one)
    session.flush()
    session.add(joined)
    return new


def _count_seconds(since: datetime, until: datetime) -> int:
    """Return the full seconds of the clock between two times; parts add up to their whole."""
    return int(until.timestamp()) - int(since.timestamp())


def _add_errors(
    session: Session, cluster: str, period: _Period, one: HealthOfNode, facts: Facts
) -> int:
    seen = {(x.at, x.xid): x for x in one.xids if x.at >= period.since}
    if not seen:
        return 0
    times = [at for at, _ in seen]
    query = select(NodeXid.at, NodeXid.xid).where(
        NodeXid.cluster == cluster, NodeXid.name == one.name,
        NodeXid.at >= min(times), NodeXid.at <= max(times),
    )  # fmt: skip
    known = {(at, xid) for at, xid in session.execute(query)}
    rows = [
        {
            "cluster": cluster, "name": one.name, "at": at, "xid": xid, "driver": period.driver,
            "fatal": xid in facts.xid.by_xid and facts.xid.by_xid[xid].severity == "fatal",
        }
        for at, xid in seen if (at, xid) not in known
    ]  # fmt: skip
    if rows:
        session.execute(insert(NodeXid), rows)
    return len(rows)


def load_health(
    session: Session, keys: Iterable[NodeKey], since: datetime
) -> tuple[list[Any], list[Any]]:
    """Return rows of the observed periods and of the errors of some nodes since a moment."""
    periods: list[Any] = []
    errors: list[Any] = []
    for cluster, names in nodes.group_keys(keys):
        health = select(NodeHealth.__table__).where(NodeHealth.cluster == cluster)
        health = health.where(NodeHealth.name.in_(names), NodeHealth.until > since)
        periods += session.execute(health)
        xids = select(NodeXid.__table__).where(NodeXid.cluster == cluster)
        errors += session.execute(xids.where(NodeXid.name.in_(names), NodeXid.at >= since))
    return periods, errors
