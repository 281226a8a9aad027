"""Show what runs need: staging hosts, suites, workloads, and baselines with their approvals."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import asdict

from compatgate.canary.engine.baseline_judge import NO_GPU_SKU
from compatgate.canary.hosts import MaintenanceWindow, is_in_maintenance
from compatgate.canary.judge.baseline import describe_distribution
from compatgate.canary.judge.statistics import median
from compatgate.canary.workload import Suite, Workload
from compatgate.errors import BadInput
from compatgate.kit import clock
from compatgate.kit.http.links import api_link, link
from compatgate.kit.http.route import LARGEST
from compatgate.kit.ui.tables import (
    Act,
    Cell,
    TableQuery,
    list_rows,
    make_list_table,
    make_page_query,
    make_table,
)
from compatgate.service.runs.evidence.baselines import BaselineRow
from compatgate.service.runs.evidence.schemas import BaselineFilters
from compatgate.service.runs.queue.models import HostRow
from compatgate.service.runs.queue.schemas import HostFilters
from compatgate.web.page import HtmlPage, PageRequest, Redirect, choices, listing, page
from compatgate.web.pages.run_history import read_trends
from compatgate.web.pages.run_inspection import format_change

SILENT_AFTER = timedelta(minutes=2)
"""Silence after which a host is stale; workers report their hosts every ten seconds."""
_PATH = f"/baselines/<int(max={LARGEST['big']}):id>"
_PROPOSED = 50
_CHOICES = 200
_STATES = ("proposed", "approved", "replaced", "refused")
BaselinesQuery = make_page_query(BaselineFilters)
HostsQuery = make_page_query(HostFilters)


class HostState(Struct, frozen=True):
    """The state of a host, and its reason in one line."""

    name: Literal["ready", "busy", "quiet", "away", "stale", "unknown"]
    why: str = ""


def host_hours(host: HostRow) -> list[MaintenanceWindow]:
    """Return the maintenance window of a host, in which it takes no new run."""
    return [MaintenanceWindow(**asdict(quiet)) for quiet in host.quiet]


def host_state(host: HostRow, now: datetime) -> HostState:
    """Return the state of a host."""
    if host.away:
        return HostState("away", f"no run starts: {host.away}")
    if host.busy >= host.slots:
        return HostState("busy", "all slots are in use")  # a full worker says nothing new
    if now - host.seen_at > SILENT_AFTER:
        return HostState("stale", "its worker is silent or cannot reach the host: no run starts")
    try:
        quiet = is_in_maintenance(host_hours(host), now)
    except BadInput:
        return HostState("unknown", "its quiet hours cannot be read")
    if quiet:
        return HostState("quiet", "no run starts in its quiet hours")
    return HostState("busy", "some slots are in use") if host.busy else HostState("ready")


def describe_hours(quiet: MaintenanceWindow) -> str:
    """Format a window as ``20:00 to 06:00 Europe/Berlin, every day``."""
    days = ", ".join(quiet.days) or "every day"
    return f"{quiet.start} to {quiet.end} {quiet.timezone}, {days}"


@page("/hosts", nav="hosts", query=HostsQuery)
def show_hosts(ask: PageRequest[Any]) -> HtmlPage:
    """Show the hosts and their current runs."""
    now, found = clock.now(), list_rows(ask.rooms.runs.hosts, ask.query)
    trends = read_trends(ask.rooms.runs, ask.principal.targets)
    may_run = ask.principal.may("operate")

    def cells(host: HostRow) -> dict[str, Any]:
        state = host_state(host, now)
        test = Act("Test…", link("runs", "new", suite="smoke", host=host.name))
        silent = state.name in ("stale", "away")
        return {
            "name": Cell(host.name, link("runs", host=host.name), title="its runs"),
            "state": Cell(state.name, title=state.why),
            "acts": Cell(None, acts=(test,) if may_run else ()),
            "trend": trends.of_host(host.name),
            "busy": Cell(f"{host.busy} of {host.slots}", tone="" if host.busy else "muted"),
            "quiet": "; ".join(describe_hours(one) for one in host_hours(host)),
            "health": "watched" if host.health == "local" else "not watched",
            "seen": Cell(host.seen_at, tone="warn" if silent else ""),
        }

    table = make_list_table(listing("hosts"), found, ask.query, cells)
    context = {"gpus": choices(row.gpu for row in ask.rooms.runs.hosts().items if row.gpu)}
    return HtmlPage("hosts.html", "Staging hosts", context, table)


@page("/suites", nav="suites", query=TableQuery)
def show_suites(ask: PageRequest[TableQuery]) -> HtmlPage:
    """Show every suite with its workloads."""
    library = ask.rooms.runs.catalogue()
    suites = library.suites.values()

    def cells(suite: Suite) -> dict[str, Any]:
        return {"gpus": library.gpus_of(suite.name), "count": len(suite.workloads)}

    table = make_table(listing("suites"), suites, cells, sort=ask.query.sort)
    context = {"suites": [(suite, library.of_suite(suite.name)) for suite in suites]}
    return HtmlPage("suites.html", "Suites", context, table)


@page("/workloads", nav="workloads", query=TableQuery)
def show_workloads(ask: PageRequest[TableQuery]) -> HtmlPage:
    """Show every workload."""
    library = ask.rooms.runs.catalogue()
    trends = read_trends(ask.rooms.runs, ask.principal.targets)

    def cells(workload: Workload) -> dict[str, Any]:
        nodes = f"{workload.gpus} on each of {workload.nodes} nodes" if workload.nodes > 1 else ""
        return {
            "catches": "; ".join(workload.catches),
            "trend": trends.of_workload(workload),
            "gpus": Cell(workload.gpus * workload.nodes, title=nodes),
            "metrics": len(workload.metrics),
            "checks": len(workload.checks),
            "suites": [s.name for s in library.suites.values() if workload.name in s.workloads],
        }

    workloads = [library.workloads[name] for name in sorted(library.workloads)]
    table = make_table(listing("workloads"), workloads, cells, sort=ask.query.sort)
    return HtmlPage("workloads.html", "Workloads", table=table)


@page("/workloads/<name>", nav="workloads", query=TableQuery)
def show_workload(ask: PageRequest[TableQuery]) -> HtmlPage:
    """Show a workload: its metrics, checks and command."""
    library = ask.rooms.runs.catalogue()
    workload = library.workload(ask.args["name"])

    def cells(name: str) -> dict[str, Any]:
        spec = workload.metrics[name]
        return {"metric": name, **asdict(spec), "tolerance": round(100 * spec.tolerance, 2)}

    table = make_table(listing("workload-metrics"), workload.metrics, cells, sort=ask.query.sort)
    context = {
        "workload": workload,
        "suites": [s.name for s in library.suites.values() if workload.name in s.workloads],
        "content": workload.content,
    }
    return HtmlPage("workload.html", workload.name, context, table)


@page("/baselines", nav="baselines", query=BaselinesQuery)
def show_baselines(ask: PageRequest[Any]) -> HtmlPage:
    """Show every version, newest first, and above them the versions that wait for approval."""
    found = list_rows(ask.rooms.baselines.list, ask.query)
    trends = read_trends(ask.rooms.runs, ask.principal.targets)

    def cells(row: BaselineRow) -> dict[str, Any]:
        learned = row.learned
        name, _, digest = row.workload.partition("@")
        sku = "" if row.sku == NO_GPU_SKU else row.sku
        return {
            "metric": Cell(row.metric, link("baselines", row.id)),
            "workload": Cell(name, link("workloads", name), title=digest),
            "median": median(learned.samples.values),
            "trend": trends.of_metric(name, row.metric, sku),
            "runs": len(learned.runs),
            "values": len(learned.samples.values),
            "decided": Cell(row.decided_at, note=f"by {row.decided_by}" if row.decided_by else ""),
        }

    table = make_list_table(listing("baselines"), found, ask.query, cells)
    waiting = ask.rooms.baselines.list(state="proposed", limit=_PROPOSED)
    newest = ask.rooms.baselines.list(limit=_CHOICES).items
    context = {
        "states": _STATES,
        "choices": {
            name: sorted(
                {getattr(row, name) for row in newest} | {getattr(ask.query, name)} - {None}
            )
            for name in ("sku", "workload", "family", "metric")
        },
        "waiting": _with_approved(ask, waiting.items),
        "middle": median,
        "more": waiting.next is not None,
    }
    return HtmlPage("baselines.html", "Baselines", context, table)


def _with_approved(
    ask: PageRequest[Any], rows: Sequence[BaselineRow]
) -> list[tuple[BaselineRow, BaselineRow | None, str]]:
    """Return versions, each with the approved one and the change of the median from it."""
    approved = ask.rooms.baselines.approved_before([row.id for row in rows])
    found = []
    for row in rows:
        before = approved.get(row.id)
        old = median(before.learned.samples.values) if before else 0
        share = median(row.learned.samples.values) / old - 1 if old else None
        found.append((row, before, "" if share is None else format_change(share)))
    return found


@page(_PATH, nav="baselines", query=TableQuery)
def show_baseline(ask: PageRequest[TableQuery]) -> HtmlPage:
    """Show a version: its values, the runs that gave them, and earlier versions."""
    row = ask.rooms.baselines.find(ask.args["id"])
    learned = row.learned
    versions = ask.rooms.baselines.list(
        workload=row.workload, sku=row.sku, family=row.family, metric=row.metric
    ).items

    def cells(one: BaselineRow) -> dict[str, Any]:
        spread, here = describe_distribution(one.learned), one.id == row.id
        place = link("baselines", one.id)
        return {
            "version": Cell(one.version, place, note="this one" if here else ""),
            "median": spread.median,
            "p95": spread.p95,
            "runs": spread.runs,
            "values": spread.n,
        }

    table = make_table(listing("baseline-versions"), versions, cells, sort=ask.query.sort)
    ((_, before, change),) = _with_approved(ask, [row])
    context = {
        "row": row,
        "baseline": learned,
        "workload": row.workload.partition("@")[0],
        "spread": describe_distribution(learned),
        "stored": ask.rooms.runs.ended({one.run.partition(":")[0] for one in learned.runs}),
        "middle": median,
        "before": before,
        "change": change if row.state == "proposed" else None,
        "api": api_link("baselines", row.id),
    }
    return HtmlPage("baseline.html", f"{row.metric} of {context['workload']}", context, table)


@page(f"{_PATH}/approve", scope="bless", method="POST", nav="baselines")
def approve_baseline(ask: PageRequest[Any]) -> Redirect:
    """Approve a proposed version for future runs."""
    row = ask.rooms.baselines.approve(ask.args["id"], by=ask.principal.name)
    done = f"Approved: runs are judged against version {row.version} of {row.metric} from now on."
    return Redirect(link("baselines", row.id), done)


@page(f"{_PATH}/refuse", scope="bless", method="POST", nav="baselines")
def refuse_baseline(ask: PageRequest[Any]) -> Redirect:
    """Refuse a proposed version, or retire an approved one."""
    row = ask.rooms.baselines.refuse(ask.args["id"], by=ask.principal.name)
    done = f"Refused: no run is judged against version {row.version} of {row.metric}."
    return Redirect(link("baselines", row.id), done)
