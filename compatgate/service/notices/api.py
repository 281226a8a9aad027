"""Serve incidents, and notices about them: channels, subscriptions, deliveries."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from compatgate.core.incidents import TITLES, IncidentKind, IncidentState
from compatgate.documents.quantities import parse_duration
from compatgate.errors import BadInput
from compatgate.kit import clock
from compatgate.kit.http.replies import Filter, ListQuery, Reply, page_reply, slice_page
from compatgate.kit.http.requests import to_struct
from compatgate.service.matrix.service import Authorship
from compatgate.service.notices.formats import Message
from compatgate.service.notices.models import DeliveryRow, IncidentRow, SubscriptionRow
from compatgate.service.notices.schemas import (
    CHANNEL,
    MAIL,
    SUBSCRIPTION,
    ChannelBody,
    ChannelMade,
    ChannelRequest,
    DeliveryState,
    IncidentBody,
    IncidentMember,
    NoticeDeliveryBody,
    ReopenRequest,
    ResolveRequest,
    SnoozeRequest,
    SubscriptionBody,
    SubscriptionRequest,
)
from compatgate.service.web.call import Call
from compatgate.service.web.route import Body, NoQuery, Returns, route


class IncidentFilters(ListQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of incidents."""

    kind: IncidentKind | None = None
    state: IncidentState | None = None
    snoozed: (
        Annotated[bool, Meta(description="for open incidents: whether they are snoozed")] | None
    ) = None
    owner: Annotated[Filter, Meta(description="owner of an affected object")] | None = None


def describe_incident(row: IncidentRow) -> IncidentBody:
    """Return an incident as REST carries it."""
    members = [
        IncidentMember(
            one.about,
            one.name,
            one.note,
            one.owner,
            dict(one.labels),
            list(one.targets),
            one.count,
        )
        for one in row.members
    ]
    return IncidentBody(
        row.id,
        row.kind,
        TITLES[row.kind],
        row.level,
        row.state,
        row.is_snoozed,
        row.message,
        row.count,
        members,
        row.number,
        list(row.owners),
        row.episode,
        row.first_seen,
        row.last_seen,
        row.ended_at,
        row.snoozed_until,
        row.snoozed_by,
        row.resolved_at,
        row.resolved_by,
        row.reason,
    )


@route(
    "GET",
    "/incidents",
    scope="read",
    tag="notices",
    query=IncidentFilters,
    returns=Returns(IncidentBody, "A page of incidents", paged=True, etag=True),
)
def list_incidents(call: Call[IncidentFilters]) -> Reply:
    """List incidents, newest first, grouped by cause."""
    return page_reply(call.gate.incidents.list(**call.query.filters()), describe_incident)


@route(
    "GET",
    "/incidents/{id:big}",
    scope="read",
    tag="notices",
    returns=Returns(IncidentBody, "The incident", etag=True),
    errors=(404,),
)
def show_incident(call: Call[NoQuery]) -> Reply:
    """Show an incident with every affected object."""
    return Reply(describe_incident(call.gate.incidents.show(call.args["id"])))


def _by(call: Call[Any], reason: str) -> Authorship:
    return Authorship(call.principal.name, reason, call.principal)


@route(
    "POST",
    "/incidents/{id:big}/snooze",
    scope="operate",
    tag="notices",
    body=Body(SnoozeRequest, examples={"day": {"duration": "24h", "comment": "new on Monday"}}),
    returns=Returns(IncidentBody, "The incident"),
    errors=(404, 409),
)
def snooze_incident(call: Call[NoQuery]) -> Reply:
    """Hide an open incident for a while; notices of it wait until then."""
    asked = to_struct(call.document(), SnoozeRequest)
    if (asked.duration is None) == (asked.until is None):
        raise BadInput("state one of duration and until", field="duration", hint='like "24h"')
    until = asked.until or clock.now()
    if asked.duration is not None:
        until = clock.now() + parse_duration(asked.duration, field="duration")
    if until.tzinfo is None:
        raise BadInput("has no zone", field="until", hint="for example 2026-11-24T08:00:00Z")
    row = call.gate.incidents.snooze(call.args["id"], until, _by(call, asked.comment))
    return Reply(describe_incident(row))


@route(
    "POST",
    "/incidents/{id:big}/resolve",
    scope="operate",
    tag="notices",
    body=Body(ResolveRequest, examples={"done": {"comment": "drained the nodes"}}),
    returns=Returns(IncidentBody, "The incident"),
    errors=(404, 409),
)
def resolve_incident(call: Call[NoQuery]) -> Reply:
    """Resolve an open incident.

    It reopens if it gets worse, affects another object, or happens again.
    """
    asked = to_struct(call.document(), ResolveRequest)
    row = call.gate.incidents.resolve(call.args["id"], _by(call, asked.comment))
    return Reply(describe_incident(row))


@route(
    "POST",
    "/incidents/{id:big}/reopen",
    scope="operate",
    tag="notices",
    body=Body(ReopenRequest, examples={"plain": {}}),
    returns=Returns(IncidentBody, "The incident"),
    errors=(404, 409),
)
def reopen_incident(call: Call[NoQuery]) -> Reply:
    """Reopen a snoozed or resolved incident."""
    asked = to_struct(call.document(), ReopenRequest)
    row = call.gate.incidents.reopen(call.args["id"], _by(call, asked.comment))
    return Reply(describe_incident(row))


@route(
    "GET",
    "/notices/channels",
    scope="read",
    tag="notices",
    query=ListQuery,
    returns=Returns(ChannelBody, "A page of channels", paged=True, etag=True),
)
def list_channels(call: Call[ListQuery]) -> Reply:
    """List channels by name, without URLs and keys."""
    found = slice_page(call.gate.notices.list_channels(), call.query)
    return page_reply(found, msgspec.to_builtins)


@route(
    "GET",
    "/notices/channels/{name}",
    scope="read",
    tag="notices",
    returns=Returns(ChannelBody, "The channel", etag=True),
    errors=(404,),
)
def show_channel(call: Call[NoQuery]) -> Reply:
    """Show a channel, without its URL and key."""
    return Reply(msgspec.to_builtins(call.gate.notices.show_channel(call.args["name"])))


@route(
    "PUT",
    "/notices/channels/{name}",
    scope="admin",
    tag="notices",
    body=Body(ChannelRequest, examples={"webhook": CHANNEL, "email": MAIL}, argument="channel"),
    returns=Returns(ChannelMade, "The channel; a key that the gate created is shown only once"),
)
def set_channel(call: Call[NoQuery]) -> Reply:
    """Create or replace a channel. Its URL and key are never shown again."""
    wanted = to_struct(call.document(), ChannelRequest)
    by = call.principal.name
    row, key = call.gate.notices.set_channel(call.args["name"], wanted, by=by)
    return Reply({"channel": msgspec.to_builtins(row), "key": key}, secret=True)


@route(
    "DELETE",
    "/notices/channels/{name}",
    scope="admin",
    tag="notices",
    returns=Returns(ChannelBody, "The deleted channel"),
    errors=(404, 409),
)
def delete_channel(call: Call[NoQuery]) -> Reply:
    """Delete a channel that no subscription uses, and its deliveries."""
    row = call.gate.notices.delete_channel(call.args["name"], by=call.principal.name)
    return Reply(msgspec.to_builtins(row))


@route(
    "POST",
    "/notices/channels/{name}/test",
    scope="operate",
    tag="notices",
    returns=Returns(NoticeDeliveryBody, "The result of the test message"),
    errors=(404,),
)
def test_channel(call: Call[NoQuery]) -> Reply:
    """Send a test message to a channel now, once."""
    return Reply(describe_delivery(call.gate.notices.test_channel(call.args["name"])))


@route(
    "GET",
    "/notices/subscriptions",
    scope="read",
    tag="notices",
    query=ListQuery,
    returns=Returns(SubscriptionBody, "A page of subscriptions", paged=True, etag=True),
)
def list_subscriptions(call: Call[ListQuery]) -> Reply:
    """List subscriptions by name."""
    found = slice_page(call.gate.notices.list_subscriptions(), call.query)
    return page_reply(found, describe_subscription)


def describe_subscription(row: SubscriptionRow) -> SubscriptionBody:
    """Return a subscription as REST carries it."""
    wanted = row.filter
    return SubscriptionBody(
        row.name,
        row.channel,
        list(wanted.kinds),
        list(wanted.owners),
        dict(wanted.labels),
        list(wanted.targets),
        wanted.level,
        row.urgency,
        row.digest_s,
        row.last_at,
        row.changed_at,
        row.changed_by,
    )


@route(
    "GET",
    "/notices/subscriptions/{name}",
    scope="read",
    tag="notices",
    returns=Returns(SubscriptionBody, "The subscription", etag=True),
    errors=(404,),
)
def show_subscription(call: Call[NoQuery]) -> Reply:
    """Show a subscription."""
    return Reply(describe_subscription(call.gate.notices.show_subscription(call.args["name"])))


@route(
    "PUT",
    "/notices/subscriptions/{name}",
    scope="operate",
    tag="notices",
    body=Body(SubscriptionRequest, examples={"page": SUBSCRIPTION}, argument="subscription"),
    returns=Returns(SubscriptionBody, "The subscription"),
    errors=(404,),
)
def set_subscription(call: Call[NoQuery]) -> Reply:
    """Create or replace a subscription. It receives only later incidents."""
    wanted = to_struct(call.document(), SubscriptionRequest)
    by = call.principal.name
    row = call.gate.notices.set_subscription(call.args["name"], wanted, by=by)
    return Reply(describe_subscription(row))


@route(
    "DELETE",
    "/notices/subscriptions/{name}",
    scope="operate",
    tag="notices",
    returns=Returns(SubscriptionBody, "The deleted subscription"),
    errors=(404,),
)
def delete_subscription(call: Call[NoQuery]) -> Reply:
    """Delete a subscription and its pending messages."""
    row = call.gate.notices.delete_subscription(call.args["name"], by=call.principal.name)
    return Reply(describe_subscription(row))


class DeliveryFilters(ListQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of deliveries."""

    channel: Filter | None = None
    state: DeliveryState | None = None


@route(
    "GET",
    "/notices/deliveries",
    scope="read",
    tag="notices",
    query=DeliveryFilters,
    returns=Returns(NoticeDeliveryBody, "A page of deliveries", paged=True, etag=True),
)
def list_deliveries(call: Call[DeliveryFilters]) -> Reply:
    """List messages to channels with their delivery state, newest first."""
    return page_reply(call.gate.notices.list_deliveries(**call.query.filters()), describe_delivery)


def describe_delivery(row: DeliveryRow) -> NoticeDeliveryBody:
    """Return a delivery as REST carries it."""
    message = msgspec.convert(row.message, Message)
    return NoticeDeliveryBody(
        row.id,
        row.channel,
        row.subscription,
        row.state,
        message.title,
        message.urgency,
        len(message.notices) + message.left,
        row.made_at,
        row.next_at,
        row.attempts,
        row.ended_at,
        row.answer,
    )
