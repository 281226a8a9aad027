"""Canary runs."""

from __future__ import annotations

from typing import Annotated, Any

from flask import request
from msgspec import Meta, Struct

from compatgate.canary.run import Purpose
from compatgate.errors import BadInput
from compatgate.gate.runs.following import follow, plain
from compatgate.gate.runs.logs import check_there
from compatgate.gate.runs.samples import take_samples as take
from compatgate.gate.runs.submission import Submission
from compatgate.web import streams
from compatgate.web.body import to_struct
from compatgate.web.call import Call, Reply
from compatgate.web.paging import Filter, Paged, page
from compatgate.web.query import Since, Until
from compatgate.web.route import LARGEST, Body, NoQuery, Returns, route
from compatgate.wire.examples import RUN
from compatgate.wire.runs import (
    RunBody,
    RunDetailBody,
    RunRequest,
    RunsMade,
    SamplesBody,
    StateFilter,
)


class RunFilters(Paged, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which runs to list."""

    state: Annotated[StateFilter, Meta(description="or `active`, or `ended`")] | None = None
    target: Filter | None = None
    suite: Filter | None = None
    entry: Filter | None = None
    host: Annotated[Filter, Meta(description="where it runs, or ran last")] | None = None
    asked_by: Filter | None = None
    purpose: Purpose | None = None
    since: Since | None = None
    until: Until | None = None


@route(
    "GET",
    "/runs",
    scope="read",
    tag="runs",
    query=RunFilters,
    returns=Returns(RunBody, "A page of runs", paged=True, etag=True),
)
def list_runs(call: Call[RunFilters]) -> Reply:
    """List canary runs, newest first."""
    return page(call.gate.runs.list(**call.query.filters()), lambda row: row.to_json())


@route(
    "POST",
    "/runs",
    scope="operate",
    tag="runs",
    body=Body(RunRequest, examples={"run": RUN}),
    returns=Returns(RunsMade, "The runs that were queued", status=201),
    errors=(404,),
)
def submit_runs(call: Call[NoQuery]) -> Reply:
    """Queue a suite: one run for each SKU and driver of the target.

    A run that no registered staging host could ever take is refused.
    """
    asked = to_struct(call.document(), Submission)
    made = call.gate.runs.submit(asked, by=call.principal.name)
    return Reply({"runs": [run.to_json() for run in made]}, status=201)


@route(
    "GET",
    "/runs/{id}",
    scope="read",
    tag="runs",
    returns=Returns(RunDetailBody, "The run", etag=True),
    errors=(404,),
)
def show_run(call: Call[NoQuery]) -> Reply:
    """Show a run with what became of its steps."""
    return Reply(call.gate.runs.show(call.args["id"]).to_json())


@route(
    "POST",
    "/runs/{id}/cancel",
    scope="operate",
    tag="runs",
    returns=Returns(RunBody, "The run as it is now"),
    errors=(404, 409),
)
def cancel_run(call: Call[NoQuery]) -> Reply:
    """Cancel a run: at once where it waits, else within seconds, when its worker next reports."""
    return Reply(call.gate.runs.cancel(call.args["id"], by=call.principal.name).to_json())


@route(
    "POST",
    "/runs/{id}/rerun",
    scope="operate",
    tag="runs",
    returns=Returns(RunsMade, "The runs that were queued", status=201),
    errors=(404, 409),
)
def rerun(call: Call[NoQuery]) -> Reply:
    """Queue a run that has ended again, for what its target is now."""
    made = call.gate.runs.rerun(call.args["id"], by=call.principal.name)
    return Reply({"runs": [run.to_json() for run in made]}, status=201)


class SampleOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """Which steps, and what to say of them."""

    step: Annotated[Filter, Meta(description="only this step")] | None = None
    note: Annotated[str, Meta(max_length=2000, description="kept in each file")] = ""


@route(
    "GET",
    "/runs/{id}/samples",
    scope="read",
    tag="runs",
    query=SampleOptions,
    returns=Returns(SamplesBody, "The samples"),
    errors=(404, 409),
)
def take_samples(call: Call[SampleOptions]) -> Reply:
    """Take what a run measured as files of data, to lie beside their workloads.

    A step gives none where it failed, where what it printed is not whole, or where it was not
    measured on the GPU that its host claims; `refused` says why.
    """
    gate, query = call.gate, call.query
    found = take(gate.runs, gate.facts, call.args["id"], step=query.step, note=query.note)
    return Reply(found)


class LogOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """Which part of the log, and whether to wait for more."""

    follow: Annotated[
        bool, Meta(description="stream events until the run ends: `output`, `state`, `end`")
    ] = False
    step: Annotated[Filter, Meta(description="only this step's output")] | None = None
    after: Annotated[
        int, Meta(ge=0, le=LARGEST["big"], description="id of the last event known")
    ] = 0


@route(
    "GET",
    "/runs/{id}/logs",
    scope="read",
    tag="runs",
    query=LogOptions,
    returns=Returns(str, "The output", media=("text/plain", streams.MEDIA)),
    errors=(404, 410),
)
def show_logs(call: Call[LogOptions]) -> Reply:
    """Read what a run's steps printed; 410 says when it was removed, and by whom.

    With `follow` the answer is a stream of server-sent events, which ends with `end` when the run
    has ended. A stream that ends without it is taken up again with `after`, or `Last-Event-ID`; as
    many as the server has threads to spare are served at once.
    """
    run_id, query, runs = call.args["id"], call.query, call.gate.runs
    check_there(runs, run_id, query.step)
    if not query.follow:
        text = plain(runs, run_id, after=query.after, step=query.step)
        return Reply((part.encode() for part in text), media="text/plain; charset=utf-8")
    after = max(query.after, _last_event())
    if request.method == "HEAD":
        return Reply(b"", media=streams.MEDIA)
    listeners = call.service.listeners
    listeners.enter()
    seconds = streams.LONGEST_SECONDS
    events = follow(runs, run_id, after=after, step=query.step, seconds=seconds)
    return Reply(
        streams.Stream(events, listeners),
        headers={"X-Accel-Buffering": "no"},
        media=streams.MEDIA,
    )


def _last_event() -> int:
    text: Any = request.headers.get("Last-Event-ID", "0")
    if not text.isascii() or not text.isdigit() or int(text[:20]) > LARGEST["big"]:
        raise BadInput("is not an event's id", field="Last-Event-ID", value=text)
    return int(text)
