"""Submit and read canary runs, their evidence and the baselines that judge them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import structs, to_builtins

from compatgate.canary.run import Purpose
from compatgate.client.operation import Listing, Operation, Reading
from compatgate.client.request import EVENTS, LONG_S, Moment, Request, get, members, pages, post
from compatgate.kit.http.schemas import Page
from compatgate.service.baselines.schemas import (
    BaselineBody,
    BaselineDetailBody,
    BaselineFile,
    BaselineFiles,
    BaselinesImported,
    BaselineState,
)
from compatgate.service.gate.schemas import StackValue
from compatgate.service.runs.schemas import (
    EvidenceBody,
    HostBody,
    RunBody,
    RunDetailBody,
    RunRequest,
    RunsMade,
    SamplesBody,
    StateFilter,
    SuiteBody,
    WorkloadBody,
)

_SILENCE_S = 60.0
"""After which a gate that streams a log has gone: it says something every ten seconds."""


@Listing
def list_runs(
    *,
    state: StateFilter | None = None,
    target: str | None = None,
    suite: str | None = None,
    entry: str | None = None,
    host: str | None = None,
    asked_by: str | None = None,
    purpose: Purpose | None = None,
    since: Moment | None = None,
    until: Moment | None = None,
) -> Request[Page[RunBody]]:
    """List canary runs, newest first.

    Args:
        state: or ``active``, or ``ended``.
        target: that they are for.
        suite: that they run.
        entry: that they are about.
        host: where they run, or ran last.
        asked_by: who wanted them.
        purpose: what for.
        since: asked for at or after.
        until: asked for at or before.
    """
    return pages(
        "/runs",
        RunBody,
        state=state,
        target=target,
        suite=suite,
        entry=entry,
        host=host,
        asked_by=asked_by,
        purpose=purpose,
        since=since,
        until=until,
    )


@Operation
def submit_runs(
    suite: str,
    *,
    target: str | None = None,
    pool: str | None = None,
    stack: Mapping[str, StackValue] | None = None,
    image: str | None = None,
    entry: str | None = None,
    host: str | None = None,
    priority: int | None = None,
) -> Request[RunsMade]:
    """Queue a suite: one run for each SKU and driver of the target.

    Args:
        suite: to run.
        target: one run for each SKU and driver of its pools.
        pool: only this one of the target.
        stack: under test.
        image: under test; the workloads' own if left out.
        entry: that the runs are about.
        host: staging host to run on; any that fits.
        priority: higher goes first; 0 is ordinary.
    """
    body = members(
        suite=suite,
        target=target,
        pool=pool,
        stack=stack,
        image=image,
        entry=entry,
        host=host,
        priority=priority,
    )
    return post("/runs", RunsMade, body=body, reads=RunRequest)


@Operation
def show_run(id: str) -> Request[RunDetailBody]:  # noqa: A002 - the path's name
    """Show a run with what became of its steps."""
    return get("/runs/{id}", RunDetailBody, id=id)


@Reading
def show_logs(
    id: str,  # noqa: A002 - the path's name
    *,
    follow: bool = False,
    step: str | None = None,
    after: int | None = None,
) -> Request[str]:
    """Read what a run's steps printed, line by line.

    `Client.follow_run` follows it as events, and takes a stream up again that ends too early.

    Args:
        id: of the run.
        follow: lines are those of a stream of server-sent events.
        step: only this step's output.
        after: id of the last event known.
    """
    request = get("/runs/{id}/logs", str, id=id, follow=follow or None, step=step, after=after)
    accept = EVENTS if follow else "text/plain"
    return structs.replace(request, accept=accept, patience=_SILENCE_S)


@Operation
def take_samples(
    id: str,  # noqa: A002 - the path's name
    *,
    step: str | None = None,
    note: str | None = None,
) -> Request[SamplesBody]:
    """Take what a run measured as files of data, to lie beside their workloads.

    Args:
        id: of a run that has ended.
        step: only this one.
        note: kept in each file.
    """
    return get("/runs/{id}/samples", SamplesBody, id=id, step=step, note=note)


@Operation
def cancel_run(id: str) -> Request[RunBody]:  # noqa: A002 - the path's name
    """Cancel a run: at once where it waits, else within seconds, when its worker next reports."""
    return post("/runs/{id}/cancel", RunBody, id=id)


@Operation
def rerun(id: str) -> Request[RunsMade]:  # noqa: A002 - the path's name
    """Queue a run that has ended again, for what its target is now."""
    return post("/runs/{id}/rerun", RunsMade, id=id)


@Listing
def list_hosts(*, gpu: str | None = None) -> Request[Page[HostBody]]:
    """List the staging hosts that workers serve, by name; those of one SKU."""
    return pages("/hosts", HostBody, gpu=gpu)


@Listing
def list_suites() -> Request[Page[SuiteBody]]:
    """List the suites that can be run, by name."""
    return pages("/suites", SuiteBody)


@Listing
def list_workloads() -> Request[Page[WorkloadBody]]:
    """List the workloads, by name."""
    return pages("/workloads", WorkloadBody)


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
