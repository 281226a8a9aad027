"""List incidents and act on them."""

from __future__ import annotations

from compatgate.client.request import Listing, Moment, Operation, Request, get, members, pages, post
from compatgate.core.incidents import IncidentKind, IncidentState
from compatgate.kit.http.schemas import Page
from compatgate.service.notices.schemas import (
    IncidentBody,
    ReopenRequest,
    ResolveRequest,
    SnoozeRequest,
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
    """Hide an open incident for a while; metrics and webhook leave it out until then.

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
