"""Submit and read canary runs, their evidence and the baselines that judge them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

from msgspec import structs

from compatgate.canary.imports import ImportFormat
from compatgate.canary.run import Purpose
from compatgate.client.request import (
    EVENTS,
    Listing,
    Moment,
    Operation,
    Request,
    TextStream,
    get,
    members,
    pages,
    post,
)
from compatgate.kit.http.schemas import Page
from compatgate.service.baselines.schemas import (
    BaselineBody,
    BaselineDetailBody,
    BaselineState,
)
from compatgate.service.gate.schemas import StackValue
from compatgate.service.runs.evidence_schemas import EvidenceBody
from compatgate.service.runs.schemas import (
    HostBody,
    ImportRequest,
    MetricHistoryBody,
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
"""Timeout of a log stream in seconds; the gate sends data at least every ten seconds."""


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
        state: state of the run, ``active`` or ``ended``.
        target: target of the run.
        suite: suite of the run.
        entry: entry of the run.
        host: host of the run or of its last attempt.
        asked_by: author of the run.
        purpose: purpose of the run.
        since: queued at or after.
        until: queued at or before.
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
    against: str | None = None,
) -> Request[RunsMade]:
    """Queue a suite: one run for each SKU and driver of the target.

    Args:
        suite: suite to run.
        target: target; one run for each SKU and driver of its pools.
        pool: only this pool of the target.
        stack: stack under test.
        image: image under test; None: the workloads' images.
        entry: entry of the runs.
        host: staging host; None: any suitable host.
        priority: priority, higher first; default 0.
        against: entry or image to compare with in pairs; ``auto``: the blessed entry that the image
            would replace; ``none``: judge it alone; None: ``auto`` for an image on a target.
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
        against=against,
    )
    return post("/runs", RunsMade, body=body, reads=RunRequest)


@Operation
def import_report(
    content: str,
    source: str,
    *,
    format: ImportFormat | Literal["auto"] | None = None,  # noqa: A002 - the member's name
    file: str | None = None,
    target: str | None = None,
    pool: str | None = None,
    sku: str | None = None,
    driver: str | None = None,
    host: str | None = None,
    stack: Mapping[str, StackValue] | None = None,
    measured_at: datetime | None = None,
) -> Request[RunsMade]:
    """Import a report of another tool as finished runs, with its source.

    Args:
        content: the whole report.
        source: who measured.
        format: format of the report; default: found by its content.
        file: name of the report, for people.
        target: target of the runs.
        pool: pool of the target.
        sku: GPU, where the report names no product.
        driver: driver, where the report does not name it.
        host: host, where the report does not name it.
        stack: components that were measured with.
        measured_at: end of the measurement, where the report has no time.
    """
    body = members(
        content=content,
        source=source,
        format=format,
        file=file,
        target=target,
        pool=pool,
        sku=sku,
        driver=driver,
        host=host,
        stack=stack,
        measured_at=measured_at,
    )
    return post("/runs/imports", RunsMade, body=body, reads=ImportRequest)


@Operation
def show_run(id: str) -> Request[RunDetailBody]:  # noqa: A002 - the path's name
    """Show a run with its steps."""
    return get("/runs/{id}", RunDetailBody, id=id)


@TextStream
def show_logs(
    id: str,  # noqa: A002 - the path's name
    *,
    follow: bool = False,
    step: str | None = None,
    after: int | None = None,
) -> Request[str]:
    """Read the logs of a run, line by line.

    `Client.follow_run` yields events instead, and resumes a broken stream.

    Args:
        id: id of the run.
        follow: return the lines of a stream of server-sent events.
        step: only this step's output.
        after: id of the last known event.
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
    """Return the measurements of a run as sample files of its workloads.

    Args:
        id: id of a finished run.
        step: only this step.
        note: note in each file.
    """
    return get("/runs/{id}/samples", SamplesBody, id=id, step=step, note=note)


@Operation
def cancel_run(id: str) -> Request[RunBody]:  # noqa: A002 - the path's name
    """Cancel a run: a queued run at once, a running one when its worker next reports."""
    return post("/runs/{id}/cancel", RunBody, id=id)


@Operation
def discard_run(id: str, *, reason: str) -> Request[RunDetailBody]:  # noqa: A002 - the path's name
    """Discard a judged run with a reason: it counts for nothing from now on."""
    return post("/runs/{id}/discard", RunDetailBody, id=id, reason=reason)


@Operation
def rerun(id: str) -> Request[RunsMade]:  # noqa: A002 - the path's name
    """Requeue a finished run for the present target."""
    return post("/runs/{id}/rerun", RunsMade, id=id)


@Listing
def list_hosts(*, gpu: str | None = None) -> Request[Page[HostBody]]:
    """List the staging hosts that workers serve, by name, optionally of one SKU."""
    return pages("/hosts", HostBody, gpu=gpu)


@Listing
def list_suites() -> Request[Page[SuiteBody]]:
    """List the suites by name."""
    return pages("/suites", SuiteBody)


@Listing
def list_workloads() -> Request[Page[WorkloadBody]]:
    """List the workloads by name."""
    return pages("/workloads", WorkloadBody)


@Listing
def list_metric_histories(
    *,
    workload: str | None = None,
    gpu: str | None = None,
    metric: str | None = None,
    runs: int | None = None,
) -> Request[Page[MetricHistoryBody]]:
    """Follow metrics over finished runs; those that became worse come first.

    Args:
        workload: by name.
        gpu: SKU that the runs asked for.
        metric: by name.
        runs: number of newest finished runs to read.
    """
    return pages(
        "/metric-histories", MetricHistoryBody, workload=workload, gpu=gpu, metric=metric, runs=runs
    )


@Listing
def list_evidence(
    *,
    suite: str | None = None,
    sku: str | None = None,
    run: str | None = None,
    content: str | None = None,
    outcome: Literal["passed", "failed"] | None = None,
    since: Moment | None = None,
    until: Moment | None = None,
) -> Request[Page[EvidenceBody]]:
    """List judged runs that count as evidence, newest first.

    Args:
        suite: suite of the run.
        sku: GPU of the run.
        run: id of the run.
        content: digest of the GPU content that ran.
        outcome: judgement of the run.
        since: recorded at or after.
        until: recorded at or before.
    """
    return pages(
        "/evidence",
        EvidenceBody,
        suite=suite,
        sku=sku,
        run=run,
        content=content,
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
        workload: workload with its digest, as listed.
        sku: GPU of the baseline.
        family: stack family.
        metric: metric of the baseline.
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
def approve_baseline(
    id: int,  # noqa: A002 - the path's name
    *,
    explained: str | None = None,
) -> Request[BaselineDetailBody]:
    """Approve a proposed baseline; new runs are judged against it.

    Args:
        id: of the version.
        explained: why implausible values are right; required where the baseline has a ``doubt``.
    """
    return post("/baselines/{id}/approve", BaselineDetailBody, id=id, explained=explained)


@Operation
def refuse_baseline(id: int) -> Request[BaselineDetailBody]:  # noqa: A002 - the path's name
    """Refuse a version; runs are no longer judged against it."""
    return post("/baselines/{id}/refuse", BaselineDetailBody, id=id)
