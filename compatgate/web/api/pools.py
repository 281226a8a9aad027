"""Pools of all targets."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from compatgate.web.call import Call, Reply
from compatgate.web.paging import Filter, Paged, page
from compatgate.web.route import Returns, route
from compatgate.wire.pools import PoolRowBody


class PoolFilters(Paged, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which pools to list."""

    target: Filter | None = None
    gpu: Annotated[Filter, Meta(description="as written")] | None = None
    driver: Annotated[Filter, Meta(description="as written")] | None = None


@route(
    "GET",
    "/pools",
    scope="read",
    tag="targets",
    query=PoolFilters,
    returns=Returns(PoolRowBody, "A page of pools", paged=True, etag=True),
)
def list_pools(call: Call[PoolFilters]) -> Reply:
    """List the pools of all targets, by target and name."""
    found = call.gate.matrix.list_pools(**call.query.filters())
    return page(found, lambda row: row.to_json())
