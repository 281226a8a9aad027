"""Serve baselines: list, show, approve and refuse them."""

from __future__ import annotations

from msgspec import convert

from compatgate.kit.http.replies import Reply, page_reply
from compatgate.kit.http.route import Call, NoQuery, Returns, route
from compatgate.service.runs.baselines.schemas import (
    BaselineBody,
    BaselineDetailBody,
    BaselineFilters,
)
from compatgate.service.runs.baselines.service import BaselineService


@route(
    "GET",
    "/baselines",
    scope="read",
    tag="evidence",
    query=BaselineFilters,
    returns=Returns(BaselineBody, "A page of baselines", paged=True, etag=True),
)
def list_baselines(call: Call[BaselineFilters]) -> Reply:
    """List versions of baselines, newest first."""
    found = call.use(BaselineService).list(**call.query.filters())
    return page_reply(found, lambda row: convert(row, BaselineBody, from_attributes=True))


@route(
    "GET",
    "/baselines/{id:big}",
    scope="read",
    tag="evidence",
    returns=Returns(BaselineDetailBody, "The baseline", etag=True),
    errors=(404,),
)
def show_baseline(call: Call[NoQuery]) -> Reply:
    """Show a version of a baseline with its distribution."""
    return Reply(call.use(BaselineService).show(call.args["id"]))


@route(
    "POST",
    "/baselines/{id:big}/approve",
    scope="bless",
    tag="evidence",
    returns=Returns(BaselineDetailBody, "The updated baseline"),
    errors=(404, 409),
)
def approve_baseline(call: Call[NoQuery]) -> Reply:
    """Approve a proposed baseline for future runs."""
    number, by = call.args["id"], call.principal.name
    return Reply(call.use(BaselineService).approve(number, by=by))


@route(
    "POST",
    "/baselines/{id:big}/refuse",
    scope="bless",
    tag="evidence",
    returns=Returns(BaselineDetailBody, "The updated baseline"),
    errors=(404, 409),
)
def refuse_baseline(call: Call[NoQuery]) -> Reply:
    """Refuse a proposed baseline, or retire an approved one.

    The next valid run proposes a version that is learned without it.
    """
    number, by = call.args["id"], call.principal.name
    return Reply(call.use(BaselineService).refuse(number, by=by))
