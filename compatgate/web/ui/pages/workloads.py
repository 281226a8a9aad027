"""Suites and workloads: what can be run, and what each would find."""

from __future__ import annotations

from typing import Any

from compatgate.canary.samples.folder import kept
from compatgate.canary.workload import Workload
from compatgate.canary.workloads import Library
from compatgate.web.ui.links import link
from compatgate.web.ui.listing import Listing
from compatgate.web.ui.page import Ask, Shown, page
from compatgate.web.ui.tables import Cell, Column, Empty, make

_WORKLOADS = (
    Column("name", "Workload", "name"),
    Column("description", "Description"),
    Column("catches", "Detects"),
    Column("gpus", "GPUs", "number"),
    Column("timeout", "Timeout, s", "number"),
    Column("metrics", "Metrics", "number"),
    Column("checks", "Checks", "number"),
    Column("suites", "Suites"),
)
_METRICS = (
    Column("metric", "Metric", "name"),
    Column("description", "Description"),
    Column("unit", "Unit", "code"),
    Column("better", "Better"),
    Column("tolerance", "Tolerance, %", "number"),
    Column("repetitions", "Repetitions", "number"),
    Column("peak", "Peak", "code"),
)
_WRITE = Empty(
    "No workloads yet.",
    "A workload is a folder with a workload.toml and a program; the server reads the folders that "
    "COMPATGATE_WORKLOADS names.",
    "compatgate canary lint my-workload",
)


@page("/suites", nav="suites", query=Listing)
def show_suites(ask: Ask[Listing]) -> Shown:
    """Every suite with its workloads."""
    found = ask.gate.runs.catalogue()
    rows = [
        (
            Cell(suite.name, link("runs", suite=suite.name), title="its runs"),
            suite.description,
            found.gpus_of(suite.name),
            len(suite.workloads),
            ", ".join(suite.workloads),
        )
        for suite in found.suites.values()
    ]
    columns = (
        Column("name", "Suite", "name"),
        Column("description", "Description"),
        Column("gpus", "GPUs", "number"),
        Column("count", "Workloads", "number"),
        Column("workloads", "Names"),
    )
    table = make("suites", columns, rows, _WRITE, sort=ask.query.sort, label="suites")
    suites = [(suite, found.of_suite(suite.name)) for suite in found.suites.values()]
    return Shown("suites.html", "Suites", {"suites": suites}, table)


@page("/workloads", nav="workloads", query=Listing)
def show_workloads(ask: Ask[Listing]) -> Shown:
    """Every workload."""
    found = ask.gate.runs.catalogue()
    rows = [_row(found, found.workloads[name]) for name in sorted(found.workloads)]
    table = make("workloads", _WORKLOADS, rows, _WRITE, sort=ask.query.sort, label="workloads")
    return Shown("workloads.html", "Workloads", {}, table)


def _row(found: Library, workload: Workload) -> tuple[Any, ...]:
    nodes = f"on each of {workload.nodes} nodes" if workload.nodes > 1 else ""
    return (
        Cell(workload.name, link("workloads", workload.name)),
        workload.description,
        "; ".join(workload.catches),
        Cell(workload.gpus, note=nodes),
        workload.timeout_s,
        len(workload.metrics),
        len(workload.checks),
        ", ".join(_suites(found, workload.name)),
    )


def _suites(found: Library, name: str) -> list[str]:
    return [suite.name for suite in found.suites.values() if name in suite.workloads]


@page("/workloads/<name>", nav="workloads", query=Listing)
def show(ask: Ask[Listing]) -> Shown:
    """A workload: what it measures and checks, and how it is run."""
    found = ask.gate.runs.catalogue()
    workload = found.workload(ask.args["name"])
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
    table = make(
        "metrics",
        _METRICS,
        rows,
        Empty("No metrics: the workload only checks."),
        sort=ask.query.sort,
        label="metrics",
    )
    content = f"{workload.name}@{workload.digest.removeprefix('sha256:')[:12]}"
    context = {
        "workload": workload,
        "suites": _suites(found, workload.name),
        "content": content,
        "samples": kept(workload),
    }
    return Shown("workload.html", workload.name, context, table)
