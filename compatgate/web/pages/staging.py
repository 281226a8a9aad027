"""Show staging hosts and their state, suites, and workloads."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec
from msgspec import Struct

from compatgate.canary.hosts import MaintenanceWindow, is_in_maintenance
from compatgate.canary.samples.sample import list_samples
from compatgate.canary.workload import Workload
from compatgate.canary.workloads import Library
from compatgate.errors import BadInput
from compatgate.kit import clock
from compatgate.kit.http.links import link
from compatgate.kit.ui.tables import (
    Act,
    Cell,
    Column,
    EmptyNotice,
    TableQuery,
    list_rows,
    make_list_table,
    make_page_query,
    make_table,
)
from compatgate.service.runs.queue.models import HostRow
from compatgate.service.runs.queue.schemas import HostFilters
from compatgate.web.page import HtmlPage, PageRequest, page
from compatgate.web.pages.trend_charts import TREND, Trends, read_trends

SILENT_AFTER = timedelta(minutes=2)
"""Silence after which a host is stale; workers report their hosts every ten seconds."""


class HostState(Struct, frozen=True):
    """The state of a host, and its reason in one line."""

    name: Literal["ready", "busy", "quiet", "away", "stale", "unknown"]
    why: str = ""


def host_hours(host: HostRow) -> list[MaintenanceWindow]:
    """Return the maintenance window of a host, in which it takes no new run."""
    return [MaintenanceWindow(**msgspec.structs.asdict(quiet)) for quiet in host.quiet]


def host_state(host: HostRow, now: datetime) -> HostState:
    """Return the state of a host."""
    if host.away:
        return HostState("away", f"no run starts: {host.away}")
    if host.busy >= host.slots:
        return HostState("busy", "all slots are in use")  # a full worker says nothing new
    if now - host.seen_at > SILENT_AFTER:
        why = "its worker is silent or cannot reach the host: no run starts"
        return HostState("stale", why)
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


_HOST_COLUMNS = (
    Column("name", "Host", "name"),
    Column("state", "State", "badge"),
    Column("acts", "Actions", "acts"),
    Column("gpu", "GPU", "name"),
    Column("driver", "Driver", "code"),
    TREND,
    Column("busy", "Busy slots"),
    Column("quiet", "Maintenance"),
    Column("executor", "Executor"),
    Column("health", "GPU health"),
    Column("worker", "Worker", "name"),
    Column("seen", "Last seen", "time"),
    Column("since", "Known since", "time"),
)
_NO_HOSTS = EmptyNotice(
    "No staging hosts yet.",
    "A worker registers the hosts that its file names. Start one on a machine whose GPUs are not "
    "in production.",
    'printf \'[[host]]\\nname = "staging-1"\\ngpu = "L4"\\n\' > hosts.toml\n'
    "compatgate worker --hosts hosts.toml",
)
_NO_MATCHES = EmptyNotice("No host has this GPU.", "Remove the filter to see all hosts.")


HostsQuery = make_page_query(HostFilters)


@page("/hosts", nav="hosts", query=HostsQuery)
def show_hosts(ask: PageRequest[Any]) -> HtmlPage:
    """Show the hosts and their current runs."""
    query, now = ask.query, clock.now()
    result = list_rows(ask.rooms.runs.hosts, query)
    skus = sorted({row.gpu for row in ask.rooms.runs.hosts().items if row.gpu})
    trends = read_trends(ask.rooms.runs, ask.principal.targets)
    may_run = ask.principal.may("operate")
    rows = [_host_row(host, now, trends, may_run=may_run) for host in result.items]
    table = make_list_table(
        "hosts", _HOST_COLUMNS, rows, result, query, _NO_HOSTS, unfit=_NO_MATCHES
    )
    return HtmlPage(
        "hosts.html", "Staging hosts", {"filters": [("gpu", "GPU", query.gpu, skus)]}, table
    )


def _host_row(host: HostRow, now: datetime, trends: Trends, *, may_run: bool) -> tuple[Any, ...]:
    state = host_state(host, now)
    acts = (Act("Test…", link("runs", "new", suite="smoke", host=host.name)),)
    return (
        Cell(host.name, link("runs", host=host.name), title="its runs"),
        Cell(state.name, note=state.why),
        Cell(None, acts=acts if may_run else ()),
        host.gpu,
        host.driver,
        trends.of_host(host.name),
        Cell(f"{host.busy} of {host.slots}", tone="" if host.busy else "muted"),
        "; ".join(describe_hours(one) for one in host_hours(host)),
        host.executor,
        "watched" if host.health == "local" else "not watched",
        host.worker,
        Cell(host.seen_at, tone="warn" if state.name in ("stale", "away") else ""),
        host.registered_at,
    )


_WORKLOAD_COLUMNS = (
    Column("name", "Workload", "name"),
    Column("description", "Description"),
    Column("catches", "Detects"),
    TREND,
    Column("gpus", "GPUs", "number"),
    Column("timeout", "Timeout, s", "number"),
    Column("metrics", "Metrics", "number"),
    Column("checks", "Checks", "number"),
    Column("suites", "Suites"),
)
_METRIC_COLUMNS = (
    Column("metric", "Metric", "name"),
    Column("description", "Description"),
    Column("unit", "Unit", "code"),
    Column("better", "Better"),
    Column("tolerance", "Tolerance, %", "number"),
    Column("repetitions", "Repetitions", "number"),
    Column("peak", "Peak", "code"),
)
_WRITE = EmptyNotice(
    "No workloads yet.",
    "A workload is a folder with a workload.toml and a program; the server reads the folders that "
    "COMPATGATE_WORKLOADS names.",
    "compatgate canary lint my-workload",
)


@page("/suites", nav="suites", query=TableQuery)
def show_suites(ask: PageRequest[TableQuery]) -> HtmlPage:
    """Show every suite with its workloads."""
    result = ask.rooms.runs.catalogue()
    rows = [
        (
            Cell(suite.name, link("runs", suite=suite.name), title="its runs"),
            suite.description,
            result.gpus_of(suite.name),
            len(suite.workloads),
            ", ".join(suite.workloads),
        )
        for suite in result.suites.values()
    ]
    columns = (
        Column("name", "Suite", "name"),
        Column("description", "Description"),
        Column("gpus", "GPUs", "number"),
        Column("count", "Workloads", "number"),
        Column("workloads", "Names"),
    )
    table = make_table("suites", columns, rows, _WRITE, sort=ask.query.sort, label="suites")
    suites = [(suite, result.of_suite(suite.name)) for suite in result.suites.values()]
    return HtmlPage("suites.html", "Suites", {"suites": suites}, table)


@page("/workloads", nav="workloads", query=TableQuery)
def show_workloads(ask: PageRequest[TableQuery]) -> HtmlPage:
    """Show every workload."""
    result = ask.rooms.runs.catalogue()
    trends = read_trends(ask.rooms.runs, ask.principal.targets)
    rows = [
        _workload_row(result, result.workloads[name], trends) for name in sorted(result.workloads)
    ]
    table = make_table(
        "workloads", _WORKLOAD_COLUMNS, rows, _WRITE, sort=ask.query.sort, label="workloads"
    )
    return HtmlPage("workloads.html", "Workloads", {}, table)


def _workload_row(found: Library, workload: Workload, trends: Trends) -> tuple[Any, ...]:
    nodes = f"on each of {workload.nodes} nodes" if workload.nodes > 1 else ""
    return (
        Cell(workload.name, link("workloads", workload.name)),
        workload.description,
        "; ".join(workload.catches),
        trends.of_workload(workload),
        Cell(workload.gpus, note=nodes),
        workload.timeout_s,
        len(workload.metrics),
        len(workload.checks),
        ", ".join(_suites(found, workload.name)),
    )


def _suites(found: Library, name: str) -> list[str]:
    return [suite.name for suite in found.suites.values() if name in suite.workloads]


@page("/workloads/<name>", nav="workloads", query=TableQuery)
def show_workload(ask: PageRequest[TableQuery]) -> HtmlPage:
    """Show a workload: its metrics, checks, command and samples."""
    result = ask.rooms.runs.catalogue()
    workload = result.workload(ask.args["name"])
    rows = [
        (
            name,
            spec.description,
            spec.unit,
            spec.better,
            round(100 * spec.tolerance, 2),
            spec.repetitions,
            spec.peak or "",
        )
        for name, spec in workload.metrics.items()
    ]
    table = make_table(
        "metrics",
        _METRIC_COLUMNS,
        rows,
        EmptyNotice("No metrics: the workload only checks."),
        sort=ask.query.sort,
        label="metrics",
    )
    context = {
        "workload": workload,
        "suites": _suites(result, workload.name),
        "content": workload.content,
        "samples": list_samples(workload),
    }
    return HtmlPage("workload.html", workload.name, context, table)
