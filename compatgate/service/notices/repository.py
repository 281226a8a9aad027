"""Store incidents: findings of surveys and comments of people."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import and_, delete, func, insert, or_, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from compatgate.core.incidents import (
    KINDS,
    LEVELS,
    Condition,
    IncidentChange,
    IncidentKind,
    IncidentState,
    KnownIncident,
    Member,
)
from compatgate.errors import NotFound
from compatgate.kit import clock
from compatgate.kit.database.tables import DEFAULT_LIMIT, Page, page
from compatgate.service.audit import repository as audit
from compatgate.service.notices.models import Incident, IncidentRow, NoticeMark

LEADING = 3
"""Members that lists show of an incident."""
KEPT = timedelta(days=90)
"""Ended incidents are kept for so long."""
_SEEN = timedelta(minutes=5)
"""An incident that goes on unchanged is written again after so long."""
_MAX_TOLD = 2000
_CHUNK = 500
_encode = msgspec.json.Encoder().encode
_OF_PEOPLE = ("snoozed_until", "snoozed_by", "resolved_at", "resolved_by", "reason")
_LISTED = [
    getattr(Incident, name)
    for name in IncidentRow.__struct_fields__
    if name not in ("members", "owners")
]


def lock_mark(session: Session, name: str) -> str:
    """Lock a mark until the transaction ends, and return its value; make it if it is missing.

    Args:
        session: a working one; two that lock the same mark go one after another.
        name: of the mark.
    """
    query = select(NoticeMark.value).where(NoticeMark.name == name).with_for_update()
    found: str | None = session.execute(query).scalar()
    if found is not None:
        return found
    with suppress(IntegrityError), session.begin_nested():  # another process made it meanwhile
        session.execute(insert(NoticeMark), [{"name": name, "value": "{}"}])
    return str(session.execute(query).scalar_one())


def write_mark(session: Session, name: str, value: str, at: datetime) -> None:
    """Store the value of a locked mark."""
    session.execute(update(NoticeMark).where(NoticeMark.name == name).values(value=value, at=at))


def read_mark(session: Session, name: str) -> tuple[str, datetime | None]:
    """Return the value of a mark, and when it was written."""
    query = select(NoticeMark.value, NoticeMark.at).where(NoticeMark.name == name)
    row = session.execute(query).first()
    return (row.value, row.at) if row else ("{}", None)


def lease_of(session: Session, name: str) -> datetime | None:
    """Return the end of the lease of a mark; None: nobody ever had it."""
    query = select(NoticeMark.lease_until).where(NoticeMark.name == name)
    until: datetime | None = session.execute(query).scalar()
    return until


def take_lease(session: Session, name: str, now: datetime, until: datetime) -> bool:
    """Take the lease of a mark if nobody has it, and return whether this process has it now."""
    lock_mark(session, name)
    free = or_(NoticeMark.lease_until.is_(None), NoticeMark.lease_until <= now)
    taken = update(NoticeMark).where(NoticeMark.name == name, free).values(lease_until=until)
    return bool(session.execute(taken).rowcount)  # type: ignore[attr-defined]


def load_known(session: Session, keys: Collection[str]) -> dict[str, KnownIncident]:
    """Return the incidents that have not ended, and those of some keys."""
    columns = (
        Incident.key,
        Incident.kind,
        Incident.level,
        Incident.state,
        Incident.episode,
        Incident.told,
        Incident.settled,
        Incident.ended_at,
    )
    found = {}
    wanted = [Incident.state != "ended", *(Incident.key.in_(some) for some in _chunks(keys))]
    for condition in wanted:
        for row in session.execute(select(*columns).where(condition)):
            found[row.key] = KnownIncident(
                row.key,
                row.kind,
                row.level,
                row.state,
                row.episode,
                frozenset(msgspec.json.decode(row.told)),
                msgspec.json.decode(row.settled),
                row.ended_at,
            )
    return found


def _chunks(keys: Collection[str]) -> Iterator[Sequence[str]]:
    listed = sorted(keys)
    for start in range(0, len(listed), _CHUNK):
        yield listed[start : start + _CHUNK]


def apply_changes(
    session: Session,
    changes: Iterable[IncidentChange],
    known: Mapping[str, KnownIncident],
    now: datetime,
) -> list[int]:
    """Store what a survey changed, and return the ids of incidents that are news, in order.

    Args:
        session: a working one that holds the lock of the survey.
        changes: of `compatgate.core.incidents.reconcile`.
        known: that the changes were found with.
        now: the time of the survey.
    """
    news = []
    for change in changes:
        if change.condition is None:
            ended = {"state": "ended", "ended_at": now, "snoozed_until": None}
            session.execute(update(Incident).where(Incident.key == change.key).values(**ended))
        elif change.action == "refresh":
            _refresh(session, change, change.condition, now)
        else:
            news.append(_tell(session, change, known.get(change.key), now))
    return news


def _refresh(session: Session, change: IncidentChange, condition: Condition, now: datetime) -> None:
    """Write an incident that goes on if something changed, or it was written long ago."""
    values = _describe(condition)
    changed = or_(
        Incident.message != values["message"],
        Incident.members != values["members"],
        Incident.level != values["level"],
        Incident.state != change.state,
        Incident.last_seen < now - _SEEN,
    )
    values |= {"state": change.state, "last_seen": now, "ended_at": None}
    session.execute(update(Incident).where(Incident.key == change.key, changed).values(**values))


def _tell(
    session: Session, change: IncidentChange, before: KnownIncident | None, now: datetime
) -> int:
    """Write an incident that is new, happens again or became worse; return its id."""
    condition = change.condition
    assert condition is not None  # noqa: S101 - of `apply_changes`
    told = dict.fromkeys(one.name for one in condition.members)
    values = _describe(condition) | {"state": "open", "last_seen": now, "ended_at": None}
    if change.action == "open":
        values |= {
            "episode": change.episode,
            "first_seen": _began(condition, before, now),
            "settled": "{}",
            **dict.fromkeys(_OF_PEOPLE),
        }
    elif before is not None:
        told = dict.fromkeys((*before.told, *told))
    values["told"] = _encode([*told][-_MAX_TOLD:]).decode()
    if before is None:
        made = {**values, "key": condition.key, "kind": condition.kind, "telling": 1}
        return int(session.execute(insert(Incident).returning(Incident.id), [made]).scalar_one())
    mine = Incident.key == before.key
    session.execute(update(Incident).where(mine).values(**values, telling=Incident.telling + 1))
    return int(session.execute(select(Incident.id).where(mine)).scalar_one())


def _began(condition: Condition, before: KnownIncident | None, now: datetime) -> datetime:
    """Return when an episode began; one that happens again began after the last one."""
    if condition.since is None or before is not None:
        return now
    return min(now, condition.since)


def _describe(condition: Condition) -> dict[str, Any]:
    owners = sorted({one.owner for one in condition.members if one.owner})
    return {
        "level": condition.level,
        "severity": LEVELS.index(condition.level),
        "message": condition.message,
        "count": condition.count,
        "members": _encode(condition.members).decode(),
        "leading": _encode(condition.members[:LEADING]).decode(),
        "number": len(condition.members),
        "owners": "\n".join(("", *owners, "")) if owners else "",
    }


def prune_incidents(session: Session, now: datetime) -> None:
    """Delete incidents that ended long ago."""
    old = and_(Incident.state == "ended", Incident.ended_at < now - KEPT)
    session.execute(delete(Incident).where(old))


def find_incident(session: Session, number: int) -> IncidentRow:
    """Return an incident with all its members.

    Raises:
        NotFound: there is none of that number.
    """
    found = load_incidents(session, [number])
    if not found:
        hint = "compatgate notices incidents lists them"
        raise NotFound(f"incident {number} does not exist", field="id", value=number, hint=hint)
    return found[0]


def load_incidents(session: Session, numbers: Collection[int]) -> list[IncidentRow]:
    """Return incidents by number, with all their members."""
    query = select(*_LISTED, Incident.owners, Incident.members.label("members"))
    return [_to_row(row) for row in session.execute(query.where(Incident.id.in_(numbers)))]


def _to_row(row: Any) -> IncidentRow:
    values = dict(row._mapping)
    values["members"] = msgspec.json.decode(values["members"], type=tuple[Member, ...])
    values["owners"] = tuple(filter(None, values["owners"].split("\n")))
    return IncidentRow(**values)


def _select_listed() -> Any:
    return select(*_LISTED, Incident.owners, Incident.leading.label("members"))


def _is_active(now: datetime) -> Any:
    awake = or_(Incident.snoozed_until.is_(None), Incident.snoozed_until <= now)
    return and_(Incident.state == "open", awake)


def list_incidents(
    session: Session,
    *,
    kind: IncidentKind | None = None,
    state: IncidentState | None = None,
    snoozed: bool | None = None,
    owner: str | None = None,
    cursor: str | None = None,
    limit: int = DEFAULT_LIMIT,
) -> Page[IncidentRow]:
    """Return incidents, the newest first, each with the first of its members.

    Args:
        session: to read from.
        kind: of the incidents.
        state: of the incidents; None: any.
        snoozed: of open ones, whether they are snoozed now; None: either.
        owner: of a member.
        cursor: of the page.
        limit: most rows.
    """
    now = clock.now()
    query = _select_listed()
    if kind is not None:
        query = query.where(Incident.kind == kind)
    if state is not None:
        query = query.where(Incident.state == state)
    if snoozed is not None:
        is_snoozed = and_(Incident.state == "open", Incident.snoozed_until > now)
        query = query.where(is_snoozed if snoozed else _is_active(now))
    if owner is not None:
        query = query.where(Incident.owners.contains(f"\n{owner}\n", autoescape=True))
    return page(session, query, Incident.id, _to_row, cursor=cursor, limit=limit, descending=True)


def count_active(session: Session) -> dict[IncidentKind, dict[str, int]]:
    """Return the number of incidents that need attention, by kind and level, in order of kinds."""
    query = select(Incident.kind, Incident.level, func.count()).where(_is_active(clock.now()))
    found: dict[str, dict[str, int]] = {}
    for kind, level, number in session.execute(query.group_by(Incident.kind, Incident.level)):
        found.setdefault(kind, {})[level] = number
    return {kind: found[kind] for kind in KINDS if kind in found}


def count_snoozed(session: Session) -> int:
    """Return the number of incidents that are snoozed now."""
    query = select(func.count()).where(
        Incident.state == "open", Incident.snoozed_until > clock.now()
    )
    return int(session.execute(query).scalar() or 0)


def list_leading(session: Session, each: int) -> list[IncidentRow]:
    """Return the incidents that need attention, at most so many of a kind.

    Args:
        session: to read from.
        each: most of a kind: the worst, then those that concern most, then the latest.

    Returns:
        Them in the order of kinds.
    """
    order = (
        Incident.severity,
        Incident.count.desc(),
        Incident.first_seen.desc(),
        Incident.id.desc(),
    )
    rank = func.row_number().over(partition_by=Incident.kind, order_by=order).label("rank")
    ranked = select(Incident.id, rank).where(_is_active(clock.now())).subquery()
    query = _select_listed().join(ranked, ranked.c.id == Incident.id).where(ranked.c.rank <= each)
    rows = [_to_row(row) for row in session.execute(query.order_by(ranked.c.rank))]
    return sorted(rows, key=lambda row: KINDS.index(row.kind))


def snooze(session: Session, number: int, until: datetime, *, by: str, reason: str) -> IncidentRow:
    """Hide an open incident until a time, and audit that.

    Raises:
        NotFound: there is none of that number.
    """
    values = {"snoozed_until": until, "snoozed_by": by, "reason": reason or None}
    return _act(session, number, "snooze", values, by=by, reason=reason)


def resolve(session: Session, number: int, *, by: str, reason: str) -> IncidentRow:
    """Resolve an incident, and audit that; the incident reopens if it happens again.

    Raises:
        NotFound: there is none of that number.
    """
    row = find_incident(session, number)
    values = {
        "state": "resolved",
        "resolved_at": clock.now(),
        "resolved_by": by,
        "reason": reason,
        "settled": _encode({one.name: one.count for one in row.members}).decode(),
        "snoozed_until": None,
    }
    return _act(session, number, "resolve", values, by=by, reason=reason)


def reopen(session: Session, number: int, *, by: str, reason: str) -> IncidentRow:
    """Show a snoozed or resolved incident again, and audit that.

    Raises:
        NotFound: there is none of that number.
    """
    values = {"state": "open", "settled": "{}", **dict.fromkeys(_OF_PEOPLE)}
    return _act(session, number, "reopen", values, by=by, reason=reason)


def _act(
    session: Session, number: int, action: str, values: dict[str, Any], *, by: str, reason: str
) -> IncidentRow:
    row = find_incident(session, number)
    session.execute(update(Incident).where(Incident.id == number).values(**values))
    until = values.get("snoozed_until")
    detail = {"id": number, "key": row.key, "message": row.message, "reason": reason}
    if until is not None:
        detail["until"] = clock.iso(until)
    audit.append(
        session,
        at=clock.now(),
        actor=by,
        action=f"incident.{action}",
        subject=str(number),
        detail=detail,
    )
    return find_incident(session, number)
