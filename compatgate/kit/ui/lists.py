"""Let the reader of a list choose its columns, and keep views of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from flask import request
from msgspec import Struct
from msgspec.structs import replace

from compatgate.documents.sources import suggest_name
from compatgate.errors import BadInput
from compatgate.kit.http.links import UI_PREFIX, current_page_link, encode_query, page_without_query
from compatgate.kit.ui.preferences import (
    MAX_VIEW_NAME,
    MAX_VIEW_QUERY,
    MAX_VIEWS,
    Preferences,
    SavedView,
    current_preferences,
)
from compatgate.kit.ui.tables import Table

_NOT_OF_A_VIEW = frozenset({"cursor", "format", "follow"})


class ListChoices(Struct, frozen=True):
    """The choices of a list's reader.

    Attributes:
        place: path of the page below ``/ui``.
        next: address of the page, without columns.
        columns: key, label, and whether it is shown.
        views: saved views with their addresses, and whether the page shows them.
        query: of the page as it is, to save it.
        takes_views: the page is a list, not the page of one object.
    """

    place: str
    next: str
    columns: tuple[tuple[str, str, bool], ...]
    views: tuple[tuple[str, str, bool], ...]
    query: str
    takes_views: bool


def apply_choice(table: Table) -> Table:
    """Return a table without the columns that its reader hid.

    The address decides where it names columns; else what the reader keeps.

    Raises:
        BadInput: the address names a column that the table does not have, or none.
    """
    keys = [column.key for column in table.columns]
    given = request.args.get("columns")
    if given:
        wanted = given.split(",")
        for key in wanted:
            if key not in keys:
                hint = suggest_name(key, keys) or f"columns: {', '.join(keys)}"
                problem = "is not a column of this table"
                raise BadInput(problem, field="columns", value=key, hint=hint)
        return replace(table, hidden=frozenset(keys) - set(wanted))
    kept = frozenset(current_preferences().hidden.get(table.name, ())) & set(keys)
    return replace(table, hidden=kept) if len(kept) < len(keys) else table


def list_choices(table: Table) -> ListChoices:
    """Return what the reader of the page's table may choose."""
    base = page_without_query()
    place = base.removeprefix(f"{request.script_root}{UI_PREFIX}/")
    shown = {column.key for _, column in table.shown}
    asked = {k: v for k, v in request.args.items() if v and k not in _NOT_OF_A_VIEW}
    if table.hidden:
        asked["columns"] = ",".join(column.key for _, column in table.shown)
    query = _sorted_query(asked)
    views = current_preferences().views.get(place, ())
    return ListChoices(
        place=place,
        next=current_page_link(columns=None),
        columns=tuple((one.key, one.label, one.key in shown) for one in table.columns),
        views=tuple((v.name, f"{base}?{v.query}" if v.query else base, v.query == query)
                    for v in views),
        query=query,
        takes_views="/" not in place,
    )  # fmt: skip


def _sorted_query(asked: Mapping[str, Any]) -> str:
    """Return a query in one form, so that equal views are equal texts."""
    return encode_query(dict(sorted(asked.items()))).removeprefix("?")


def choose_columns(
    chosen: Preferences, name: str, every: list[str], shown: set[str]
) -> Preferences:
    """Return preferences in which a list shows certain columns.

    Args:
        chosen: so far.
        name: of the table.
        every: keys of its columns.
        shown: keys of those to show.

    Raises:
        BadInput: no column is left.
    """
    hidden = tuple(key for key in every if key not in shown)
    if len(hidden) == len(every):
        hint = "choose at least one column"
        raise BadInput("a list needs at least one column", field="columns", value="none", hint=hint)
    others = {key: keys for key, keys in chosen.hidden.items() if key != name}
    return replace(chosen, hidden={**others, name: hidden} if hidden else others)


def save_view(chosen: Preferences, place: str, name: str, query: str) -> Preferences:
    """Return preferences with a view of a list; it replaces the one of its name.

    Args:
        chosen: so far.
        place: path of the list below ``/ui``.
        name: of the view, as its reader wrote it.
        query: of the list's address.

    Raises:
        BadInput: the name or the query is too long or empty, or the list has too many views.
    """
    name = " ".join(name.split())
    if not 1 <= len(name) <= MAX_VIEW_NAME or not name.isprintable():
        hint = f"1 to {MAX_VIEW_NAME} characters"
        raise BadInput("is not a valid view name", field="name", value=name, hint=hint)
    if len(query) > MAX_VIEW_QUERY:
        hint = f"at most {MAX_VIEW_QUERY} characters"
        raise BadInput("is too long for a view", field="query", value=len(query), hint=hint)
    asked = dict(parse_qsl(query))
    kept = {k: v for k, v in asked.items() if k not in _NOT_OF_A_VIEW}
    others = [one for one in chosen.views.get(place, ()) if one.name != name]
    if len(others) >= MAX_VIEWS:
        hint = "delete one on the page Preferences"
        raise BadInput(f"a list has at most {MAX_VIEWS} views", field="name", value=name, hint=hint)
    views = sorted([*others, SavedView(name, _sorted_query(kept))], key=lambda one: one.name)
    return replace(chosen, views={**chosen.views, place: tuple(views)})


def delete_view(chosen: Preferences, place: str, name: str) -> Preferences:
    """Return preferences without a view; those that never had it are the same."""
    left = tuple(one for one in chosen.views.get(place, ()) if one.name != name)
    others = {key: views for key, views in chosen.views.items() if key != place}
    return replace(chosen, views={**others, place: left} if left else others)
