"""Serve baselines: list, approve, refuse, export and import them."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from compatgate.documents.sources import Source
from compatgate.kit.http.replies import Filter, ListQuery, Reply, page_reply
from compatgate.kit.http.requests import to_struct
from compatgate.service.baselines.exchange import import_report
from compatgate.service.baselines.schemas import (
    BASELINES,
    BaselineBody,
    BaselineDetailBody,
    BaselineFiles,
    BaselinesImported,
    BaselineState,
)
from compatgate.service.baselines.service import summarize
from compatgate.service.web.call import Call
from compatgate.service.web.route import Body, NoQuery, Returns, route


class BaselineFilters(ListQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of the list of baselines."""

    workload: Annotated[Filter, Meta(description="workload with its digest, as listed")] | None = (
        None
    )
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
    return page_reply(call.gate.baselines.list(**call.query.filters()), summarize)


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
    return Reply(call.gate.baselines.approve(number, by=by, explained=explained).to_json())


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
    return Reply(call.gate.baselines.refuse(number, by=by).to_json())


class ExportFilters(Struct, frozen=True, forbid_unknown_fields=True):
    """Filters of the export."""

    workload: (
        Annotated[Filter, Meta(description="workload name, with or without its digest")] | None
    ) = None
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
    """Export the approved baselines, for another gate to propose.

    Each item is a line of the file that `POST /baselines/import` takes.
    """
    return Reply(call.gate.exchange.lines(workload=call.query.workload, sku=call.query.sku))


@route(
    "POST",
    "/baselines/import",
    scope="operate",
    tag="evidence",
    body=Body(BaselineFiles, examples={"baselines": {"files": [BASELINES]}}),
    slow=True,
    returns=Returns(BaselinesImported, "The result for each file"),
)
def import_baselines(call: Call[NoQuery]) -> Reply:
    """Propose baselines from samples, or from another gate's export.

    A malformed file proposes nothing, and every error is named with file, line and
    field. Runs are judged against an imported baseline only after a person approved it.
    """
    asked = to_struct(call.document(), BaselineFiles)
    sources = [Source(file.name, file.text) for file in asked.files]
    found = call.gate.exchange.take(sources, by=call.principal.name)
    return Reply(import_report(found))
