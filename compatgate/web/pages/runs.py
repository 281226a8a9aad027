"""Show canary runs: the list, the form for new runs, a run, and a comparison of two runs."""

from __future__ import annotations

from typing import Annotated, Any, get_args

import msgspec
from flask import jsonify
from msgspec import Meta, Struct
from msgspec.structs import asdict

from compatgate.canary.run import ACTIVE, ENDED, Attribution, Purpose
from compatgate.core.stack import parse_stack_text
from compatgate.documents.sources import suggest_name
from compatgate.errors import BadInput, NotFound
from compatgate.kit.http.links import api_link, link
from compatgate.kit.http.route import LARGEST
from compatgate.kit.http.schemas import Filter
from compatgate.kit.ui.tables import (
    Cell,
    Table,
    TableQuery,
    list_rows,
    make_list_table,
    make_page_query,
    make_table,
)
from compatgate.service.runs.queue import logs
from compatgate.service.runs.queue.models import RunRow
from compatgate.service.runs.queue.schemas import RunFilters, RunRequest
from compatgate.service.runs.queue.service import RunDetail
from compatgate.service.runs.queue.submission import PRIORITIES
from compatgate.web.page import HtmlPage, PageRequest, Redirect, listing, page
from compatgate.web.pages.run_comparison import (
    MetricChange,
    compare_parts,
    compare_runs,
    envs_of,
    overlay_metrics,
    view_pairs,
)
from compatgate.web.pages.run_inspection import (
    format_change,
    has_many_metrics,
    inspect_steps,
    outline_steps,
)

STATES = ("active", "ended", "queued", *ACTIVE, *ENDED)
RunsQuery = make_page_query(RunFilters)
RunForm = msgspec.defstruct(
    "RunForm",
    [(name, str, "") for name in RunRequest.__struct_fields__],
    frozen=True,
    forbid_unknown_fields=True,
    kw_only=True,
)
"""The form's values as text."""
_MAX_COMPARABLE = 20
_REPEATED = ("suite", "target", "pool", "image", "entry", "host")
"""Members of a run that the form for another one begins with."""


@page("/runs", nav="runs", query=RunsQuery)
def show_runs(ask: PageRequest[Any]) -> HtmlPage:
    """Show every run, newest first; refresh runs in progress."""
    found = list_rows(ask.rooms.runs.list, ask.query)
    table = make_list_table(listing("runs"), found, ask.query, _run_cells)
    context = {
        "states": STATES,
        "purposes": get_args(Purpose),
        "suites": sorted(ask.rooms.runs.catalogue().suites),
        "targets": sorted(ask.gate.snapshot().documents),
        "hosts": [row.name for row in ask.rooms.runs.hosts().items],
        "active": not all(run.has_ended for run in found.items),
    }
    return HtmlPage("runs.html", "Runs", context, table)


def _run_cells(run: RunRow) -> dict[str, Any]:
    suite = None if run.source else f"{link('suites')}#{run.suite}"
    place = link("targets", run.target) if run.target else None
    requested = "requested" if run.host and not run.on_host else ""
    repeated = ", to verify again" if run.purpose == "verification" else ""
    return {
        "state": Cell(run.state, note="cancelling" if run.cancel_by and not run.has_ended else ""),
        "suite": Cell(run.suite, suite, note="imported" if run.source else ""),
        "target": Cell(run.target, place, note=f"pool {run.pool}" if run.pool else ""),
        "gpu": Cell(run.gpu, note=f"driver {run.driver}" if run.driver else ""),
        "host": Cell(run.on_host or run.host, note=requested),
        "about": run_note(run),
        "asked": Cell(run.created_at, note=f"by {run.asked_by}{repeated}"),
        "took": run_seconds(run),
    }


def run_note(run: RunRow) -> str:
    """Return the progress of a run, or the reason of its state."""
    if run.has_ended or not run.doing:
        return run.reason
    return run.doing if run.progress is None else f"{100 * run.progress:.0f} %: {run.doing}"


def run_seconds(run: RunRow) -> float | None:
    """Return the duration of a run in seconds; None: it has not ended."""
    if run.started_at is None or run.finished_at is None:
        return None
    return round((run.finished_at - run.started_at).total_seconds(), 1)


@page("/runs/new", scope="operate", nav="runs", query=RunForm)
def show_run_form(ask: PageRequest[Any]) -> HtmlPage:
    """Show the form for new runs."""
    snapshot, catalogue = ask.gate.snapshot(), ask.rooms.runs.catalogue()
    suites = [
        (name, catalogue.suites[name].description, catalogue.gpus_of(name))
        for name in sorted(catalogue.suites)
    ]
    context = {
        "wanted": {**asdict(RunForm()), **asdict(ask.query), **ask.form},
        "suites": suites,
        "targets": sorted(snapshot.documents),
        "pools": sorted({p.name for t in snapshot.targets.values() for p in t.pools}),
        "entries": sorted(snapshot.entries),
        "hosts": [row.name for row in ask.rooms.runs.hosts().items],
        "most": PRIORITIES,
    }
    return HtmlPage("run-new.html", "Submit a run", context)


@page("/runs/new", scope="operate", method="POST", nav="runs", refused=show_run_form)
def submit_run(ask: PageRequest[Any]) -> Redirect:
    """Queue the runs."""
    values = {name: ask.form.get(name, "").strip() for name in RunForm.__struct_fields__}
    if not values["suite"]:
        raise BadInput("choose a suite", field="suite")
    asked: dict[str, Any] = {name: text for name, text in values.items() if text}
    if values["stack"]:
        asked["stack"] = parse_stack_text(values["stack"])
    try:
        asked["priority"] = int(values["priority"] or "0")
    except ValueError:
        hint = f"a whole number from {-PRIORITIES} to {PRIORITIES}; 0 is the default"
        what, wrong = "is not a whole number", values["priority"]
        raise BadInput(what, field="priority", value=wrong, hint=hint) from None
    made = ask.rooms.runs.submit(RunRequest(**asked), by=ask.principal.name)
    if len(made) == 1:
        return Redirect(link("runs", made[0].id), "Queued the run.")
    return Redirect(link("runs"), f"Queued {len(made)} runs, one for each GPU and driver.")


@page("/runs/<id>", nav="runs")
def show_run(ask: PageRequest[Any]) -> HtmlPage:
    """Show every detail of a run."""
    runs, run_id = ask.rooms.runs, ask.args["id"]
    detail = runs.show(run_id)
    run, long = detail.run, has_many_metrics(detail)
    steps = outline_steps(detail) if long else inspect_steps(runs, ask.rooms.baselines, detail)
    others = runs.list(suite=run.suite, state="ended", limit=100).items
    comparable = [one for one in others if one.id != run.id and one.gpu == run.gpu]
    warned = ask.rooms.runs.remarks([run.entry]).get(run.entry) if run.entry else None
    imported = next(filter(None, (step.body.get("imported") for step in detail.steps)), None)
    measured = []
    if not run.source:
        envs = envs_of(step.to_json() for step in detail.steps)
        measured = compare_parts(run, envs, ask.gate.facts.gpus)
    context = {
        "run": run,
        "about": run_note(run),
        "took": run_seconds(run),
        "stack": _stated_stack(run.stack),
        "measured": measured,
        "attribution": msgspec.convert(imported, Attribution | None),
        "long": long,
        "pairs": view_pairs(detail),
        "steps": steps,
        "log": logs.read_end(runs, run_id),
        "evidence": runs.evidence(run=run_id).items,
        "judged": detail.evidence,
        "warnings": [w for w in (warned.warnings if warned else ()) if w.run == run_id],
        "others": comparable[:_MAX_COMPARABLE],
        "api": api_link("runs", run_id),
        "evidence_api": api_link("evidence", run=run_id),
        "fill": link(
            "runs",
            "new",
            **{name: getattr(run, name) for name in _REPEATED},
            stack=_stated_stack(run.stack),
            priority=run.priority or None,
            against=run.against.asked if run.against else None,
            explained=run.explained or None,
        ),
    }
    return HtmlPage("run.html", run_id, context)


def _stated_stack(stack: dict[str, Any]) -> str:
    return ",".join(
        f"{name}={'+'.join(value) if isinstance(value, list) else value}"
        for name, value in stack.items()
        if isinstance(value, str | list)
    )


@page("/runs/<id>/state", nav="runs")
def show_run_state(ask: PageRequest[Any]) -> HtmlPage:
    """Show the state of a run alone; its page polls this until the run ends."""
    detail = ask.rooms.runs.show(ask.args["id"])
    context = {"run": detail.run, "about": run_note(detail.run), "steps": outline_steps(detail)}
    return HtmlPage("run-now.html", detail.run.id, context)


@page("/runs/<id>/steps/<name>", nav="runs")
def show_run_step(ask: PageRequest[Any]) -> HtmlPage:
    """Show a step with charts of all its metrics."""
    detail = ask.rooms.runs.show(ask.args["id"])
    wanted = [step for step in detail.steps if step.name == ask.args["name"]]
    if not wanted:
        hint = suggest_name(ask.args["name"], [step.name for step in detail.steps])
        what = f"the run {detail.run.id} has no step {ask.args['name']!r}"
        raise NotFound(what, field="step", value=ask.args["name"], hint=hint)
    only = RunDetail(detail.run, tuple(wanted), detail.peaks)
    steps = inspect_steps(ask.rooms.runs, ask.rooms.baselines, only)
    context = {"run": detail.run, "steps": steps, "long": False}
    return HtmlPage("run-steps.html", wanted[0].name, context)


class LogQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Query parameters of a log: the last known piece."""

    after: Annotated[int, Meta(ge=0, le=LARGEST["big"])] = 0


@page("/runs/<id>/log", nav="runs", query=LogQuery)
def follow_log(ask: PageRequest[LogQuery]) -> Any:
    """Return the new part of the log, for the page that shows it."""
    part = logs.read_after(ask.rooms.runs, ask.args["id"], ask.query.after)
    response = jsonify({"text": part.text, "after": part.after, "ended": part.ended})
    response.headers["Cache-Control"] = "no-store"
    return response


@page("/runs/<id>/cancel", scope="operate", method="POST", nav="runs")
def cancel_run(ask: PageRequest[Any]) -> Redirect:
    """Cancel a run."""
    run = ask.rooms.runs.cancel(ask.args["id"], by=ask.principal.name)
    done = "The run was cancelled." if run.has_ended else "The run ends within seconds."
    return Redirect(link("runs", run.id), done)


@page("/runs/<id>/discard", scope="bless", method="POST", nav="runs")
def discard_run(ask: PageRequest[Any]) -> Redirect:
    """Discard a judged run."""
    run_id, reason = ask.args["id"], ask.form.get("reason") or ""
    ask.rooms.runs.discard(run_id, by=ask.principal.name, reason=reason)
    return Redirect(link("runs", run_id), "Discarded the run. No policy counts it.")


@page("/runs/<id>/rerun", scope="operate", method="POST", nav="runs")
def repeat_run(ask: PageRequest[Any]) -> Redirect:
    """Submit a run again."""
    made = ask.rooms.runs.rerun(ask.args["id"], by=ask.principal.name)
    if len(made) == 1:
        return Redirect(link("runs", made[0].id), f"Queued a new run of {ask.args['id']}.")
    return Redirect(link("runs"), f"Queued {len(made)} runs.")


class RunPairQuery(TableQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The two runs; the second is compared with the first."""

    a: Filter | None = None
    b: Filter | None = None


def _comparison_page(
    ask: PageRequest[RunPairQuery], table: Table | None = None, **compared: Any
) -> HtmlPage:
    query = ask.query
    context = {
        "found": None,
        "recent": ask.rooms.runs.list(state="ended", limit=50).items,
        "swapped": link("runs", "compare", a=query.b, b=query.a),
        **compared,
    }
    return HtmlPage("run-compare.html", "Compare two runs", context, table)


@page("/runs/compare", nav="runs", query=RunPairQuery, refused=_comparison_page)
def show_comparison(ask: PageRequest[RunPairQuery]) -> HtmlPage:
    """Show the differences of two runs."""
    query, runs = ask.query, ask.rooms.runs
    if not (query.a and query.b):
        return _comparison_page(ask)
    a, b = runs.show(query.a), runs.show(query.b)
    specs = {name: workload.metrics for name, workload in runs.catalogue().workloads.items()}
    found = compare_runs(a, b, specs, ask.gate.facts.gpus)
    table = make_table(listing("run-metrics"), found.metrics, _metric_cells, sort=query.sort)
    overlays = overlay_metrics(found.metrics)
    return _comparison_page(ask, table, a=a, b=b, found=found, overlays=overlays)


def _metric_cells(one: MetricChange) -> dict[str, Any]:
    judged, change = one.judged, one.change
    percent = None if change is None else round(100 * change, 2)
    note = "" if change is None else format_change(change)
    return {
        "a": Cell(one.medians[0], title=f"{one.a} values"),
        "b": Cell(one.medians[1], title=f"{one.b} values"),
        "change": Cell(percent, tone="fail" if one.beyond else "", title=note),
        "tolerance": round(100 * judged.tolerance, 2),
        "beyond": Cell("yes", tone="fail") if one.beyond else Cell("no", tone="muted"),
        "outcome": Cell(judged.outcome, title=judged.reason, note=judged.reason),
    }
