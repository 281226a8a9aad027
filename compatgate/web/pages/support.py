"""Show how long the vendor supports driver branches, and which targets are on each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any, Literal

from msgspec import Struct

from compatgate.catalog.library import Library
from compatgate.core.facts.nvidia import Branch
from compatgate.core.rules.driver import EOL_NOTICE
from compatgate.kit import clock
from compatgate.kit.http.links import link
from compatgate.kit.ui.tables import Cell, Column, EmptyNotice, TableQuery, make_table
from compatgate.service.gate.facts.api import read_records
from compatgate.web.page import HtmlPage, PageRequest, page

TABLE = "driver_branches"
_RECENT = timedelta(days=3 * 365)
_NO_BRANCHES = EmptyNotice("No driver branches.", "The fact table driver_branches has none.")
_COLUMNS = (
    Column("branch", "Branch", "name"),
    Column("state", "Support", "badge"),
    Column("type", "Type", of="branch.type"),
    Column("first", "First release", "name"),
    Column("last", "Last release seen", "name"),
    Column("end", "Supported until", "name"),
    Column("targets", "Targets"),
    Column("remark", "Remark", of="branch.note"),
)
State = Literal["supported", "ends soon", "ended", "no date"]
_TONES: dict[State, str] = {
    "supported": "ok",
    "ends soon": "warn",
    "ended": "stale",
    "no date": "unknown",
}


class BranchSupport(Struct, frozen=True):
    """The published support of a driver branch."""

    branch: Branch
    first: str
    last: str
    """Dates of its first release, and of the newest one seen; empty: not in the facts."""
    targets: tuple[str, ...]
    """Targets that declare a driver of this branch."""

    def state(self, today: date) -> State:
        """Return the state of its support on a day."""
        end = date.fromisoformat(self.branch.eol) if self.branch.eol else None
        if self.branch.ended or (end and end < today):
            return "ended"
        if end is None:
            return "no date"
        return "ends soon" if end - today < EOL_NOTICE else "supported"

    def matters(self, today: date, oldest: int) -> bool:
        """Tell whether it is listed unasked: in use, maybe supported, or ended not long ago.

        A branch without a date may be supported if it is newer than ``oldest``, which is.
        """
        newest = max(self.branch.eol or "", self.last)
        recent = newest > (today - _RECENT).isoformat()
        maybe_supported = self.state(today) != "ended" and self.branch.branch >= oldest
        return bool(self.targets) or recent or maybe_supported


class SupportQuery(TableQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Choice of branches."""

    all: Literal["yes"] | None = None


@page("/facts/support-lines", nav="facts", query=SupportQuery)
def show_support(ask: PageRequest[SupportQuery]) -> HtmlPage:
    """Show the support of driver branches, newest first."""
    today, targets = clock.today(), _targets_by_branch(ask)
    records = [
        one.record
        for one in read_records(ask.service.find(Library), TABLE)
        if one.part == "branches"
    ]
    every = read_support(ask.gate.facts.driver_branches.branches, records, targets)
    supported = [one for one in every if one.state(today) in ("supported", "ends soon")]
    oldest = min((one.branch.branch for one in supported), default=0)
    listed = [one for one in every if ask.query.all or one.matters(today, oldest)]

    def cells(one: BranchSupport) -> dict[str, Any]:
        state, number = one.state(today), str(one.branch.branch)
        unknown = Cell("not in the facts", tone="muted")
        return {
            "branch": Cell(number, link("facts", TABLE, number)),
            "state": Cell(state, tone=_TONES[state]),
            "first": one.first or unknown,
            "last": one.last or unknown,
            "end": one.branch.eol or Cell("not published", tone="muted"),
        }

    sort = ask.query.sort
    table = make_table(
        "support", _COLUMNS, listed, _NO_BRANCHES, cells, sort=sort, label="driver branches"
    )
    context = {
        "hidden": len(every) - len(listed),
        "all": ask.query.all,
        "on_ended": [one for one in listed if one.targets and one.state(today) == "ended"],
    }
    return HtmlPage("support-lines.html", "Support of driver branches", context, table)


def read_support(
    branches: Mapping[int, Branch],
    records: list[dict[str, Any]],
    targets: Mapping[int, tuple[str, ...]],
) -> list[BranchSupport]:
    """Return the support of branches, newest first; the records have the dates of releases."""
    rows = {int(row["branch"]): row for row in records}
    return [
        BranchSupport(
            branch,
            rows.get(number, {}).get("first_release_date") or "",
            rows.get(number, {}).get("last_release_date") or "",
            targets.get(number, ()),
        )
        for number, branch in sorted(branches.items(), reverse=True)
    ]


def _targets_by_branch(ask: PageRequest[Any]) -> dict[int, tuple[str, ...]]:
    """Return the targets of the matrix by the branches of their Linux drivers."""
    named: defaultdict[int, set[str]] = defaultdict(set)
    for name, target in ask.gate.snapshot().targets.items():
        for pool in target.pools:
            if pool.driver is not None and pool.driver_os == "linux":
                named[pool.driver.major].add(name)
    return {branch: tuple(sorted(names)) for branch, names in named.items()}
