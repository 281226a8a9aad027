"""Serve proposals: list, show, propose, review, merge, close; revert revisions."""

from __future__ import annotations

from typing import Any

from compatgate.kit.http.replies import Reply, page_reply
from compatgate.kit.http.requests import to_struct
from compatgate.kit.http.route import Body, Call, NoQuery, Returns, Routes
from compatgate.service.matrix.documents.document_api import ForceOption
from compatgate.service.matrix.proposals.readiness import ProposalView, describe, summarize
from compatgate.service.matrix.proposals.schemas import (
    POOL_EXAMPLE,
    PROPOSAL_EXAMPLE,
    ApproveRequest,
    CommentRequest,
    MergeRequest,
    ProposalBacktest,
    ProposalBody,
    ProposalFilters,
    ProposalRequest,
    ProposalSummary,
    RevertBody,
    RevertRequest,
)
from compatgate.service.matrix.proposals.service import ProposalService

proposals_routes = Routes("proposals", targets="checked", scope="propose")

_READ = {"digest": "b6a5c1f0" * 8}
_EXAMPLES = {"entry": PROPOSAL_EXAMPLE, "driver": POOL_EXAMPLE}


@proposals_routes.pages("/proposals", ProposalSummary, "A page of proposals", query=ProposalFilters)
def list_proposals(call: Call[ProposalFilters]) -> Reply:
    """List proposals, newest first.

    A page can have fewer items than its limit although a next page exists.
    """
    found = call.use(ProposalService).list(**call.query.filters(), within=call.principal)
    return page_reply(found, summarize)


@proposals_routes.post(
    "/proposals",
    Returns(ProposalBody, "The new proposal", status=201),
    body=Body(ProposalRequest, examples=_EXAMPLES, argument="edits"),
    reason="body",
    query=ForceOption,
    errors=(404, 409),
)
def create_proposal(call: Call[ForceOption]) -> Reply:
    """Propose a change of the matrix.

    The edits are whole documents, or shorter forms: documents to delete, values of pools, statuses
    of entries. Nothing changes until a person merges the proposal.
    """
    view = call.use(ProposalService).propose(
        _request(call), call.by(), most=call.settings.max_values
    )
    return _reply(view, status=201)


def _request(call: Call[Any]) -> ProposalRequest:
    return to_struct(call.document(), ProposalRequest)


def _reply(view: ProposalView, *, status: int = 200) -> Reply:
    return Reply(describe(view), status=status)


@proposals_routes.shows("/proposals/{id}", ProposalBody, "The proposal")
def show_proposal(call: Call[NoQuery]) -> Reply:
    """Show a proposal: diff, requirements with their state, and history."""
    view = call.use(ProposalService).show(call.args["id"])
    call.principal.require_any(view.row.targets, f"the proposal {view.row.id}")
    return _reply(view)


@proposals_routes.put(
    "/proposals/{id}",
    Returns(ProposalBody, "The proposal with its new edits"),
    body=Body(ProposalRequest, examples=_EXAMPLES, argument="edits"),
    reason="body",
    query=ForceOption,
    errors=(404, 409),
)
def change_proposal(call: Call[ForceOption]) -> Reply:
    """Replace the edits of your own proposal, based on the current matrix.

    An approval counts only for the approved edits: a change of the edits removes it.
    """
    made = call.use(ProposalService).change(
        call.args["id"], _request(call), call.by(), most=call.settings.max_values
    )
    return _reply(made)


@proposals_routes.post(
    "/proposals/{id}/approve",
    Returns(ProposalBody, "The proposal; merged, if its author requested that"),
    scope="approve",
    body=Body(ApproveRequest, examples={"approval": _READ}),
    errors=(404, 409),
)
def approve_proposal(call: Call[NoQuery]) -> Reply:
    """Approve the edits of another person's proposal.

    The author cannot approve (403). The body names the `digest` of the edits that you read, as the
    proposal shows it; without it, or after the edits have changed, the answer is 409 with the
    current difference. With `merge: approved`, the last approval that the policies
    require merges the proposal, if the approver has the scope for the edits.
    """
    asked = to_struct(call.document(), ApproveRequest)
    return _reply(call.use(ProposalService).approve(call.args["id"], call.principal, asked.digest))


@proposals_routes.post(
    "/proposals/{id}/retract",
    Returns(ProposalBody, "The proposal without your approval"),
    scope="approve",
    errors=(404, 409),
)
def retract_approval(call: Call[NoQuery]) -> Reply:
    """Withdraw your approval of an open proposal."""
    return _reply(call.use(ProposalService).retract(call.args["id"], call.principal))


@proposals_routes.post(
    "/proposals/{id}/merge",
    Returns(ProposalBody, "The proposal, with the revision that it became"),
    scope="bless",
    part="operate",
    body=Body(MergeRequest, examples={"merge": _READ}),
    errors=(404, 409),
)
def merge_proposal(call: Call[NoQuery]) -> Reply:
    """Merge a proposal: apply its edits as one revision.

    The caller needs the scope that a direct change needs. The body names the `digest` of the edits,
    as for an approval. A merge is refused (409) while approvals
    or required canary runs are missing, or after a document that it changes has changed.
    """
    asked = to_struct(call.document(), MergeRequest)
    view = call.use(ProposalService).merge(
        call.args["id"], call.principal, asked.digest, override=asked.override
    )
    return _reply(view)


@proposals_routes.post(
    "/proposals/{id}/backtest",
    Returns(ProposalBody, "The proposal with its backtest"),
    body=Body(ProposalBacktest, examples={"backtest": {"days": 7}}),
    slow=True,
    errors=(404, 409),
)
def backtest_proposal(call: Call[NoQuery]) -> Reply:
    """Backtest a proposal, and store the result with it.

    The gate decides recorded questions before and after the edits, as `POST /backtests`.
    """
    asked = to_struct(call.document(), ProposalBacktest)
    return _reply(
        call.use(ProposalService).run_backtest(call.args["id"], asked.days, call.principal)
    )


@proposals_routes.post(
    "/proposals/{id}/close",
    Returns(ProposalBody, "The proposal, closed"),
    body=Body(CommentRequest, examples={"close": {"comment": "we wait for 580"}}),
    errors=(404, 409),
)
def close_proposal(call: Call[NoQuery]) -> Reply:
    """Close a proposal without merging it.

    Authors withdraw their proposals this way. Closing another person's proposal needs the scope
    `approve`.
    """
    asked = to_struct(call.document(), CommentRequest)
    return _reply(
        call.use(ProposalService).close(call.args["id"], call.principal, text=asked.comment)
    )


@proposals_routes.post(
    "/revisions/{number:int}/revert",
    Returns(RevertBody, "The new revision, or the proposal of one", status=201),
    body=Body(RevertRequest, examples={"revert": {"reason": "jobs fail since", "propose": True}}),
    reason="body",
    errors=(404, 409),
)
def revert_revision(call: Call[NoQuery]) -> Reply:
    """Revert a revision: restore the documents that it changed, as a new revision.

    A direct revert needs the scope of a direct change. It is refused (409) if later revisions
    changed these documents. It is also refused if a policy requires more people or a proposal; the
    proposal is then open.
    """
    asked = to_struct(call.document(), RevertRequest)
    revision, proposal, edits = call.use(ProposalService).revert(
        call.args["number"], call.by(), propose=asked.propose
    )
    body = {
        "revision": revision,
        "proposal": proposal.id if proposal else None,
        "changes": [edit.to_change() for edit in edits],
    }
    return Reply(body, status=201)
