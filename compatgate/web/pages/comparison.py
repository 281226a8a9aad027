"""Show what a change of a target does: what-if questions, and plans of upgrades."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.structs import replace

from compatgate.core.compare.differences import CHANGE_ORDER, Difference, Subject
from compatgate.core.compare.what_if import WhatIf
from compatgate.core.entry_stacks import known_versions
from compatgate.core.facts import Facts
from compatgate.core.request import parse_changes_text
from compatgate.core.rule import Finding
from compatgate.errors import CompatgateError
from compatgate.kit import clock
from compatgate.kit.http.links import link
from compatgate.kit.ui.tables import Cell, Column, EmptyNotice, Table, TableQuery, make_table
from compatgate.service.changes.comparison.effects import Grid, GridRow
from compatgate.service.changes.comparison.sections import report_plan
from compatgate.service.changes.comparison.service import answer_what_if, plan_upgrade
from compatgate.web.page import HtmlPage, PageRequest, page

_Text = Annotated[str, Meta(max_length=200)]
_LongText = Annotated[str, Meta(max_length=256)]
_CHANGE_COLUMNS = (
    Column("entry", "Entry"),
    Column("status", "Status", "badge"),
    Column("pool", "Pool"),
    Column("before", "Now", "badge"),
    Column("after", "Then", "badge"),
    Column("change", "Change"),
    Column("why", "Why"),
    Column("fix", "Fix"),
)
_MAX_CHANGES = 50
"""Entries and pairs that the page shows, the worst ones first; an export has them all."""
_NO_CHANGES = EmptyNotice(
    "No entries in use on this target.",
    "Blessed and deprecated entries are evaluated before and after the change.",
    "compatgate matrix import entries.yaml --reason 'what runs today'",
)
_TONES = {"breaks": "fail", "worsens": "warn", "improves": "pass", "same": "muted"}


# --- what-if ---------------------------------------------------------------------------------


class WhatIfQuery(TableQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The target, and the changes to it."""

    target: _Text = ""
    pool: _Text = ""
    driver: _Text = ""
    gpu: _Text = ""
    cuda: _Text = ""
    set: _Text = ""

    @property
    def is_change(self) -> bool:
        """Return whether a change is stated."""
        return any((self.driver, self.gpu, self.cuda, self.set))

    def body(self) -> dict[str, Any]:
        """Return the question."""
        named = {n: v for n in ("driver", "gpu", "cuda") if (v := getattr(self, n).strip())}
        changes = {**parse_changes_text(self.set), **named}
        return {"target": self.target, "pool": self.pool or None, "set": changes}


@page("/what-if", scope="plan", nav="what-if", query=WhatIfQuery)
def show_what_if(ask: PageRequest[WhatIfQuery]) -> HtmlPage:
    """Show every entry in use on a target, before and after a change."""
    query, snapshot, facts = ask.query, ask.gate.snapshot(), ask.gate.facts
    differences: WhatIf | None = None
    problem: CompatgateError | None = None
    if query.target and query.is_change:
        try:
            differences = ask.gate.compute(answer_what_if, query.body(), snapshot, clock.now())
        except CompatgateError as error:
            problem = error
    pairs = {version.major_minor for version in known_versions(facts, "cuda")}
    context: dict[str, Any] = {
        "query": query,
        "targets": sorted(snapshot.documents),
        "target": snapshot.targets.get(query.target),
        "gpus": sorted(facts.gpus.gpus),
        "drivers": list(_list_drivers(facts)),
        "cudas": [f"{major}.{minor}" for major, minor in sorted(pairs, reverse=True)],
        "found": differences,
        "findings": [finding.to_json() for finding in differences.host] if differences else [],
        "grid": _make_grid(differences) if differences else None,
        "problem": problem,
        "tally": {change: len(differences.of(change)) for change in CHANGE_ORDER}
        if differences
        else {},
        "pick": lambda **more: _what_if_link(query, **more),
        "left_out": 0,
    }
    table = _change_table(query, differences) if differences else None
    if table and query.format is None and len(table.rows) > _MAX_CHANGES:
        context["left_out"] = len(table.rows) - _MAX_CHANGES
        table = replace(table, rows=table.rows[:_MAX_CHANGES])
    return HtmlPage("what-if.html", "What if", context, table, problem.status if problem else 200)


def _what_if_link(query: WhatIfQuery, **changes: str) -> str:
    names = ("target", "pool", "driver", "gpu", "cuda", "set")
    return link("what-if", **{**{name: getattr(query, name) for name in names}, **changes})


def _list_drivers(facts: Facts) -> Iterator[tuple[str, str]]:
    """Yield the newest driver of each supported branch, newest first, with a note."""
    branches = facts.driver_branches.branches
    for number in sorted(branches, reverse=True):
        branch = branches[number]
        if branch.last is not None and not branch.ended:
            until = f", supported to {branch.eol}" if branch.eol else ""
            yield branch.last.text, f"branch {number}{until}"


def _make_grid(differences: WhatIf) -> Grid:
    """Return the entries on each pool; those that change most are shown."""
    columns = tuple(pool["name"] for pool in differences.before)
    rows = []
    for entry in differences.entries[:_MAX_CHANGES]:
        of_pool = {pool.pool: pool for pool in entry.pools}
        cells = tuple(of_pool.get(name) for name in columns)
        rows.append(GridRow(entry.name, cells, path=("entries", entry.name)))
    return Grid(columns, tuple(rows), left=len(differences.entries) - len(rows))


def _change_table(query: WhatIfQuery, differences: WhatIf) -> Table:
    rows = [row for entry in differences.entries for row in _change_rows(entry)]
    name = f"what-if-{differences.target}"
    return make_table(
        name, _CHANGE_COLUMNS, rows, _NO_CHANGES, sort=query.sort, label="pairs of entry and pool"
    )


def _change_rows(entry: Subject) -> Iterator[tuple[Any, ...]]:
    name = Cell(entry.name, link("entries", entry.name))
    if entry.open:
        yield (name, entry.status, "", "unknown", "unknown", "open", "; ".join(entry.open), "")
    for pool in entry.pools:
        yield (
            name,
            entry.status,
            pool.pool,
            pool.before,
            pool.after,
            Cell(pool.change, tone=_TONES[pool.change]),
            _explain_change(pool),
            "; ".join(fix.message for f in pool.lost for fix in f.fixes[:1]),
        )


def _explain_change(pool: Difference) -> str:
    if pool.lost:
        return _join_findings(pool.lost)
    return f"resolved: {_join_findings(pool.gained)}" if pool.gained else ""


def _join_findings(findings: tuple[Finding, ...]) -> str:
    return "; ".join(f"{finding.rule} {finding.message}" for finding in findings)


# --- plans -----------------------------------------------------------------------------------


class PlanQuery(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The upgrade to plan."""

    driver: _LongText = ""
    cuda: _LongText = ""
    set: _LongText = ""
    pool: _LongText = ""

    def body(self) -> dict[str, Any]:
        """Return the question: ``newest`` and a branch are upgrades, a release is a change."""
        upgrades, changes = [], parse_changes_text(self.set)
        for name in ("driver", "cuda"):
            value = getattr(self, name).strip()
            if value == "newest":
                upgrades.append(name)
            elif value and (name == "cuda" or value.isdigit()):
                upgrades.append(f"{name}={value}")
            elif value:
                changes[name] = value
        body = {"set": changes, "upgrade": upgrades, "pool": self.pool or None}
        return {key: value for key, value in body.items() if value}


@page("/targets/<name>/plan", scope="plan", nav="targets", query=PlanQuery)
def show_plan(ask: PageRequest[PlanQuery]) -> HtmlPage:
    """Show what an upgrade breaks, required canary runs, and the order of pools and waves."""
    name, query, gate = ask.args["name"], ask.query, ask.gate
    row = ask.rooms.matrix.get("Target", name)
    plan: dict[str, Any] | None = None
    problem: CompatgateError | None = None
    if query.driver or query.cuda or query.set:
        try:
            plan = plan_upgrade(gate, ask.rooms.matrix, ask.rooms.nodes, name, query.body())
        except CompatgateError as error:
            problem = error
    target = gate.snapshot().targets.get(name)
    context = {
        "row": row,
        "query": query,
        "found": plan,
        "problem": problem,
        "pools": [pool.name for pool in target.pools] if target else [],
        "branches": [
            str(branch.branch)
            for branch in gate.facts.driver_branches.branches.values()
            if branch.last is not None
        ],
        "sections": report_plan(plan).parts if plan else [],
        "upgrade": _upgrade_link(ask, name, plan) if plan else None,
    }
    status = problem.status if problem else 200
    return HtmlPage("plan.html", f"{name}: plan an upgrade", context, None, status)


def _upgrade_link(ask: PageRequest[PlanQuery], target: str, plan: dict[str, Any]) -> str | None:
    """Return the form that makes a plan an upgrade; None: the caller may not, or nothing rolls."""
    driver = plan["set"].get("driver")
    if not driver or len(plan["set"]) > 1 or not ask.principal.may("upgrade"):
        return None
    if not plan["order"]["waves"]:
        return None
    name = f"{target}-{driver}"[:128].rstrip(".-_")
    return link("new-upgrade", name=name, target=target, driver=driver, pool=ask.query.pool)
