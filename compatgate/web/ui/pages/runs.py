"""Canary runs: the list, and the form that asks for one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from msgspec import Struct

from compatgate.canary.run import ENDED, Purpose
from compatgate.core.stack import parse_stack_text
from compatgate.errors import BadInput, CompatgateError
from compatgate.gate.runs.submission import PRIORITIES, Submission
from compatgate.store.run_rows import ACTIVE, RunRow
from compatgate.web.paging import Filter
from compatgate.web.query import Since, Until
from compatgate.web.ui.links import link
from compatgate.web.ui.listing import LongListing, found_by, table_of
from compatgate.web.ui.page import Ask, Goto, Shown, page
from compatgate.web.ui.tables import Cell, Column, Empty
from compatgate.wire.runs import StateFilter

STATES = ("active", "ended", "queued", *ACTIVE, *ENDED)
_COLUMNS = (
    Column("run", "Run", "code"),
    Column("state", "State", "badge"),
    Column("suite", "Suite", "name"),
    Column("target", "Target", "name"),
    Column("gpu", "GPU", "name"),
    Column("host", "Host", "name"),
    Column("about", "Details"),
    Column("asked", "Requested", "time"),
    Column("took", "Duration, s", "number"),
)
_EMPTY = Empty(
    "No runs yet.",
    "A run executes a suite of canary workloads on a staging host, for the stack of a target.",
    "compatgate canary run --suite smoke --target prod-a100 --image registry.example/team/app:1.4",
)
_NONE = Empty("No matches.", "Remove a filter.")


class RunsQuery(LongListing, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which runs to list."""

    state: StateFilter | None = None
    suite: Filter | None = None
    target: Filter | None = None
    entry: Filter | None = None
    host: Filter | None = None
    asked_by: Filter | None = None
    purpose: Purpose | None = None
    since: Since | None = None
    until: Until | None = None


@page("/runs", nav="runs", query=RunsQuery)
def show(ask: Ask[RunsQuery]) -> Shown:
    """Every run, newest first; what is under way is refreshed."""
    query = ask.query
    found = found_by(ask.gate.runs.list, query)
    rows = [_row(run) for run in found.items]
    table = table_of("runs", _COLUMNS, rows, found, query, _EMPTY, unfit=_NONE)
    context = {
        "filters": _filters(ask),
        "active": not all(run.has_ended for run in found.items),
    }
    return Shown("runs.html", "Runs", context, table)


def _filters(ask: Ask[RunsQuery]) -> list[tuple[str, str, Any, list[str] | None]]:
    query = ask.query
    return [
        ("state", "State", query.state, list(STATES)),
        ("suite", "Suite", query.suite, sorted(ask.gate.runs.catalogue().suites)),
        ("target", "Target", query.target, sorted(ask.gate.snapshot().documents)),
        ("host", "Host", query.host, [row.name for row in ask.gate.runs.hosts().items]),
        ("purpose", "For", query.purpose, list(get_args(Purpose))),
        ("entry", "Entry", query.entry, None),
        ("asked_by", "Asked by", query.asked_by, None),
    ]


def _row(run: RunRow) -> tuple[Any, ...]:
    place = f"pool {run.pool}" if run.pool else ""
    repeated = ", to verify again" if run.purpose == "verification" else ""
    driver = f"driver {run.driver}" if run.driver else ""
    return (
        Cell(run.id, link("runs", run.id)),
        Cell(run.state, note="cancelling" if run.cancel_by and not run.has_ended else ""),
        Cell(run.suite, link("suites") + f"#{run.suite}"),
        Cell(run.target, link("targets", run.target) if run.target else None, note=place),
        Cell(run.gpu, note=driver),
        Cell(run.on_host or run.host, note="" if run.on_host or not run.host else "asked for"),
        Cell(about(run)),
        Cell(run.created_at, note=f"by {run.asked_by}{repeated}"),
        seconds(run),
    )


def about(run: RunRow) -> str:
    """What happens to a run, or why it stands as it does."""
    if run.has_ended or not run.doing:
        return run.reason
    return run.doing if run.progress is None else f"{100 * run.progress:.0f} %: {run.doing}"


def seconds(run: RunRow) -> float | None:
    """How long a run took; None while it goes on."""
    if run.started_at is None or run.finished_at is None:
        return None
    return round((run.finished_at - run.started_at).total_seconds(), 1)


class Wanted(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the form is filled with."""

    suite: str = ""
    target: str = ""
    pool: str = ""
    stack: str = ""
    image: str = ""
    entry: str = ""
    host: str = ""
    priority: str = ""


@page("/runs/new", scope="operate", nav="runs", query=Wanted)
def show_form(ask: Ask[Wanted]) -> Shown:
    """The form that asks for runs."""
    return _form(ask, ask.query)


def _form(ask: Ask[Any], wanted: Wanted, problem: CompatgateError | None = None) -> Shown:
    snapshot, catalogue = ask.gate.snapshot(), ask.gate.runs.catalogue()
    suites = [
        (name, catalogue.suites[name].description, catalogue.gpus_of(name))
        for name in sorted(catalogue.suites)
    ]
    context = {
        "wanted": wanted,
        "problem": problem,
        "suites": suites,
        "targets": sorted(snapshot.documents),
        "pools": sorted({p.name for t in snapshot.targets.values() for p in t.pools}),
        "entries": sorted(snapshot.entries),
        "hosts": [row.name for row in ask.gate.runs.hosts().items],
        "most": PRIORITIES,
    }
    status = problem.status if problem else 200
    return Shown("run-new.html", "Submit a run", context, status=status)


@page("/runs/new", scope="operate", method="POST", nav="runs")
def submit(ask: Ask[Any]) -> Shown | Goto:
    """Queue the runs."""
    given = {name: ask.form.get(name, "").strip() for name in Wanted.__struct_fields__}
    try:
        made = ask.gate.runs.submit(_submission(given), by=ask.principal.name)
    except CompatgateError as error:
        if error.status >= 500:
            raise
        return _form(ask, Wanted(**given), error)
    if len(made) == 1:
        return Goto(link("runs", made[0].id), "Queued the run.")
    return Goto(link("runs"), f"Queued {len(made)} runs, one for each GPU and driver.")


def _submission(given: dict[str, str]) -> Submission:
    if not given["suite"]:
        raise BadInput("choose a suite", field="suite")
    fields = dict(_texts(given))
    if given["stack"]:
        fields["stack"] = parse_stack_text(given["stack"])
    return Submission(**fields, priority=_priority(given["priority"]))


def _texts(given: dict[str, str]) -> Iterator[tuple[str, Any]]:
    for name in ("suite", "target", "pool", "image", "entry", "host"):
        if given[name]:
            yield name, given[name]


def _priority(text: str) -> int:
    try:
        return int(text or "0")
    except ValueError:
        hint = f"a whole number from {-PRIORITIES} to {PRIORITIES}; 0 is ordinary"
        raise BadInput("is not a whole number", field="priority", value=text, hint=hint) from None
