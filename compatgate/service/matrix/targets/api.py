"""Serve targets and their pools."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, convert

from compatgate.kit.database.tables import Page
from compatgate.kit.http.replies import Reply, page_reply
from compatgate.kit.http.route import Call, Routes
from compatgate.kit.http.schemas import Filter, ListQuery, Search
from compatgate.service.matrix.documents.document_api import document_routes
from compatgate.service.matrix.documents.models import Pool
from compatgate.service.matrix.documents.schemas import (
    TARGET,
    PoolRowBody,
    TargetBody,
    TargetChange,
)
from compatgate.service.matrix.documents.service import MatrixService

routes = Routes("targets", targets="checked")


class TargetFilters(ListQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of targets."""

    label: Annotated[Filter, Meta(examples=["tier=prod"])] | None = None
    owner: Filter | None = None
    gpu: Annotated[Filter, Meta(description="GPU of any pool, exactly as written")] | None = None
    driver: Annotated[Filter, Meta(description="driver of any pool, exactly as written")] | None = (
        None
    )
    search: Search | None = None


class PoolFilters(ListQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of pools."""

    target: Filter | None = None
    gpu: Annotated[Filter, Meta(description="GPU, exactly as written")] | None = None
    driver: Annotated[Filter, Meta(description="driver, exactly as written")] | None = None


@routes.pages("/targets", TargetBody, "A page of targets", query=TargetFilters)
def list_targets(call: Call[TargetFilters]) -> Reply:
    """List targets by name."""
    found = call.use(MatrixService).list_targets(**call.filters())
    return page_reply(found, lambda row: row.to_json())


TARGET_ROUTES = document_routes(
    "Target",
    "targets",
    scope="bless",
    part="operate",
    body=TargetChange,
    shown=TargetBody,
    example=TARGET,
)


@routes.pages(
    "/targets/{name}/pools",
    PoolRowBody,
    "A page of the target's pools",
    query=ListQuery,
    errors=(404,),
)
def list_target_pools(call: Call[ListQuery]) -> Reply:
    """List the pools of a target."""
    call.principal.require_targets([call.args["name"]])
    name = call.use(MatrixService).get("Target", call.args["name"]).name
    return _pools_reply(call.use(MatrixService).list_pools(target=name, **call.query.filters()))


def _pools_reply(found: Page[Pool]) -> Reply:
    return page_reply(found, lambda row: convert(row, PoolRowBody, from_attributes=True))


@routes.pages("/pools", PoolRowBody, "A page of pools", query=PoolFilters)
def list_pools(call: Call[PoolFilters]) -> Reply:
    """List the pools of all targets by target and name."""
    return _pools_reply(call.use(MatrixService).list_pools(**call.filters()))
