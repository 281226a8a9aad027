"""The matrix as a heat map, and the reason of each of its cells."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from compatgate.core.matrix import Status
from compatgate.gate.heatmap import Asked, Fits, HeatMap, build, fits_of, pairs_of
from compatgate.gate.heatmap.axes import ColumnsBy, RowsBy, columns, rows
from compatgate.store import clock
from compatgate.web.ui.about import about
from compatgate.web.ui.links import here
from compatgate.web.ui.listing import Listing
from compatgate.web.ui.page import Ask, Shown, page
from compatgate.web.ui.tables import Column, Empty, Table, make

HEIGHT, WIDTH = 60, 30
"""Cells on a page: 1,800, which a phone can draw and a slow line can carry."""
_SECONDS = 0.08
_MOST_PAIRS = 40
_Place = Annotated[int, Meta(ge=0, le=1_000_000)]
_Word = Annotated[str, Meta(max_length=200)]


class MatrixQuery(Listing, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which part of the map, by what, and which cell is open."""

    rows: RowsBy = "entry"
    columns: ColumnsBy = "target"
    q: _Word = ""
    places: _Word = ""
    status: Status | None = None
    top: _Place = 0
    left: _Place = 0
    row: _Word | None = None
    column: _Word | None = None


@page("/matrix", nav="matrix", query=MatrixQuery)
def show(ask: Ask[MatrixQuery]) -> Shown:
    """The map, with one of its cells explained."""
    query, snapshot, now = ask.query, ask.gate.snapshot(), clock.now()
    fits = fits_of(ask.gate.facts)
    asked = Asked(
        query.rows,
        query.columns,
        query.q,
        query.places,
        query.status,
        query.top,
        query.left,
        HEIGHT,
        WIDTH,
    )
    found = build(snapshot, asked, fits, now, _SECONDS)
    cell = _cell(ask, fits) if query.row and query.column else None
    context = {
        "map": found,
        "query": query,
        "cell": cell,
        "pages": _pages(query, found),
        "legend": _LEGEND,
        "letters": {status: letter for letter, status, _ in _LEGEND},
    }
    return Shown("matrix.html", "Matrix", context, table=_table(ask, asked, fits))


_LEGEND = (
    ("b", "blessed", "blessed"),
    ("c", "candidate", "candidate"),
    ("d", "deprecated", "deprecated"),
    ("r", "revoked", "revoked"),
    ("i", "incompatible", "incompatible by the vendors' facts"),
    ("u", "unknown", "unknown"),
    ("e", "elsewhere", "for another driver"),
)


def _pages(query: MatrixQuery, found: HeatMap) -> dict[str, str | None]:
    """Where the parts beside this one are."""
    top, left = query.top, query.left
    return {
        "up": here(top=max(0, top - HEIGHT) or None) if top else None,
        "down": here(top=top + HEIGHT) if top + HEIGHT < found.rows_total else None,
        "before": here(left=max(0, left - WIDTH) or None) if left else None,
        "after": here(left=left + WIDTH) if left + WIDTH < found.columns_total else None,
    }


def _table(ask: Ask[MatrixQuery], asked: Asked, fits: Fits) -> Table | None:
    """The whole map, as filtered, for export: one line for each pair."""
    if ask.query.format is None:
        return None
    snapshot, now = ask.gate.snapshot(), clock.now()
    across = columns(snapshot, asked.columns, asked.places)
    lines = [
        (pair.entry.name, column.label, pair.status, "yes" if pair.open else "", pair.why)
        for row in rows(snapshot, asked.rows, asked.search, asked.status)
        for column in across
        for pair in pairs_of(row, column, fits, now)
    ]
    names = ("entry", asked.columns, "status", "open", "why")
    return make("matrix", [Column(n, n) for n in names], lines, Empty("nothing"))


def _cell(ask: Ask[MatrixQuery], fits: Fits) -> dict[str, Any] | None:
    """What there is to say of a cell: one entry on one target whole, several as a list."""
    query, snapshot, now = ask.query, ask.gate.snapshot(), clock.now()
    row = next((r for r in rows(snapshot, query.rows) if r.key == query.row), None)
    column = next((c for c in columns(snapshot, query.columns) if c.key == query.column), None)
    if row is None or column is None:
        return None
    pairs = pairs_of(row, column, fits, now)
    single = pairs[0] if len(pairs) == 1 else None
    return {
        "row": row,
        "column": column,
        "pairs": pairs[:_MOST_PAIRS],
        "more": len(pairs) - _MOST_PAIRS,
        "pair": single,
        "about": about(ask, single) if single else None,
    }
