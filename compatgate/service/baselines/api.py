"""Serve baselines: list, approve, refuse, export and import them."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from compatgate.documents.sources import Source
from compatgate.kit.http.replies import Filter, Paged, Reply, page
from compatgate.kit.http.requests import to_struct
from compatgate.service.baselines.exchange import imported
from compatgate.service.baselines.schemas import (
    BASELINES,
    BaselineBody,
    BaselineDetailBody,
    BaselineFiles,
    BaselinesImported,
    BaselineState,
)
from compatgate.service.baselines.service import summary
from compatgate.service.web.call import Call
from compatgate.service.web.route import Body, NoQuery, Returns, route


class BaselineFilters(Paged, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which baselines to list."""

    workload: Annotated[Filter, Meta(description="with its digest, as listed")] | None = None
    sku: Filter | None = None
    family: Filter | None = None
    metric: Filter | None = None
    state: BaselineState | None = None


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
    return page(call.gate.baselines.list(**call.query.filters()), summary)


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
    return Reply(call.gate.baselines.show(call.args["id"]).to_json())


@route(
    "POST",
    "/baselines/{id:big}/approve",
    scope="bless",
    tag="evidence",
    returns=Returns(BaselineDetailBody, "The baseline as it is now"),
    errors=(404, 409),
)
def approve_baseline(call: Call[NoQuery]) -> Reply:
    """Approve a proposed baseline: from now on runs are judged against it."""
    number, by = call.args["id"], call.principal.name
    return Reply(call.gate.baselines.approve(number, by=by).to_json())


@route(
    "POST",
    "/baselines/{id:big}/refuse",
    scope="bless",
    tag="evidence",
    returns=Returns(BaselineDetailBody, "The baseline as it is now"),
    errors=(404, 409),
)
def refuse_baseline(call: Call[NoQuery]) -> Reply:
    """Refuse a baseline: no run is judged against it, or none any more.

    The next sound run proposes a version that is learnt without it.
    """
    number, by = call.args["id"], call.principal.name
    return Reply(call.gate.baselines.refuse(number, by=by).to_json())


class ExportFilters(Struct, frozen=True, forbid_unknown_fields=True):
    """Which baselines to export."""

    workload: Annotated[Filter, Meta(description="its name, or with its digest")] | None = None
    sku: Filter | None = None


@route(
    "GET",
    "/baselines/export",
    scope="read",
    tag="evidence",
    query=ExportFilters,
    returns=Returns(list[dict[str, Any]], "The lines of a file of baselines, in order"),
)
def export_baselines(call: Call[ExportFilters]) -> Reply:
    """Export what runs are judged against, for another gate to propose.

    Each item is a line of the file that `POST /baselines/import` takes.
    """
    return Reply(call.gate.exchange.lines(workload=call.query.workload, sku=call.query.sku))


@route(
    "POST",
    "/baselines/import",
    scope="operate",
    tag="evidence",
    body=Body(BaselineFiles, examples={"baselines": {"files": [BASELINES]}}),
    returns=Returns(BaselinesImported, "What became of the files"),
)
def import_baselines(call: Call[NoQuery]) -> Reply:
    """Propose baselines from samples, or from what another gate has exported.

    Where a file is malformed nothing is proposed, and every mistake is named with file, line and
    field. What comes in is judged by only once somebody has approved it.
    """
    asked = to_struct(call.document(), BaselineFiles)
    sources = [Source(file.name, file.text) for file in asked.files]
    found = call.gate.exchange.take(sources, by=call.principal.name)
    return Reply(imported(found))
