"""Show what runs where: stacks as rows, places as columns, and the gate's answer in every cell.

Only the cells on the page are answered, those that take too long in a second request.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from msgspec import Meta
from msgspec.structs import asdict, replace

from compatgate.core.cells import CellAnswer, StackRow
from compatgate.core.rule import Verdict
from compatgate.core.stack import format_stack
from compatgate.errors import BadInput
from compatgate.kit import clock
from compatgate.kit.http.links import current_page_link, link
from compatgate.kit.ui.tables import Cell, Column, EmptyNotice, Table, TableQuery, make_table
from compatgate.service.gate.cells.cells import (
    CellColumn,
    CellColumns,
    CellSection,
    CellTable,
    build_table,
    find_answer,
)
from compatgate.service.matrix.snapshots.snapshot import Snapshot
from compatgate.web.page import HtmlPage, PageRequest, Redirect, page
from compatgate.web.pages.question_links import Question

HEIGHT, WIDTH = 50, 24
_SECONDS = 0.05
_MAX_EXPORTED = 20_000
_Offset = Annotated[int, Meta(ge=0, le=1_000_000)]
_Word = Annotated[str, Meta(max_length=400)]
LEGEND = (
    ("works", "b", "✓", "works"),
    ("note", "d", "!", "works, with a note"),
    ("waived", "d", "w", "waived"),
    ("unblessed", "c", "○", "not blessed yet"),
    ("unknown", "u", "?", "unknown"),
    ("fails", "r", "✕", "cannot work, or revoked"),
)
"""State, class of its colour, sign, and words."""
TONES = {state: (tone, sign, words) for state, tone, sign, words in LEGEND}


class CellsQuery(TableQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The section of the table, its filter, and the open cell."""

    rows: Annotated[str, Meta(max_length=60)] = "entry"
    columns: CellColumns = "target"
    stack: _Word = ""
    q: _Word = ""
    top: _Offset = 0
    left: _Offset = 0
    row: _Word | None = None
    column: _Word | None = None


@page("/matrix/cells", nav="matrix", query=CellsQuery)
def redirect_cells(ask: PageRequest[CellsQuery]) -> Redirect:
    """Lead from the former address of the table to the table."""
    return Redirect(link("matrix", **asdict(ask.query)))


@page("/matrix", nav="matrix", query=CellsQuery)
def show_cells(ask: PageRequest[CellsQuery]) -> HtmlPage:
    """Show the table, and explain the open cell; what cannot be read is said in its place."""
    query, snapshot = ask.query, ask.gate.snapshot()
    rows = "stack" if query.stack.strip() and query.rows == "entry" else query.rows
    asked = CellSection(
        rows, query.columns, query.stack, query.q, query.top, query.left, HEIGHT, WIDTH
    )
    error: BadInput | None = None
    found: CellTable | None = None
    cell: dict[str, Any] | None = None
    table: Table | None = None
    try:
        if query.format is not None:
            table = _export_table(snapshot, asked)
        else:
            found = build_table(snapshot, asked, clock.now(), _SECONDS)
        if found and query.row and query.column:
            cell = _explain_cell(ask, snapshot, found)
    except BadInput as problem:
        if query.format is not None:
            raise
        error = problem
    context = {
        "query": query,
        "by": rows,
        "found": found,
        "error": error,
        "cell": cell,
        "legend": LEGEND,
        "tones": TONES,
        "frameworks": sorted(snapshot.facts.framework_names),
        "pages": _section_links(query, found) if found else {},
    }
    return HtmlPage("cells.html", "What runs where", context, table, status=400 if error else 200)


def _section_links(query: CellsQuery, found: CellTable) -> dict[str, str | None]:
    """Return links to the adjacent sections."""
    top, left = query.top, query.left
    below, beyond = top + HEIGHT < found.rows_total, left + WIDTH < found.columns_total
    return {
        "up": current_page_link(top=max(0, top - HEIGHT) or None) if top else None,
        "down": current_page_link(top=top + HEIGHT) if below else None,
        "before": current_page_link(left=max(0, left - WIDTH) or None) if left else None,
        "after": current_page_link(left=left + WIDTH) if beyond else None,
    }


def _export_table(snapshot: Snapshot, asked: CellSection) -> Table:
    """Return the whole filtered table for export: one line per cell."""
    counted = build_table(snapshot, replace(asked, height=0, width=0), clock.now())
    size = counted.rows_total * counted.columns_total
    if size > _MAX_EXPORTED:
        hint = f"filter rows or columns until at most {_MAX_EXPORTED:,} cells are left"
        raise BadInput("too many cells to export", field="q", value=f"{size:,} cells", hint=hint)
    whole = replace(asked, top=0, left=0, height=size, width=size)
    made = build_table(snapshot, whole, clock.now())
    names = ("stack", asked.columns, "state", "verdict", "rule", "why")
    lines = _export_lines(made)
    return make_table("cells", [Column(n, n) for n in names], lines, EmptyNotice("nothing"))


def _export_lines(made: CellTable) -> Iterator[tuple[Cell, ...]]:
    """Yield a line for each cell; what many lines share is made once."""
    across = [Cell(column.key) for column in made.columns]
    known: dict[CellAnswer, tuple[Cell, ...]] = {}
    for row, line in zip(made.rows, made.cells, strict=True):
        label = Cell(row.label)
        for key, cell in zip(across, line, strict=True):
            if cell is None:
                continue
            values = known.get(cell)
            if values is None:
                texts = (cell.state, cell.verdict or "", cell.rule, cell.why)
                values = known[cell] = tuple(map(Cell, texts))
            yield label, key, *values


def _explain_cell(
    ask: PageRequest[CellsQuery], snapshot: Snapshot, found: CellTable
) -> dict[str, Any] | None:
    """Return the verdict of the open cell with its fixes, and what one can do about it."""
    query = ask.query
    down = next((n for n, one in enumerate(found.rows) if one.key == query.row), None)
    across = next((n for n, one in enumerate(found.columns) if one.key == query.column), None)
    if down is None or across is None:
        return None
    row, column = found.rows[down], found.columns[across]
    answer = find_answer(row, column, snapshot, clock.now())
    target = answer.target if answer.target in snapshot.targets else ""
    verdict = _ask_gate(ask, row, column, target)
    stack = row.stack.to_json() if row.stack else {}
    return {
        "row": row,
        "column": column,
        "answer": answer,
        "target": target,
        "verdict": verdict.to_json() if verdict else None,
        "stack": stack,
        "ask": Question(target=target, stack=format_stack(stack)).link() if stack else None,
        "run": link("runs", "new") if stack else None,
    }


def _ask_gate(
    ask: PageRequest[CellsQuery], row: StackRow, column: CellColumn, target: str
) -> Verdict | None:
    """Return the gate's verdict on the target that decides, on the pools of the column."""
    if row.stack is None or not target:
        return None
    body: dict[str, Any] = {"target": target, "stack": row.stack.to_json()}
    if ask.query.columns != "target":
        pools = next(one.pools for one in column.targets if one.name == target)
        body["pools"] = [pool.name for pool in pools]
    return ask.gate.preview(body)
