"""Waivers."""

from __future__ import annotations

from datetime import date
from typing import Annotated

from msgspec import Meta

from compatgate.web.api.documents import document_routes
from compatgate.web.call import Call, Reply
from compatgate.web.paging import Filter, Paged, Search, page
from compatgate.web.route import Returns, route
from compatgate.wire.examples import WAIVER
from compatgate.wire.matrix import WaiverBody, WaiverChange


class WaiverFilters(Paged, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which waivers to list."""

    target: Filter | None = None
    owner: Filter | None = None
    active_on: Annotated[date, Meta(description="not ended before this day")] | None = None
    search: Search | None = None


@route(
    "GET",
    "/waivers",
    scope="read",
    tag="waivers",
    query=WaiverFilters,
    returns=Returns(WaiverBody, "A page of waivers", paged=True, etag=True),
)
def list_waivers(call: Call[WaiverFilters]) -> Reply:
    """List waivers, by name."""
    found = call.gate.matrix.list_waivers(**call.query.filters())
    return page(found, lambda row: row.to_json())


documents = document_routes(
    "Waiver",
    "waivers",
    scope="bless",
    body=WaiverChange,
    shown=WaiverBody,
    example=WAIVER,
)
