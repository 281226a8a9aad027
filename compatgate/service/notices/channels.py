"""Store channels and subscriptions; a channel's secret is written, used, and never shown."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import delete, insert, select, update
from sqlalchemy.orm import Session

from compatgate.errors import Conflict, NotFound
from compatgate.service.audit import repository as audit
from compatgate.service.notices.models import (
    ChannelRow,
    NoticeChannel,
    NoticeDelivery,
    NoticeFilter,
    NoticeItem,
    NoticeSubscription,
    SubscriptionRow,
)
from compatgate.service.notices.schemas import Urgency

_encode = msgspec.json.Encoder().encode
_CHANNEL = [getattr(NoticeChannel, name) for name in ChannelRow.__struct_fields__]
_SUBSCRIPTION = [getattr(NoticeSubscription, name) for name in SubscriptionRow.__struct_fields__]


def load_channels(session: Session) -> list[ChannelRow]:
    """Return the channels by name, without their secrets."""
    query = select(*_CHANNEL).order_by(NoticeChannel.name)
    return [ChannelRow(**row._mapping) for row in session.execute(query)]


def find_channel(session: Session, name: str) -> ChannelRow:
    """Return a channel without its secret.

    Raises:
        NotFound: there is none of that name.
    """
    row = session.execute(select(*_CHANNEL).where(NoticeChannel.name == name)).first()
    if row is None:
        hint = "compatgate notices channels lists them"
        raise NotFound(f"channel {name!r} does not exist", field="channel", value=name, hint=hint)
    return ChannelRow(**row._mapping)


def read_secret(session: Session, name: str) -> dict[str, Any]:
    """Return the secret of a channel, to send with; empty: the channel was deleted."""
    query = select(NoticeChannel.secret).where(NoticeChannel.name == name)
    text = session.execute(query).scalar()
    found: dict[str, Any] = msgspec.json.decode(text) if text else {}
    return found


def store_channel(session: Session, row: ChannelRow, secret: Mapping[str, Any]) -> None:
    """Make or change a channel, and audit that."""
    values = {**msgspec.structs.asdict(row), "secret": _encode(secret).decode()}
    changed = update(NoticeChannel).where(NoticeChannel.name == row.name).values(**values)
    is_new = not session.execute(changed).rowcount  # type: ignore[attr-defined]
    if is_new:
        session.execute(insert(NoticeChannel), [values])
    detail = {"kind": row.kind, "place": row.place}
    _audit(session, f"channel.{'create' if is_new else 'change'}", row.name, detail, row)


def delete_channel(session: Session, name: str, *, by: str, now: datetime) -> ChannelRow:
    """Delete a channel and its deliveries; return the channel.

    Raises:
        NotFound: there is none of that name.
        Conflict: a subscription uses it.
    """
    row = find_channel(session, name)
    query = select(NoticeSubscription.name).where(NoticeSubscription.channel == name)
    used = [*session.execute(query.order_by(NoticeSubscription.name)).scalars()]
    if used:
        hint = f"delete the subscription {used[0]} first"
        what = f"the channel {name} has subscriptions: {', '.join(used[:5])}"
        raise Conflict(what, field="channel", value=name, hint=hint)
    session.execute(delete(NoticeDelivery).where(NoticeDelivery.channel == name))
    session.execute(delete(NoticeChannel).where(NoticeChannel.name == name))
    detail = {"kind": row.kind, "place": row.place}
    deleted = msgspec.structs.replace(row, changed_at=now, changed_by=by)
    _audit(session, "channel.delete", name, detail, deleted)
    return row


def _audit(
    session: Session,
    action: str,
    subject: str,
    detail: dict[str, Any],
    row: ChannelRow | SubscriptionRow,
) -> None:
    audit.append(
        session,
        at=row.changed_at,
        actor=row.changed_by,
        action=f"notices.{action}",
        subject=subject,
        detail=detail,
    )


def load_subscriptions(session: Session) -> list[SubscriptionRow]:
    """Return the subscriptions by name."""
    query = select(*_SUBSCRIPTION).order_by(NoticeSubscription.name)
    return [_to_subscription(row) for row in session.execute(query)]


def find_subscription(session: Session, name: str) -> SubscriptionRow:
    """Return a subscription.

    Raises:
        NotFound: there is none of that name.
    """
    row = session.execute(select(*_SUBSCRIPTION).where(NoticeSubscription.name == name)).first()
    if row is None:
        hint = "compatgate notices list shows them"
        what = f"subscription {name!r} does not exist"
        raise NotFound(what, field="subscription", value=name, hint=hint)
    return _to_subscription(row)


def _to_subscription(row: Any) -> SubscriptionRow:
    wanted = msgspec.json.decode(row.filter, type=NoticeFilter)
    return SubscriptionRow(**{**row._mapping, "filter": wanted})


def store_subscription(
    session: Session,
    name: str,
    *,
    channel: str,
    wanted: NoticeFilter,
    urgency: Urgency,
    digest_s: int,
    by: str,
    now: datetime,
) -> SubscriptionRow:
    """Make or change a subscription, audit that, and return it.

    Args:
        session: a writing one.
        name: of the subscription.
        channel: that exists.
        wanted: which incidents.
        urgency: page or ticket.
        digest_s: least seconds between two messages.
        by: who does it.
        now: the time.
    """
    values: dict[str, Any] = {
        "channel": channel,
        "filter": _encode(wanted).decode(),
        "urgency": urgency,
        "digest_s": digest_s,
        "changed_at": now,
        "changed_by": by,
    }
    changed = update(NoticeSubscription).where(NoticeSubscription.name == name).values(**values)
    is_new = not session.execute(changed).rowcount  # type: ignore[attr-defined]
    if is_new:
        session.execute(insert(NoticeSubscription), [{"name": name, **values}])
    row = find_subscription(session, name)
    detail = {
        "channel": channel,
        "filter": msgspec.to_builtins(wanted),
        "urgency": urgency,
        "digest_s": digest_s,
    }
    _audit(session, "subscribe" if is_new else "subscription.change", name, detail, row)
    return row


def delete_subscription(session: Session, name: str, *, by: str, now: datetime) -> SubscriptionRow:
    """Delete a subscription and what waits for it; return the subscription.

    Raises:
        NotFound: there is none of that name.
    """
    row = find_subscription(session, name)
    session.execute(delete(NoticeItem).where(NoticeItem.subscription == name))
    session.execute(delete(NoticeSubscription).where(NoticeSubscription.name == name))
    deleted = msgspec.structs.replace(row, changed_at=now, changed_by=by)
    _audit(session, "unsubscribe", name, {"channel": row.channel}, deleted)
    return row
