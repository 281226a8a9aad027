"""Show channels, subscriptions and deliveries; keep channels and subscriptions in forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from flask import request

from compatgate.core.incidents import LEVELS, TITLES
from compatgate.errors import BadInput, CompatgateError
from compatgate.kit.http.links import link
from compatgate.kit.http.replies import Filter
from compatgate.kit.http.requests import to_struct
from compatgate.kit.ui.preferences import local_time
from compatgate.kit.ui.tables import (
    Cell,
    Column,
    EmptyNotice,
    PagedTableQuery,
    fetch_rows,
    make_list_table,
    make_table,
)
from compatgate.service.notices.formats import Message
from compatgate.service.notices.models import DeliveryRow, NoticeFilter
from compatgate.service.notices.schemas import ChannelRequest, DeliveryState, SubscriptionRequest
from compatgate.service.web.page import HtmlPage, PageRequest, Redirect, page

_CHANNELS = (
    Column("name", "Channel"),
    Column("kind", "Kind"),
    Column("place", "Receiver"),
    Column("changed", "Changed", "time"),
    Column("by", "By"),
)
_SUBSCRIPTIONS = (
    Column("name", "Subscription"),
    Column("channel", "Channel"),
    Column("urgency", "Urgency"),
    Column("about", "About"),
    Column("digest", "Digest"),
    Column("last", "Last message", "time"),
)
_DELIVERIES = (
    Column("state", "State", "badge"),
    Column("title", "Message"),
    Column("channel", "Channel"),
    Column("made", "Made", "time"),
    Column("attempts", "Attempts", "number"),
    Column("answer", "Answer"),
    Column("id", "Id", "code"),
)
_NO_CHANNELS = EmptyNotice(
    "No channels yet.",
    "Nobody is notified of incidents.",
    "compatgate notices set-channel oncall --kind webhook --url https://hooks.example.com/gpu",
)
_NO_SUBSCRIPTIONS = EmptyNotice(
    "No subscriptions yet.", "A channel without a subscription receives nothing."
)
_NO_DELIVERIES = EmptyNotice("No messages yet.", "Test a channel to send one.")
_STATES = ("waiting", "sent", "failed")
_TONES = {"waiting": "warn", "sent": "pass", "failed": "fail"}


class DeliveryQuery(PagedTableQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of deliveries."""

    channel: Filter | None = None
    state: DeliveryState | None = None


@page("/notices", nav="notices", query=DeliveryQuery)
def show_notices(ask: PageRequest[DeliveryQuery]) -> HtmlPage:
    """Show channels, subscriptions, and messages with what became of each."""
    return _notices_page(ask)


def _notices_page(
    ask: PageRequest[Any],
    *,
    error: CompatgateError | None = None,
    at: str = "",
    made: tuple[str, str] | None = None,
) -> HtmlPage:
    """Return the page; ``at`` names the form of the error, ``made`` a channel and its new key."""
    query = ask.query if isinstance(ask.query, DeliveryQuery) else DeliveryQuery()
    desk = ask.gate.notices
    channels, subscriptions = desk.list_channels(), desk.list_subscriptions()
    found = fetch_rows(desk.list_deliveries, query.cursor, channel=query.channel, state=query.state)
    rows = map(_delivery_cells, found.items)
    table = make_list_table(
        "deliveries", _DELIVERIES, rows, found, query, _NO_DELIVERIES, label="messages"
    )
    channel_rows = [
        (
            Cell(one.name, href=link("notices", channel=one.name)),
            one.kind,
            one.place,
            one.changed_at,
            one.changed_by,
        )
        for one in channels
    ]
    subscription_rows = [
        (one.name, one.channel, one.urgency, about(one.filter), _digest(one.digest_s), one.last_at)
        for one in subscriptions
    ]
    context = {
        "query": query,
        "states": _STATES,
        "channel_table": make_table(
            "channels", _CHANNELS, channel_rows, _NO_CHANNELS, label="channels"
        ),
        "subscription_table": make_table(
            "subscriptions",
            _SUBSCRIPTIONS,
            subscription_rows,
            _NO_SUBSCRIPTIONS,
            label="subscriptions",
        ),
        "channels": [one.name for one in channels],
        "subscriptions": [one.name for one in subscriptions],
        "kinds": TITLES,
        "levels": LEVELS[::-1],
        "problems": {at: error},
        "typed": ask.form if error else {},
        "chosen": request.form.getlist("kinds") if error else (),
        "made": made,
    }
    return HtmlPage("notices.html", "Notices", context, table, error.status if error else 200)


def about(wanted: NoticeFilter) -> str:
    """Return in words what a subscription is about."""
    labels = [f"{key}={value}" for key, value in wanted.labels.items()]
    parts = [*wanted.kinds, *wanted.owners, *labels, *wanted.targets]
    if wanted.level != "info":
        parts.append("fail" if wanted.level == "fail" else f"{wanted.level} or worse")
    return ", ".join(parts) or "everything"


def _digest(seconds: int) -> str:
    if not seconds:
        return "at once"
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds % size == 0:
            return f"every {seconds // size} {unit}"
    return f"every {seconds} s"


def _next_attempt(row: DeliveryRow) -> str:
    return f"next attempt {local_time(row.next_at, '%H:%M:%S')}" if row.state == "waiting" else ""


def _delivery_cells(row: DeliveryRow) -> tuple[Any, ...]:
    return (
        Cell(row.state, tone=_TONES[row.state], note=_next_attempt(row)),
        msgspec.convert(row.message, Message).title,
        row.channel,
        row.made_at,
        row.attempts,
        row.answer,
        row.id,
    )


@page("/notices/channels", scope="admin", method="POST", nav="notices")
def set_channel(ask: PageRequest[Any]) -> HtmlPage | Redirect:
    """Create or replace a channel; only this answer shows a new key."""
    form = ask.form
    name = form.get("name", "").strip()
    body = {
        "kind": form.get("kind", ""),
        "url": form.get("url", "").strip() or None,
        "key": form.get("key", "").strip() or None,
        "to": form.get("to", "").replace(",", " ").split(),
    }
    try:
        wanted = to_struct(body, ChannelRequest)
        _, key = ask.gate.notices.set_channel(name, wanted, by=ask.principal.name)
    except CompatgateError as error:
        return _notices_page(ask, error=error, at="channel")
    if key is not None:
        return _notices_page(ask, made=(name, key))
    return Redirect(link("notices"), f"Stored the channel {name}.")


@page("/notices/subscriptions", scope="operate", method="POST", nav="notices")
def set_subscription(ask: PageRequest[Any]) -> HtmlPage | Redirect:
    """Create or replace a subscription."""
    form = ask.form
    name = form.get("name", "").strip()
    try:
        body = {
            "channel": form.get("channel", ""),
            "kinds": request.form.getlist("kinds"),
            "owners": _words(form.get("owners", "")),
            "labels": _read_labels(form.get("labels", "")),
            "targets": _words(form.get("targets", "")),
            "level": form.get("level", "info"),
            "urgency": form.get("urgency", "ticket"),
            "digest": form.get("digest", "").strip() or None,
        }
        wanted = to_struct(body, SubscriptionRequest)
        ask.gate.notices.set_subscription(name, wanted, by=ask.principal.name)
    except CompatgateError as error:
        return _notices_page(ask, error=error, at="subscription")
    return Redirect(link("notices"), f"Stored the subscription {name}.")


def _words(text: str) -> list[str]:
    return text.replace(",", " ").split()


def _read_labels(text: str) -> dict[str, str]:
    found = {}
    for word in _words(text):
        key, equal, value = word.partition("=")
        if not key or not equal:
            raise BadInput(
                "is not a label of the form KEY=VALUE",
                field="labels",
                value=word,
                hint="for example tier=prod",
            )
        found[key] = value
    return found


@page("/notices/test", scope="operate", method="POST", nav="notices")
def test_channel(ask: PageRequest[Any]) -> HtmlPage | Redirect:
    """Send a test message to a channel."""
    name = ask.form.get("name", "")
    row = ask.gate.notices.test_channel(name)
    if row.state != "sent":
        answer = f"The channel {name} refused the test message: {row.answer}"
        return _notices_page(ask, error=BadInput(answer), at="test")
    return Redirect(link("notices"), f"The channel {name} accepted the test message: {row.answer}")


@page("/notices/delete-channel", scope="admin", method="POST", nav="notices")
def delete_channel(ask: PageRequest[Any]) -> HtmlPage | Redirect:
    """Delete a channel that no subscription uses."""
    return _delete(ask, "channel", ask.gate.notices.delete_channel)


@page("/notices/unsubscribe", scope="operate", method="POST", nav="notices")
def unsubscribe(ask: PageRequest[Any]) -> HtmlPage | Redirect:
    """Delete a subscription."""
    return _delete(ask, "subscription", ask.gate.notices.delete_subscription)


def _delete(ask: PageRequest[Any], what: str, act: Callable[..., Any]) -> HtmlPage | Redirect:
    name = ask.form.get("name", "")
    try:
        act(name, by=ask.principal.name)
    except CompatgateError as error:
        return _notices_page(ask, error=error, at=f"delete-{what}")
    return Redirect(link("notices"), f"Deleted the {what} {name}.")
