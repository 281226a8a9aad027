"""What the vendors publish, record by record, each with its sources."""

from __future__ import annotations

import re
from typing import Annotated, Any

from msgspec import Meta

from compatgate.errors import NotFound
from compatgate.web.api.facts import records, tables
from compatgate.web.ui.filters import compact
from compatgate.web.ui.links import link
from compatgate.web.ui.listing import Listing
from compatgate.web.ui.page import Ask, Shown, page
from compatgate.web.ui.tables import Cell, Column, Empty, make
from compatgate.wire.facts import FactRecord

_LONGEST = 200
_URL = re.compile(r"https?://[^\s'\"<>;,)]+")
_NOTHING = Empty("No matches.", "A record must contain every word.")


class FactsQuery(Listing, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which records of a table."""

    q: Annotated[str, Meta(max_length=200)] = ""
    part: Annotated[str, Meta(max_length=100)] = ""


@page("/facts", nav="facts", query=Listing)
def show_tables(ask: Ask[Listing]) -> Shown:
    """The tables, and the digest of all of them."""
    columns = (
        Column("table", "Table", "code"),
        Column("records", "Records", "number"),
        Column("lists", "Lists"),
    )
    rows = [
        (
            Cell(table.name, link("facts", table.name)),
            sum(table.records.values()),
            ", ".join(f"{part} ({count})" for part, count in table.records.items()),
        )
        for table in tables(ask.service)
    ]
    table = make("facts", columns, rows, _NOTHING, sort=ask.query.sort, label="tables")
    return Shown("facts.html", "Facts", {"facts": ask.gate.facts}, table)


@page("/facts/<table>", nav="facts", query=FactsQuery)
def show_table(ask: Ask[FactsQuery]) -> Shown:
    """The records of a table."""
    name, query = ask.args["table"], ask.query
    known = records(ask.service, name)
    words = query.q.casefold().split()
    found = [
        one
        for one in known
        if query.part in ("", one.part)
        and all(word in f"{one.name} {one.record}".casefold() for word in words)
    ]
    columns = (
        Column("name", "Name", "code"),
        Column("list", "List"),
        Column("says", "Statement"),
        Column("source", "Source"),
    )
    rows = [_row(name, one) for one in found]
    table = make(name, columns, rows, _NOTHING, sort=query.sort, label="records")
    parts = sorted({one.part for one in known})
    context = {"name": name, "query": query, "parts": parts}
    return Shown("fact-table.html", f"Facts: {name}", context, table)


@page("/facts/<table>/<path:name>", nav="facts")
def show_record(ask: Ask[Any]) -> Shown:
    """All that is recorded under a name."""
    table, name = ask.args["table"], ask.args["name"]
    found = [one for one in records(ask.service, table) if one.name == name]
    if not found:
        problem = f"there is no record {name!r} in {table}"
        raise NotFound(problem, field="name", value=name, hint="the table lists what there is")
    context = {
        "table_name": table,
        "name": name,
        "found": found,
        "plain": _plain,
        "sources": _sources,
    }
    return Shown("fact.html", f"{name}", context)


def _row(table: str, one: FactRecord) -> tuple[Any, ...]:
    plain = {key: value for key, value in _plain(one.record).items() if value != one.name}
    says = _short(compact(plain))
    sources = _sources(one.record)
    title, url = sources[0] if sources else ("", None)
    name = Cell(one.name, link("facts", table, one.name))
    return (name, one.part, says, Cell(_short(title), url))


def _plain(record: dict[str, Any]) -> dict[str, Any]:
    """A record without where it was published."""
    return {key: value for key, value in record.items() if "source" not in key}


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _sources(record: dict[str, Any]) -> list[tuple[str, str | None]]:
    """Where a record says that it was published, with the first address of each."""
    said = [value for key, value in record.items() if "source" in key]
    texts = [str(one) for value in said for one in (value if isinstance(value, list) else [value])]
    return [(text, _address(text)) for text in texts]


def _address(text: str) -> str | None:
    found = _URL.search(text)
    return found[0].rstrip(".") if found else None
