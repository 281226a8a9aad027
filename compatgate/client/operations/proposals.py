"""Propose, backtest, review, merge, sync and revert changes of the matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, structs, to_builtins

from compatgate.client.request import (
    JSON,
    LONG_S,
    YAML,
    Listing,
    Operation,
    Request,
    get,
    members,
    pages,
    post,
    put,
)
from compatgate.kit.http.schemas import Page
from compatgate.service.comparison.schemas import BacktestBody, BacktestRequest
from compatgate.service.matrix.schemas import SyncBody
from compatgate.service.proposals.schemas import (
    ApproveRequest,
    CommentRequest,
    MergeRequest,
    ProposalBacktest,
    ProposalBody,
    ProposalRequest,
    ProposalSummary,
    RevertBody,
    RevertRequest,
    State,
)

ProposalEdits = ProposalRequest | Mapping[str, Any]


@Listing
def list_proposals(
    *, state: State | None = None, target: str | None = None, author: str | None = None
) -> Request[Page[ProposalSummary]]:
    """List proposals, newest first.

    Args:
        state: only these.
        target: only proposals that concern it.
        author: only this person's.
    """
    return pages("/proposals", ProposalSummary, state=state, target=target, author=author)


@Operation
def create_proposal(
    edits: ProposalEdits, *, reason: str, force: bool | None = None
) -> Request[ProposalBody]:
    """Propose a change of the matrix.

    Args:
        edits: documents, deletions, values of pools, statuses of entries.
        reason: reason of the change.
        force: accept suites that a worker will bring later.
    """
    body = _with(edits, reason)
    return post("/proposals", ProposalBody, body=body, reads=ProposalRequest, force=force)


def _with(edits: ProposalEdits, reason: str) -> dict[str, Any]:
    body = to_builtins(edits) if isinstance(edits, Struct) else dict(edits)
    return {**members(**body), "reason": reason}


@Operation
def show_proposal(id: str) -> Request[ProposalBody]:  # noqa: A002 - the name in the path
    """Show a proposal: its difference, what it needs and has."""
    return get("/proposals/{id}", ProposalBody, id=id)


@Operation
def change_proposal(
    id: str,  # noqa: A002
    edits: ProposalEdits,
    *,
    reason: str,
    force: bool | None = None,
) -> Request[ProposalBody]:
    """Replace the edits of your own proposal. Arguments as `create_proposal`."""
    return put(
        "/proposals/{id}",
        ProposalBody,
        body=_with(edits, reason),
        reads=ProposalRequest,
        if_match=None,
        id=id,
        force=force,
    )


@Operation
def comment_proposal(id: str, comment: str) -> Request[ProposalBody]:  # noqa: A002
    """Comment on a proposal."""
    return _act(id, "comments", CommentRequest, comment=comment)


@Operation
def approve_proposal(
    id: str,  # noqa: A002
    *,
    digest: str | None,
    comment: str | None = None,
) -> Request[ProposalBody]:
    """Approve the edits of another person's proposal.

    Args:
        id: of the proposal.
        digest: of the edits that you read; None: the refusal shows them.
        comment: on the approval.
    """
    return _act(id, "approve", ApproveRequest, digest=digest, comment=comment)


@Operation
def retract_approval(id: str, *, comment: str | None = None) -> Request[ProposalBody]:  # noqa: A002
    """Withdraw your approval."""
    return _act(id, "retract", CommentRequest, comment=comment)


@Operation
def merge_proposal(
    id: str,  # noqa: A002
    *,
    digest: str | None,
    override: str | None = None,
) -> Request[ProposalBody]:
    """Merge a proposal: make its edits as one revision.

    Args:
        id: of the proposal.
        digest: of the edits that you read; None: the refusal shows them.
        override: why it is merged without the evidence that a policy asks for.
    """
    return _act(id, "merge", MergeRequest, digest=digest, override=override)


@Operation
def backtest_proposal(id: str, *, days: int | None = None) -> Request[ProposalBody]:  # noqa: A002
    """Backtest a proposal on the decisions of some days, and keep the result with it."""
    request = _act(id, "backtest", ProposalBacktest, days=days)
    return structs.replace(request, patience=LONG_S)


@Operation
def close_proposal(id: str, *, comment: str | None = None) -> Request[ProposalBody]:  # noqa: A002
    """Close a proposal without merging it."""
    return _act(id, "close", CommentRequest, comment=comment)


Action = Literal["comments", "approve", "retract", "merge", "backtest", "close"]


def _act(number: str, action: Action, reads: Any, **given: Any) -> Request[ProposalBody]:
    path = f"/proposals/{{id}}/{action}"
    return post(path, ProposalBody, body=members(**given), reads=reads, id=number)


@Operation
def revert_revision(number: int, *, reason: str, propose: bool = False) -> Request[RevertBody]:
    """Restore the documents that a revision changed, as a new revision or a proposal.

    Args:
        number: of the revision.
        reason: of the revert.
        propose: make a proposal, also where a direct change is allowed.
    """
    body = {"propose": propose, "reason": reason}
    path = "/revisions/{number}/revert"
    return post(path, RevertBody, body=body, reads=RevertRequest, number=number)


_DOCUMENTS = Annotated[list[dict[str, Any]], Meta(min_length=1)]


@Operation
def backtest(body: BacktestRequest | Mapping[str, Any]) -> Request[BacktestBody]:
    """Backtest a change of the matrix: decide recorded questions before and after it.

    Args:
        body: the documents to create, change or delete, and the period.
    """
    request = post("/backtests", BacktestBody, body=body, reads=BacktestRequest, repeatable=True)
    return structs.replace(request, patience=LONG_S)


@Operation
def sync_matrix(
    documents: str | Sequence[Mapping[str, Any]],
    *,
    reason: str,
    name: str | None = None,
    prune: bool = False,
    take_over: bool = False,
    dry_run: bool = False,
    force: bool | None = None,
    file: str | None = None,
) -> Request[SyncBody]:
    """Make the stored matrix equal to documents, as one revision.

    Args:
        documents: YAML text, or documents as plain data.
        reason: reason of the change.
        name: of the sync, which owns what it stores; None: it owns nothing.
        prune: delete documents of this sync that are not among the documents.
        take_over: take documents from other syncs.
        dry_run: return the plan without changing anything.
        force: accept suites that a worker will bring later.
        file: name of the text in errors.
    """
    body = documents if isinstance(documents, str) else list(documents)
    request = post(
        "/matrix/sync",
        SyncBody,
        body=body,
        reads=_DOCUMENTS,
        repeatable=dry_run,
        reason=reason,
        name=name,
        prune=prune,
        take_over=take_over,
        dry_run=dry_run,
        force=force,
        file=file,
    )
    media = YAML if isinstance(body, str) else JSON
    return structs.replace(request, media=media, patience=LONG_S)
