"""Serve changes that wait for a second person."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from compatgate.kit.http.replies import ListQuery, Reply, page_reply
from compatgate.service.matrix.schemas import ApprovalBody
from compatgate.service.web.call import Call
from compatgate.service.web.route import NoQuery, Returns, route


class ApprovalFilters(ListQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of approvals."""

    waiting: Annotated[bool, Meta(description="can still be approved")] | None = None


@route(
    "GET",
    "/approvals",
    scope="read",
    tag="approvals",
    query=ApprovalFilters,
    returns=Returns(ApprovalBody, "A page of approvals", paged=True, etag=True),
)
def list_approvals(call: Call[ApprovalFilters]) -> Reply:
    """List changes that wait for a second person, or did; newest first."""
    found = call.gate.matrix.list_approvals(**call.query.filters())
    return page_reply(found, lambda row: row.to_json())


@route(
    "GET",
    "/approvals/{id}",
    scope="read",
    tag="approvals",
    returns=Returns(ApprovalBody, "The approval", etag=True),
    errors=(404,),
)
def show_approval(call: Call[NoQuery]) -> Reply:
    """Show a change that waits for a second person, or did."""
    return Reply(call.gate.matrix.show_approval(call.args["id"]).to_json())


@route(
    "POST",
    "/approvals/{id}/approve",
    scope="bless",
    tag="approvals",
    targets="checked",
    returns=Returns(ApprovalBody, "The approval, with the revision that it became"),
    errors=(404, 409),
)
def approve_change(call: Call[NoQuery]) -> Reply:
    """Approve a change as the second person, and make it.

    Its author cannot (403). A change is made only to the documents that its author saw (409).
    """
    return Reply(call.gate.matrix.approve(call.args["id"], call.principal).to_json())


@route(
    "POST",
    "/approvals/{id}/refuse",
    scope="bless",
    tag="approvals",
    targets="checked",
    returns=Returns(ApprovalBody, "The approval, refused"),
    errors=(404, 409),
)
def refuse_change(call: Call[NoQuery]) -> Reply:
    """Refuse a change that waits for a second person; its author withdraws it so."""
    return Reply(call.gate.matrix.refuse_approval(call.args["id"], call.principal).to_json())
