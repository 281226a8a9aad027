"""List incidents and act on them; keep channels and subscriptions of notices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compatgate.client.request import (
    Listing,
    Moment,
    Operation,
    Request,
    delete,
    get,
    members,
    pages,
    post,
    put,
)
from compatgate.core.incidents import IncidentKind, IncidentState
from compatgate.kit.http.schemas import Page
from compatgate.service.notices.schemas import (
    ChannelBody,
    ChannelMade,
    ChannelRequest,
    DeliveryState,
    IncidentBody,
    NoticeDeliveryBody,
    ReopenRequest,
    ResolveRequest,
    SnoozeRequest,
    SubscriptionBody,
    SubscriptionRequest,
)


@Listing
def list_incidents(
    *,
    kind: IncidentKind | None = None,
    state: IncidentState | None = None,
    snoozed: bool | None = None,
    owner: str | None = None,
) -> Request[Page[IncidentBody]]:
    """List incidents, newest first.

    Args:
        kind: only these.
        state: only these; ``open`` includes snoozed ones.
        snoozed: of open ones, only those that are snoozed now, or only the others.
        owner: only incidents that concern an object of this owner.
    """
    return pages("/incidents", IncidentBody, kind=kind, state=state, snoozed=snoozed, owner=owner)


@Operation
def show_incident(id: int) -> Request[IncidentBody]:  # noqa: A002 - the name in the path
    """Show an incident with everything that it concerns."""
    return get("/incidents/{id}", IncidentBody, id=id)


@Operation
def snooze_incident(
    id: int,  # noqa: A002
    *,
    duration: str | None = None,
    until: Moment | None = None,
    comment: str | None = None,
) -> Request[IncidentBody]:
    """Hide an open incident for a while; notices of it wait until then.

    Args:
        id: of the incident.
        duration: for example ``24h``; or state ``until``.
        until: time with a zone.
        comment: shown with the incident.
    """
    body = members(duration=duration, until=until, comment=comment)
    path = "/incidents/{id}/snooze"
    return post(path, IncidentBody, body=body, reads=SnoozeRequest, id=id)


@Operation
def resolve_incident(id: int, *, comment: str) -> Request[IncidentBody]:  # noqa: A002
    """Resolve an open incident.

    Args:
        id: of the incident.
        comment: what was done.
    """
    path, body = "/incidents/{id}/resolve", {"comment": comment}
    return post(path, IncidentBody, body=body, reads=ResolveRequest, id=id)


@Operation
def reopen_incident(id: int, *, comment: str | None = None) -> Request[IncidentBody]:  # noqa: A002
    """Show a snoozed or resolved incident again."""
    path, body = "/incidents/{id}/reopen", members(comment=comment)
    return post(path, IncidentBody, body=body, reads=ReopenRequest, id=id)


@Listing
def list_channels() -> Request[Page[ChannelBody]]:
    """List channels by name, without URLs and keys."""
    return pages("/notices/channels", ChannelBody)


@Operation
def show_channel(name: str) -> Request[ChannelBody]:
    """Show a channel, without its URL and key."""
    return get("/notices/channels/{name}", ChannelBody, name=name)


@Operation
def set_channel(name: str, channel: ChannelRequest | Mapping[str, Any]) -> Request[ChannelMade]:
    """Create or replace a channel; the answer shows a key that the gate created, once.

    Args:
        name: of the channel.
        channel: its kind, and where it leads.
    """
    path = "/notices/channels/{name}"
    return put(path, ChannelMade, body=channel, reads=ChannelRequest, if_match=None, name=name)


@Operation
def delete_channel(name: str) -> Request[ChannelBody]:
    """Delete a channel that no subscription uses, and its deliveries."""
    return delete("/notices/channels/{name}", ChannelBody, name=name)


@Operation
def test_channel(name: str) -> Request[NoticeDeliveryBody]:
    """Send a test message to a channel now, once."""
    return post("/notices/channels/{name}/test", NoticeDeliveryBody, name=name)


@Listing
def list_subscriptions() -> Request[Page[SubscriptionBody]]:
    """List subscriptions by name."""
    return pages("/notices/subscriptions", SubscriptionBody)


@Operation
def show_subscription(name: str) -> Request[SubscriptionBody]:
    """Show a subscription."""
    return get("/notices/subscriptions/{name}", SubscriptionBody, name=name)


@Operation
def set_subscription(
    name: str, subscription: SubscriptionRequest | Mapping[str, Any]
) -> Request[SubscriptionBody]:
    """Create or replace a subscription; it receives only later incidents.

    Args:
        name: of the subscription.
        subscription: its channel, and which incidents go there.
    """
    path, body = "/notices/subscriptions/{name}", subscription
    return put(
        path, SubscriptionBody, body=body, reads=SubscriptionRequest, if_match=None, name=name
    )


@Operation
def delete_subscription(name: str) -> Request[SubscriptionBody]:
    """Delete a subscription and what waits for it."""
    return delete("/notices/subscriptions/{name}", SubscriptionBody, name=name)


@Listing
def list_deliveries(
    *, channel: str | None = None, state: DeliveryState | None = None
) -> Request[Page[NoticeDeliveryBody]]:
    """List messages to channels, newest first, with what became of each.

    Args:
        channel: only messages to it.
        state: only these.
    """
    return pages("/notices/deliveries", NoticeDeliveryBody, channel=channel, state=state)
