"""Show incidents, channels, subscriptions and deliveries, and act on them in forms."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any, Literal

import msgspec
from flask import request
from msgspec import Meta

from compatgate.core.incidents import KINDS, LEVELS, TITLES, IncidentKind
from compatgate.errors import BadInput, CompatgateError
from compatgate.kit import clock
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
from compatgate.service.matrix.service import Authorship
from compatgate.service.notices.formats import Message
from compatgate.service.notices.models import DeliveryRow, IncidentRow, NoticeFilter
from compatgate.service.notices.schemas import ChannelRequest, DeliveryState, SubscriptionRequest
from compatgate.service.notices.service import member_link
from compatgate.service.web.page import HtmlPage, PageRequest, Redirect, page
from compatgate.service.web.route import LARGEST

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


ShownState = Literal["open", "snoozed", "resolved", "ended", "all"]
_INCIDENT_STATES: tuple[ShownState, ...] = ("open", "snoozed", "resolved", "ended", "all")
_COLUMNS = (
    Column("level", "Level", "badge"),
    Column("incident", "Incident"),
    Column("kind", "Kind"),
    Column("count", "Count", "number"),
    Column("first", "Since", "time"),
    Column("last", "Last seen", "time"),
    Column("owner", "Owner"),
    Column("state", "State"),
)
_EMPTY = EmptyNotice(
    "Nothing needs attention.",
    "Evidence is fresh, nodes match their targets, and no waiver or driver branch ends soon.",
)
WORDS = {"fail": "broken", "warn": "check", "info": "news"}
_MAX_DAYS = 90


class IncidentQuery(PagedTableQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of incidents."""

    kind: IncidentKind | None = None
    owner: Filter | None = None
    state: Annotated[ShownState, Meta(description="default: open")] | None = None


@page("/incidents", nav="incidents", query=IncidentQuery)
def show_incidents(ask: PageRequest[IncidentQuery]) -> HtmlPage:
    """Show incidents, the newest first."""
    query = ask.query
    asked = {"kind": query.kind, "owner": query.owner, **filters_of(query.state)}
    found = fetch_rows(ask.gate.incidents.list, query.cursor, **asked)
    table = make_list_table("incidents", _COLUMNS, map(_row, found.items), found, query, _EMPTY)
    context = {"query": query, "kinds": KINDS, "states": _INCIDENT_STATES}
    title = TITLES[query.kind] if query.kind else "Incidents"
    return HtmlPage("incidents.html", title, context, table)


def filters_of(state: ShownState | None) -> dict[str, Any]:
    """Return the filters of a state as people choose it; None: what needs attention."""
    if state == "all":
        return {}
    if state in (None, "open", "snoozed"):
        return {"state": "open", "snoozed": state == "snoozed"}
    return {"state": state}


def _row(row: IncidentRow) -> tuple[Any, ...]:
    place = link("incidents", row.id)
    only = row.members[0] if row.number == 1 and row.members else None
    return (
        Cell(WORDS[row.level], tone=row.level),
        Cell(f"{only.name}: {only.note}" if only else row.message, href=place),
        TITLES[row.kind],
        row.count,
        row.first_seen,
        row.last_seen,
        ", ".join(row.owners),
        "snoozed" if row.is_snoozed else row.state,
    )


@page(f"/incidents/<int(max={LARGEST['big']}):id>", nav="incidents")
def show_incident(ask: PageRequest[Any]) -> HtmlPage:
    """Show an incident with its members."""
    return _incident_page(ask)


def _incident_page(ask: PageRequest[Any], error: CompatgateError | None = None) -> HtmlPage:
    row = ask.gate.incidents.show(ask.args["id"])
    context = {
        "one": row,
        "title_of_kind": TITLES[row.kind],
        "word": WORDS[row.level],
        "member_link": member_link,
        "may": ask.principal.may("operate"),
        "error": error,
        "typed": ask.form,
    }
    status = error.status if error else 200
    return HtmlPage("incident.html", f"Incident {row.id}", context, status=status)


@page(
    f"/incidents/<int(max={LARGEST['big']}):id>/act",
    scope="operate",
    method="POST",
    nav="incidents",
)
def act_on_incident(ask: PageRequest[Any]) -> HtmlPage | Redirect:
    """Snooze, resolve or reopen an incident."""
    number, what = ask.args["id"], ask.form.get("what", "")
    by = Authorship(ask.principal.name, ask.form.get("reason", "").strip(), ask.principal)
    try:
        if what == "snooze":
            days = _read_days(ask.form.get("days", ""))
            ask.gate.incidents.snooze(number, clock.now() + timedelta(days=days), by)
            done = f"Snoozed incident {number} for {days} day{'' if days == 1 else 's'}."
        elif what == "resolve":
            ask.gate.incidents.resolve(number, by)
            done = f"Resolved incident {number}. It reopens if it happens again."
        elif what == "reopen":
            ask.gate.incidents.reopen(number, by)
            done = f"Reopened incident {number}."
        else:
            hint = "one of snooze, resolve, reopen"
            raise BadInput("is not an action", field="what", value=what, hint=hint)
    except CompatgateError as error:
        return _incident_page(ask, error)
    home = ask.form.get("back") == "home"
    return Redirect(link() if home else link("incidents", number), done)


def _read_days(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or not 1 <= int(text[:3]) <= _MAX_DAYS:
        hint = f"from 1 to {_MAX_DAYS}"
        raise BadInput("is not a number of days", field="days", value=text, hint=hint)
    return int(text[:3])
