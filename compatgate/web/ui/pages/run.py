"""One run: how it stands, what was measured, what the judge says of it, and its log."""

from __future__ import annotations

from typing import Annotated, Any

from flask import jsonify
from msgspec import Meta, Struct

from compatgate.documents.names import did_you_mean
from compatgate.errors import NotFound
from compatgate.gate.runs import logs
from compatgate.gate.runs.inspection import inspect, is_long, outline
from compatgate.gate.runs.measured import beside, envs_of
from compatgate.gate.runs.service import RunDetail
from compatgate.store.run_rows import RunRow
from compatgate.web.route import LARGEST
from compatgate.web.ui.links import api, link
from compatgate.web.ui.page import Ask, Goto, Shown, page
from compatgate.web.ui.pages.runs import about, seconds

_OTHERS = 20


@page("/runs/<id>", nav="runs")
def show(ask: Ask[Any]) -> Shown:
    """Everything that is known of a run."""
    runs, run_id = ask.gate.runs, ask.args["id"]
    detail = runs.show(run_id)
    run, long = detail.run, is_long(detail)
    steps = [step.to_json() for step in detail.steps]
    evidence = runs.evidence(run=run_id).items
    warned = ask.gate.runs.remarks([run.entry]).get(run.entry) if run.entry else None
    context = {
        "run": run,
        "about": about(run),
        "took": seconds(run),
        "stack": _stated(run.stack),
        "measured": beside(run, envs_of(steps), ask.gate.facts.gpus),
        "long": long,
        "steps": outline(detail) if long else inspect(runs, ask.gate.baselines, detail),
        "log": logs.latest(runs, run_id),
        "evidence": evidence,
        "warnings": [w for w in (warned.warnings if warned else ()) if w.run == run_id],
        "others": _others(ask, run),
        "api": api("runs", run_id),
        "evidence_api": api("evidence", run=run_id),
        "fill": _again(run),
    }
    return Shown("run.html", run_id, context)


def _others(ask: Ask[Any], run: RunRow) -> list[RunRow]:
    """Runs that this one is worth being compared with: of the same suite on the same GPU."""
    found = ask.gate.runs.list(suite=run.suite, state="ended", limit=100).items
    return [one for one in found if one.id != run.id and one.gpu == run.gpu][:_OTHERS]


def _stated(stack: dict[str, Any]) -> str:
    return ",".join(
        f"{name}={'+'.join(value) if isinstance(value, list) else value}"
        for name, value in stack.items()
        if isinstance(value, str | list)
    )


def _again(run: RunRow) -> str:
    """The form, filled with what this run was asked for."""
    names = ("suite", "target", "pool", "image", "entry", "host")
    asked = {name: getattr(run, name) for name in names}
    return link("runs", "new", **asked, stack=_stated(run.stack), priority=run.priority or None)


@page("/runs/<id>/state", nav="runs")
def show_state(ask: Ask[Any]) -> Shown:
    """How a run stands, and nothing more: what its page asks for while it goes on."""
    detail = ask.gate.runs.show(ask.args["id"])
    context = {"run": detail.run, "about": about(detail.run), "steps": outline(detail)}
    return Shown("run-now.html", detail.run.id, context)


@page("/runs/<id>/steps/<name>", nav="runs")
def show_step(ask: Ask[Any]) -> Shown:
    """A step with all of its metrics drawn."""
    detail = ask.gate.runs.show(ask.args["id"])
    wanted = [step for step in detail.steps if step.name == ask.args["name"]]
    if not wanted:
        hint = did_you_mean(ask.args["name"], [step.name for step in detail.steps])
        what = f"the run {detail.run.id} has no step {ask.args['name']!r}"
        raise NotFound(what, field="step", value=ask.args["name"], hint=hint)
    only = RunDetail(detail.run, tuple(wanted), detail.peaks)
    steps = inspect(ask.gate.runs, ask.gate.baselines, only)
    context = {"run": detail.run, "steps": steps, "long": False}
    return Shown("run-steps.html", wanted[0].name, context)


class After(Struct, frozen=True, forbid_unknown_fields=True):
    """From which piece on."""

    after: Annotated[int, Meta(ge=0, le=LARGEST["big"])] = 0


@page("/runs/<id>/log", nav="runs", query=After)
def follow(ask: Ask[After]) -> Any:
    """The part of the log that came since, for the page that shows it."""
    part = logs.following(ask.gate.runs, ask.args["id"], ask.query.after)
    response = jsonify({"text": part.text, "after": part.after, "ended": part.ended})
    response.headers["Cache-Control"] = "no-store"
    return response


@page("/runs/<id>/cancel", scope="operate", method="POST", nav="runs")
def cancel(ask: Ask[Any]) -> Goto:
    """End a run."""
    run = ask.gate.runs.cancel(ask.args["id"], by=ask.principal.name)
    done = "The run was cancelled." if run.has_ended else "The run ends within seconds."
    return Goto(link("runs", run.id), done)


@page("/runs/<id>/rerun", scope="operate", method="POST", nav="runs")
def rerun(ask: Ask[Any]) -> Goto:
    """Ask for the same again."""
    made = ask.gate.runs.rerun(ask.args["id"], by=ask.principal.name)
    if len(made) == 1:
        return Goto(link("runs", made[0].id), f"Queued a new run of {ask.args['id']}.")
    return Goto(link("runs"), f"Queued {len(made)} runs.")
