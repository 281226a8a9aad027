"""Show baselines: the expected distributions of metrics, and their approvals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compatgate.canary.engine.baseline_judge import NO_GPU_SKU
from compatgate.canary.judge.baseline import describe_distribution
from compatgate.canary.judge.statistics import median
from compatgate.kit.http.links import api_link, link
from compatgate.kit.http.route import LARGEST
from compatgate.kit.ui.tables import (
    Cell,
    TableQuery,
    list_rows,
    make_list_table,
    make_page_query,
    make_table,
)
from compatgate.service.runs.baselines.repository import BaselineRow
from compatgate.service.runs.baselines.schemas import BaselineFilters
from compatgate.web.page import HtmlPage, PageRequest, Redirect, listing, page
from compatgate.web.pages.run_inspection import format_change
from compatgate.web.pages.trend_charts import read_trends

_PATH = f"/baselines/<int(max={LARGEST['big']}):id>"
_PROPOSED = 50
_CHOICES = 200
_STATES = ("proposed", "approved", "replaced", "refused")
BaselinesQuery = make_page_query(BaselineFilters)


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
