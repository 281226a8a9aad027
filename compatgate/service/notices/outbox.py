"""Store messages until their channel accepts them.

What is news waits as items, written in the transaction that opened the incident. A delivery takes
the items of a subscription along, and one process at a time sends it under a lease: whoever is
killed loses nothing, and what is sent again has the same id.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any

import msgspec
from sqlalchemy import and_, delete, func, insert, or_, select, update
from sqlalchemy.orm import Session

from compatgate.core.incidents import LEVELS, Member
from compatgate.errors import NotFound
from compatgate.kit.database.tables import DEFAULT_LIMIT, Page, page
from compatgate.service.notices import repository as incidents
from compatgate.service.notices.channels import load_subscriptions
from compatgate.service.notices.formats import MAX_NOTICES, Message, make_notice
from compatgate.service.notices.models import (
    DeliveryRow,
    IncidentRow,
    NoticeDelivery,
    NoticeFilter,
    NoticeItem,
    NoticeSubscription,
    SubscriptionRow,
)
from compatgate.service.notices.schemas import DeliveryState

LEASE = timedelta(seconds=60)
"""A delivery that a process took is sent again after so long without a result."""
GIVE_UP = timedelta(hours=24)
"""A message that no attempt delivered for so long has failed."""
_FIRST_PAUSE_S = 10
_LONGEST_PAUSE_S = 3600
_FAILING_ATTEMPTS = 3
_KEPT = timedelta(days=30)
_MAX_WAITING = 500
"""Items of a subscription that one delivery takes along."""
_MAX_NAMES = 50
_encode = msgspec.json.Encoder().encode
_DELIVERY = [getattr(NoticeDelivery, name) for name in DeliveryRow.__struct_fields__]


def matches(wanted: NoticeFilter, row: IncidentRow, told: Sequence[Member]) -> list[Member]:
    """Return the members of an incident that are news for a subscription.

    Args:
        wanted: filter of the subscription.
        row: the incident.
        told: its members that are news.
    """
    if wanted.kinds and row.kind not in wanted.kinds:
        return []
    if LEVELS.index(row.level) > LEVELS.index(wanted.level):
        return []
    return [member for member in told if _concerns(wanted, member)]


def _concerns(wanted: NoticeFilter, member: Member) -> bool:
    if wanted.owners and member.owner not in wanted.owners:
        return False
    if any(member.labels.get(key) != value for key, value in wanted.labels.items()):
        return False
    return not wanted.targets or any(
        target == "*" or fnmatchcase(target, pattern)
        for target in member.targets
        for pattern in wanted.targets
    )


def queue(
    session: Session,
    rows: Sequence[IncidentRow],
    told: Mapping[str, Sequence[Member]],
    now: datetime,
) -> int:
    """Queue the news of incidents for every subscription that they concern.

    Args:
        session: the working one that opened the incidents.
        rows: incidents that are news.
        told: members that are news, by key of the incident.
        now: the time.

    Returns:
        Number of items.
    """
    items = []
    for subscription in load_subscriptions(session) if rows else ():
        for row in rows:
            if mine := matches(subscription.filter, row, told.get(row.key, ())):
                names = [one.name for one in mine[:_MAX_NAMES]]
                items.append(
                    {
                        "subscription": subscription.name,
                        "incident": row.id,
                        "episode": row.episode,
                        "telling": row.telling,
                        "members": _encode(names).decode(),
                        "made_at": now,
                    }
                )
    if items:
        session.execute(insert(NoticeItem), items)
    return len(items)


def has_due_digest(session: Session, now: datetime) -> bool:
    """Return whether items wait for a subscription whose digest is due."""
    columns = (NoticeSubscription.last_at, NoticeSubscription.digest_s)
    query = select(*columns).where(NoticeSubscription.name.in_(_select_waiting()))
    return any(_is_digest_due(*row, now) for row in session.execute(query))


def _select_waiting() -> Any:
    """Return the query for the names of subscriptions that have items."""
    return select(NoticeItem.subscription).where(NoticeItem.delivery.is_(None)).distinct()


def _is_digest_due(last: datetime | None, digest_s: int, now: datetime) -> bool:
    return last is None or last + timedelta(seconds=digest_s) <= now


def has_due_delivery(session: Session, now: datetime) -> bool:
    """Return whether a delivery is due."""
    query = select(NoticeDelivery.id).where(_is_due(now)).limit(1)
    return session.execute(query).first() is not None


def _is_due(now: datetime) -> Any:
    free = or_(NoticeDelivery.lease_until.is_(None), NoticeDelivery.lease_until <= now)
    return and_(NoticeDelivery.state == "waiting", NoticeDelivery.next_at <= now, free)


def make_deliveries(session: Session, now: datetime) -> list[str]:
    """Make the deliveries of subscriptions whose digest is due; return their ids.

    Items of incidents that ended or were resolved meanwhile are dropped; those of snoozed incidents
    wait.

    Args:
        session: a working one.
        now: the time.
    """
    named = NoticeSubscription.name.in_(_select_waiting())
    query = select(NoticeSubscription.name).where(named)
    query = query.order_by(NoticeSubscription.name).with_for_update(skip_locked=True)
    mine = set(session.execute(query).scalars())
    made = []
    for subscription in load_subscriptions(session) if mine else ():
        is_due = _is_digest_due(subscription.last_at, subscription.digest_s, now)
        if subscription.name in mine and is_due:
            number = _make_delivery(session, subscription, now)
            if number is not None:
                made.append(number)
    return made


def _make_delivery(session: Session, to: SubscriptionRow, now: datetime) -> str | None:
    columns = (NoticeItem.id, NoticeItem.incident, NoticeItem.episode, NoticeItem.members)
    mine = and_(NoticeItem.subscription == to.name, NoticeItem.delivery.is_(None))
    items = session.execute(
        select(*columns).where(mine).order_by(NoticeItem.id).limit(_MAX_WAITING)
    ).all()
    rows = {row.id: row for row in incidents.load_incidents(session, {i.incident for i in items})}
    over = {i.id for i in items if not _is_news(rows.get(i.incident), i.episode)}
    if over:
        session.execute(delete(NoticeItem).where(NoticeItem.id.in_(over)))
    live = [i for i in items if i.id not in over and not rows[i.incident].is_snoozed]
    if not live:
        return None
    told: dict[int, dict[str, None]] = {}
    for item in live:
        told.setdefault(item.incident, {}).update(dict.fromkeys(msgspec.json.decode(item.members)))
    notices = [make_notice(rows[number], tuple(names)) for number, names in told.items()]
    notices.sort(key=lambda one: (LEVELS.index(one.level), one.incident))
    left = max(0, len(notices) - MAX_NOTICES)
    number = make_id(now)
    message = Message(number, to.name, to.urgency, now, tuple(notices[:MAX_NOTICES]), left)
    store_delivery(session, message, to.channel)
    taken = [item.id for item in live]
    session.execute(update(NoticeItem).where(NoticeItem.id.in_(taken)).values(delivery=number))
    session.execute(
        update(NoticeSubscription).where(NoticeSubscription.name == to.name).values(last_at=now)
    )
    return number


def _is_news(row: IncidentRow | None, episode: int) -> bool:
    return row is not None and row.state == "open" and row.episode == episode


def make_id(at: datetime) -> str:
    """Return a new id of a delivery; ids sort by time, to a millisecond."""
    return f"nd_{int(at.timestamp() * 1000):011x}{secrets.randbits(40):010x}"


def store_delivery(
    session: Session, message: Message, channel: str, *, lease_until: datetime | None = None
) -> None:
    """Store a message to send; ``lease_until``: this process sends it now."""
    values = {
        "id": message.id,
        "channel": channel,
        "subscription": message.subscription,
        "state": "waiting",
        "made_at": message.made_at,
        "next_at": message.made_at,
        "attempts": 0 if lease_until is None else 1,
        "lease_until": lease_until,
        "message": _encode(message).decode(),
    }
    session.execute(insert(NoticeDelivery), [values])


def claim_delivery(session: Session, now: datetime) -> tuple[str, Message] | None:
    """Take a delivery that is due, for `LEASE`; return its channel and message.

    A channel is sent one message at a time, so that a slow receiver holds one thread.
    """
    busy = select(NoticeDelivery.channel).where(
        NoticeDelivery.state == "waiting", NoticeDelivery.lease_until > now
    )
    query = select(NoticeDelivery.id, NoticeDelivery.channel, NoticeDelivery.message)
    query = query.where(_is_due(now), NoticeDelivery.channel.not_in(busy))
    query = query.order_by(NoticeDelivery.next_at, NoticeDelivery.id).limit(1)
    row = session.execute(query.with_for_update(skip_locked=True)).first()
    if row is None:
        return None
    values = {"lease_until": now + LEASE, "attempts": NoticeDelivery.attempts + 1}
    session.execute(update(NoticeDelivery).where(NoticeDelivery.id == row.id).values(values))
    return row.channel, msgspec.json.decode(row.message, type=Message)


def finish_delivery(
    session: Session, number: str, now: datetime, *, sent: bool, answer: str, final: bool = False
) -> None:
    """Store what became of an attempt: sent, to be tried again, or failed.

    Args:
        session: a working one.
        number: id of the delivery.
        now: the time.
        sent: the receiver took it.
        answer: of the receiver, or why there was none; without secrets.
        final: do not try again.
    """
    query = select(NoticeDelivery.made_at, NoticeDelivery.attempts)
    row = session.execute(query.where(NoticeDelivery.id == number)).first()
    if row is None:  # its channel was deleted meanwhile
        return
    values: dict[str, Any] = {"lease_until": None, "answer": answer}
    if sent:
        values |= {"state": "sent", "ended_at": now}
    elif final or now - row.made_at >= GIVE_UP:
        values |= {"state": "failed", "ended_at": now}
    else:
        values["next_at"] = now + pause_after(row.attempts)
    session.execute(update(NoticeDelivery).where(NoticeDelivery.id == number).values(values))


def pause_after(attempts: int) -> timedelta:
    """Return the pause after some failed attempts: 10 s, 20 s, 40 s, ... up to an hour."""
    return timedelta(seconds=min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** (max(1, attempts) - 1)))


def list_failing(session: Session, now: datetime) -> list[tuple[str, str, datetime]]:
    """Return channels that took nothing lately: name, last answer, and since when."""
    ended = and_(
        NoticeDelivery.state == "failed", NoticeDelivery.ended_at > now - timedelta(days=1)
    )
    trying = and_(NoticeDelivery.state == "waiting", NoticeDelivery.attempts >= _FAILING_ATTEMPTS)
    query = select(
        NoticeDelivery.channel,
        func.max(NoticeDelivery.answer).label("answer"),
        func.min(NoticeDelivery.made_at).label("since"),
        func.max(NoticeDelivery.made_at).label("last"),
    )
    query = query.where(or_(ended, trying), NoticeDelivery.subscription.is_not(None))
    found = []
    for row in session.execute(query.group_by(NoticeDelivery.channel)).all():
        good = select(NoticeDelivery.id).where(
            NoticeDelivery.channel == row.channel,
            NoticeDelivery.state == "sent",
            NoticeDelivery.ended_at > row.last,
        )
        if session.execute(good.limit(1)).first() is None:
            found.append((row.channel, row.answer or "no answer", row.since))
    return found


def prune_deliveries(session: Session, now: datetime) -> None:
    """Delete deliveries that ended long ago."""
    session.execute(delete(NoticeDelivery).where(NoticeDelivery.ended_at < now - _KEPT))


def list_deliveries(
    session: Session,
    *,
    channel: str | None = None,
    state: DeliveryState | None = None,
    cursor: str | None = None,
    limit: int = DEFAULT_LIMIT,
) -> Page[DeliveryRow]:
    """Return deliveries, the newest first.

    Args:
        session: to read from.
        channel: of the deliveries.
        state: of the deliveries.
        cursor: of the page.
        limit: most rows.
    """
    query = select(*_DELIVERY)
    if channel is not None:
        query = query.where(NoticeDelivery.channel == channel)
    if state is not None:
        query = query.where(NoticeDelivery.state == state)
    key = NoticeDelivery.id
    return page(session, query, key, _to_delivery, cursor=cursor, limit=limit, descending=True)


def find_delivery(session: Session, number: str) -> DeliveryRow:
    """Return a delivery.

    Raises:
        NotFound: there is none of that id.
    """
    row = session.execute(select(*_DELIVERY).where(NoticeDelivery.id == number)).first()
    if row is None:
        hint = "compatgate notices deliveries lists them"
        raise NotFound(f"delivery {number!r} does not exist", field="id", value=number, hint=hint)
    return _to_delivery(row)


def _to_delivery(row: Any) -> DeliveryRow:
    return DeliveryRow(**{**row._mapping, "message": msgspec.json.decode(row.message)})
