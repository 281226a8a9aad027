"""Serve baselines: list, show, approve and refuse them."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct, convert

from compatgate.kit.http.call import Call
from compatgate.kit.http.replies import Reply, page_reply
from compatgate.kit.http.route import NoQuery, Returns, route
from compatgate.service.runs.baselines.filters import BaselineFilters
from compatgate.service.runs.baselines.schemas import BaselineBody, BaselineDetailBody
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


class ApprovalQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Query parameters of an approval."""

    explained: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=1000,
                description="reason why implausible values are correct; required if the baseline"
                " has a `doubt`",
            ),
        ]
        | None
    ) = None


@route(
    "POST",
    "/baselines/{id:big}/approve",
    scope="bless",
    tag="evidence",
    query=ApprovalQuery,
    returns=Returns(BaselineDetailBody, "The updated baseline"),
    errors=(404, 409),
)
def approve_baseline(call: Call[ApprovalQuery]) -> Reply:
    """Approve a proposed baseline for future runs; implausible values need a reason."""
    number, by = call.args["id"], call.principal.name
    explained = call.query.explained or ""
    return Reply(call.use(BaselineService).approve(number, by=by, explained=explained))


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
