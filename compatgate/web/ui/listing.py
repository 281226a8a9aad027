"""Lists on pages: what narrows them, how much of them is shown or exported, and their table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from flask import request
from msgspec import Struct

from compatgate.store.paging import Page as Part
from compatgate.store.paging import pages
from compatgate.web.ui.tables import Column, Empty, Table, make

EXPORTED = 10_000
"""At most so many rows are exported at once; the file's last line says when there were more."""


class Listing(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Query parameters of every page with a table."""

    sort: str | None = None
    """Key of the column to sort by, with ``-`` before it for the other direction."""
    format: Literal["csv"] | None = None


class LongListing(Listing, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Query parameters of a page whose table may go on for ever."""

    cursor: str | None = None


def is_narrowed() -> bool:
    """Whether filters, or a further page, leave out some of what there is."""
    return bool({key for key, value in request.args.items() if value} - {"sort", "format"})


def is_export() -> bool:
    """Whether the table is asked for as a file."""
    return request.args.get("format") == "csv"


def rows_of(fetch: Callable[..., Part[Any]], cursor: str | None, **filters: Any) -> Part[Any]:
    """A page of a list; all of it, up to `EXPORTED`, where it is exported.

    Args:
        fetch: one of the gate's lists.
        cursor: where the page begins.
        filters: for ``fetch``.
    """
    if not is_export():
        return fetch(cursor=cursor, **filters)
    items: list[Any] = []
    for part in pages(fetch, **filters):
        items += part.items
        if len(items) >= EXPORTED:
            return Part(tuple(items), part.next)
    return Part(tuple(items))


def found_by(fetch: Callable[..., Part[Any]], query: LongListing, **instead: Any) -> Part[Any]:
    """`rows_of` a list whose filters are the query's own parameters, by their names.

    Args:
        fetch: one of the gate's lists.
        query: of the page.
        instead: filters whose value is not what the query says.
    """
    shared = LongListing.__struct_fields__
    own = [name for name in query.__struct_fields__ if name not in shared]
    filters = {name: getattr(query, name) for name in own}
    return rows_of(fetch, query.cursor, **{**filters, **instead})


def table_of(
    name: str,
    columns: Sequence[Column],
    rows: Iterable[Sequence[Any]],
    found: Part[Any],
    query: LongListing,
    empty: Empty,
    *,
    unfit: Empty | None = None,
    label: str = "",
) -> Table:
    """The table of a part of a list.

    Args:
        name: of the exported file.
        columns: what there is.
        rows: values, or `Cell`; a line for each item of ``found``, or several.
        found: the part.
        query: of the page.
        empty: what is said where there is nothing.
        unfit: what is said instead where filters leave nothing.
        label: of the rows, in the plural; as the name where it is left out.

    Raises:
        BadInput: there is no column to sort by.
    """
    said = unfit if unfit and is_narrowed() else empty
    return make(
        name, columns, rows, said, sort=query.sort, following=found.next, label=label or name
    )
