"""Store what surveys find, and the marks that say which process surveys or posts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import Index, Integer, Text, and_, insert, or_, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Mapped, Session, mapped_column

from compatgate.core.incidents import (
    KINDS,
    LEVELS,
    TITLES,
    Condition,
    IncidentChange,
    IncidentKind,
    IncidentLevel,
    IncidentMember,
    IncidentState,
    KnownIncident,
)
from compatgate.errors import NotFound
from compatgate.kit import clock
from compatgate.kit.database.tables import Base, BigKey, JsonText, UtcTime, in_parts
from compatgate.service.attention.schemas import IncidentBody

LEADING = 3
"""Members that lists show of an incident."""
KEPT = timedelta(days=90)
"""Ended incidents are kept for so long."""
_SEEN = timedelta(minutes=5)
"""An incident that goes on unchanged is written again after so long."""
UNTOUCHED: dict[str, Any] = dict.fromkeys(("snoozed_until", "snoozed_by", "comment"))
"""Values of an incident that no person has acted on."""


class Incident(Base):
    """A condition that needs or needed attention. Surveys open and end it; people snooze it.

    Its attributes are those of `schemas.IncidentBody`. Nothing reads ``telling``, ``told``,
    ``resolved_at``, ``resolved_by`` and ``settled`` any more; the next release drops them.
    """

    __tablename__ = "incidents"
    __table_args__ = (Index(None, "state", "kind"),)

    id: Mapped[int] = mapped_column(BigKey, primary_key=True)
    key: Mapped[str] = mapped_column(Text, unique=True, comment="Kind and digest of the cause")
    kind: Mapped[IncidentKind] = mapped_column(Text)
    level: Mapped[IncidentLevel] = mapped_column(Text, comment="fail, warn or info")
    severity: Mapped[int] = mapped_column(Integer, comment="Of the level; 0 is the worst")
    state: Mapped[IncidentState] = mapped_column(Text, comment="open, resolved or ended")
    episode: Mapped[int] = mapped_column(Integer, comment="One more each time it happens again")
    telling: Mapped[int] = mapped_column(
        Integer, default=1, comment="One more each time that it is news"
    )
    message: Mapped[str] = mapped_column(Text)
    count: Mapped[int] = mapped_column(Integer, comment="How much is concerned")
    every_member: Mapped[list[Any]] = mapped_column(
        "members", JsonText, deferred=True, comment="JSON: the objects concerned"
    )
    members: Mapped[list[Any]] = mapped_column(
        "leading", JsonText, comment="JSON: the first of them, for lists"
    )
    member_count: Mapped[int] = mapped_column("number", Integer, comment="Of members")
    owner_lines: Mapped[str] = mapped_column(
        "owners", Text, comment="Of the members, between line ends"
    )
    told: Mapped[str] = mapped_column(
        Text, default="[]", comment="JSON: names of all members of the episode"
    )
    first_seen: Mapped[datetime] = mapped_column(UtcTime, comment="Of this episode")
    last_seen: Mapped[datetime] = mapped_column(UtcTime)
    ended_at: Mapped[datetime | None] = mapped_column(UtcTime)
    snoozed_until: Mapped[datetime | None] = mapped_column(UtcTime)
    snoozed_by: Mapped[str | None] = mapped_column(Text)
    resolved_at: Mapped[datetime | None] = mapped_column(UtcTime)
    resolved_by: Mapped[str | None] = mapped_column(Text)
    comment: Mapped[str | None] = mapped_column(
        "reason", Text, comment="Of the snooze or resolution"
    )
    settled: Mapped[dict[str, int]] = mapped_column(
        JsonText, default={}, comment="JSON: count by member when resolved"
    )

    @property
    def title(self) -> str:
        """Return the title of the kind."""
        return TITLES[self.kind]

    @property
    def owners(self) -> list[str]:
        """Return the owners of all members."""
        return [owner for owner in self.owner_lines.split("\n") if owner]

    @property
    def snoozed(self) -> bool:
        """Return whether it is open and snoozed now."""
        until = self.snoozed_until
        return self.state == "open" and until is not None and not clock.is_past(until)


class NoticeMark(Base):
    """State of the surveys or of the webhook, and a lease of the process that works on it."""

    __tablename__ = "notice_marks"

    name: Mapped[str] = mapped_column(Text, primary_key=True, comment="survey or releases")
    at: Mapped[datetime | None] = mapped_column(UtcTime, comment="When it was written")
    value: Mapped[str] = mapped_column(Text, comment="JSON")
    lease_until: Mapped[datetime | None] = mapped_column(UtcTime)


def lock_mark(session: Session, name: str) -> str:
    """Lock a mark until the working transaction ends, and return its value; make a missing one."""
    query = select(NoticeMark.value).where(NoticeMark.name == name).with_for_update()
    value: str | None = session.execute(query).scalar()
    if value is not None:
        return value
    with suppress(IntegrityError), session.begin_nested():  # another process made it meanwhile
        session.execute(insert(NoticeMark), [{"name": name, "value": "{}"}])
    return str(session.execute(query).scalar_one())


def write_mark(session: Session, name: str, **values: Any) -> None:
    """Change a locked mark: its ``value``, ``at`` or ``lease_until``."""
    session.execute(update(NoticeMark).where(NoticeMark.name == name).values(**values))


def read_mark(session: Session, name: str) -> tuple[str, datetime | None, datetime | None]:
    """Return the value of a mark, when it was written, and the end of its lease."""
    columns = (NoticeMark.value, NoticeMark.at, NoticeMark.lease_until)
    row = session.execute(select(*columns).where(NoticeMark.name == name)).first()
    return (row.value, row.at, row.lease_until) if row else ("{}", None, None)


def take_lease(session: Session, name: str, now: datetime, until: datetime) -> bool:
    """Take the lease of a mark if nobody has it, and return whether this process has it now."""
    lock_mark(session, name)
    free = or_(NoticeMark.lease_until.is_(None), NoticeMark.lease_until <= now)
    taken = update(NoticeMark).where(NoticeMark.name == name, free).values(lease_until=until)
    return bool(session.execute(taken).rowcount)  # type: ignore[attr-defined]


def load_known(session: Session, keys: Collection[str]) -> dict[str, KnownIncident]:
    """Return the incidents that have not ended, and those of some keys."""
    wanted = [Incident.state != "ended", *(Incident.key.in_(c) for c in in_parts(sorted(keys)))]
    columns = [getattr(Incident, name) for name in KnownIncident.__struct_fields__]
    query = select(*columns).where(Incident.kind.in_(KINDS))
    rows = [row for one in wanted for row in session.execute(query.where(one))]
    return {row.key: msgspec.convert(row, KnownIncident, from_attributes=True) for row in rows}


def apply_changes(
    session: Session,
    changes: Iterable[IncidentChange],
    known: Mapping[str, KnownIncident],
    now: datetime,
) -> list[int]:
    """Store what a survey changed, and return the ids of incidents that opened, in order.

    The working session holds the lock of the survey, and the changes were made from ``known``.
    """
    opened = []
    for change in changes:
        mine = Incident.key == change.key
        if change.condition is None:
            ended = {"state": "ended", "ended_at": now, "snoozed_until": None}
            session.execute(update(Incident).where(mine).values(**ended))
            continue
        values = _describe(change.condition)
        if change.action == "refresh":
            # An incident that goes on is written if something changed, or it was long ago.
            same = [getattr(Incident, name) == value for name, value in values.items()]
            same += [Incident.state == change.state, Incident.last_seen >= now - _SEEN]
            values |= {"state": change.state, "last_seen": now, "ended_at": None}
            session.execute(update(Incident).where(mine, ~and_(*same)).values(**values))
            continue
        values |= {"state": "open", "last_seen": now, "ended_at": None, "first_seen": now}
        values |= {"episode": change.episode, **UNTOUCHED}
        if change.key in known:
            statement: Any = update(Incident).where(mine).values(**values)
        else:
            values["first_seen"] = min(now, change.condition.since or now)
            values |= {"key": change.key, "kind": change.condition.kind}
            statement = insert(Incident).values(**values)
        opened.append(session.execute(statement.returning(Incident.id)).scalar_one())
    return opened


def _describe(condition: Condition) -> dict[str, Any]:
    owners = sorted({one.owner for one in condition.members if one.owner})
    return {
        "level": condition.level,
        "severity": LEVELS.index(condition.level),
        "message": condition.message,
        "count": condition.count,
        "every_member": condition.members,
        "members": condition.members[:LEADING],
        "member_count": len(condition.members),
        "owner_lines": "\n".join(("", *owners, "")) if owners else "",
    }


def find_incident(session: Session, number: int) -> IncidentBody:
    """Return an incident with all its members."""
    row = session.get(Incident, number)
    if row is None or row.kind not in KINDS:
        hint = "compatgate notices incidents lists them"
        raise NotFound(f"incident {number} does not exist", field="id", value=number, hint=hint)
    members = msgspec.convert(row.every_member, list[IncidentMember])
    return msgspec.structs.replace(describe(row), members=members)


def describe(row: Incident) -> IncidentBody:
    """Return an incident with the first of its members."""
    return msgspec.convert(row, IncidentBody, from_attributes=True)


def is_active(now: datetime) -> Any:
    """Return the condition for incidents that need attention: open, not snoozed."""
    awake = or_(Incident.snoozed_until.is_(None), Incident.snoozed_until <= now)
    return and_(Incident.state == "open", Incident.kind.in_(KINDS), awake)


def is_snoozed(now: datetime) -> Any:
    """Return the condition for incidents that are open and snoozed."""
    return and_(Incident.state == "open", Incident.snoozed_until > now)
