"""Store the health of nodes: GPU errors by node, driver and day, with the time observed.

Upgrades compare the rate on a new driver with the rate of the same nodes before. A code counts once
in a report, because one incident often prints many lines.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec
from sqlalchemy import Integer, Text, func, insert, select, update
from sqlalchemy.orm import Mapped, Session, mapped_column

from compatgate.core.facts import Facts
from compatgate.errors import BadInput
from compatgate.kit import clock
from compatgate.kit.database.database import Database
from compatgate.kit.database.tables import Base, UtcTime
from compatgate.service.nodes import repository as nodes
from compatgate.service.nodes.schemas import (
    HealthOfNode,
    HealthReport,
    HealthStored,
    StoredHealth,
)

LONGEST = timedelta(days=1)
"""Longest period of one report."""
_AHEAD = timedelta(minutes=5)


class NodeHealth(Base):
    """GPU errors that a node reported on one day with one driver."""

    __tablename__ = "node_health"

    cluster: Mapped[str] = mapped_column(Text, primary_key=True)
    name: Mapped[str] = mapped_column(Text, primary_key=True)
    driver: Mapped[str] = mapped_column(Text, primary_key=True)
    day: Mapped[str] = mapped_column(Text, primary_key=True, comment="2027-03-01, UTC")
    seconds: Mapped[int] = mapped_column(Integer, comment="Observed")
    fatal: Mapped[int] = mapped_column(Integer, comment="Reports of a fatal Xid code")
    warning: Mapped[int] = mapped_column(Integer, comment="Reports of another Xid code")
    xids: Mapped[str] = mapped_column(Text, comment="JSON: lines by code")
    until: Mapped[datetime] = mapped_column(UtcTime, comment="End of the last period")


def store_health(database: Database, report: HealthReport, facts: Facts) -> HealthStored:
    """Add a report to what is stored; a period that was reported already counts once.

    Raises:
        BadInput: a period is malformed, or a node's driver is not known; names the field.
    """
    now = clock.now()
    with database.writing() as session:
        known = nodes.load_nodes(session, report.cluster, [one.name for one in report.nodes])
        found = []
        for number, one in enumerate(report.nodes):
            until = _check(one, f"nodes[{number}]", now)
            row = known.get(one.name)
            driver = one.driver or (row.driver if row else None)
            if driver is None:
                hint = "state the driver, or report the node first"
                raise BadInput("is not known", field=f"nodes[{number}].driver", hint=hint)
            found.append(_add(session, report.cluster, one, driver, until, facts))
    return HealthStored(found)


def _check(one: HealthOfNode, field: str, now: datetime) -> datetime:
    until = min(one.until or now, now) if (one.until or now) <= now + _AHEAD else None
    if until is None:
        hint = "set the reporter's clock"
        raise BadInput("is in the future", field=f"{field}.until", value=str(one.until), hint=hint)
    if one.since >= until:
        raise BadInput("is not before its end", field=f"{field}.since", value=str(one.since))
    if until - one.since > LONGEST:
        hint = "report at least once a day"
        raise BadInput(
            "makes a period of more than a day", field=f"{field}.since", value=str(one.since),
            hint=hint,
        )  # fmt: skip
    return until


def _add(
    session: Session,
    cluster: str,
    one: HealthOfNode,
    driver: str,
    until: datetime,
    facts: Facts,
) -> StoredHealth:
    of_node = (NodeHealth.cluster == cluster, NodeHealth.name == one.name)
    last = session.execute(select(func.max(NodeHealth.until)).where(*of_node)).scalar()
    since = max(one.since, last) if last else one.since
    seconds = int((until - since).total_seconds())
    if seconds <= 0:
        return StoredHealth(one.name, driver, 0)
    day = until.date().isoformat()
    where = (*of_node, NodeHealth.driver == driver, NodeHealth.day == day)
    row = session.execute(select(NodeHealth.__table__).where(*where)).first()
    fatal, other = _count(one.xids, facts)
    lines = dict(msgspec.json.decode(row.xids)) if row else {}
    for code, count in one.xids.items():
        lines[code] = lines.get(code, 0) + count
    values = {
        "seconds": seconds + (row.seconds if row else 0),
        "fatal": fatal + (row.fatal if row else 0),
        "warning": other + (row.warning if row else 0),
        "xids": msgspec.json.encode(lines, order="sorted").decode(),
        "until": until,
    }
    if row:
        session.execute(update(NodeHealth).where(*where).values(**values))
    else:
        key = {"cluster": cluster, "name": one.name, "driver": driver, "day": day}
        session.execute(insert(NodeHealth), [{**key, **values}])
    return StoredHealth(one.name, driver, seconds)


def _count(codes: Iterable[str], facts: Facts) -> tuple[int, int]:
    """Return the number of fatal codes, and of others that are more than information."""
    table = facts.xid.by_xid
    severities = [known.severity if (known := table.get(int(c))) else "warning" for c in codes]
    return severities.count("fatal"), severities.count("warning")
