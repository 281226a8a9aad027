"""Describe tables as data: sort rows by any column, show them as HTML, export them as CSV.

A list page states its filters, how many rows it shows or exports, and its table. Its address says
which columns are shown, so that a bookmark keeps them.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Annotated, Any, Literal

import msgspec
from flask import request
from msgspec import Meta, Struct
from msgspec.structs import replace

from compatgate.core.versions import natural_key
from compatgate.documents.sources import suggest_name
from compatgate.errors import BadInput
from compatgate.kit.clock import iso
from compatgate.kit.database.tables import Page as Part
from compatgate.kit.database.tables import pages
from compatgate.kit.http.links import link
from compatgate.kit.http.schemas import ListQuery
from compatgate.kit.ui.assets import Sparkline

Kind = Literal["text", "name", "code", "number", "time", "badge", "acts"]
_LONG = 24
"""Characters from which the text of a column is long."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
Cells = Callable[[Any], Mapping[str, Any]]
"""Returns the cells of an item that are more than a member of it, by their columns' keys."""
SHOWN_ROWS = 50
"""Rows of a page of a list: a browser shows twice as many too slowly."""
MAX_EXPORTED_ROWS = 10_000
"""Maximum number of exported rows; the file's last line says when more exist."""


class Act(Struct, frozen=True):
    """Something to do with a row: a link, or the button of a form that sends its fields."""

    label: str
    href: str
    fields: Mapping[str, str] | None = None


class Cell(Struct, frozen=True):
    """A value with its presentation; it is shown, sorted by and exported.

    ``tone`` is ``pass``, ``warn``, ``fail``, ``unknown``, ``muted``, or a status of an entry;
    ``title`` a tool tip, ``note`` small text after the value, ``spark`` a line of earlier values
    before it. With ``acts``, what can be done with the row, the value is not shown.
    """

    value: Any
    href: str | None = None
    tone: str = ""
    title: str = ""
    note: str = ""
    spark: Sparkline | None = None
    acts: tuple[Act, ...] = ()

    @property
    def whole(self) -> str:
        """Return all that the cell says, for where a row of one line cuts it off."""
        return self.title or " · ".join(str(one) for one in (self.value, self.note) if one)


class Column(Struct, frozen=True):
    """A column; ``kind`` says how its values look and which way they are aligned.

    A row has one line: long text is cut off with an ellipsis, a name is not. ``of``: member of an
    item that has the value, ``row.driver``; empty: the one named as ``key``. ``to``: list whose
    pages the values name, ``targets``: each value links to its page.
    """

    key: str
    label: str
    kind: Kind = "text"
    of: str = ""
    to: str = ""


class EmptyNotice(Struct, frozen=True):
    """The text in place of an empty table: one sentence, and what to do next."""

    what: str
    hint: str = ""
    command: str = ""


class Listing(Struct, frozen=True, forbid_unknown_fields=True):
    """A table without its rows.

    ``name``: of the exported file, and of the element; ``label``: of the rows, in the plural.
    """

    columns: tuple[Column, ...]
    empty: EmptyNotice
    name: str = ""
    label: str = ""

    def without(self, *keys: str, **changes: Any) -> Listing:
        """Return a listing without some columns, and with other members."""
        columns = tuple(one for one in self.columns if one.key not in keys)
        return replace(self, columns=columns, **changes)


NO_MATCHES = EmptyNotice("No matches.", "Remove a filter.")


class Table(Struct, frozen=True):
    """A table; its name is that of the exported file, and of the element.

    ``sort``: the column that it is sorted by, as in the URL; ``label``: of the rows, in the plural;
    ``hidden``: keys of columns that the address leaves out; an export has them all.
    """

    name: str
    columns: tuple[Column, ...]
    rows: Sequence[Sequence[Cell]]
    empty: EmptyNotice
    next: str | None = None
    sort: str | None = None
    label: str = "rows"
    hidden: frozenset[str] = frozenset()

    @property
    def shown(self) -> tuple[tuple[int, Column], ...]:
        """Return the columns to show with their places in the rows."""
        return tuple((n, one) for n, one in enumerate(self.columns) if one.key not in self.hidden)

    def columns_with(self, key: str) -> str:
        """Return the columns of the address that shows or hides a column; empty: none is left."""
        hidden = self.hidden ^ {key}
        return ",".join(one.key for one in self.columns if one.key not in hidden)

    @property
    def long(self) -> frozenset[int]:
        """Return the places of columns with long text, which share the width that is left."""
        return frozenset(
            place
            for place, column in self.shown
            if any(
                len(row[place].whole) > _LONG
                for row in self.rows
                if not row[place].spark and (column.kind in ("text", "code") or row[place].note)
            )
        )

    @property
    def deciding(self) -> int | None:
        """Return the place of the column that a narrow screen shows below the first one.

        It is the first column of statuses, unless that is the first of all.
        """
        places = [place for place, column in self.shown[1:] if column.kind == "badge"]
        return places[0] if places and self.shown[0][1].kind != "badge" else None


def make_table(
    listing: Listing,
    items: Iterable[Any],
    cells: Cells | None = None,
    *,
    sort: str | None = None,
    following: str | None = None,
    filtered: bool = False,
) -> Table:
    """Return a table with a row for each item, sorted.

    ``sort`` is a column's key, with ``-`` before it for the other direction; with ``following``,
    the cursor of the next page, it sorts this page alone. ``filtered``: an address that narrows the
    list is why there are no rows.
    """
    rows = list(_make_rows(listing.columns, items, cells))
    narrowing = {key for key, value in request.args.items() if value} if filtered else set()
    empty = NO_MATCHES if narrowing - {"sort", "format", "columns"} else listing.empty
    label = listing.label or listing.name
    if sort:
        key, keys = sort.removeprefix("-"), [column.key for column in listing.columns]
        if key not in keys:
            hint = suggest_name(key, keys)
            raise BadInput("is not a column of this table", field="sort", value=key, hint=hint)
        place = keys.index(key)
        gone = [row for row in rows if row[place].value is None]
        rows = [row for row in rows if row[place].value is not None]
        rows.sort(key=lambda row: _rank(row[place].value), reverse=sort.startswith("-"))
        rows += gone
    return Table(listing.name, listing.columns, rows, empty, following, sort, label)


def _make_rows(
    columns: Sequence[Column], items: Iterable[Any], cells: Cells | None
) -> Iterator[list[Cell]]:
    """Yield the cells of each item: those of ``cells``, else the members that columns name."""
    places = [(column, attrgetter(column.of or column.key)) for column in columns]
    for item in items:
        own, row = cells(item) if cells else {}, []
        for column, read in places:
            value = own[column.key] if column.key in own else read(item)
            if isinstance(value, list | tuple):
                value = ", ".join(map(str, value))
            if not isinstance(value, Cell):
                value = Cell(value, link(column.to, value) if column.to and value else None)
            row.append(value)
        yield row


def choose_columns(table: Table) -> Table:
    """Return a table with the columns that the address names, if it names any."""
    keys = [column.key for column in table.columns]
    wanted = [key for key in request.args.get("columns", "").split(",") if key]
    for key in wanted:
        if key not in keys:
            hint = suggest_name(key, keys) or f"columns: {', '.join(keys)}"
            raise BadInput("is not a column of this table", field="columns", value=key, hint=hint)
    return replace(table, hidden=frozenset(keys) - set(wanted)) if wanted else table


def _rank(value: Any) -> tuple[int, Any]:  # numbers, then times, then text in natural order
    if isinstance(value, int | float):
        return 0, value
    if isinstance(value, datetime):
        return 1, value.timestamp()
    return 2, natural_key(str(value))


def to_csv(table: Table) -> str:
    """Export a table as CSV; quote values that a spreadsheet would read as formulas."""
    out = io.StringIO()
    writer = csv.writer(out)
    kept = [place for place, column in enumerate(table.columns) if column.kind != "acts"]
    writer.writerow([table.columns[place].label for place in kept])
    writer.writerows([[_export_value(row[place].value) for place in kept] for row in table.rows])
    if table.next:
        writer.writerow([f"# the first {len(table.rows)} rows; there are more"])
    return out.getvalue()


def _export_value(value: Any) -> Any:
    if isinstance(value, str):  # most are
        return f"'{value}" if value.startswith(_FORMULA) else value
    if value is None:
        return ""
    return iso(value) if isinstance(value, datetime) else value


class TableQuery(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Query parameters of every page with a table."""

    sort: str | None = None
    """Key of the column to sort by, with ``-`` before it for the other direction."""
    columns: Annotated[str, Meta(max_length=1000)] | None = None
    """Keys of the columns to show, separated by commas; None: all."""
    format: Literal["csv"] | None = None


class PagedTableQuery(TableQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Query parameters of a page whose table has several pages."""

    cursor: str | None = None


def make_page_query(filters: type[ListQuery], **more: Any) -> Any:
    """Return the query parameters of a page that lists what a route lists, by its filters.

    ``more`` are types of further parameters by name, or of those that differ from the filters.
    """
    own: list[Any] = [
        (field.name, field.type, field.default)
        for field in msgspec.structs.fields(filters)
        if field.name not in {*ListQuery.__struct_fields__, *more}
    ]
    own += [(name, kind | None, None) for name, kind in more.items()]
    return msgspec.defstruct(
        f"{filters.__name__}Page",
        own,
        bases=(PagedTableQuery,),
        frozen=True,
        forbid_unknown_fields=True,
        kw_only=True,
    )


def is_export() -> bool:
    """Return whether the request asks for a file."""
    return request.args.get("format") == "csv"


def fetch_rows(fetch: Callable[..., Part[Any]], cursor: str | None, **filters: Any) -> Part[Any]:
    """Return a page of a list; for an export all rows, up to `MAX_EXPORTED_ROWS`."""
    if not is_export():
        return fetch(cursor=cursor, limit=SHOWN_ROWS, **filters)
    items: list[Any] = []
    for part in pages(fetch, **filters):
        items += part.items
        if len(items) >= MAX_EXPORTED_ROWS:
            return Part(tuple(items), part.next)
    return Part(tuple(items))


def list_rows(fetch: Callable[..., Part[Any]], query: PagedTableQuery, **instead: Any) -> Part[Any]:
    """Return a page of a list whose filters have the names of the query's parameters.

    ``instead`` replaces values of the query.
    """
    shared = PagedTableQuery.__struct_fields__
    own = [name for name in query.__struct_fields__ if name not in shared]
    filters = {name: getattr(query, name) for name in own}
    return fetch_rows(fetch, query.cursor, **{**filters, **instead})


def make_list_table(
    listing: Listing, found: Part[Any], query: PagedTableQuery, cells: Cells | None = None
) -> Table:
    """Make the table of a page of a list."""
    sort, following = query.sort, found.next
    return make_table(listing, found.items, cells, sort=sort, following=following, filtered=True)
