"""Targets, and the pools of one."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from compatgate.web.api.documents import document_routes
from compatgate.web.call import Call, Reply
from compatgate.web.paging import Filter, Paged, Search, page
from compatgate.web.route import Returns, route
from compatgate.wire.examples import TARGET
from compatgate.wire.matrix import TargetBody, TargetChange
from compatgate.wire.pools import PoolRowBody


class TargetFilters(Paged, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which targets to list."""

    label: Annotated[Filter, Meta(examples=["tier=prod"])] | None = None
    gpu: Annotated[Filter, Meta(description="of a pool, as written")] | None = None
    driver: Annotated[Filter, Meta(description="of a pool, as written")] | None = None
    search: Search | None = None


@route(
    "GET",
    "/targets",
    scope="read",
    tag="targets",
    query=TargetFilters,
    returns=Returns(TargetBody, "A page of targets", paged=True, etag=True),
)
def list_targets(call: Call[TargetFilters]) -> Reply:
    """List targets, by name."""
    found = call.gate.matrix.list_targets(**call.query.filters())
    return page(found, lambda row: row.to_json())


documents = document_routes(
    "Target",
    "targets",
    scope="bless",
    body=TargetChange,
    shown=TargetBody,
    example=TARGET,
)


@route(
    "GET",
    "/targets/{name}/pools",
    scope="read",
    tag="targets",
    query=Paged,
    returns=Returns(PoolRowBody, "A page of its pools", paged=True, etag=True),
    errors=(404,),
)
def list_target_pools(call: Call[Paged]) -> Reply:
    """List the pools of a target."""
    name = call.gate.matrix.get("Target", call.args["name"]).name
    found = call.gate.matrix.list_pools(target=name, **call.query.filters())
    return page(found, lambda row: row.to_json())
