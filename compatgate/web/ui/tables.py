"""Tables as data: shown, sorted by any column, and exported as CSV, all by the same rows."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.order import natural
from compatgate.documents.names import did_you_mean
from compatgate.errors import BadInput
from compatgate.store.clock import iso

Kind = Literal["text", "name", "code", "number", "time", "badge"]
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class Cell(Struct, frozen=True):
    """A value with more to it.

    Attributes:
        value: shown, sorted by and exported; times are aware, numbers are numbers.
        href: where it leads.
        tone: ``pass``, ``warn``, ``fail``, ``unknown``, ``muted``, or a status of an entry.
        title: shown when pointed at.
        note: small text below.
    """

    value: Any
    href: str | None = None
    tone: str = ""
    title: str = ""
    note: str = ""


class Column(Struct, frozen=True):
    """A column; ``kind`` says how its values look and which way they are aligned.

    Text is broken into lines, a name is not.
    """

    key: str
    label: str
    kind: Kind = "text"


class Empty(Struct, frozen=True):
    """What is said where there is nothing yet.

    Attributes:
        what: one sentence.
        hint: what to do next.
        command: the same as a command line.
    """

    what: str
    hint: str = ""
    command: str = ""


NOTHING_FITS = Empty("Nothing fits these filters.", "Take one of them away to see more.")


class Table(Struct, frozen=True):
    """A table.

    Attributes:
        name: of the exported file, and of the element.
        rows: one sequence each, as long as ``columns``.
        next: cursor of the next page; None: this is all.
        sort: the column that it is sorted by, as in the URL.
        label: of the rows, in the plural.
    """

    name: str
    columns: tuple[Column, ...]
    rows: Sequence[Sequence[Cell]]
    empty: Empty
    next: str | None = None
    sort: str | None = None
    label: str = "rows"


def make(
    name: str,
    columns: Sequence[Column],
    rows: Iterable[Sequence[Any]],
    empty: Empty,
    *,
    sort: str | None = None,
    following: str | None = None,
    label: str = "rows",
) -> Table:
    """A table, sorted.

    Args:
        name: of the exported file.
        columns: what there is.
        rows: values, or `Cell`.
        empty: what is said without rows.
        sort: a column's key, with ``-`` before it for the other direction.
        following: cursor of the next page; what is sorted is then this page alone.
        label: of the rows, in the plural.

    Raises:
        BadInput: there is no such column.
    """
    cells = [tuple(v if isinstance(v, Cell) else Cell(v) for v in row) for row in rows]
    table = Table(name, tuple(columns), cells, empty, following, sort, label)
    return _sorted(table) if sort else table


def _sorted(table: Table) -> Table:
    sort = table.sort or ""
    key = sort.removeprefix("-")
    keys = [column.key for column in table.columns]
    if key not in keys:
        hint = did_you_mean(key, keys)
        raise BadInput("is not a column of this table", field="sort", value=key, hint=hint)
    place = keys.index(key)
    there = [row for row in table.rows if row[place].value is not None]
    gone = [row for row in table.rows if row[place].value is None]
    there.sort(key=lambda row: _rank(row[place].value), reverse=sort.startswith("-"))
    return replace(table, rows=[*there, *gone])


def _rank(value: Any) -> tuple[int, Any]:
    """Numbers, then times, then text as people order it."""
    if isinstance(value, int | float):
        return 0, value
    if isinstance(value, datetime):
        return 1, value.timestamp()
    return 2, natural(str(value))


def to_csv(table: Table) -> str:
    """The table as a file; a value that a spreadsheet would take for a formula is made text."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow([column.label for column in table.columns])
    writer.writerows([[_exported(cell.value) for cell in row] for row in table.rows])
    if table.next:
        writer.writerow([f"# the first {len(table.rows)} rows; there are more"])
    return out.getvalue()


def _exported(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return iso(value)
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return value
