"""Show the vendors' facts with sources, and the rules."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

from markupsafe import Markup
from msgspec import Meta

from compatgate.catalog.library import Library
from compatgate.core.rule import Rule
from compatgate.core.rules import BY_ID, RULES
from compatgate.documents.sources import suggest_name
from compatgate.errors import NotFound
from compatgate.kit.http.links import link
from compatgate.kit.http.replies import slice_page
from compatgate.kit.http.schemas import ListQuery
from compatgate.kit.ui.filters import format_compact
from compatgate.kit.ui.tables import (
    NO_MATCHES,
    SHOWN_ROWS,
    Cell,
    Column,
    EmptyNotice,
    PagedTableQuery,
    TableQuery,
    fetch_rows,
    make_table,
)
from compatgate.service.gate.facts.api import read_records, read_tables
from compatgate.service.gate.facts.schemas import FactRecord, FactTable
from compatgate.web.page import HtmlPage, PageRequest, page

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

_LONGEST = 200
_MAX_FIELDS = 9
"""Fields of records that a table of one list shows as columns."""
_ACRONYMS = {"gpus": "GPUs"} | {
    word: word.upper()
    for word in ("cpu", "cuda", "gb", "gpu", "gsp", "id", "mig", "os", "ptx", "sku", "url", "wsl")
}
_URL = re.compile(r"https?://[^\s'\"<>;,)]+")
_NO_MATCHES = EmptyNotice("No matches.", "A record must contain every word.")
_TABLES = (
    Column("table", "Table", "code", of="name", to="facts"),
    Column("records", "Records", "number"),
    Column("lists", "Lists"),
)
_RULES = (
    Column("id", "Rule", "code", to="rules"),
    Column("name", "Name"),
    Column("by", "Decided by", "name"),
    Column("says", "Checks"),
)


class FactsQuery(PagedTableQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of records."""

    q: Annotated[str, Meta(max_length=200)] = ""
    part: Annotated[str, Meta(max_length=100)] = ""


@page("/facts", nav="facts", query=TableQuery)
def show_tables(ask: PageRequest[TableQuery]) -> HtmlPage:
    """Show the tables of facts, and the digest of all facts."""

    def cells(table: FactTable) -> dict[str, Any]:
        lists = [f"{part} ({count})" for part, count in table.records.items()]
        return {"records": sum(table.records.values()), "lists": lists}

    tables, sort = read_tables(ask.service.find(Library)), ask.query.sort
    table = make_table("facts", _TABLES, tables, NO_MATCHES, cells, sort=sort, label="tables")
    return HtmlPage("facts.html", "Facts", {"facts": ask.gate.facts}, table)


@page("/facts/<table>", nav="facts", query=FactsQuery)
def show_table(ask: PageRequest[FactsQuery]) -> HtmlPage:
    """Show the records of a table; the fields of one list are columns."""
    name, query = ask.args["table"], ask.query
    known = read_records(ask.service.find(Library), name)
    parts = sorted({one.part for one in known})
    words = query.q.casefold().split()
    records = [
        one
        for one in known
        if query.part in ("", one.part)
        and all(word in f"{one.name} {one.record}".casefold() for word in words)
    ]
    fields = _common_fields(records) if query.part or len(parts) == 1 else []

    def fetch(cursor: str | None = None, limit: int = SHOWN_ROWS) -> Any:
        return slice_page(records, ListQuery(cursor=cursor, limit=limit))

    found = fetch_rows(fetch, query.cursor)
    columns = [Column(one, _title_of(one)) for one in fields]
    if not fields:
        columns = [Column("list", "List"), Column("says", "Statement")]
    columns = [Column("name", "Name", "code"), *columns, Column("source", "Source")]

    def cells(one: FactRecord) -> dict[str, Any]:
        title, url = next(iter(_list_sources(one.record)), ("", None))
        record = {key: v for key, v in _without_sources(one.record).items() if v != one.name}
        if not fields:  # then the list, and the whole record
            values: dict[str, Any] = {"list": one.part, "says": _shorten(format_compact(record))}
        else:
            values = {field: _format_value(record.get(field)) for field in fields}
        place = link("facts", name, one.name)
        return {**values, "name": Cell(one.name, place), "source": Cell(_shorten(title), url)}

    table = make_table(
        name,
        columns,
        found.items,
        _NO_MATCHES,
        cells,
        sort=query.sort,
        following=found.next,
        label="records",
    )
    context = {"name": name, "parts": parts, "total": len(records)}
    return HtmlPage("fact-table.html", f"Facts: {name}", context, table)


@page("/facts/<table>/<path:name>", nav="facts")
def show_record(ask: PageRequest[Any]) -> HtmlPage:
    """Show the records with a name."""
    table, name = ask.args["table"], ask.args["name"]
    records = [one for one in read_records(ask.service.find(Library), table) if one.name == name]
    if not records:
        problem = f"record {name!r} does not exist in {table}"
        hint = "see the page of the table for all names"
        raise NotFound(problem, field="name", value=name, hint=hint)
    context = {
        "table_name": table,
        "name": name,
        "found": records,
        "plain": _without_sources,
        "title_of": _title_of,
        "sources": _list_sources,
    }
    return HtmlPage("fact.html", f"{name}", context)


def _title_of(field: str) -> str:
    """Return the heading of a field: ``Memory GB`` for ``memory_gb``."""
    title = " ".join(_ACRONYMS.get(word, word) for word in field.split("_"))
    return f"{title[:1].upper()}{title[1:]}"


def _common_fields(records: list[FactRecord]) -> list[str]:
    """Return the fields with a simple value in most records, in the order of the file."""
    counts: dict[str, int] = {}
    for one in records:
        for field, value in _without_sources(one.record).items():
            if value not in (None, "", []) and _is_simple(value) and str(value) != one.name:
                counts[field] = counts.get(field, 0) + 1
    return [field for field, count in counts.items() if 2 * count > len(records)][:_MAX_FIELDS]


def _format_value(value: Any) -> Any:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or isinstance(value, (int, float)):
        return value
    if isinstance(value, dict):
        return _shorten(format_compact(value))
    return _shorten(", ".join(map(str, value)) if isinstance(value, list) else value)


def _is_simple(value: Any) -> bool:
    parts = value if isinstance(value, list) else [value]
    return not any(isinstance(part, (dict, list)) for part in parts)


def _without_sources(record: dict[str, Any]) -> dict[str, Any]:
    left_out = ("source", "confidence")
    return {key: v for key, v in record.items() if not any(word in key for word in left_out)}


def _shorten(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _list_sources(record: dict[str, Any]) -> list[tuple[str, str | None]]:
    """Return the sources of a record, each with its first URL."""
    stated = [value for key, value in record.items() if "source" in key]
    texts = [str(t) for value in stated for t in (value if isinstance(value, list) else [value])]
    urls = [_URL.search(text) for text in texts]
    return [(t, url[0].rstrip(".") if url else None) for t, url in zip(texts, urls, strict=True)]


@page("/rules", nav="rules", query=TableQuery)
def show_rules(ask: PageRequest[TableQuery]) -> HtmlPage:
    """Show all rules."""

    def cells(rule: Rule) -> dict[str, Any]:
        facts = rule.about_facts
        return {
            "by": "the vendors' facts" if facts else "matrix, policy and evidence",
            "says": rule.documentation.partition("\n")[0].strip(" #*"),
        }

    empty = EmptyNotice("No rules.")
    table = make_table("rules", _RULES, RULES, empty, cells, sort=ask.query.sort)
    return HtmlPage("listing.html", "Rules", table=table)


@page("/rules/<id>", nav="rules")
def show_rule(ask: PageRequest[Any]) -> HtmlPage:
    """Show what a rule checks, why, and how to fix its findings."""
    name = ask.args["id"]
    rule = BY_ID.get(name.upper())
    if rule is None:
        hint = suggest_name(name.upper(), BY_ID)
        raise NotFound(f"rule {name} does not exist", field="id", value=name, hint=hint)
    context = {"rule": rule, "text": Markup(_make_markdown().render(rule.documentation))}  # noqa: S704
    return HtmlPage("rule.html", f"{rule.id} {rule.name}", context)


@cache
def _make_markdown() -> MarkdownIt:
    """Return a Markdown renderer that escapes HTML, also in this project's docstrings."""
    from markdown_it import MarkdownIt  # not at every start: it loads sixty modules

    return MarkdownIt("commonmark", {"html": False})
