"""Show the matrix as a heat map, list entries, and change their status."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from compatgate.core.components import COMPONENTS, in_order
from compatgate.core.matrix import Status
from compatgate.core.representative import EntryStacks, represent
from compatgate.errors import CompatgateError
from compatgate.kit import clock
from compatgate.kit.http.links import here, link
from compatgate.kit.http.replies import Filter, Search
from compatgate.kit.ui.filters import label
from compatgate.kit.ui.tables import (
    NOTHING_FITS,
    Cell,
    Column,
    Empty,
    Listing,
    LongListing,
    Table,
    found_by,
    make_table,
    table_of,
)
from compatgate.service.gate.question_links import describe_pair, preview_represented
from compatgate.service.matrix.fits import Fits, fits_of
from compatgate.service.matrix.heatmap import (
    ColumnsBy,
    HeatMap,
    MapSection,
    Pair,
    RowsBy,
    build,
    columns,
    of_entry,
    pairs_of,
    rows,
)
from compatgate.service.matrix.models import StoredDocument
from compatgate.service.matrix.service import VERBS
from compatgate.service.runs.promotion import Remarks
from compatgate.service.web.page import (
    MOST_CHOICES,
    HtmlPage,
    PageRequest,
    Redirect,
    choices,
    expected_revision,
    page,
)

HEIGHT, WIDTH = 60, 30
"""Rows and columns on a page: a phone can draw 1,800 cells and a slow line can carry them."""
_SECONDS = 0.08
_MOST_PAIRS = 40
_Place = Annotated[int, Meta(ge=0, le=1_000_000)]
_Word = Annotated[str, Meta(max_length=200)]


class MatrixQuery(Listing, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The section of the map, its filters, and the open cell."""

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
def show_matrix(ask: PageRequest[MatrixQuery]) -> HtmlPage:
    """Show the map, and explain the open cell."""
    query, snapshot, now = ask.query, ask.gate.snapshot(), clock.now()
    fits = fits_of(ask.gate.facts)
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
    found = build(snapshot, asked, fits, now, _SECONDS)
    cell = _map_cell(ask, fits) if query.row and query.column else None
    context = {
        "map": found,
        "query": query,
        "cell": cell,
        "pages": _pages(query, found),
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


def _pages(query: MatrixQuery, found: HeatMap) -> dict[str, str | None]:
    """Return links to the adjacent sections."""
    top, left = query.top, query.left
    return {
        "up": here(top=max(0, top - HEIGHT) or None) if top else None,
        "down": here(top=top + HEIGHT) if top + HEIGHT < found.rows_total else None,
        "before": here(left=max(0, left - WIDTH) or None) if left else None,
        "after": here(left=left + WIDTH) if left + WIDTH < found.columns_total else None,
    }


def _map_table(ask: PageRequest[MatrixQuery], asked: MapSection, fits: Fits) -> Table | None:
    """Return the whole filtered map for export: one line per pair."""
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
    return make_table("matrix", [Column(n, n) for n in names], lines, Empty("nothing"))


def _map_cell(ask: PageRequest[MatrixQuery], fits: Fits) -> dict[str, Any] | None:
    """Explain a cell: one entry in full, several as a list."""
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
        "about": describe_pair(ask, single) if single else None,
    }


TARGETS = 40
"""Most targets on the page of an entry; the matrix shows all."""
REVISIONS = 20
_STATUSES = ("candidate", "blessed", "deprecated", "revoked")
_COLUMNS = (
    Column("name", "Entry"),
    Column("status", "Status", "badge"),
    Column("constraints", "Constraints", "code"),
    Column("targets", "Targets"),
    Column("runs", "Canary runs"),
    Column("replacement", "Replacement"),
    Column("changed", "Changed", "time"),
)
_EMPTY = Empty(
    "No entries yet.",
    "An entry states which versions are known to work on which targets.",
    "compatgate matrix import entries.yaml --reason 'what runs today'",
)


class EntryQuery(LongListing, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of entries."""

    search: Search | None = None
    status: Status | None = None
    target: Filter | None = None
    component: Filter | None = None


@page("/entries", nav="entries", query=EntryQuery)
def show_entries(ask: PageRequest[EntryQuery]) -> HtmlPage:
    """Show entries by name, with the state of their canary runs."""
    query, names = ask.query, ask.gate.snapshot().documents
    found = found_by(ask.gate.matrix.list_entries, query)
    said = ask.gate.runs.remarks(row.name for row in found.items)
    lines = [_entry_row(row, said[row.name]) for row in found.items]
    table = table_of("entries", _COLUMNS, lines, found, query, _EMPTY, unfit=NOTHING_FITS)
    context = {
        "query": query,
        "statuses": _STATUSES,
        "targets": choices(names),
        "components": list(COMPONENTS),
    }
    return HtmlPage("entries.html", "Entries", context, table=table)


def _entry_row(row: StoredDocument, remarks: Remarks) -> tuple[Any, ...]:
    spec = row.document["spec"]
    return (
        Cell(row.name, href=link("entries", row.name), note=spec.get("reason", "")),
        spec["status"],
        " · ".join(f"{name} {spec['components'][name]}" for name in in_order(spec["components"])),
        ", ".join(spec["targets"]),
        _remark(remarks),
        spec.get("replacement"),
        row.updated_at,
    )


def _remark(remarks: Remarks) -> Cell:
    if remarks.warnings:
        return Cell("contradicted", tone="fail", title=remarks.warnings[0].message)
    if remarks.promotion is None:
        return Cell(None)
    state = remarks.promotion.state
    words = {"ready": "ready for approval", "failed": "run failed", "waiting": "waiting for runs"}
    tones = {"ready": "pass", "failed": "fail", "waiting": "muted"}
    return Cell(words[state], tone=tones[state])


@page("/entries/<name>", nav="entries", query=Listing)
def show_entry(ask: PageRequest[Listing]) -> HtmlPage:
    """Show an entry."""
    return _entry_page(ask, ask.gate.matrix.get("Entry", ask.args["name"]))


@page("/entries/<name>/status", scope="bless", method="POST", nav="entries")
def change_entry(ask: PageRequest[Any]) -> HtmlPage | Redirect:
    """Bless, deprecate or revoke an entry, unless someone else changed it."""
    name, form = ask.args["name"], ask.form
    matrix, status = ask.gate.matrix, form.get("status", "")
    try:
        made = matrix.restate(
            name,
            status,
            ask.by(),
            replacement=form.get("replacement", "").strip(),
            expected=expected_revision(form),
        )
    except CompatgateError as error:
        return _entry_page(ask, matrix.get("Entry", name), error)
    return Redirect(
        link("entries", name), done=f"{name} is {status} since revision {made.revision}."
    )


def _entry_page(
    ask: PageRequest[Any], row: StoredDocument, error: CompatgateError | None = None
) -> HtmlPage:
    gate, snapshot, now = ask.gate, ask.gate.snapshot(), clock.now()
    entry = snapshot.entries.get(row.name)
    represented = represent(entry, gate.facts) if entry else EntryStacks()
    pairs: list[Pair] = []
    total = 0
    if entry is not None:
        pairs, total = of_entry(snapshot, entry, fits_of(gate.facts), now, TARGETS)
    spec = row.document["spec"]
    context = {
        "row": row,
        "spec": spec,
        "constraints": [(label(n), spec["components"][n]) for n in in_order(spec["components"])],
        "replacement": spec.get("replacement"),
        "replaced_by_entry": spec.get("replacement") in snapshot.entries,
        "remarks": gate.runs.remarks([row.name])[row.name],
        "targets_total": total,
        "targets_shown": TARGETS,
        "open": represented.open,
        "verbs": {status: verb for status, verb in VERBS.items() if status != spec["status"]},
        "names": sorted(snapshot.entries)[:MOST_CHOICES],
        "history": gate.matrix.list_changes("Entry", row.name, limit=REVISIONS),
        "error": error,
        "typed": ask.form,
    }
    sort = getattr(ask.query, "sort", None)
    table = _standing(ask, pairs, represented, sort)
    return HtmlPage(
        "entry.html", row.name, context, table=table, status=error.status if error else 200
    )


def _standing(
    ask: PageRequest[Any], pairs: list[Pair], represented: EntryStacks, sort: str | None
) -> Table:
    columns = (
        Column("target", "Target"),
        Column("status", "Status", "badge"),
        Column("gate", "Verdict", "badge"),
        Column("why", "Why"),
        Column("ask", "Ask"),
    )
    lines = []
    for pair in pairs:
        said = preview_represented(ask, pair.target, represented)
        verdict = said["verdict"]
        first = next(iter(verdict["findings"]), None) if verdict else None
        found = f"{first['rule']}: {first['message']}" if first else ""
        lines.append(
            (
                Cell(pair.target, href=link("targets", pair.target)),
                Cell(pair.status),
                Cell(verdict["verdict"]) if verdict else None,
                pair.why or found,
                Cell("ask", href=said["ask"]) if verdict and ask.principal.may("gate") else None,
            )
        )
    empty = Empty(
        "No pool matches.",
        "None of the entry's targets has one of the entry's GPUs.",
    )
    return make_table("targets", columns, lines, empty, sort=sort, label="targets")
