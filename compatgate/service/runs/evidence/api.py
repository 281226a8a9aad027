"""Serve baselines: list, show, approve and refuse them."""

from __future__ import annotations

from msgspec import convert

from compatgate.kit.http.replies import Reply, page_reply
from compatgate.kit.http.route import Call, NoQuery, Returns, Routes
from compatgate.service.runs.evidence.baselines import BaselineService
from compatgate.service.runs.evidence.schemas import (
    BaselineBody,
    BaselineDetailBody,
    BaselineFilters,
)

routes = Routes("evidence", scope="bless")


@routes.pages("/baselines", BaselineBody, "A page of baselines", query=BaselineFilters)
def list_baselines(call: Call[BaselineFilters]) -> Reply:
    """List versions of baselines, newest first."""
    found = call.use(BaselineService).list(**call.query.filters())
    return page_reply(found, lambda row: convert(row, BaselineBody, from_attributes=True))


@routes.shows("/baselines/{id:big}", BaselineDetailBody, "The baseline")
def show_baseline(call: Call[NoQuery]) -> Reply:
    """Show a version of a baseline with its distribution."""
    return Reply(call.use(BaselineService).show(call.args["id"]))


@routes.post(
    "/baselines/{id:big}/approve",
    Returns(BaselineDetailBody, "The updated baseline"),
    errors=(404, 409),
)
def approve_baseline(call: Call[NoQuery]) -> Reply:
    """Approve a proposed baseline for future runs."""
    number, by = call.args["id"], call.principal.name
    return Reply(call.use(BaselineService).approve(number, by=by))


@routes.post(
    "/baselines/{id:big}/refuse",
    Returns(BaselineDetailBody, "The updated baseline"),
    errors=(404, 409),
)
def refuse_baseline(call: Call[NoQuery]) -> Reply:
    """Refuse a proposed baseline, or retire an approved one.

    The next valid run proposes a version that is learned without it.
    """
    number, by = call.args["id"], call.principal.name
    return Reply(call.use(BaselineService).refuse(number, by=by))
