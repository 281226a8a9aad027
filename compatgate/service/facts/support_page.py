"""Show how long driver branches are supported, and which targets are on them."""

from __future__ import annotations

from collections import defaultdict
from datetime import date, timedelta
from typing import Any, Literal

from compatgate.kit import clock
from compatgate.kit.http.links import link
from compatgate.kit.ui.tables import Cell, Column, EmptyNotice, TableQuery, make_table
from compatgate.service.facts.api import read_records
from compatgate.service.facts.support_lines import (
    LEFT,
    RIGHT,
    ROW,
    TOP,
    WIDTH,
    SupportedBranch,
    draw_support,
    read_branches,
)
from compatgate.service.web.page import HtmlPage, PageRequest, page

TABLE = "driver_branches"
_RECENT = timedelta(days=3 * 365)
_NO_BRANCHES = EmptyNotice("No driver branches.", "The fact table driver_branches has none.")
_COLUMNS = (
    Column("branch", "Branch", "name"),
    Column("state", "Support", "badge"),
    Column("type", "Type"),
    Column("first", "First release", "name"),
    Column("last", "Last release seen", "name"),
    Column("end", "Supported until", "name"),
    Column("targets", "Targets"),
    Column("remark", "Remark"),
)
_SUPPORTED = ("supported", "ends soon")
_TONES = {"supported": "ok", "ends soon": "warn", "ended": "stale", "no date": "unknown"}


class SupportQuery(TableQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Choice of branches."""

    all: Literal["yes"] | None = None


@page("/facts/support-lines", nav="facts", query=SupportQuery)
def show_support(ask: PageRequest[SupportQuery]) -> HtmlPage:
    """Show the support of driver branches on a line of time."""
    today = clock.today()
    records = [one.record for one in read_records(ask.service, TABLE) if one.part == "branches"]
    every = read_branches(records, _targets_by_branch(ask))
    supported = [int(one.name) for one in every if one.state(today) in _SUPPORTED]
    oldest = min(supported, default=0)
    shown = [one for one in every if ask.query.all or matters(one, today, oldest)]
    rows = [_row(one, today) for one in shown]
    table = make_table(
        "support", _COLUMNS, rows, _NO_BRANCHES, sort=ask.query.sort, label="driver branches"
    )
    context = {
        "chart": draw_support(shown, today),
        "hidden": len(every) - len(shown),
        "all": ask.query.all,
        "on_ended": [one for one in shown if one.targets and one.state(today) == "ended"],
        "g": {"width": WIDTH, "left": LEFT, "right": RIGHT, "top": TOP, "row": ROW},
        "today": today,
    }
    return HtmlPage("support-lines.html", "Support of driver branches", context, table)


def matters(one: SupportedBranch, today: date, oldest: int) -> bool:
    """Return whether a branch is shown unasked: in use, maybe supported, or ended not long ago.

    Args:
        one: the branch.
        today: the date.
        oldest: number of the oldest branch that is supported.
    """
    days = [day for day in (one.end, one.last) if day]
    recent = max(days, default=date.min) > today - _RECENT
    living = one.state(today) != "ended" and int(one.name) >= oldest
    return bool(one.targets) or recent or living


def _targets_by_branch(ask: PageRequest[Any]) -> dict[int, list[str]]:
    """Return the targets of the matrix by the branches of their Linux drivers."""
    found: defaultdict[int, set[str]] = defaultdict(set)
    for name, target in ask.gate.snapshot().targets.items():
        for pool in target.pools:
            if pool.driver is not None and pool.driver_os == "linux":
                found[pool.driver.major].add(name)
    return {branch: sorted(names) for branch, names in found.items()}


def _row(one: SupportedBranch, today: date) -> tuple[Any, ...]:
    state = one.state(today)
    first, last, end = one.stated
    nothing = Cell("not in the facts", tone="muted")
    return (
        Cell(one.name, link("facts", TABLE, one.name)),
        Cell(state, tone=_TONES[state]),
        one.kind,
        first or nothing,
        last or nothing,
        end or Cell("not published", tone="muted"),
        ", ".join(one.targets),
        one.remark,
    )
