"""Show baselines: the expected distributions of metrics, and their approvals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compatgate.canary.engine.baseline_judge import NO_GPU_SKU
from compatgate.canary.judge.baseline import Baseline, describe_distribution
from compatgate.canary.judge.statistics import median
from compatgate.kit.http.links import api_link, link
from compatgate.kit.http.route import LARGEST
from compatgate.kit.ui.tables import (
    Cell,
    Column,
    EmptyNotice,
    TableQuery,
    list_rows,
    make_list_table,
    make_page_query,
    make_table,
)
from compatgate.service.runs.baselines.repository import BaselineRow
from compatgate.service.runs.baselines.schemas import BaselineFilters
from compatgate.web.page import HtmlPage, PageRequest, Redirect, page
from compatgate.web.pages.run_inspection import format_change
from compatgate.web.pages.trend_charts import TREND, Trends, read_trends

_PROPOSED = 50
_CHOICES = 200
_COLUMNS = (
    Column("id", "Baseline", "number"),
    Column("state", "State", "badge"),
    Column("metric", "Metric", "name"),
    Column("workload", "Workload", "name"),
    Column("sku", "GPU", "name"),
    Column("family", "Stack family", "code"),
    Column("version", "Version", "number"),
    Column("median", "Median", "number"),
    Column("unit", "Unit"),
    TREND,
    Column("runs", "Runs", "number"),
    Column("values", "Values", "number"),
    Column("proposed", "Proposed", "time"),
    Column("decided", "Decided", "time"),
)
_EMPTY = EmptyNotice(
    "No baselines yet.",
    "The first valid run of a workload on a GPU proposes one. After a person approves it, later "
    "runs are judged against it.",
    "compatgate canary run --suite smoke --target prod-a100 --image registry.example/team/app:1.4",
)
_NO_DATA = EmptyNotice("No matches.", "Remove a filter.")


BaselinesQuery = make_page_query(BaselineFilters)


@page("/baselines", nav="baselines", query=BaselinesQuery)
def show_baselines(ask: PageRequest[Any]) -> HtmlPage:
    """Show every version, newest first, and above them the versions that wait for approval."""
    query = ask.query
    found = list_rows(ask.rooms.baselines.list, query)
    trends = read_trends(ask.rooms.runs, ask.principal.targets)
    rows = [_row(row, trends) for row in found.items]
    table = make_list_table("baselines", _COLUMNS, rows, found, query, _EMPTY, unfit=_NO_DATA)
    context = {"filters": _filters(ask), **_proposed_section(ask)}
    return HtmlPage("baselines.html", "Baselines", context, table)


def _filters(ask: PageRequest[Any]) -> list[tuple[str, str, Any, list[str]]]:
    """Return the filters, with choices from the newest baselines."""
    query = ask.query
    newest = ask.rooms.baselines.list(limit=_CHOICES).items

    def of(name: str, label: str) -> tuple[str, str, Any, list[str]]:
        given = getattr(query, name)
        known = {getattr(row, name) for row in newest} | ({given} if given else set())
        return name, label, given, sorted(known)

    states = ["proposed", "approved", "replaced", "refused"]
    return [
        ("state", "State", query.state, states),
        of("sku", "GPU"),
        of("workload", "Workload"),
        of("family", "Stack family"),
        of("metric", "Metric"),
    ]


def _proposed_section(ask: PageRequest[Any]) -> dict[str, Any]:
    waiting = ask.rooms.baselines.list(state="proposed", limit=_PROPOSED)
    return {"waiting": _proposed_rows(ask, waiting.items), "more": waiting.next is not None}


def _row(row: BaselineRow, trends: Trends) -> tuple[Any, ...]:
    learned = row.learned
    name, _, digest = row.workload.partition("@")
    return (
        Cell(row.id, link("baselines", row.id)),
        row.state,
        Cell(row.metric, link("baselines", row.id)),
        Cell(name, link("workloads", name), title=digest),
        row.sku,
        row.family,
        row.version,
        median(learned.samples.values),
        learned.unit,
        trends.of_metric(name, row.metric, "" if row.sku == NO_GPU_SKU else row.sku),
        len(learned.runs),
        len(learned.samples.values),
        row.proposed_at,
        Cell(row.decided_at, note=f"by {row.decided_by}" if row.decided_by else ""),
    )


def _proposed_rows(ask: PageRequest[Any], rows: Sequence[BaselineRow]) -> list[dict[str, Any]]:
    """Return versions, each with its distance from the approved one."""
    approved = ask.rooms.baselines.approved_before([row.id for row in rows])
    found = []
    for row in rows:
        learned, before = row.learned, approved.get(row.id)
        middle = median(learned.samples.values)
        old = median(before.learned.samples.values) if before else None
        found.append({
            "row": row,
            "learned": learned,
            "workload": row.workload.partition("@")[0],
            "median": middle,
            "before": before,
            "change": format_change(middle / old - 1) if old else None,
        })  # fmt: skip
    return found


_VERSIONS = (
    Column("version", "Version", "number"),
    Column("state", "State", "badge"),
    Column("median", "Median", "number"),
    Column("p95", "95 % below", "number"),
    Column("runs", "Runs", "number"),
    Column("values", "Values", "number"),
    Column("proposed", "Proposed", "time"),
    Column("decided", "Decided", "time"),
    Column("by", "By", "name"),
)


@page(f"/baselines/<int(max={LARGEST['big']}):id>", nav="baselines", query=TableQuery)
def show_baseline(ask: PageRequest[TableQuery]) -> HtmlPage:
    """Show a version: its values, the runs that gave them, and earlier versions."""
    row = ask.rooms.baselines.find(ask.args["id"])
    learned = row.learned
    versions = ask.rooms.baselines.list(
        workload=row.workload, sku=row.sku, family=row.family, metric=row.metric
    ).items
    table = make_table(
        "versions",
        _VERSIONS,
        [_version(one, row.id) for one in versions],
        EmptyNotice("No versions."),
        sort=ask.query.sort,
        label="versions",
    )
    (waiting,) = _proposed_rows(ask, [row])
    context = {
        "row": row,
        "baseline": learned,
        "workload": row.workload.partition("@")[0],
        "spread": describe_distribution(learned),
        "runs": _runs(ask, learned),
        "before": waiting["before"],
        "change": waiting["change"] if row.state == "proposed" else None,
        "api": api_link("baselines", row.id),
    }
    title = f"{row.metric} of {context['workload']}"
    return HtmlPage("baseline.html", title, context, table)


def _version(row: BaselineRow, shown: int) -> tuple[Any, ...]:
    spread = describe_distribution(row.learned)
    here = "this one" if row.id == shown else ""
    return (
        Cell(row.version, link("baselines", row.id), note=here),
        row.state,
        spread.median,
        spread.p95,
        spread.runs,
        spread.n,
        row.proposed_at,
        row.decided_at,
        row.decided_by,
    )


def _runs(ask: PageRequest[Any], learned: Baseline) -> list[dict[str, Any]]:
    """Return the runs that a version was learned from, stored as ``run_...:step``.

    Samples and baselines of another gate are not runs of this gate.
    """
    found = []
    here = ask.rooms.runs.ended({kept.run.partition(":")[0] for kept in learned.runs})
    for kept in learned.runs:
        run, _, step = kept.run.partition(":")
        found.append(
            {
                "run": run,
                "here": run in here,
                "sample": kept.sample,
                "step": step,
                "n": len(kept.values),
                "median": median(kept.values),
                "low": min(kept.values),
                "high": max(kept.values),
            }
        )
    return found


@page(
    f"/baselines/<int(max={LARGEST['big']}):id>/approve",
    scope="bless",
    method="POST",
    nav="baselines",
)
def approve_baseline(ask: PageRequest[Any]) -> Redirect:
    """Approve a proposed version for future runs."""
    row = ask.rooms.baselines.approve(ask.args["id"], by=ask.principal.name)
    done = f"Approved: runs are judged against version {row.version} of {row.metric} from now on."
    return Redirect(link("baselines", row.id), done)


@page(
    f"/baselines/<int(max={LARGEST['big']}):id>/refuse",
    scope="bless",
    method="POST",
    nav="baselines",
)
def refuse_baseline(ask: PageRequest[Any]) -> Redirect:
    """Refuse a proposed version, or retire an approved one."""
    row = ask.rooms.baselines.refuse(ask.args["id"], by=ask.principal.name)
    done = f"Refused: no run is judged against version {row.version} of {row.metric}."
    return Redirect(link("baselines", row.id), done)
