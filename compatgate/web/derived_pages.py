"""Derive pages from routes: a table for a list, the members for one object."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import date, datetime
from typing import Any, get_args

import msgspec
from msgspec import Struct, structs
from msgspec.structs import replace

from compatgate.kit.database.tables import Page as Part
from compatgate.kit.http.call import Call
from compatgate.kit.http.route import Route
from compatgate.kit.ui.tables import (
    Column,
    EmptyNotice,
    PagedTableQuery,
    fetch_rows,
    make_list_table,
)
from compatgate.web.page import HtmlPage, Page, PageRequest


def derive_pages(routes: Sequence[Route]) -> list[Page]:
    """Return the pages of the routes that name an item of the navigation."""
    paged = [route for route in routes if route.nav]
    paths = {route.template for route in paged}
    return [
        _list_page(route, paths) if route.returns.paged else _object_page(route) for route in paged
    ]


def _list_page(route: Route, paths: Collection[str]) -> Page:
    """Return a page with a table; its first column leads to the page of the object."""
    title = route.template.strip("/").replace("-", " ")
    columns = [_column(name, route.returns.model) for name in route.columns]
    if f"{route.template}/{{{columns[0].key}}}" in paths:
        columns[0] = replace(columns[0], to=route.template.strip("/"))

    def show(ask: PageRequest[PagedTableQuery]) -> HtmlPage:
        def fetch(*, cursor: str | None, limit: int) -> Part[Any]:
            part = _ask(ask, route, cursor=cursor, limit=limit)
            items = msgspec.convert(part["items"], list[route.returns.model])  # type: ignore[name-defined]
            return Part(tuple(items), part["next"])

        found = fetch_rows(fetch, ask.query.cursor)
        empty = EmptyNotice(f"No {title} yet.")
        table = make_list_table(title, columns, found, ask.query, empty)
        return HtmlPage("listing.html", title.capitalize(), {}, table)

    show.__name__ = f"{route.name}_page"
    return Page(show, route.flask_rule, route.scope, nav=route.nav, query=PagedTableQuery)


def _object_page(route: Route) -> Page:
    """Return a page with the members of an object."""

    def show(ask: PageRequest[Any]) -> HtmlPage:
        answer = msgspec.convert(_ask(ask, route), route.returns.model)
        names = route.columns or answer.__struct_fields__
        members = {name.replace("_", " "): _value(getattr(answer, name)) for name in names}
        title = " ".join(map(str, ask.args.values()))
        return HtmlPage("members.html", title, {"members": members})

    show.__name__ = f"{route.name}_page"
    return Page(show, route.flask_rule, route.scope, nav=route.nav)


def _ask(ask: PageRequest[Any], route: Route, **query: Any) -> Any:
    """Return the answer of a route's handler as plain data."""
    call = Call(
        ask.service, ask.service.settings, route, ask.principal, ask.args, route.query(**query)
    )
    return msgspec.to_builtins(route.handler(call).body)


def _column(name: str, model: type[Struct]) -> Column:
    """Return the column of a member; times and numbers have their own form."""
    (kind,) = [field.type for field in structs.fields(model) if field.name == name]
    kinds = {kind, *get_args(kind)}
    label = name.replace("_", " ").capitalize()
    if kinds & {datetime, date}:
        return Column(name, label, "time")
    return Column(name, label, "number" if kinds & {int, float} else "text")


def _value(value: Any) -> Any:
    """Return a member as a cell shows it."""
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else value
