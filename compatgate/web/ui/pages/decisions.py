"""The decision log: what was asked, and what the gate answered."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from compatgate.core.verdict import Outcome
from compatgate.store.rows import DecisionRow
from compatgate.web.paging import Filter
from compatgate.web.query import Since, Until
from compatgate.web.ui.links import link
from compatgate.web.ui.listing import LongListing, found_by, is_narrowed
from compatgate.web.ui.page import Ask, Shown, page
from compatgate.web.ui.tables import NOTHING_FITS, Cell, Column, Empty, Table, make

DAYS = 14
_COLUMNS = (
    Column("decided_at", "Decided", "time"),
    Column("target", "Target"),
    Column("verdict", "Verdict", "badge"),
    Column("allowed", "Answer", "badge"),
    Column("image", "Image", "code"),
    Column("asked_by", "Asked by"),
    Column("source", "Source"),
    Column("revision", "Revision", "number"),
    Column("took", "Duration, ms", "number"),
)
_EMPTY = Empty(
    "No decisions yet.",
    "The log holds every question to the gate, with its answer.",
    "compatgate check --target NAME --stack cuda=12.4,torch=2.4.1",
)
Answer = Literal["yes", "no"]


class DecisionQuery(LongListing, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which decisions."""

    target: Filter | None = None
    verdict: Outcome | None = None
    verdict_id: Filter | None = None
    allowed: Annotated[Answer, Meta(description="what the policy made of it")] | None = None
    source: Filter | None = None
    asked_by: Filter | None = None
    image: Filter | None = None
    since: Since | None = None
    until: Until | None = None


@page("/decisions", nav="decisions", query=DecisionQuery)
def show(ask: Ask[DecisionQuery]) -> Shown:
    """The log, newest first, below the last two weeks as bars."""
    query, history = ask.query, ask.gate.history
    found = found_by(
        history.list_decisions,
        query,
        allowed=None if query.allowed is None else query.allowed == "yes",
    )
    context = {
        "query": query,
        "counted": history.decisions_per_day(DAYS, target=query.target),
        "outcomes": ("pass", "warn", "unknown", "fail"),
    }
    table = listed(found.items, sort=query.sort, following=found.next)
    return Shown("decisions.html", "Decisions", context, table=table)


def listed(rows: Any, *, sort: str | None = None, following: str | None = None) -> Table:
    """Decisions as a table."""
    lines = [_line(row) for row in rows]
    return make(
        "decisions",
        _COLUMNS,
        lines,
        NOTHING_FITS if is_narrowed() else _EMPTY,
        sort=sort,
        following=following,
        label="decisions",
    )


def _line(row: DecisionRow) -> tuple[Any, ...]:
    verdict = link("verdicts", row.verdict_id)
    return (
        Cell(row.decided_at, href=verdict),
        Cell(row.target, href=link("targets", row.target)) if row.target else "a pool",
        Cell(row.outcome, href=verdict, title=row.verdict_id),
        answer(row),
        row.image,
        row.asked_by,
        row.source,
        Cell(row.matrix_revision, href=link("revisions", row.matrix_revision))
        if row.matrix_revision
        else None,
        row.duration_us / 1000,
    )


def answer(row: DecisionRow) -> Cell:
    """What the policy made of a verdict."""
    if row.allowed:
        return Cell("allowed")
    if row.outcome == "unknown":
        return Cell("no decision", tone="unknown")
    return Cell("denied")
