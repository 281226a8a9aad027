"""Serve waivers."""

from __future__ import annotations

from datetime import date
from typing import Annotated

from msgspec import Meta

from compatgate.kit.http.replies import Reply, page_reply
from compatgate.kit.http.route import Call, Routes
from compatgate.kit.http.schemas import Filter, ListQuery, Search
from compatgate.service.matrix.documents.document_api import document_routes
from compatgate.service.matrix.documents.schemas import WAIVER, WaiverBody, WaiverChange
from compatgate.service.matrix.documents.service import MatrixService

routes = Routes("waivers", targets="checked")


class WaiverFilters(ListQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of waivers."""

    target: Filter | None = None
    owner: Filter | None = None
    active_on: (
        Annotated[date, Meta(description="only waivers that are valid on this day")] | None
    ) = None
    search: Search | None = None


@routes.pages("/waivers", WaiverBody, "A page of waivers", query=WaiverFilters)
def list_waivers(call: Call[WaiverFilters]) -> Reply:
    """List waivers by name."""
    found = call.use(MatrixService).list_waivers(**call.filters())
    return page_reply(found, lambda row: row.to_json())


WAIVER_ROUTES = document_routes(
    "Waiver",
    "waivers",
    scope="bless",
    body=WaiverChange,
    shown=WaiverBody,
    example=WAIVER,
)
