"""What runs have shown, and the baselines that they are judged by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import structs, to_builtins

from compatgate.client.operation import Listing, Operation
from compatgate.client.request import LONG_S, Moment, Request, get, pages, post
from compatgate.wire.evidence import (
    BaselineBody,
    BaselineDetailBody,
    BaselineFile,
    BaselineFiles,
    BaselinesImported,
    BaselineState,
    EvidenceBody,
)
from compatgate.wire.matrix import Page


@Listing
def list_evidence(
    *,
    suite: str | None = None,
    sku: str | None = None,
    run: str | None = None,
    outcome: Literal["passed", "failed"] | None = None,
    since: Moment | None = None,
    until: Moment | None = None,
) -> Request[Page[EvidenceBody]]:
    """List judged runs that count as evidence, newest first.

    Args:
        suite: that was run.
        sku: GPU that it ran on.
        run: its id.
        outcome: how it was judged.
        since: known at or after.
        until: known at or before.
    """
    return pages(
        "/evidence",
        EvidenceBody,
        suite=suite,
        sku=sku,
        run=run,
        outcome=outcome,
        since=since,
        until=until,
    )


@Listing
def list_baselines(
    *,
    workload: str | None = None,
    sku: str | None = None,
    family: str | None = None,
    metric: str | None = None,
    state: BaselineState | None = None,
) -> Request[Page[BaselineBody]]:
    """List versions of baselines, newest first.

    Args:
        workload: with its digest, as listed.
        sku: GPU that they are for.
        family: of the stack.
        metric: that they expect something of.
        state: proposed, approved, replaced or refused.
    """
    return pages(
        "/baselines",
        BaselineBody,
        workload=workload,
        sku=sku,
        family=family,
        metric=metric,
        state=state,
    )


@Operation
def show_baseline(id: int) -> Request[BaselineDetailBody]:  # noqa: A002 - the path's name
    """Show a version of a baseline with its distribution."""
    return get("/baselines/{id}", BaselineDetailBody, id=id)


@Operation
def approve_baseline(id: int) -> Request[BaselineDetailBody]:  # noqa: A002 - the path's name
    """Approve a proposed baseline: from now on runs are judged against it."""
    return post("/baselines/{id}/approve", BaselineDetailBody, id=id)


@Operation
def refuse_baseline(id: int) -> Request[BaselineDetailBody]:  # noqa: A002 - the path's name
    """Refuse a version: no run is judged against it, or none any more."""
    return post("/baselines/{id}/refuse", BaselineDetailBody, id=id)


@Operation
def export_baselines(
    *, workload: str | None = None, sku: str | None = None
) -> Request[list[dict[str, Any]]]:
    """Export what runs are judged against: the lines of a file, for another gate to propose.

    Args:
        workload: its name, or with its digest.
        sku: GPU that they are for.
    """
    return get("/baselines/export", list[dict[str, Any]], workload=workload, sku=sku)


@Operation
def import_baselines(
    files: Sequence[BaselineFile | Mapping[str, str]],
) -> Request[BaselinesImported]:
    """Propose baselines from samples, or from what another gate has exported.

    Args:
        files: name and text of each.
    """
    body = {"files": [to_builtins(file) for file in files]}
    request = post("/baselines/import", BaselinesImported, body=body, reads=BaselineFiles)
    return structs.replace(request, patience=LONG_S)
