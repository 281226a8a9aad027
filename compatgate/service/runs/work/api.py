"""Serve workers: a token for one host leases its runs, and writes those that it leases."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from compatgate.canary.engine import BaselineKey, Lease, LeaseLost
from compatgate.canary.hosts import Host
from compatgate.canary.judge.paired.blocks import PairsState
from compatgate.canary.run import StepResult
from compatgate.errors import BadInput
from compatgate.kit.http.replies import Reply
from compatgate.kit.http.requests import to_struct
from compatgate.kit.http.route import Body, Call, NoQuery, Returns, Route, Routes
from compatgate.kit.http.schemas import Filter
from compatgate.service.runs.evidence.baselines import BaselineService
from compatgate.service.runs.queue.schemas import HostBody
from compatgate.service.runs.queue.service import Runs
from compatgate.service.runs.work.schemas import (
    DECLARATION,
    STEP,
    ApprovedBody,
    BaselineOffer,
    Heartbeat,
    HostDeclaration,
    HostReport,
    LeaseBody,
    OrderBody,
    OutputPiece,
    PairsDocument,
    PastBody,
    Reverification,
    RunEnd,
    RunIds,
    StepDocument,
    StepResultsBody,
)
from compatgate.service.runs.work.service import LeaseGone, WorkDesk, require_host

routes = Routes("work", scope="work")

_ORDER = Returns(OrderBody, "The order")
_GO: dict[str, str] = {"order": "go"}


def _host(call: Call[Any]) -> str:
    """Return the host that the path names, which must be the caller's."""
    name: str = call.args["name"]
    require_host(call.principal, name)
    return name


def _read_host(call: Call[Any]) -> tuple[Host, HostDeclaration]:
    """Return the host that the path names, as its worker declares it."""
    name, declared = _host(call), to_struct(call.document(), HostDeclaration)
    body = msgspec.to_builtins(declared)
    known = {key: body[key] for key in body if key in Host.__struct_fields__}
    return to_struct({"name": name, **known}, Host), declared


def _lease(call: Call[Any]) -> Lease:
    """Return the lease that the path names, which must be of the caller's host."""
    return call.use(WorkDesk).find(call.principal, call.args["run"], call.args["attempt"])


def _of_lease(
    declare: Callable[..., Any], name: str, returns: Returns, **fields: Any
) -> Callable[[Callable[[Call[Any]], Reply]], Route]:
    """Declare a route of a lease; it answers 409 where the lease ends while the handler writes."""
    path = f"/leases/{{run}}/{{attempt:int}}/{name}"

    def of(handler: Callable[[Call[Any]], Reply]) -> Route:
        @wraps(handler)
        def handle(call: Call[Any]) -> Reply:
            try:
                return handler(call)
            except LeaseLost as lost:
                raise LeaseGone(str(lost)) from None

        made: Route = declare(path, returns, errors=(409,), **fields)(handle)
        return made

    return of


@routes.put(
    "/hosts/{name}",
    Returns(HostBody, "The host"),
    body=Body(HostDeclaration, examples={"host": DECLARATION}, argument="body"),
)
def declare_host(call: Call[NoQuery]) -> Reply:
    """Declare a staging host, and the suites of its worker."""
    host, declared = _read_host(call)
    call.use(WorkDesk).declare(host, declared)
    return Reply(call.use(Runs).find_host(host.name).to_json())


@routes.post(
    "/hosts/{name}/report",
    Returns(HostBody, "The host"),
    body=Body(HostReport, examples={"away": {"away": "the engine does not answer"}}),
    repeatable=True,
    errors=(404,),
)
def report_host(call: Call[NoQuery]) -> Reply:
    """Report whether a host answers its worker."""
    name = _host(call)
    call.use(Runs).queue.report_host(name, to_struct(call.document(), HostReport).away)
    return Reply(call.use(Runs).find_host(name).to_json())


@routes.post(
    "/hosts/{name}/lease",
    Returns(LeaseBody, "The run, or none"),
    body=Body(HostDeclaration, examples={"host": DECLARATION}, argument="body"),
)
def lease_run(call: Call[NoQuery]) -> Reply:
    """Lease the next run that the host can run now.

    The declaration is the host's heartbeat. Abandoned runs of the host come first.
    """
    host, declared = _read_host(call)
    lease = call.use(WorkDesk).lease(host, declared)
    if lease is None:
        return Reply({"lease": None})
    body = {key: getattr(lease, key) for key in ("slots", "attempt", "abandoned", "definition")}
    run = call.use(Runs).get(lease.run.id).to_json()
    return Reply({"lease": {**msgspec.to_builtins(body), "run": run}})


@routes.post(
    "/hosts/{name}/ended-runs",
    Returns(RunIds, "The runs that have ended"),
    body=Body(RunIds, examples={"runs": {"runs": ["run_0123456789abcdef"]}}),
    repeatable=True,
)
def find_ended_runs(call: Call[NoQuery]) -> Reply:
    """Say which of the runs that a host has leftovers of have ended."""
    _host(call)
    asked = to_struct(call.document(), RunIds)
    return Reply({"runs": sorted(call.use(Runs).ended(asked.runs))})


@routes.post(
    "/hosts/{name}/verifications",
    Returns(RunIds, "The runs that were queued"),
    body=Body(Reverification, examples={"month": {"worker": "stage-1234", "every_s": 2592000}}),
)
def queue_verifications(call: Call[NoQuery]) -> Reply:
    """Queue the runs that blessed entries depend on, where they are due again."""
    _host(call)
    asked = to_struct(call.document(), Reverification)
    made = call.use(Runs).verify_due(by=asked.worker, every_s=asked.every_s)
    return Reply({"runs": [run.id for run in made]})


class BaselineQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Query parameters of baselines: what they are of."""

    workload: Annotated[Filter, Meta(description="workload and digest of its content")] = ""
    sku: Annotated[Filter, Meta(description="SKU, or cpu")] = ""
    family: Annotated[str, Meta(description="stack family")] = ""


@routes.get(
    "/hosts/{name}/baselines",
    Returns(ApprovedBody, "The approved baselines"),
    scope="work",
    query=BaselineQuery,
)
def list_approved_baselines(call: Call[BaselineQuery]) -> Reply:
    """Return the approved baselines of a workload, for a worker to judge by."""
    _host(call)
    key = msgspec.convert(call.query, BaselineKey, from_attributes=True)
    return Reply({"baselines": msgspec.to_builtins(call.use(BaselineService).approved(key))})


@routes.post(
    "/hosts/{name}/baselines",
    _ORDER,
    body=Body(BaselineOffer, argument="body"),
    errors=(404, 409),
)
def offer_baselines(call: Call[NoQuery]) -> Reply:
    """Offer the values of a sound step to learn a baseline from; a person approves it."""
    name = _host(call)
    call.use(WorkDesk).offer(call.principal, name, to_struct(call.document(), BaselineOffer))
    return Reply(_GO)


@_of_lease(
    routes.post,
    "heartbeat",
    _ORDER,
    body=Body(Heartbeat, examples={"running": {"state": "running"}}),
    repeatable=True,
)
def renew_lease(call: Call[NoQuery]) -> Reply:
    """Renew a lease, and state what has changed of the run."""
    lease = _lease(call)
    return Reply({"order": call.use(WorkDesk).beat(lease, to_struct(call.document(), Heartbeat))})


@_of_lease(
    routes.post,
    "output",
    _ORDER,
    body=Body(OutputPiece, examples={"line": {"step": "gemm-0", "data": "YmVnYW4K"}}),
)
def write_output(call: Call[NoQuery]) -> Reply:
    """Append to the log of a step."""
    lease, piece = _lease(call), to_struct(call.document(), OutputPiece)
    call.use(Runs).queue.write(lease, piece.step, piece.data)
    return Reply(_GO)


@_of_lease(routes.get, "steps", Returns(StepResultsBody, "The steps"), scope="work")
def list_recorded_steps(call: Call[NoQuery]) -> Reply:
    """Return the steps that earlier attempts completed on this host."""
    steps = call.use(Runs).queue.results(_lease(call))
    return Reply({"steps": [msgspec.to_builtins(step) for step in steps]})


@_of_lease(
    routes.post,
    "steps",
    _ORDER,
    body=Body(StepDocument, examples={"passed": {"result": STEP}}),
    repeatable=True,
)
def record_step(call: Call[NoQuery]) -> Reply:
    """Record the result of a step; it replaces the step's result of this attempt."""
    lease, sent = _lease(call), to_struct(call.document(), StepDocument)
    call.use(Runs).queue.record(lease, to_struct(sent.result, StepResult))
    return Reply(_GO)


class PastQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Query parameters of earlier runs: steps whose length is asked, one that hung."""

    steps: Annotated[str, Meta(description="names of steps, separated by commas")] = ""
    hung: Annotated[str, Meta(description="step that did not end in time")] = ""
    digest: Annotated[str, Meta(description="content of its workload")] = ""


@_of_lease(
    routes.get, "past", Returns(PastBody, "What earlier runs showed"), scope="work", query=PastQuery
)
def show_past(call: Call[PastQuery]) -> Reply:
    """Return what earlier runs showed of the same steps: their lengths, and one in time."""
    lease, queue, asked = _lease(call), call.use(Runs).queue, call.query
    names = [name for name in asked.steps.split(",") if name]
    in_time = queue.ended_in_time(lease, asked.hung, asked.digest) if asked.hung else ""
    return Reply({"lengths": dict(queue.lengths(lease, names)), "in_time": in_time})


@_of_lease(routes.get, "pairs", Returns(PairsDocument, "The pairs of earlier runs"), scope="work")
def list_earlier_pairs(call: Call[NoQuery]) -> Reply:
    """Return the pairs of earlier runs of the suite on the same SKU, newest first."""
    earlier = call.use(Runs).queue.earlier_pairs(_lease(call))
    return Reply({"pairs": msgspec.to_builtins(earlier)})


@_of_lease(
    routes.put, "pairs", _ORDER, body=Body(PairsDocument, examples={"none": {"pairs": [{}]}})
)
def store_pairs(call: Call[NoQuery]) -> Reply:
    """Store how the pairs of a run stand."""
    lease = _lease(call)
    stored = to_struct(call.document(), PairsDocument).pairs
    if len(stored) > 1:
        raise BadInput("more than one state", field="pairs", hint="send the state of this run")
    for body in stored:
        call.use(Runs).queue.compare(lease, to_struct(body, PairsState))
    return Reply(_GO)


@_of_lease(
    routes.post,
    "end",
    _ORDER,
    body=Body(RunEnd, examples={"again": {"outcome": "again", "why": "the engine is away"}}),
)
def end_run(call: Call[NoQuery]) -> Reply:
    """End a run with its evidence, or hand it back.

    Evidence with another definition of the suite than the gate's is refused (400).
    """
    call.use(WorkDesk).end(_lease(call), to_struct(call.document(), RunEnd))
    return Reply(_GO)
