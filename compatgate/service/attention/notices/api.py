"""Serve incidents."""

from __future__ import annotations

from compatgate.documents.quantities import parse_duration
from compatgate.errors import BadInput
from compatgate.kit import clock
from compatgate.kit.http.replies import Reply, page_reply
from compatgate.kit.http.requests import to_struct
from compatgate.kit.http.route import Body, Call, NoQuery, Returns, Routes
from compatgate.kit.principal import Authorship
from compatgate.service.attention.notices.schemas import IncidentBody, ReopenRequest, SnoozeRequest
from compatgate.service.attention.notices.service import IncidentFilters, IncidentService

routes = Routes("notices", scope="operate")


@routes.pages("/incidents", IncidentBody, "A page of incidents", query=IncidentFilters)
def list_incidents(call: Call[IncidentFilters]) -> Reply:
    """List incidents, newest first, grouped by cause."""
    return page_reply(call.use(IncidentService).list(**call.query.filters()))


@routes.shows("/incidents/{id:big}", IncidentBody, "The incident")
def show_incident(call: Call[NoQuery]) -> Reply:
    """Show an incident with every affected object."""
    return Reply(call.use(IncidentService).show(call.args["id"]))


def _author(call: Call[NoQuery], comment: str) -> Authorship:
    return Authorship(call.principal.name, comment, call.principal)


@routes.post(
    "/incidents/{id:big}/snooze",
    Returns(IncidentBody, "The incident"),
    body=Body(SnoozeRequest, examples={"day": {"duration": "24h", "comment": "new on Monday"}}),
    errors=(404, 409),
)
def snooze_incident(call: Call[NoQuery]) -> Reply:
    """Hide an open incident for a while; metrics and webhook leave it out until then."""
    body = to_struct(call.document(), SnoozeRequest)
    if (body.duration is None) == (body.until is None):
        raise BadInput("state one of duration and until", field="duration", hint='like "24h"')
    until = body.until or clock.now()
    if body.duration is not None:
        until = clock.now() + parse_duration(body.duration, field="duration")
    if until.tzinfo is None:
        raise BadInput("has no zone", field="until", hint="for example 2026-11-24T08:00:00Z")
    by = _author(call, body.comment)
    return Reply(call.use(IncidentService).snooze(call.args["id"], until, by))


@routes.post(
    "/incidents/{id:big}/reopen",
    Returns(IncidentBody, "The incident"),
    body=Body(ReopenRequest, examples={"plain": {}}),
    errors=(404, 409),
)
def reopen_incident(call: Call[NoQuery]) -> Reply:
    """Reopen a snoozed incident."""
    body = to_struct(call.document(), ReopenRequest)
    return Reply(call.use(IncidentService).reopen(call.args["id"], _author(call, body.comment)))
