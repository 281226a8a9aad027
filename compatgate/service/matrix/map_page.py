"""Show the matrix as a heat map: stacks as rows, pools as columns, and a status for each pair.

Only the cells on the page are evaluated.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date, datetime
from typing import Annotated, Any, Literal
from weakref import WeakKeyDictionary

from msgspec import Meta, Struct
from msgspec.structs import replace

from compatgate.core.components import is_framework, label_of, sort_components
from compatgate.core.matrix import Entry, EntryStatus, Matrix
from compatgate.core.performance import MIB, BoundedCache
from compatgate.core.request import Target
from compatgate.core.versions import natural_key
from compatgate.kit import clock
from compatgate.kit.http.links import current_page_link
from compatgate.kit.ui.tables import Column, EmptyNotice, Table, TableQuery, make_table
from compatgate.service.gate.question_links import describe_pair
from compatgate.service.gate.snapshot import Snapshot
from compatgate.service.matrix.pairs import (
    PENDING,
    SEVERITY,
    FitCache,
    MapColumn,
    MapPlace,
    MapRow,
    Pair,
    SpotStatus,
    evaluate_pair,
    format_constraints,
    list_pairs,
    list_places,
    make_target_column,
    shared_fit_cache,
)
from compatgate.service.web.page import HtmlPage, PageRequest, page


class Spot(Struct, frozen=True):
    """A cell of the map.

    Attributes:
        status: the best of its entries; None: no entry names these places.
        count: number of entries.
        open: the facts do not decide.
        pending: not evaluated in time.
    """

    status: SpotStatus | None
    count: int = 0
    open: bool = False
    pending: bool = False


class HeatMap(Struct, frozen=True):
    """A section of the map.

    Attributes:
        spots: one sequence per row, with one spot per column.
        rows_total: rows of the whole map.
        columns_total: columns of the whole map.
        pending: some spots are not evaluated yet.
    """

    rows: tuple[MapRow, ...]
    columns: tuple[MapColumn, ...]
    spots: tuple[tuple[Spot, ...], ...]
    rows_total: int
    columns_total: int
    pending: bool


RowKind = Literal["entry", "driver", "cuda", "cudnn", "framework"]
ColumnKind = Literal["target", "gpu", "driver"]
NO_CONSTRAINT = "any"


def list_rows(
    snapshot: Snapshot, by: RowKind, search: str = "", status: EntryStatus | None = None
) -> list[MapRow]:
    """Return the rows in natural order of their keys.

    Args:
        snapshot: with the entries.
        by: kind of rows.
        search: words that must all occur in an entry's name, constraints or reason.
        status: of the entries; None: any.
    """
    words = search.casefold().split()
    entries = [
        entry
        for entry in snapshot.entries.values()
        if (status is None or entry.status == status) and _entry_matches(entry, words)
    ]
    if by == "entry":
        found = [MapRow(e.name, e.name, format_constraints(e), (e,)) for e in entries]
    else:
        found = [
            _group_row(key, group) for key, group in _group_entries(entries, _key_function(by))
        ]
    return sorted(found, key=lambda row: natural_key(row.key))


def list_columns(snapshot: Snapshot, by: ColumnKind, search: str = "") -> list[MapColumn]:
    """Return the columns in natural order of their keys.

    Args:
        snapshot: with the targets.
        by: kind of columns.
        search: words that must all occur in a target's name, labels, GPUs or drivers.
    """
    words = search.casefold().split()
    names = [name for name in snapshot.documents if _target_matches(snapshot, name, words)]
    if by == "target":
        found = [make_target_column(snapshot, name) for name in names]
    else:
        found = _place_columns((snapshot.targets[n] for n in names if n in snapshot.targets), by)
    return sorted(found, key=lambda column: natural_key(column.key))


def _entry_matches(entry: Entry, words: Sequence[str]) -> bool:
    if not words:
        return True
    text = f"{entry.name} {format_constraints(entry)} {entry.reason}".casefold()
    return all(word in text for word in words)


def _target_matches(snapshot: Snapshot, name: str, words: Iterable[str]) -> bool:
    spec = snapshot.documents[name]
    labels = " ".join(f"{key}={value}" for key, value in (spec.metadata.labels or {}).items())
    pools = " ".join(f"{pool.gpu} {pool.driver}" for pool in spec.spec.pools)
    text = f"{name} {labels} {pools}".casefold()
    return all(word in text for word in words)


def _key_function(by: RowKind) -> Callable[[Entry], list[str]]:
    def of_framework(entry: Entry) -> list[str]:
        named = [name for name in sort_components(entry.components) if is_framework(name)]
        return [f"{label_of(n)} {entry.components[n]}" for n in named] or [NO_CONSTRAINT]

    def of_component(entry: Entry) -> list[str]:
        constraint = entry.components.get(by)
        return [str(constraint) if constraint else NO_CONSTRAINT]

    return of_framework if by == "framework" else of_component


def _group_entries(
    entries: Iterable[Entry], keys: Callable[[Entry], list[str]]
) -> Iterator[tuple[str, list[Entry]]]:
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        for key in keys(entry):
            groups.setdefault(key, []).append(entry)
    yield from groups.items()


def _group_row(key: str, entries: list[Entry]) -> MapRow:
    note = entries[0].name if len(entries) == 1 else f"{len(entries)} entries"
    return MapRow(key, key, note, tuple(entries))


def _place_columns(targets: Iterable[Target], by: ColumnKind) -> list[MapColumn]:
    groups: dict[str, list[MapPlace]] = {}
    for target in targets:
        for pool in target.pools:
            if by == "gpu":
                key = pool.gpu.sku if pool.gpu else NO_CONSTRAINT
            else:
                key = pool.driver.text if pool.driver else NO_CONSTRAINT
            groups.setdefault(key, []).extend(list_places(target, (pool,)))
    return [
        MapColumn(key, key, ", ".join(dict.fromkeys(p.target for p in places)), tuple(places))
        for key, places in groups.items()
    ]


class MapSection(Struct, frozen=True):
    """A section of the map to draw.

    Attributes:
        rows: kind of rows.
        columns: kind of columns.
        search: words in entries.
        places: words in targets.
        status: of the entries; None: any.
        top: number of rows above the section.
        left: number of columns before the section.
        height: number of rows.
        width: number of columns.
    """

    rows: RowKind = "entry"
    columns: ColumnKind = "target"
    search: str = ""
    places: str = ""
    status: EntryStatus | None = None
    top: int = 0
    left: int = 0
    height: int = 60
    width: int = 30


_SpotKey = tuple[tuple[str, date, MapSection], str, str]
_SPOTS_BYTES, _SPOT_BYTES = 8 * MIB, 400
_spots: WeakKeyDictionary[Matrix, BoundedCache[_SpotKey, Spot]] = WeakKeyDictionary()
"""The spots of a state of the matrix; rows and columns with a filter are others than without."""


def build_map(
    snapshot: Snapshot, asked: MapSection, fits: FitCache, now: datetime, seconds: float
) -> HeatMap:
    """Return a section of the map.

    Args:
        snapshot: with the matrix.
        asked: the section.
        fits: cache of outcomes.
        now: for ends of life.
        seconds: time to evaluate new pairs; the rest stays pending.
    """
    all_rows = list_rows(snapshot, asked.rows, asked.search, asked.status)
    all_columns = list_columns(snapshot, asked.columns, asked.places)
    down = tuple(all_rows[asked.top : asked.top + asked.height])
    across = tuple(all_columns[asked.left : asked.left + asked.width])
    deadline = time.monotonic() + seconds
    known = _spots.setdefault(snapshot.matrix, BoundedCache(_SPOTS_BYTES))
    about = (fits.digest, now.date(), replace(asked, top=0, left=0, height=0, width=0))

    def find(row: MapRow, column: MapColumn) -> Spot:
        key = (about, row.key, column.key)
        spot = known.peek(key)
        if spot is None:
            spot = _evaluate_spot(row, column, fits, now, deadline)
            if not spot.pending:
                known.put(key, spot, _SPOT_BYTES)
        return spot

    spots = tuple(tuple(find(row, column) for column in across) for row in down)
    pending = any(spot.pending for line in spots for spot in line)
    return HeatMap(down, across, spots, len(all_rows), len(all_columns), pending)


def _evaluate_spot(
    row: MapRow, column: MapColumn, fits: FitCache, now: datetime, deadline: float
) -> Spot:
    found: list[Pair] = []
    pending = False
    for entry in row.entries:
        pair = evaluate_pair(entry, column, fits, now, deadline)
        if pair is not None:
            found.append(pair)
            pending = pending or pair.why == PENDING
    if not found:
        return Spot(None)
    best = min(found, key=lambda pair: SEVERITY[pair.status])
    return Spot(best.status, len(found), best.open, pending)


HEIGHT, WIDTH = 60, 30
"""Rows and columns on a page: a phone can draw 1,800 cells and a slow line can carry them."""
_EVALUATION_SECONDS = 0.05
_MAX_PAIRS = 40
_Offset = Annotated[int, Meta(ge=0, le=1_000_000)]
_Word = Annotated[str, Meta(max_length=200)]


class MatrixQuery(TableQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The section of the map, its filters, and the open cell."""

    rows: RowKind = "entry"
    columns: ColumnKind = "target"
    q: _Word = ""
    places: _Word = ""
    status: EntryStatus | None = None
    top: _Offset = 0
    left: _Offset = 0
    row: _Word | None = None
    column: _Word | None = None


@page("/matrix", nav="matrix", query=MatrixQuery)
def show_matrix(ask: PageRequest[MatrixQuery]) -> HtmlPage:
    """Show the map, and explain the open cell."""
    query, snapshot, now = ask.query, ask.gate.snapshot(), clock.now()
    fits = shared_fit_cache(ask.gate.facts)
    asked = MapSection(
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
    found = build_map(snapshot, asked, fits, now, _EVALUATION_SECONDS)
    cell = _map_cell(ask, fits) if query.row and query.column else None
    context = {
        "map": found,
        "query": query,
        "cell": cell,
        "pages": _section_links(query, found),
        "legend": _LEGEND,
        "letters": {status: letter for letter, status, _ in _LEGEND},
    }
    return HtmlPage("matrix.html", "Matrix", context, table=_map_table(ask, asked, fits))


_LEGEND = (
    ("b", "blessed", "blessed"),
    ("c", "candidate", "candidate"),
    ("d", "deprecated", "deprecated"),
    ("r", "revoked", "revoked"),
    ("i", "incompatible", "incompatible by the vendors' facts"),
    ("u", "unknown", "unknown"),
    ("e", "elsewhere", "for another driver"),
)


def _section_links(query: MatrixQuery, found: HeatMap) -> dict[str, str | None]:
    """Return links to the adjacent sections."""
    top, left = query.top, query.left
    return {
        "up": current_page_link(top=max(0, top - HEIGHT) or None) if top else None,
        "down": current_page_link(top=top + HEIGHT) if top + HEIGHT < found.rows_total else None,
        "before": current_page_link(left=max(0, left - WIDTH) or None) if left else None,
        "after": current_page_link(left=left + WIDTH)
        if left + WIDTH < found.columns_total
        else None,
    }


def _map_table(ask: PageRequest[MatrixQuery], asked: MapSection, fits: FitCache) -> Table | None:
    """Return the whole filtered map for export: one line per pair."""
    if ask.query.format is None:
        return None
    snapshot, now = ask.gate.snapshot(), clock.now()
    across = list_columns(snapshot, asked.columns, asked.places)
    lines = [
        (pair.entry.name, column.label, pair.status, "yes" if pair.open else "", pair.why)
        for row in list_rows(snapshot, asked.rows, asked.search, asked.status)
        for column in across
        for pair in list_pairs(row, column, fits, now)
    ]
    names = ("entry", asked.columns, "status", "open", "why")
    return make_table("matrix", [Column(n, n) for n in names], lines, EmptyNotice("nothing"))


def _map_cell(ask: PageRequest[MatrixQuery], fits: FitCache) -> dict[str, Any] | None:
    """Explain a cell: one entry in full, several as a list."""
    query, snapshot, now = ask.query, ask.gate.snapshot(), clock.now()
    row = next((r for r in list_rows(snapshot, query.rows) if r.key == query.row), None)
    column = next((c for c in list_columns(snapshot, query.columns) if c.key == query.column), None)
    if row is None or column is None:
        return None
    pairs = list_pairs(row, column, fits, now)
    single = pairs[0] if len(pairs) == 1 else None
    return {
        "row": row,
        "column": column,
        "pairs": pairs[:_MAX_PAIRS],
        "more": len(pairs) - _MAX_PAIRS,
        "pair": single,
        "about": describe_pair(ask, single) if single else None,
    }
