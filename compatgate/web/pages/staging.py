"""Show staging hosts and their state, suites, and workloads."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import asdict

from compatgate.canary.hosts import MaintenanceWindow, is_in_maintenance
from compatgate.canary.workload import Suite, Workload
from compatgate.errors import BadInput
from compatgate.kit import clock
from compatgate.kit.http.links import link
from compatgate.kit.ui.tables import (
    Act,
    Cell,
    TableQuery,
    list_rows,
    make_list_table,
    make_page_query,
    make_table,
)
from compatgate.service.runs.queue.models import HostRow
from compatgate.service.runs.queue.schemas import HostFilters
from compatgate.web.page import HtmlPage, PageRequest, choices, listing, page
from compatgate.web.pages.trend_charts import read_trends

SILENT_AFTER = timedelta(minutes=2)
"""Silence after which a host is stale; workers report their hosts every ten seconds."""


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


HostsQuery = make_page_query(HostFilters)


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
