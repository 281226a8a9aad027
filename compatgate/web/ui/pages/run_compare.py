"""Two runs side by side."""

from __future__ import annotations

from typing import Any

from compatgate.errors import CompatgateError
from compatgate.gate.runs.comparison import Changed, Comparison, compare_runs
from compatgate.gate.runs.explained import signed
from compatgate.web.paging import Filter
from compatgate.web.ui.links import link
from compatgate.web.ui.listing import Listing
from compatgate.web.ui.page import Ask, Shown, page
from compatgate.web.ui.tables import Cell, Column, Empty, Table, make

_COLUMNS = (
    Column("step", "Step", "name"),
    Column("metric", "Metric", "name"),
    Column("a", "First, median", "number"),
    Column("b", "Second, median", "number"),
    Column("unit", "Unit"),
    Column("change", "Change, %", "number"),
    Column("tolerance", "Tolerance, %", "number"),
    Column("beyond", "Beyond tolerance"),
    Column("outcome", "Verdict", "badge"),
)
_EMPTY = Empty("The two runs have no metric in common.", "Compare runs of the same suite.")


class Pair(Listing, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which two runs; the second is held against the first."""

    a: Filter | None = None
    b: Filter | None = None


@page("/runs/compare", nav="runs", query=Pair)
def show(ask: Ask[Pair]) -> Shown:
    """What differs between two runs."""
    query = ask.query
    context: dict[str, Any] = {"a": None, "b": None, "found": None, "problem": None}
    table = None
    if query.a and query.b:
        try:
            a, b = ask.gate.runs.show(query.a), ask.gate.runs.show(query.b)
        except CompatgateError as error:
            context["problem"] = error
        else:
            found = compare_runs(a, b, _specs(ask), ask.gate.facts.gpus)
            context |= {"a": a, "b": b, "found": found}
            table = _table(found, query.sort)
    status = context["problem"].status if context["problem"] else 200
    recent = ask.gate.runs.list(state="ended", limit=50).items
    context |= {"query": query, "recent": recent, "swapped": _swapped(query)}
    return Shown("run-compare.html", "Compare two runs", context, table, status)


def _swapped(query: Pair) -> str:
    return link("runs", "compare", a=query.b, b=query.a)


def _specs(ask: Ask[Any]) -> dict[str, Any]:
    return {name: w.metrics for name, w in ask.gate.runs.catalogue().workloads.items()}


def _table(found: Comparison, sort: str | None) -> Table:
    rows = [_row(one) for one in found.metrics]
    return make("compare", _COLUMNS, rows, _EMPTY, sort=sort, label="metrics")


def _row(one: Changed) -> tuple[Any, ...]:
    judged = one.judged
    percent = None if one.change is None else round(100 * one.change, 2)
    note = "" if one.change is None else signed(one.change)
    return (
        one.step,
        judged.name,
        Cell(one.medians[0], title=f"{one.a} values"),
        Cell(one.medians[1], title=f"{one.b} values"),
        one.unit,
        Cell(percent, tone="fail" if one.beyond else "", title=note),
        round(100 * judged.tolerance, 2),
        Cell("yes" if one.beyond else "no", tone="fail" if one.beyond else "muted"),
        Cell(judged.outcome, title=judged.reason, note=judged.reason),
    )
