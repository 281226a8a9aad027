"""The decision log."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from compatgate.core.verdict import Outcome
from compatgate.web.call import Call, Reply
from compatgate.web.paging import Filter, Paged, page
from compatgate.web.query import Since, Until
from compatgate.web.route import NoQuery, Returns, route
from compatgate.wire.trust import DecisionBody


class DecisionFilters(Paged, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which decisions to list."""

    target: Filter | None = None
    verdict: Annotated[Outcome, Meta(description="what the verdict was")] | None = None
    verdict_id: Filter | None = None
    allowed: bool | None = None
    asked_by: Filter | None = None
    source: Annotated[Filter, Meta(description="how it was asked", examples=["rest"])] | None = None
    image: Annotated[Filter, Meta(description="reference, exactly")] | None = None
    since: Since | None = None
    until: Until | None = None


@route(
    "GET",
    "/decisions",
    scope="read",
    tag="decisions",
    query=DecisionFilters,
    returns=Returns(DecisionBody, "A page of decisions", paged=True, etag=True),
)
def list_decisions(call: Call[DecisionFilters]) -> Reply:
    """List what the gate decided, newest first."""
    return page(call.gate.history.list_decisions(**call.query.filters()), lambda r: r.to_json())


@route(
    "GET",
    "/decisions/{id:big}",
    scope="read",
    tag="decisions",
    returns=Returns(DecisionBody, "The decision", etag=True),
    errors=(404,),
)
def show_decision(call: Call[NoQuery]) -> Reply:
    """Show a decision; `verdict_id` leads to the verdict."""
    return Reply(call.gate.history.show_decision(call.args["id"]).to_json())
