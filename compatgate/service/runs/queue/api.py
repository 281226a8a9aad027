"""Serve canary runs, their evidence, staging hosts, suites and workloads."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from flask import request
from msgspec import Meta, Struct

from compatgate.canary.history import MAX_HISTORY, MetricHistory
from compatgate.canary.workload import Workload
from compatgate.errors import BadInput
from compatgate.kit.http.replies import Reply, page_reply, slice_page
from compatgate.kit.http.requests import to_struct
from compatgate.kit.http.route import LARGEST, Body, Call, NoQuery, Returns, Routes
from compatgate.kit.http.schemas import Filter, ListQuery
from compatgate.kit.principal import Principal
from compatgate.service.matrix.documents.evidence_schemas import EvidenceBody, EvidenceFilters
from compatgate.service.runs.evidence.imports import require_source
from compatgate.service.runs.queue import logs
from compatgate.service.runs.queue.logs import LogListeners, check_log_exists, follow, print_pieces
from compatgate.service.runs.queue.models import RunRow
from compatgate.service.runs.queue.repository import DEFAULT_RUNS
from compatgate.service.runs.queue.schemas import (
    IMPORT,
    RUN,
    HostBody,
    HostFilters,
    ImportRequest,
    RunBody,
    RunDetailBody,
    RunFilters,
    RunRequest,
    RunsMade,
    SamplesBody,
    SuiteBody,
    WorkloadBody,
)
from compatgate.service.runs.queue.service import Runs
from compatgate.service.runs.queue.submission import PRIORITY_HINT

runs_routes = Routes("runs", targets="checked", scope="operate")
evidence_routes = Routes("evidence")


@runs_routes.pages("/runs", RunBody, "A page of runs", query=RunFilters)
def list_runs(call: Call[RunFilters]) -> Reply:
    """List canary runs, newest first."""
    return page_reply(call.use(Runs).list(**call.filters()), RunRow.to_json)


@runs_routes.post(
    "/runs",
    Returns(RunsMade, "The runs that were queued", status=201),
    body=Body(RunRequest, examples={"run": RUN}),
    errors=(404,),
)
def submit_runs(call: Call[NoQuery]) -> Reply:
    """Queue a suite: one run for each SKU and driver of the target.

    A run that no registered staging host can take is refused.
    """
    asked = to_struct(call.document(), RunRequest, {"priority": PRIORITY_HINT})
    call.principal.require_question({"target": asked.target}, named=True)
    made = call.use(Runs).submit(asked, by=call.principal.name)
    return Reply({"runs": [run.to_json() for run in made]}, status=201)


@runs_routes.post(
    "/runs/imports",
    Returns(RunsMade, "The runs that were stored", status=201),
    body=Body(ImportRequest, examples={"jsonl": IMPORT}),
    errors=(404, 409),
)
def import_report(call: Call[NoQuery]) -> Reply:
    """Import a report of DCGM or nccl-tests, or results as JSON lines, with their source.

    The source is the name of the token that imports. The same report under another name is a 409.
    Each place in the report becomes a finished run. A policy counts it only where it names
    `FORMAT@SOURCE` under `canary.imported`.
    """
    asked = to_struct(call.document(), ImportRequest)
    call.principal.require_question({"target": asked.target}, named=True)
    require_source(call.principal, asked.source)
    made = call.use(Runs).import_report(asked, by=call.principal.name)
    return Reply({"runs": [run.to_json() for run in made]}, status=201)


@runs_routes.shows("/runs/{id}", RunDetailBody, "The run")
def show_run(call: Call[NoQuery]) -> Reply:
    """Show a run with the results of its steps."""
    found = call.use(Runs).show(call.args["id"])
    _require_run(call.principal, found.run)
    return Reply(found.to_json())


def _reached_run(call: Call[Any]) -> str:
    """Return the id of the run that the path names, if its target is within the caller's limit."""
    run_id: str = call.args["id"]
    if call.principal.targets is not None:
        _require_run(call.principal, call.use(Runs).get(run_id))
    return run_id


def _require_run(principal: Principal, run: RunRow) -> None:
    principal.require_question({"target": run.target}, named=True)


@runs_routes.post(
    "/runs/{id}/cancel", Returns(RunBody, "The current state of the run"), errors=(404, 409)
)
def cancel_run(call: Call[NoQuery]) -> Reply:
    """Cancel a run: at once if it waits, else within seconds, with the worker's next report."""
    return Reply(call.use(Runs).cancel(_reached_run(call), by=call.principal.name).to_json())


class DiscardReason(Struct, frozen=True, forbid_unknown_fields=True):
    """The reason for discarding a run."""

    reason: Annotated[
        Annotated[str, Meta(min_length=1, max_length=2000)] | None,
        Meta(description="reason, kept in the audit log; or use the header `X-Compatgate-Reason`"),
    ] = None


@runs_routes.post(
    "/runs/{id}/discard",
    Returns(RunDetailBody, "The discarded run"),
    scope="bless",
    reason="query",
    query=DiscardReason,
    errors=(404, 409),
)
def discard_run(call: Call[DiscardReason]) -> Reply:
    """Discard a judged run: its result no longer counts.

    Until then, its failure denies, even if other runs pass. The audit log records the person and
    the reason. A discarded run cannot be restored.
    """
    by = call.by()
    found = call.use(Runs).discard(_reached_run(call), by=by.author, reason=by.reason)
    return Reply(found.to_json())


@runs_routes.post(
    "/runs/{id}/rerun",
    Returns(RunsMade, "The runs that were queued", status=201),
    errors=(404, 409),
)
def rerun(call: Call[NoQuery]) -> Reply:
    """Requeue a finished run, for the current state of its target."""
    made = call.use(Runs).rerun(_reached_run(call), by=call.principal.name)
    return Reply({"runs": [run.to_json() for run in made]}, status=201)


class SampleOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """Query parameters of samples."""

    step: Annotated[Filter, Meta(description="only samples of this step")] | None = None


@runs_routes.get(
    "/runs/{id}/samples",
    Returns(SamplesBody, "The samples"),
    query=SampleOptions,
    errors=(404, 409),
)
def take_samples(call: Call[SampleOptions]) -> Reply:
    """Return the measurements of a run as JSON lines, one file for each step.

    A step gives no sample if it failed or printed an incomplete report; `refused` says why.
    """
    return Reply(call.use(Runs).take_samples(_reached_run(call), step=call.query.step))


class LogOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """Query parameters of a log: the part, and whether to follow it."""

    follow: Annotated[
        bool, Meta(description="stream events until the run ends: `output`, `state`, `end`")
    ] = False
    step: Annotated[Filter, Meta(description="only this step's output")] | None = None
    after: Annotated[
        int, Meta(ge=0, le=LARGEST["big"], description="id of the last event received")
    ] = 0


@runs_routes.get(
    "/runs/{id}/logs",
    Returns(str, "The output", media=("text/plain", logs.STREAM_MEDIA)),
    query=LogOptions,
    errors=(404, 410),
)
def show_logs(call: Call[LogOptions]) -> Reply:
    """Show the log of a run; 410 says when and by whom it was removed.

    With `follow`, the answer is a stream of server-sent events, which ends with the event `end`
    when the run has ended. If a stream ends without `end`, continue with `after` or
    `Last-Event-ID`. The free threads of the server limit the number of streams.
    """
    run_id, query, runs = _reached_run(call), call.query, call.use(Runs)
    check_log_exists(runs, run_id, query.step)
    if not query.follow:
        text = print_pieces(runs, run_id, after=query.after, step=query.step)
        return Reply((part.encode() for part in text), media="text/plain; charset=utf-8")
    last = request.headers.get("Last-Event-ID", "0")
    if not last.isascii() or not last.isdigit() or int(last[:20]) > LARGEST["big"]:
        raise BadInput("is not an event's id", field="Last-Event-ID", value=last)
    after = max(query.after, int(last))
    if request.method == "HEAD":
        return Reply(b"", media=logs.STREAM_MEDIA)
    listeners = call.use(LogListeners)
    listeners.enter()
    seconds = logs.MAX_STREAM_SECONDS
    events = follow(runs, run_id, after=after, step=query.step, seconds=seconds)
    return Reply(
        logs.LogStream(events, listeners),
        headers={"X-Accel-Buffering": "no"},
        media=logs.STREAM_MEDIA,
    )


@evidence_routes.pages("/evidence", EvidenceBody, "A page of evidence", query=EvidenceFilters)
def list_evidence(call: Call[EvidenceFilters]) -> Reply:
    """List judged runs that count as evidence, newest first."""
    return page_reply(call.use(Runs).evidence(**call.query.filters()), lambda row: row.to_json())


@runs_routes.pages("/hosts", HostBody, "A page of hosts", targets="refused", query=HostFilters)
def list_hosts(call: Call[HostFilters]) -> Reply:
    """List the staging hosts that workers serve, by name."""
    return page_reply(call.use(Runs).hosts(**call.query.filters()), lambda row: row.to_json())


@runs_routes.pages("/suites", SuiteBody, "A page of suites", targets="free", query=ListQuery)
def list_suites(call: Call[ListQuery]) -> Reply:
    """List the suites by name."""
    found = call.use(Runs).catalogue()
    suites = [found.suites[name] for name in sorted(found.suites)]

    def show(suite: Any) -> SuiteBody:
        names, gpus = list(suite.workloads), found.gpus_of(suite.name)
        return SuiteBody(suite.name, suite.description, names, gpus, found.nodes_of(suite.name))

    return page_reply(slice_page(suites, call.query), show)


@runs_routes.pages(
    "/workloads", WorkloadBody, "A page of workloads", targets="free", query=ListQuery
)
def list_workloads(call: Call[ListQuery]) -> Reply:
    """List the workloads, by name."""
    found = call.use(Runs).catalogue().workloads
    workloads = [found[name] for name in sorted(found)]

    def show(workload: Workload) -> dict[str, Any]:
        own = WorkloadBody.__struct_fields__
        return {name: msgspec.to_builtins(getattr(workload, name)) for name in own}

    return page_reply(slice_page(workloads, call.query), show)


class HistoryFilters(ListQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of the histories of metrics."""

    workload: Filter | None = None
    gpu: Annotated[Filter, Meta(description="SKU")] | None = None
    metric: Filter | None = None
    runs: Annotated[
        int, Meta(ge=1, le=MAX_HISTORY, description="number of finished runs to read, newest first")
    ] = DEFAULT_RUNS


@evidence_routes.get(
    "/metric-histories",
    Returns(MetricHistory, "A page of histories", paged=True),
    targets="checked",
    query=HistoryFilters,
)
def list_metric_histories(call: Call[HistoryFilters]) -> Reply:
    """Follow metrics over finished runs, and find changes of their level.

    Metrics that became worse come first. A history covers all stacks and drivers; each change
    names the parts that changed with it.
    """
    query = call.query
    found = call.use(Runs).histories(
        workload=query.workload,
        gpu=query.gpu,
        metric=query.metric,
        runs=query.runs,
        within=call.principal.targets,
    )
    return page_reply(slice_page(found, query))
