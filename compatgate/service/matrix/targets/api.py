"""Serve targets and their pools."""

from __future__ import annotations

from msgspec import convert

from compatgate.kit.database.tables import Page
from compatgate.kit.http.replies import Reply, page_reply
from compatgate.kit.http.route import Call, Returns, route
from compatgate.kit.http.schemas import ListQuery
from compatgate.service.matrix.documents.document_api import document_routes
from compatgate.service.matrix.documents.models import Pool
from compatgate.service.matrix.documents.schemas import (
    TARGET,
    PoolRowBody,
    TargetBody,
    TargetChange,
)
from compatgate.service.matrix.documents.service import MatrixService
from compatgate.service.matrix.targets.filters import PoolFilters, TargetFilters


@route(
    "GET",
    "/targets",
    scope="read",
    tag="targets",
    targets="checked",
    query=TargetFilters,
    returns=Returns(TargetBody, "A page of targets", paged=True, etag=True),
)
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


@route(
    "GET",
    "/targets/{name}/pools",
    scope="read",
    tag="targets",
    targets="checked",
    query=ListQuery,
    returns=Returns(PoolRowBody, "A page of the target's pools", paged=True, etag=True),
    errors=(404,),
)
def list_target_pools(call: Call[ListQuery]) -> Reply:
    """List the pools of a target."""
    call.principal.require_targets([call.args["name"]])
    name = call.use(MatrixService).get("Target", call.args["name"]).name
    return _pools_reply(call.use(MatrixService).list_pools(target=name, **call.query.filters()))


def _pools_reply(found: Page[Pool]) -> Reply:
    return page_reply(found, lambda row: convert(row, PoolRowBody, from_attributes=True))


@route(
    "GET",
    "/pools",
    scope="read",
    tag="targets",
    targets="checked",
    query=PoolFilters,
    returns=Returns(PoolRowBody, "A page of pools", paged=True, etag=True),
)
def list_pools(call: Call[PoolFilters]) -> Reply:
    """List the pools of all targets by target and name."""
    return _pools_reply(call.use(MatrixService).list_pools(**call.filters()))
