"""Serve proposals made of refused changes in their older form: approvals.

An approval is a proposal that the gate made of a change which a policy does not let one person make
alone. `api` serves all proposals.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from compatgate.errors import NotFound
from compatgate.kit.http.replies import ListQuery, Reply, page_reply
from compatgate.service.matrix.schemas import ApprovalBody
from compatgate.service.proposals.models import ProposalRow
from compatgate.service.proposals.views import ProposalView
from compatgate.service.web.call import Call
from compatgate.service.web.route import NoQuery, Returns, route


class ApprovalFilters(ListQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of approvals."""

    waiting: Annotated[bool, Meta(description="only changes that can still be approved")] | None = (
        None
    )


@route(
    "GET",
    "/approvals",
    scope="read",
    tag="approvals",
    query=ApprovalFilters,
    returns=Returns(ApprovalBody, "A page of approvals", paged=True, etag=True),
)
def list_approvals(call: Call[ApprovalFilters]) -> Reply:
    """List changes that wait or waited for a second person, newest first."""
    filters = call.query.filters()
    waiting = filters.pop("waiting")
    found = call.gate.proposals.list(**filters, asked=True, is_open=waiting)
    return page_reply(found, lambda view: _body(view.row))


_STATES = {"open": "waiting", "merged": "approved", "closed": "refused"}


def _body(row: ProposalRow) -> dict[str, Any]:
    """Return a proposal as an approval."""
    return {
        "id": row.id,
        "digest": row.digest,
        "state": _STATES[row.state],
        "made_at": row.made_at,
        "expires_at": row.expires_at or row.made_at,
        "author": row.author,
        "reason": row.reason,
        "action": row.action,
        "targets": row.asking,
        "decided_by": row.decided_by,
        "decided_at": row.decided_at,
        "revision": row.revision,
        "open": row.is_open,
        "changes": [change.to_json() for change in row.changes],
    }


def _find(call: Call[NoQuery]) -> ProposalView:
    """Return the approval that a request names.

    Raises:
        NotFound: there is none; a proposal that somebody made on purpose is none.
    """
    view = call.gate.proposals.show(call.args["id"])
    if not view.row.asking:
        number = view.row.id
        hint = "it is a proposal: use /proposals"
        raise NotFound(f"approval {number!r} does not exist", field="id", value=number, hint=hint)
    return view


@route(
    "GET",
    "/approvals/{id}",
    scope="read",
    tag="approvals",
    returns=Returns(ApprovalBody, "The approval", etag=True),
    errors=(404,),
)
def show_approval(call: Call[NoQuery]) -> Reply:
    """Show a change that waits or waited for a second person."""
    return Reply(_body(_find(call).row))


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
    """Approve a change as the second person, and apply it.

    The author cannot approve (403). The gate refuses the change if its documents have changed
    since (409). If a policy requires more people, the last approval applies the change.
    """
    number = _find(call).row.id
    return Reply(_body(call.gate.proposals.approve(number, call.principal).row))


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
    """Refuse a change that waits for a second person; authors withdraw their changes this way."""
    number = _find(call).row.id
    return Reply(_body(call.gate.proposals.close(number, call.principal).row))
