"""Serve incidents, and reports about a period, on one target or on all."""

from __future__ import annotations

from msgspec import Struct

from compatgate.documents.quantities import parse_duration
from compatgate.errors import BadInput
from compatgate.kit import clock
from compatgate.kit.http.replies import Reply, page_reply
from compatgate.kit.http.requests import to_struct
from compatgate.kit.http.route import Body, Call, NoQuery, Returns, Routes
from compatgate.kit.http.schemas import Since, Until
from compatgate.kit.principal import Authorship
from compatgate.service.attention.incidents import IncidentFilters, IncidentService
from compatgate.service.attention.reports import make_report
from compatgate.service.attention.schemas import (
    IncidentBody,
    ReopenRequest,
    SnoozeRequest,
    TargetReportBody,
)
from compatgate.service.gate.questions.service import Gate
from compatgate.service.nodes.service import Nodes

incident_routes = Routes("notices", scope="operate")
report_routes = Routes("targets", targets="checked")


@incident_routes.pages("/incidents", IncidentBody, "A page of incidents", query=IncidentFilters)
def list_incidents(call: Call[IncidentFilters]) -> Reply:
    """List incidents, newest first, grouped by cause."""
    return page_reply(call.use(IncidentService).list(**call.query.filters()))


@incident_routes.shows("/incidents/{id:big}", IncidentBody, "The incident")
def show_incident(call: Call[NoQuery]) -> Reply:
    """Show an incident with every affected object."""
    return Reply(call.use(IncidentService).show(call.args["id"]))


def _author(call: Call[NoQuery], comment: str) -> Authorship:
    return Authorship(call.principal.name, comment, call.principal)


@incident_routes.post(
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


@incident_routes.post(
    "/incidents/{id:big}/reopen",
    Returns(IncidentBody, "The incident"),
    body=Body(ReopenRequest, examples={"plain": {}}),
    errors=(404, 409),
)
def reopen_incident(call: Call[NoQuery]) -> Reply:
    """Reopen a snoozed incident."""
    body = to_struct(call.document(), ReopenRequest)
    return Reply(call.use(IncidentService).reopen(call.args["id"], _author(call, body.comment)))


class ReportOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """The period of a report; by default the last 7 days."""

    since: Since | None = None
    until: Until | None = None


@report_routes.get(
    "/targets/{name}/report",
    Returns(TargetReportBody, "The recorded answers, and the answers of today"),
    query=ReportOptions,
    slow=True,
    errors=(404,),
)
def report(call: Call[ReportOptions]) -> Reply:
    """Report changes, questions, canary runs and node events of a target.

    Each recorded answer is compared with the answer to the same question today. At most 300 answers
    are re-evaluated; `left_out` says what exceeded a limit.
    """
    name = call.args["name"]
    call.principal.require_targets([name])
    return _reply(call, name)


@report_routes.get(
    "/report",
    Returns(TargetReportBody, "The recorded answers, and the answers of today"),
    targets="refused",
    query=ReportOptions,
    slow=True,
)
def report_all(call: Call[ReportOptions]) -> Reply:
    """Report changes, questions, canary runs and node events of all targets, as of one target."""
    return _reply(call, None)


def _reply(call: Call[ReportOptions], name: str | None) -> Reply:
    gate, nodes = call.use(Gate), call.use(Nodes)
    return Reply(make_report(gate, nodes, name, call.query.since, call.query.until))
