"""Store, find and list upgrades."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import and_, exists, func, insert, not_, or_, select, update
from sqlalchemy.orm import Session, aliased

from compatgate.core.upgrade_state import State, Upgrade, Wave
from compatgate.errors import NotFound
from compatgate.kit import clock
from compatgate.kit.database.tables import DEFAULT_LIMIT, Page, page
from compatgate.service.audit import repository as audit
from compatgate.service.nodes.reports import is_same_driver
from compatgate.service.upgrades.models import (
    OPEN_STATES,
    WATCH,
    EventAction,
    EventRow,
    UpgradeEvent,
    UpgradeNode,
    UpgradeOutline,
    UpgradeRecord,
    UpgradeRow,
    UpgradeWaveRecord,
)

MAX_SOAK = timedelta(days=90)
LATELY = timedelta(days=30)
"""Maximum time that a rolled-back upgrade needs attention."""
_PART = 300
"""Names of one query: databases limit the parameters of a statement."""
_ROWS = 500
_encode = msgspec.json.Encoder(order="deterministic").encode
_decode = msgspec.json.Decoder().decode


def make_key(cluster: str, name: str) -> str:
    """Return the key of a node: names of clusters have no slash."""
    return f"{cluster}/{name}"


def split_key(key: str) -> tuple[str, str]:
    """Return cluster and name of a node's key."""
    cluster, _, name = key.partition("/")
    return cluster, name


def store_upgrade(
    session: Session,
    values: Mapping[str, Any],
    waves: Sequence[Mapping[str, Any]],
    nodes: Sequence[Mapping[str, Any]],
) -> None:
    """Store a new upgrade with its waves and nodes; keys are the columns without ``upgrade``."""
    name = values["name"]
    last = session.execute(select(func.max(UpgradeRecord.number))).scalar() or 0
    session.execute(insert(UpgradeRecord), [{**values, "number": last + 1}])
    session.execute(insert(UpgradeWaveRecord), [{"upgrade": name, **wave} for wave in waves])
    for at in range(0, len(nodes), _ROWS):
        part = [{"upgrade": name, **node} for node in nodes[at : at + _ROWS]]
        session.execute(insert(UpgradeNode), part)


def find_upgrade(session: Session, name: str) -> UpgradeRow:
    """Return an upgrade with everything that happened to it.

    Raises:
        NotFound: there is none of that name.
    """
    record = session.execute(select(UpgradeRecord.__table__).where(UpgradeRecord.name == name))
    found = record.first()
    if found is None:
        hint = "compatgate upgrade list names them"
        raise NotFound(f"upgrade {name!r} does not exist", field="name", value=name, hint=hint)
    return _load(session, [found])[0]


def has_upgrade(session: Session, name: str) -> bool:
    """Return whether an upgrade has this name."""
    query = select(UpgradeRecord.name).where(UpgradeRecord.name == name)
    return session.execute(query).first() is not None


def list_watched(session: Session, now: datetime, *, limit: int) -> list[UpgradeRow]:
    """Return upgrades that may need attention, the newest first.

    Open ones, those that are done and still watched, and those that were rolled back lately, unless
    another upgrade of the target has begun since.
    """
    ended, soak = UpgradeRecord.ended_at, UpgradeRecord.soak_s
    long = and_(soak > WATCH.total_seconds(), ended > now - MAX_SOAK)
    done = and_(UpgradeRecord.state == "done", or_(ended > now - WATCH, long))
    later = aliased(UpgradeRecord)
    replaced = exists().where(
        later.target == UpgradeRecord.target, later.number > UpgradeRecord.number,
        later.started_at.is_not(None),
    )  # fmt: skip
    back = and_(UpgradeRecord.state == "rolled back", ended > now - LATELY, not_(replaced))
    query = select(UpgradeRecord.__table__)
    query = query.where(or_(UpgradeRecord.state.in_(OPEN_STATES), done, back))
    query = query.order_by(UpgradeRecord.number.desc()).limit(limit)
    return _load(session, session.execute(query).all())


def find_open(session: Session, keys: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return which of some nodes are in an open upgrade: its name by the node's key."""
    found: dict[str, str] = {}
    by_cluster = group_by_cluster(keys)
    for cluster, names in by_cluster.items():
        for part in split_names(names):
            query = (
                select(UpgradeNode.name, UpgradeNode.upgrade)
                .join(UpgradeRecord, UpgradeRecord.name == UpgradeNode.upgrade)
                .where(UpgradeRecord.state.in_(OPEN_STATES), UpgradeNode.left_out.is_(None))
                .where(UpgradeNode.cluster == cluster, UpgradeNode.name.in_(part))
            )
            found |= {make_key(cluster, name): upgrade for name, upgrade in session.execute(query)}
    return found


def group_by_cluster(keys: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return names of nodes by cluster."""
    found: dict[str, list[str]] = {}
    for cluster, name in keys:
        found.setdefault(cluster, []).append(name)
    return found


def split_names(names: Sequence[str]) -> Iterable[Sequence[str]]:
    """Return names in parts that one statement takes."""
    return (names[at : at + _PART] for at in range(0, len(names), _PART))


def _load(session: Session, records: Sequence[Any]) -> list[UpgradeRow]:
    names = [record.name for record in records]
    waves, nodes, events = (_grouped(session, table, names) for table in _PARTS)
    newest = _find_newest(session, {record.target for record in records})
    return [
        _row(one, waves[one.name], nodes[one.name], events[one.name], newest[one.target])
        for one in records
    ]


_PARTS: tuple[tuple[Any, Any], ...] = (
    (UpgradeWaveRecord, UpgradeWaveRecord.number),
    (UpgradeNode, UpgradeNode.wave),
    (UpgradeEvent, UpgradeEvent.id),
)


def _grouped(
    session: Session, table: tuple[Any, Any], names: Sequence[str]
) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {name: [] for name in names}
    record, order = table
    query = select(record.__table__).where(record.upgrade.in_(names)).order_by(order)
    for row in session.execute(query):
        found[row.upgrade].append(row)
    return found


def _find_newest(session: Session, targets: Collection[str]) -> dict[str, str]:
    """Return the name of the upgrade of each target that began last: only that one is watched."""
    query = select(UpgradeRecord.target, UpgradeRecord.name)
    query = query.where(UpgradeRecord.target.in_(targets), UpgradeRecord.started_at.is_not(None))
    found = dict.fromkeys(targets, "")
    for target, name in session.execute(query.order_by(UpgradeRecord.started_at)):
        found[target] = name
    return found


def _row(
    record: Any, waves: list[Any], nodes: list[Any], events: list[Any], newest: str
) -> UpgradeRow:
    members: dict[int, list[Any]] = {wave.number: [] for wave in waves}
    for node in nodes:
        members[node.wave].append(node)
    watched = record.state == "done" and newest == record.name and record.ended_at is not None
    upgrade = Upgrade(
        record.name,
        record.target,
        record.driver,
        record.soak_s,
        record.state,
        tuple(_wave(wave, members[wave.number], record.driver) for wave in waves),
        record.why,
        record.health,
        record.ended_at + max(WATCH, timedelta(seconds=record.soak_s)) if watched else None,
    )
    return UpgradeRow(
        upgrade,
        tuple(_decode(record.accepts)),
        record.reason,
        record.author,
        record.identity,
        record.made_at,
        record.started_at,
        record.ended_at,
        _decode(record.plan),
        _decode(record.before) if record.before else None,
        {number: _count_domains(found) for number, found in members.items()},
        {
            make_key(node.cluster, node.name): node.left_out
            for node in nodes
            if node.left_out is not None
        },
        tuple(
            EventRow(one.at, one.actor, one.identity, one.action, one.wave, one.text)
            for one in events
        ),
        {make_key(node.cluster, node.name): node.domain for node in nodes},
    )


def _wave(wave: Any, nodes: list[Any], driver: str) -> Wave:
    keys = {make_key(node.cluster, node.name): node for node in nodes}
    return Wave(
        wave.number,
        tuple(_decode(wave.pools)),
        tuple(keys),
        frozenset(k for k, n in keys.items() if n.driver and is_same_driver(n.driver, driver)),
        frozenset(k for k, n in keys.items() if n.left_out is not None),
        wave.started_at,
        wave.finished_at,
        wave.holder,
        wave.held_until,
    )


def _count_domains(nodes: Iterable[Any]) -> tuple[tuple[str, int], ...]:
    counts: dict[str, int] = {}
    for node in nodes:
        counts[node.domain] = counts.get(node.domain, 0) + 1
    return tuple(counts.items())


def save_state(session: Session, before: Upgrade, after: Upgrade, at: datetime) -> None:
    """Store what changed of an upgrade's state and waves."""
    values: dict[str, Any] = {"state": after.state, "why": after.why}
    if before.began is None and after.began is not None:
        values["started_at"] = after.began
    if after.state in ("done", "rolled back") and before.state != after.state:
        values["ended_at"] = at
    session.execute(update(UpgradeRecord).where(UpgradeRecord.name == after.name).values(**values))
    for old, new in zip(before.waves, after.waves, strict=True):
        if old != new:
            place = (
                UpgradeWaveRecord.upgrade == after.name,
                UpgradeWaveRecord.number == new.number,
            )
            session.execute(
                update(UpgradeWaveRecord)
                .where(*place)
                .values(
                    started_at=new.started,
                    finished_at=new.finished,
                    holder=new.holder,
                    held_until=new.held_until,
                )
            )


def note_before(session: Session, name: str, counts: Mapping[str, int]) -> None:
    """Store how many stacks were asked about, and denied, before an upgrade began."""
    text = _encode(counts).decode()
    session.execute(update(UpgradeRecord).where(UpgradeRecord.name == name).values(before=text))


def leave_out(session: Session, name: str, keys: Iterable[str], reason: str) -> None:
    """Store that nodes take no part any longer, and why."""
    for key in keys:
        cluster, node = split_key(key)
        where = (
            UpgradeNode.upgrade == name, UpgradeNode.cluster == cluster, UpgradeNode.name == node,
        )  # fmt: skip
        session.execute(update(UpgradeNode).where(*where).values(left_out=reason))


def add_event(
    session: Session,
    row: UpgradeRow,
    action: EventAction,
    *,
    at: datetime,
    actor: str = "",
    identity: str = "",
    wave: int | None = None,
    text: str = "",
) -> None:
    """Store what happened to an upgrade, and audit it; without an actor the gate noticed it."""
    values = {"upgrade": row.name, "at": at, "actor": actor, "identity": identity}
    session.execute(
        insert(UpgradeEvent), [{**values, "action": action, "wave": wave, "text": text}]
    )
    audit.append(
        session,
        at=clock.now(),
        actor=actor or "compatgate",
        action=f"upgrade.{action.replace(' ', '-')}",
        subject=row.name,
        detail={
            "target": row.upgrade.target, "driver": row.upgrade.driver, "wave": wave, "text": text,
        },
    )  # fmt: skip


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
