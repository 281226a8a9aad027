"""Show what runs where: stacks as rows, places as columns, and the gate's answer in every cell.

Only the cells on the page are answered, those that take too long in a second request.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from flask import request
from msgspec import Meta, Struct
from msgspec.structs import replace

from compatgate.core.cells import CellAnswer
from compatgate.core.components import COMPONENTS, join_words
from compatgate.core.rule import Verdict
from compatgate.core.stack import format_stack
from compatgate.errors import BadInput, CompatgateError, NotFound
from compatgate.kit import clock
from compatgate.kit.http.links import current_page_link, link
from compatgate.kit.ui.tables import Cell, Column, EmptyNotice, Table, TableQuery
from compatgate.service.gate.advice.cells import (
    CellColumns,
    CellSection,
    CellTable,
    build_table,
    find_answer,
)
from compatgate.service.gate.questions.api import parse_matrix_time
from compatgate.service.matrix.snapshots.snapshot import Snapshot
from compatgate.web.page import HtmlPage, PageRequest, page
from compatgate.web.pages.question_links import Question

HEIGHT, WIDTH = 50, 24
_SECONDS, _MORE_SECONDS = 0.02, 0.1
"""How long cells are answered before the page is shown, and when it asks for the others."""
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
_NOUNS = {"target": "target", "pool": "pool", "gpu": "GPU", "driver": "driver"}
_MAX_NAMED = 3


class CellsQuery(TableQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The section of the table, its filter, and the open cell."""

    rows: Annotated[str, Meta(max_length=60)] = ""
    columns: CellColumns | Literal[""] = ""
    stack: _Word = ""
    q: _Word = ""
    top: _Offset = 0
    left: _Offset = 0
    row: _Word | None = None
    column: _Word | None = None
    every: Literal["", "yes"] = ""
    at: _Word = ""


@page("/", nav="home", query=CellsQuery)
def show_start(ask: PageRequest[CellsQuery]) -> HtmlPage:
    """Show what runs where, by framework."""
    return _show_table(ask, "framework")


@page("/matrix", nav="home", query=CellsQuery)
def show_cells(ask: PageRequest[CellsQuery]) -> HtmlPage:
    """Show what runs where, by entry."""
    return _show_table(ask, "entry")


def _show_table(ask: PageRequest[CellsQuery], usual: str) -> HtmlPage:
    """Show the table, and explain the open cell; what cannot be read is said in its place."""
    query, snapshot, now = ask.query, ask.gate.snapshot(), clock.now()
    rows = query.rows or usual
    if query.stack.strip() and rows in ("entry", "framework"):
        rows = "stack"
    error: CompatgateError | None = None
    found: CellTable | None = None
    cell: dict[str, Any] | None = None
    table: Table | None = None
    fitting: CellColumns = "target" if len(snapshot.documents) <= WIDTH else "gpu"
    columns = query.columns or fitting
    asked = CellSection(rows, columns, query.stack, query.q, query.top, query.left, HEIGHT, WIDTH)
    try:
        if query.at.strip():
            snapshot, now = ask.gate.state_at(parse_matrix_time(query.at.strip()))
        if query.format is not None:
            table = _export_table(snapshot, asked, now)
        else:
            shown = "HX-Request" in request.headers
            found = build_table(snapshot, asked, now, _MORE_SECONDS if shown else _SECONDS)
        if found and query.row and query.column:
            cell = _explain_cell(ask, snapshot, found, columns, now)
    except (BadInput, NotFound) as problem:
        if query.format is not None:
            raise
        error = problem
    context = {
        "by": rows,
        "across": columns,
        "found": found,
        "view": fold_table(found, every=bool(query.every)) if found else None,
        "summary": _summarise(found, rows, columns) if found else "",
        "targets": len(snapshot.documents),
        "cell": cell,
        "legend": LEGEND,
        "tones": TONES,
        "frameworks": sorted(snapshot.facts.framework_names),
        "pages": _section_links(query, found) if found else (),
    }
    return HtmlPage("cells.html", "What runs where", context, table, error)


def _summarise(found: CellTable, rows: str, columns: CellColumns) -> str:
    """Return the first row as a sentence: ``PyTorch 2.8 runs on 43 of 44 targets``."""
    if not found.rows or not found.columns or found.pending:
        return ""
    answers = [cell for cell in found.cells[0] if cell]
    others = [
        column.key for column, cell in zip(found.columns, answers, strict=True) if not cell.runs
    ]
    running = len(answers) - len(others)
    number, noun = len(answers), _NOUNS[columns]
    which = f"{number} {noun}{'' if number == 1 else 's'}"
    if found.columns_total > number:
        which += f" shown here ({found.columns_total} in all)"
    where = f"runs on {running} of {which}" if running else f"runs on none of {which}"
    listed = f"; not on {join_words(others)}" if running and 0 < len(others) <= _MAX_NAMED else ""
    of = f"{COMPONENTS[rows].label} " if rows in COMPONENTS else ""
    return f"{of}{found.rows[0].label} {where}{listed}."


class FoldedAxis(Struct, frozen=True):
    """A row or column by its index in the table, and the keys of others with the same answers."""

    place: int
    others: tuple[str, ...] = ()


def fold_table(found: CellTable, *, every: bool) -> tuple[list[FoldedAxis], list[FoldedAxis]]:
    """Return rows and columns, where equal ones are folded into the first of them.

    Rows are equal where they also follow each other in one group; a table with open cells is shown
    whole.
    """
    if every or found.pending:
        return (
            [FoldedAxis(n) for n in range(len(found.rows))],
            [FoldedAxis(n) for n in range(len(found.columns))],
        )
    lines = [[(cell.state, cell.rule, cell.mixed) for cell in line if cell] for line in found.cells]
    rows = [
        (row.key, (row.group, tuple(line))) for row, line in zip(found.rows, lines, strict=True)
    ]
    columns = [
        (column.key, tuple(line[n] for line in lines)) for n, column in enumerate(found.columns)
    ]
    return _fold(rows, neighbours=True), _fold(columns, neighbours=False)


def _fold(axis: Sequence[tuple[str, Hashable]], *, neighbours: bool) -> list[FoldedAxis]:
    firsts: dict[Hashable, int] = {}
    others: dict[int, list[str]] = {}
    previous: Hashable = None
    for place, (key, answers) in enumerate(axis):
        if answers not in firsts or (neighbours and answers != previous):
            firsts[answers] = place
            others[place] = []
        else:
            others[firsts[answers]].append(key)
        previous = answers
    return [FoldedAxis(place, tuple(keys)) for place, keys in others.items()]


class SectionLinks(Struct, frozen=True):
    """The pages of one axis: the shown rows or columns of all, and links to the others."""

    noun: str
    first: int
    last: int
    total: int
    links: tuple[tuple[int, str | None], ...]


def _section_links(query: CellsQuery, found: CellTable) -> tuple[SectionLinks, ...]:
    axes = (
        ("row", "top", query.top, HEIGHT, found.rows_total),
        ("column", "left", query.left, WIDTH, found.columns_total),
    )
    pages = []
    for noun, name, begin, size, total in axes:
        if total <= size:
            continue
        links = tuple(
            (n + 1, None if n * size == begin else current_page_link(**{name: n * size or None}))
            for n in range(-(-total // size))
            if n in (0, -(-total // size) - 1) or abs(n - begin // size) <= _MAX_NAMED
        )
        pages.append(SectionLinks(noun, begin + 1, min(begin + size, total), total, links))
    return tuple(pages)


def _export_table(snapshot: Snapshot, asked: CellSection, now: datetime) -> Table:
    counted = build_table(snapshot, replace(asked, height=0, width=0), now)
    size = counted.rows_total * counted.columns_total
    if size > _MAX_EXPORTED:
        hint = f"filter rows or columns until at most {_MAX_EXPORTED:,} cells are left"
        raise BadInput("too many cells to export", field="q", value=f"{size:,} cells", hint=hint)
    whole = replace(asked, top=0, left=0, height=size, width=size)
    made = build_table(snapshot, whole, now)
    names = ("stack", asked.columns, "state", "verdict", "rule", "why")
    columns = tuple(Column(name, name) for name in names)
    lines = []
    across = [Cell(column.key) for column in made.columns]
    known: dict[CellAnswer, tuple[Cell, ...]] = {}  # what many lines share is made once
    for row, line in zip(made.rows, made.cells, strict=True):
        label = Cell(row.label)
        for key, cell in zip(across, line, strict=True):
            if cell is None:
                continue
            values = known.get(cell)
            if values is None:
                texts = (cell.state, cell.verdict or "", cell.rule, cell.why)
                values = known[cell] = tuple(map(Cell, texts))
            lines.append((label, key, *values))
    return Table("cells", columns, lines, EmptyNotice("nothing"))


def _explain_cell(
    ask: PageRequest[CellsQuery],
    snapshot: Snapshot,
    found: CellTable,
    columns: CellColumns,
    now: datetime,
) -> dict[str, Any] | None:
    query = ask.query
    down = next((n for n, one in enumerate(found.rows) if one.key == query.row), None)
    across = next((n for n, one in enumerate(found.columns) if one.key == query.column), None)
    if down is None or across is None:
        return None
    row, column = found.rows[down], found.columns[across]
    answer = find_answer(row, column, snapshot, now)
    target = answer.target if answer.target in snapshot.targets else ""
    verdict: Verdict | None = None
    if row.stack is not None and target:
        body: dict[str, Any] = {"target": target, "stack": row.stack.to_json()}
        if columns != "target":
            pools = next(one.pools for one in column.targets if one.name == target)
            body["pools"] = [pool.name for pool in pools]
        at, gate = query.at.strip(), ask.gate
        verdict = gate.what_would(body, at=parse_matrix_time(at)) if at else gate.preview(body)
    stack = row.stack.to_json() if row.stack else {}
    question = Question(target=target, stack=format_stack(stack), at=query.at)
    return {
        "row": row,
        "column": column,
        "answer": answer,
        "target": target,
        "verdict": verdict.to_json() if verdict else None,
        "stack": stack,
        "ask": question.link() if stack else None,
        "run": link("runs", "new") if stack else None,
    }
