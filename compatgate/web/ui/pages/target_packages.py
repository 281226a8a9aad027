"""What ``packages: enforce`` would stop on one target."""

from __future__ import annotations

from compatgate.web.ui.links import link
from compatgate.web.ui.listing import Listing
from compatgate.web.ui.page import Ask, Shown, page
from compatgate.web.ui.tables import Cell, Column, Empty, Table, make
from compatgate.wire.packages import DAYS, PackagesTargetBody


@page("/targets/<name>/packages", nav="targets", query=Listing)
def show(ask: Ask[Listing]) -> Shown:
    """One target: packages that nothing judges, and what enforcing would stop."""
    name = ask.args["name"]
    row = ask.gate.matrix.get("Target", name)
    report = ask.gate.matrix.packages_report(target=name)
    found = report.targets[0] if report.targets else None
    context = {"row": row, "days": DAYS, "found": found, "complete": report.complete}
    table = _packages(found, ask.query.sort)
    return Shown("target_packages.html", f"{name}: packages", context, table=table)


def _packages(found: PackagesTargetBody | None, sort: str | None) -> Table:
    columns = (
        Column("package", "Package"),
        Column("version", "Version", "code"),
        Column("rules", "Rule"),
        Column("decisions", "Decisions", "number"),
        Column("stopped", "Would stop", "number"),
        Column("first", "First seen", "time"),
        Column("last", "Last seen", "time"),
        Column("entries", "Entries"),
        Column("todo", "Ways to settle it"),
    )
    lines = [
        (
            Cell(
                one.package,
                href=link("verdicts", one.verdicts[0]) if one.verdicts else None,
                title=one.message,
            ),
            one.version,
            ", ".join(one.rules),
            one.decisions,
            Cell(one.stopped, tone="fail" if one.stopped else ""),
            one.first,
            one.last,
            ", ".join(one.entries),
            "; ".join(one.todo),
        )
        for one in (found.packages if found else ())
    ]
    empty = Empty("No unknown packages.")
    return make("packages", columns, lines, empty, sort=sort, label="packages")
