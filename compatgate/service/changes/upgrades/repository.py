"""Store, find and list upgrades."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec import convert
from msgspec.structs import asdict
from sqlalchemy import and_, exists, func, insert, not_, or_, select, update
from sqlalchemy.orm import Session, aliased

from compatgate.core.upgrade_state import State, Upgrade, Wave
from compatgate.documents.quantities import parse_duration
from compatgate.errors import BadInput, Conflict, NotFound
from compatgate.kit import clock
from compatgate.kit.database.tables import DEFAULT_LIMIT, Page, in_parts, narrow, page
from compatgate.kit.principal import Authorship
from compatgate.service.audit import chain as audit
from compatgate.service.changes.upgrades.models import (
    OPEN_STATES,
    WATCH,
    EventAction,
    KnownGoodRecord,
    UpgradeEvent,
    UpgradeNode,
    UpgradeRecord,
    UpgradeRow,
    UpgradeWaveRecord,
)
from compatgate.service.changes.upgrades.schemas import (
    KnownGoodBody,
    UpgradeRequest,
    UpgradeSummary,
)
from compatgate.service.nodes import repository as nodes_table
from compatgate.service.nodes.reports import is_same_driver

MAX_SOAK = timedelta(days=90)
LATELY = timedelta(days=30)
"""Maximum time that a rolled-back upgrade needs attention."""
_SAME = [name for name in UpgradeRow.__struct_fields__ if name in UpgradeRecord.__table__.columns]
_LISTED = [name for name in UpgradeSummary.__struct_fields__ if name in _SAME]
_PLAN = ("set", "verdict", "allowed", "mode", "summary", "groups", "edits", "owed", "remarks")
"""Members of the plan that stay with the upgrade."""


def make_key(cluster: str, name: str) -> str:
    """Return the key of a node: names of clusters have no slash."""
    return f"{cluster}/{name}"


def split_key(key: str) -> tuple[str, str]:
    """Return cluster and name of a node's key."""
    cluster, _, name = key.partition("/")
    return cluster, name


def group_keys(keys: Iterable[str]) -> Iterable[tuple[str, Sequence[str]]]:
    """Yield clusters with names of their nodes, as many at once as one statement takes."""
    return nodes_table.group_keys(map(split_key, keys))


def store_upgrade(
    session: Session,
    record: UpgradeRecord,
    waves: Iterable[Mapping[str, Any]],
    nodes: Sequence[Mapping[str, Any]],
) -> None:
    """Store a new upgrade with its waves and nodes; these have the columns but ``upgrade``."""
    name = record.name
    record.number = (session.execute(select(func.max(UpgradeRecord.number))).scalar() or 0) + 1
    session.add(record)
    session.flush()
    session.add_all(
        UpgradeWaveRecord(upgrade=name, number=wave["number"], pools=wave["pools"])
        for wave in waves
    )
    for some in in_parts(nodes):
        session.execute(insert(UpgradeNode), [{"upgrade": name, **node} for node in some])


def find_upgrade(session: Session, name: str) -> UpgradeRow:
    """Return an upgrade with its waves, nodes and history."""
    found = _load(session, select(UpgradeRecord.__table__).where(UpgradeRecord.name == name))
    if not found:
        hint = "compatgate upgrade list names them"
        raise NotFound(f"upgrade {name!r} does not exist", field="name", value=name, hint=hint)
    return found[0]


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
    return _load(session, query.order_by(UpgradeRecord.number.desc()).limit(limit))


def find_open(session: Session, keys: Iterable[str]) -> dict[str, str]:
    """Return the open upgrades of some nodes: the name by the node's key."""
    found: dict[str, str] = {}
    for cluster, names in group_keys(keys):
        query = (
            select(UpgradeNode.name, UpgradeNode.upgrade)
            .join(UpgradeRecord, UpgradeRecord.name == UpgradeNode.upgrade)
            .where(UpgradeRecord.state.in_(OPEN_STATES), UpgradeNode.left_out.is_(None))
            .where(UpgradeNode.cluster == cluster, UpgradeNode.name.in_(names))
        )
        found |= {make_key(cluster, name): upgrade for name, upgrade in session.execute(query)}
    return found


def _load(session: Session, query: Any) -> list[UpgradeRow]:
    """Return upgrades with everything that happened to them, in four more queries for all."""
    records = session.execute(query).all()
    names = [record.name for record in records]
    waves: dict[str, list[Any]] = {name: [] for name in names}
    events: dict[str, list[UpgradeEvent]] = {name: [] for name in names}
    nodes: dict[tuple[str, int], list[Any]] = {}
    of_wave, of_node = UpgradeWaveRecord.upgrade.in_(names), UpgradeNode.upgrade.in_(names)
    for wave in session.execute(select(UpgradeWaveRecord.__table__).where(of_wave)):
        waves[wave.upgrade].append(wave)
    for node in session.execute(select(UpgradeNode.__table__).where(of_node)):
        nodes.setdefault((node.upgrade, node.wave), []).append(node)
    history = select(UpgradeEvent).where(UpgradeEvent.upgrade.in_(names)).order_by(UpgradeEvent.id)
    for event in session.scalars(history):
        events[event.upgrade].append(event)
    targets = {record.target for record in records}
    began = select(UpgradeRecord.target, UpgradeRecord.name)
    began = began.where(UpgradeRecord.target.in_(targets), UpgradeRecord.started_at.is_not(None))
    # Of the upgrades of a target, only the one that began last is watched.
    newest: dict[str, str] = dict(session.execute(began.order_by(UpgradeRecord.started_at)).all())
    found = []
    for one in records:
        parts = [(wave, nodes.get((one.name, wave.number), [])) for wave in waves[one.name]]
        members = {make_key(node.cluster, node.name): node for _, part in parts for node in part}
        watched = one.state == "done" and newest.get(one.target) == one.name and one.ended_at
        about: dict[str, Any] = {name: getattr(one, name) for name in _SAME}
        about["accepts"] = tuple(one.accepts)
        about["waves"] = tuple(
            _make_wave(*part, one.driver) for part in sorted(parts, key=lambda p: p[0].number)
        )
        about["left_out"] = {k: n.left_out for k, n in members.items() if n.left_out is not None}
        about["domain_of"] = {key: node.domain for key, node in members.items()}
        about["events"] = tuple(events[one.name])
        if watched:
            about["watched_until"] = watched + max(WATCH, timedelta(seconds=one.soak_s))
        found.append(UpgradeRow(**about))
    return found


def _make_wave(wave: Any, nodes: list[Any], driver: str) -> Wave:
    keys = {make_key(node.cluster, node.name): node for node in nodes}
    return Wave(
        wave.number,
        tuple(wave.pools),
        tuple(keys),
        frozenset(k for k, n in keys.items() if n.driver and is_same_driver(n.driver, driver)),
        frozenset(k for k, n in keys.items() if n.left_out is not None),
        wave.started_at,
        wave.finished_at,
        wave.holder,
        wave.held_until,
    )


def save_state(session: Session, before: Upgrade, after: Upgrade, at: datetime) -> None:
    """Store what changed of an upgrade's state and waves."""
    values: dict[str, Any] = {"state": after.state, "why": after.why}
    if before.began is None and after.began is not None:
        values["started_at"] = after.began
    if after.state in ("done", "rolled back") and before.state != after.state:
        values["ended_at"] = at
    session.execute(update(UpgradeRecord).where(UpgradeRecord.name == after.name).values(**values))
    record = UpgradeWaveRecord
    for old, new in zip(before.waves, after.waves, strict=True):
        if old != new:
            query = update(record).where(record.upgrade == after.name, record.number == new.number)
            times = {"started_at": new.started, "finished_at": new.finished}
            holder = {"holder": new.holder, "held_until": new.held_until}
            session.execute(query.values(**times, **holder))


def leave_out(session: Session, name: str, keys: Iterable[str], reason: str) -> None:
    """Store that nodes take no part any longer, and why."""
    for key in keys:
        cluster, node = split_key(key)
        mine = update(UpgradeNode).filter_by(upgrade=name, cluster=cluster, name=node)
        session.execute(mine.values(left_out=reason))


def add_event(
    session: Session,
    upgrade: Upgrade,
    action: EventAction,
    *,
    at: datetime,
    actor: str = "",
    identity: str = "",
    wave: int | None = None,
    text: str = "",
) -> None:
    """Store what happened to an upgrade, and audit it; without an actor the gate noticed it."""
    session.add(
        UpgradeEvent(
            upgrade=upgrade.name, at=at, actor=actor, identity=identity, action=action, wave=wave,
            text=text,
        )
    )  # fmt: skip
    audit.append(
        session,
        at=clock.now(),
        actor=actor or "compatgate",
        action=f"upgrade.{action.replace(' ', '-')}",
        subject=upgrade.name,
        detail={"target": upgrade.target, "driver": upgrade.driver, "wave": wave, "text": text},
    )


def list_upgrades(
    session: Session,
    *,
    state: State | None = None,
    target: str | None = None,
    targets: Collection[str] | None = None,
    cursor: str | None = None,
    limit: int = DEFAULT_LIMIT,
) -> Page[UpgradeSummary]:
    """Return upgrades, the newest first; ``targets``: only of these."""
    equal = {UpgradeRecord.state: state, UpgradeRecord.target: target}
    query = narrow(select(UpgradeRecord.__table__), equal)
    if targets is not None:
        query = query.where(UpgradeRecord.target.in_(targets))
    found = page(
        session, query, UpgradeRecord.number, lambda row: row,
        cursor=cursor, limit=limit, descending=True,
    )  # fmt: skip
    return Page(tuple(_summarize(session, found.items)), found.next)


def list_open(session: Session, *, limit: int) -> list[UpgradeSummary]:
    """Return upgrades of which a wave may still start, the newest first."""
    query = select(UpgradeRecord.__table__).where(UpgradeRecord.state.in_(OPEN_STATES))
    query = query.order_by(UpgradeRecord.number.desc()).limit(limit)
    return _summarize(session, session.execute(query).all())


def _summarize(session: Session, records: Sequence[Any]) -> list[UpgradeSummary]:
    """Return upgrades without their nodes, which are only counted."""
    names = [record.name for record in records]
    of, number = UpgradeNode.upgrade, UpgradeNode.wave
    excluded = func.count(UpgradeNode.left_out)
    query = select(of, number, func.count(), excluded).where(of.in_(names)).group_by(of, number)
    counts = {(name, wave): (all_, out) for name, wave, all_, out in session.execute(query)}
    waves: dict[str, list[tuple[bool, int]]] = {name: [] for name in names}
    table = UpgradeWaveRecord
    ends = select(table.upgrade, table.number, table.finished_at).where(table.upgrade.in_(names))
    for row in session.execute(ends):
        nodes, out = counts.get((row.upgrade, row.number), (0, 0))
        waves[row.upgrade].append((row.finished_at is not None or nodes == out, nodes))
    summaries = []
    for one in records:
        mine = waves[one.name]
        finished, nodes = sum(over for over, _ in mine), sum(count for _, count in mine)
        about = {name: getattr(one, name) for name in _LISTED}
        summaries.append(UpgradeSummary(waves=len(mine), finished=finished, nodes=nodes, **about))
    return summaries


def find_names(session: Session, text: str, *, limit: int) -> list[str]:
    """Return names of upgrades that contain a text, whatever its case; the newest first."""
    query = select(UpgradeRecord.name).order_by(UpgradeRecord.number.desc()).limit(limit)
    query = query.where(UpgradeRecord.name.icontains(text, autoescape=True))
    return list(session.execute(query).scalars())


def make_upgrade(
    request: UpgradeRequest, plan: Mapping[str, Any], by: Authorship, at: datetime
) -> UpgradeRecord:
    """Return a new upgrade; refuse one without nodes, and a soak too long."""
    soak_s = int(parse_duration(request.soak, field="soak").total_seconds())
    if soak_s > MAX_SOAK.total_seconds():
        raise BadInput("is too long", field="soak", value=request.soak, hint="at most 90d")
    order = plan["order"]
    if not order["waves"]:
        held = [f"{one['pool']}: {one['held']}" for one in order["pools"] if one["held"]]
        why = "; ".join([*held, *order["remarks"]]) or "no node of the target is reported"
        raise Conflict(
            f"no node of {request.target} would take driver {plan['set']['driver']}: {why}",
            field="driver", value=request.driver,
            hint=f"compatgate plan --target {request.target} shows the reasons",
        )  # fmt: skip
    about = {"pools": order["pools"], "order_remarks": order["remarks"]}
    return UpgradeRecord(
        name=request.name,
        target=request.target,
        driver=str(plan["set"]["driver"]),
        state="proposed",
        soak_s=soak_s,
        health=request.health,
        accepts=request.accepts,
        reason=by.reason,
        why="",
        author=by.author,
        identity=by.identity,
        made_at=at,
        plan={name: plan[name] for name in _PLAN} | about,
    )


def list_nodes(
    plan: Mapping[str, Any], drivers: Mapping[str, str | None]
) -> Iterator[dict[str, Any]]:
    """Yield the columns of each node of a plan; ``drivers``: what nodes have now, by key."""
    for wave in plan["order"]["waves"]:
        for domain in wave["domains"]:
            label = f"{domain['kind']} {domain['name']}"
            for key in domain["nodes"]:
                cluster, name = split_key(key)
                yield {
                    "cluster": cluster,
                    "name": name,
                    "wave": wave["number"],
                    "domain": label,
                    "driver": drivers.get(key),
                    "left_out": None,
                }


def mark_known_good(session: Session, good: KnownGoodBody) -> None:
    """Store the known-good state of a target, in place of the former one."""
    session.merge(KnownGoodRecord(**asdict(good)))


def find_known_good(session: Session, target: str) -> KnownGoodBody | None:
    """Return the known-good state of a target; None: it has none yet."""
    row = session.get(KnownGoodRecord, target)
    return convert(row, KnownGoodBody, from_attributes=True) if row else None
