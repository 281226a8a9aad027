"""Serve what-if questions, plans, backtests, dependents, the packages report, and imports."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from compatgate.core.compare.packages import PackagesReport
from compatgate.documents.sources import Source
from compatgate.errors import BadInput
from compatgate.kit import clock
from compatgate.kit.http.replies import Reply
from compatgate.kit.http.requests import to_struct
from compatgate.kit.http.route import Body, Call, NoQuery, Returns, Routes
from compatgate.kit.http.schemas import Filter, Since
from compatgate.service.changes.comparison.backtests import (
    backtest_edits,
    plan_edits,
    preview_import,
)
from compatgate.service.changes.comparison.dependents import find_dependents
from compatgate.service.changes.comparison.schemas import (
    BACKTEST_EXAMPLES,
    PACKAGES_DECISIONS,
    PLAN_EXAMPLES,
    WHAT_IF_EXAMPLES,
    BacktestRequest,
    DependentsBody,
    PlanBody,
    PlanRequest,
    WhatIfBody,
    WhatIfRequest,
)
from compatgate.service.changes.comparison.service import (
    answer_in_json,
    plan_upgrade,
    report_on_packages,
)
from compatgate.service.gate.decisions.service import MAX_DECISIONS
from compatgate.service.gate.questions.service import Gate
from compatgate.service.matrix.documents.api import DOCUMENTS, FileName, read_sources
from compatgate.service.matrix.documents.blessing import targets_of
from compatgate.service.matrix.documents.document_api import ForceOption
from compatgate.service.matrix.documents.schemas import ImportBody
from compatgate.service.matrix.documents.service import MatrixService
from compatgate.service.matrix.proposals.schemas import BacktestBody
from compatgate.service.nodes.service import Nodes

gate_routes = Routes("gate", targets="checked", scope="plan")
targets_routes = Routes("targets", targets="checked", scope="plan")
matrix_routes = Routes("matrix", targets="checked", scope="plan")
entries_routes = Routes("entries", targets="checked")


@gate_routes.post(
    "/what-if",
    Returns(WhatIfBody, "Lost and gained stacks; denials also return 200"),
    body=Body(WhatIfRequest, examples=WHAT_IF_EXAMPLES, argument="body"),
    errors=(404,),
)
def what_if(call: Call[NoQuery]) -> Reply:
    """Predict how another driver, GPU or CUDA would affect every entry in use on a target.

    The gate evaluates each blessed and deprecated entry before and after, on each pool that
    changes. An entry with a range is evaluated with the newest and the oldest known versions that
    it allows, and with the versions that canary runs measured. Nothing is logged.
    """
    question = call.document()
    call.principal.require_question(question, named=True)
    body = call.use(Gate).compute(answer_in_json, question, call.use(Gate).snapshot(), clock.now())
    if (degraded := call.use(Gate).degraded()) is not None:
        body["degraded"] = degraded.to_json()
    return Reply(body)


@targets_routes.post(
    "/targets/{name}/plan",
    Returns(PlanBody, "The plan; denials also return 200"),
    body=Body(PlanRequest, examples=PLAN_EXAMPLES, argument="body"),
    slow=True,
    errors=(404,),
)
def plan(call: Call[NoQuery]) -> Reply:
    """Plan an upgrade of driver or CUDA on a target.

    The gate evaluates every entry in use and every stack that it allowed in the last 30 days,
    before and after, and groups what gets worse by cause. It proposes edits of entries, lists the
    canary suites to run, asks every driver branch what it keeps, and orders the reported nodes in
    waves by failure domain. Nothing is logged or changed.
    """
    call.principal.require_targets([call.args["name"]])
    gate, matrix, nodes = call.use(Gate), call.use(MatrixService), call.use(Nodes)
    return Reply(plan_upgrade(gate, matrix, nodes, call.args["name"], call.document()))


@matrix_routes.post(
    "/backtests",
    Returns(BacktestBody, "The answers that differ"),
    body=Body(BacktestRequest, examples=BACKTEST_EXAMPLES, argument="body"),
    slow=True,
    errors=(404,),
)
def backtest(call: Call[NoQuery]) -> Reply:
    """Backtest a change of the matrix: decide recorded questions before and after it.

    The gate takes the questions of the decision log and the stacks of canary runs about the
    targets that the change concerns, and evaluates each different one twice: on the current matrix,
    and on the matrix with the change. Both sides use today's facts and evidence. Nothing is stored
    or logged. The work is limited: `remarks` says what was left out.
    """
    asked = to_struct(call.document(), BacktestRequest)
    most = call.settings.max_values
    sources = [Source(asked.file, asked.yaml, most)] if asked.yaml else []
    if asked.documents:
        text = msgspec.json.encode(asked.documents).decode()
        sources.append(Source("documents", text, most))
    if not sources and not asked.delete:
        hint = "send documents, yaml or delete"
        raise BadInput("names no change", field="documents", hint=hint)
    deleted = [(one.kind, one.name) for one in asked.delete]
    edits = plan_edits(call.use(Gate), call.use(MatrixService), sources, deleted)
    call.principal.require_targets(name for edit in edits for name in targets_of(edit))
    answer = backtest_edits(
        call.use(Gate),
        edits,
        days=asked.days,
        decisions=asked.decisions,
        questions=asked.questions,
        shown=asked.shown,
    )
    return Reply(msgspec.to_builtins(answer))


@entries_routes.get(
    "/entries/{name}/dependents",
    Returns(DependentsBody, "Targets, recorded stacks, nodes and entries"),
    slow=True,
    errors=(404,),
)
def list_dependents(call: Call[NoQuery]) -> Reply:
    """List what depends on an entry: targets, recorded stacks, reported nodes and other entries.

    Stacks are those of the last 30 days that the entry decided. Each is re-evaluated without the
    entry: `lost`: the gate would then no longer allow it.
    """
    name, principal = call.args["name"], call.principal
    matrix = call.use(MatrixService)
    row = matrix.get("Entry", name)
    principal.require_any(row.document["spec"]["targets"], f"the entry {name}")
    found = find_dependents(call.use(Gate), matrix, call.use(Nodes), name, principal.reaches)
    return Reply(msgspec.to_builtins(found))


class PackagesReportOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """Options of the packages report."""

    target: Annotated[Filter, Meta(description="check only this target")] | None = None
    since: Since | None = None
    decisions: Annotated[
        int,
        Meta(
            ge=1, le=MAX_DECISIONS, description="maximum number of decisions to check, newest first"
        ),
    ] = PACKAGES_DECISIONS


@matrix_routes.get(
    "/matrix/packages-report",
    Returns(PackagesReport, "Decisions and entries that `packages: enforce` would stop"),
    targets="refused",
    query=PackagesReportOptions,
    slow=True,
    errors=(404,),
)
def packages_report(call: Call[PackagesReportOptions]) -> Reply:
    """Report what `packages: enforce` would stop on the targets that audit packages.

    The report evaluates the stacks of decisions since a time (default: 30 days ago), and stacks
    that represent blessed and deprecated entries, under `packages: enforce`. Nothing is logged.
    """
    asked = call.query
    report = report_on_packages(
        call.use(Gate), target=asked.target, since=asked.since, decisions=asked.decisions
    )
    return Reply(msgspec.to_builtins(report))


class ImportOptions(ForceOption, frozen=True, forbid_unknown_fields=True):
    """Options of an import."""

    dry_run: Annotated[bool, Meta(description="return the changes without storing them")] = False
    reason: Annotated[str, Meta(max_length=2000)] | None = None
    file: FileName = "request"


@matrix_routes.post(
    "/matrix/import",
    Returns(ImportBody, "The changes, made or planned"),
    scope="bless",
    part="operate",
    query=ImportOptions,
    reason="query",
    body=DOCUMENTS,
    slow=True,
    errors=(409,),
)
def import_matrix(call: Call[ImportOptions]) -> Reply:
    """Import documents as one revision, or not at all.

    The body is a JSON list of documents, or YAML documents, with at most one value for each 24
    bytes of the server's largest request. If there are mistakes, nothing changes; the error lists
    every mistake with its line and field. With `dry_run`, `preview` says which canary runs a
    blessing lacks, and which decisions of the last 30 days each waiver would allow.
    """
    sources = read_sources(call, call.query.file)
    by, dry_run = call.by(), call.query.dry_run
    result = call.use(MatrixService).import_documents(sources, by, dry_run=dry_run)
    preview = preview_import(call.use(Gate), result.edits) if dry_run else None
    return Reply({**result.to_json(), "preview": msgspec.to_builtins(preview)})
