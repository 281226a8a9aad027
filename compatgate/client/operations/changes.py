"""Make the matrix equal to files, and backtest changes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from msgspec import Meta, structs

from compatgate.client.request import JSON, LONG_S, YAML, Operation, Request, post
from compatgate.service.backtests.schemas import BacktestBody, BacktestRequest
from compatgate.service.matrix.schemas import SyncBody

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
        file=file,
    )
    media = YAML if isinstance(body, str) else JSON
    return structs.replace(request, media=media, patience=LONG_S)
