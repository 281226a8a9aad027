"""List upgrades with the number of their nodes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from compatgate.core.upgrade_state import State
from compatgate.kit.database.tables import DEFAULT_LIMIT, Page, page
from compatgate.service.upgrades.models import (
    OPEN_STATES,
    UpgradeNode,
    UpgradeOutline,
    UpgradeRecord,
    UpgradeWaveRecord,
)


def list_upgrades(
    session: Session,
    *,
    state: State | None = None,
    target: str | None = None,
    targets: Collection[str] | None = None,
    cursor: str | None = None,
    limit: int = DEFAULT_LIMIT,
) -> Page[UpgradeOutline]:
    """Return outlines of upgrades, the newest first.

    Args:
        session: to read from.
        state: only these; None: all.
        target: only of this target.
        targets: only of these targets; None: of all.
        cursor: of the page.
        limit: most rows.
    """
    query = select(UpgradeRecord.__table__)
    if state is not None:
        query = query.where(UpgradeRecord.state == state)
    if target is not None:
        query = query.where(UpgradeRecord.target == target)
    if targets is not None:
        query = query.where(UpgradeRecord.target.in_(targets))
    found = page(
        session, query, UpgradeRecord.number, _same, cursor=cursor, limit=limit, descending=True
    )
    return Page(tuple(_outline(session, found.items)), found.next)


def _same(row: Any) -> Any:
    return row


def list_open(session: Session, *, limit: int) -> list[UpgradeOutline]:
    """Return upgrades of which a wave may still start, the newest first."""
    query = select(UpgradeRecord.__table__).where(UpgradeRecord.state.in_(OPEN_STATES))
    query = query.order_by(UpgradeRecord.number.desc()).limit(limit)
    return _outline(session, session.execute(query).all())


def _outline(session: Session, records: Sequence[Any]) -> list[UpgradeOutline]:
    """Return upgrades without their nodes, which are only counted."""
    names = [record.name for record in records]
    of, number = UpgradeNode.upgrade, UpgradeNode.wave
    left = func.count(UpgradeNode.left_out)
    query = select(of, number, func.count(), left).where(of.in_(names)).group_by(of, number)
    counts = {(name, wave): (all_, out) for name, wave, all_, out in session.execute(query)}
    waves: dict[str, list[Any]] = {name: [] for name in names}
    table = UpgradeWaveRecord
    ends = select(table.upgrade, table.number, table.finished_at).where(table.upgrade.in_(names))
    for row in session.execute(ends):
        nodes, out = counts.get((row.upgrade, row.number), (0, 0))
        waves[row.upgrade].append((row.finished_at is not None or nodes == out, nodes))
    return [
        UpgradeOutline(
            one.name,
            one.target,
            one.driver,
            one.state,
            len(waves[one.name]),
            sum(over for over, _ in waves[one.name]),
            sum(nodes for _, nodes in waves[one.name]),
            one.why,
            one.author,
            one.reason,
            one.made_at,
            one.started_at,
            one.ended_at,
        )
        for one in records
    ]


def find_names(session: Session, text: str, *, limit: int) -> list[str]:
    """Return names of upgrades that contain a text, whatever its case; the newest first."""
    query = select(UpgradeRecord.name).order_by(UpgradeRecord.number.desc()).limit(limit)
    query = query.where(UpgradeRecord.name.icontains(text, autoescape=True))
    return list(session.execute(query).scalars())
