"""Show the vendors' facts with sources, the support of driver branches, and the rules."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from datetime import date, timedelta
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

from markupsafe import Markup
from msgspec import Meta, Struct

from compatgate.catalog.library import Library
from compatgate.core.facts.nvidia import Branch
from compatgate.core.rule import Rule
from compatgate.core.rules import BY_ID, RULES
from compatgate.core.rules.driver import EOL_NOTICE
from compatgate.documents.sources import suggest_name
from compatgate.errors import NotFound
from compatgate.kit import clock
from compatgate.kit.http.links import link
from compatgate.kit.http.replies import slice_page
from compatgate.kit.http.schemas import ListQuery
from compatgate.kit.ui.filters import format_compact
from compatgate.kit.ui.tables import (
    SHOWN_ROWS,
    Cell,
    Column,
    EmptyNotice,
    Listing,
    PagedTableQuery,
    TableQuery,
    fetch_rows,
    make_table,
)
from compatgate.service.gate.advice.api import read_records, read_tables
from compatgate.service.gate.advice.schemas import FactRecord, FactTable
from compatgate.web.page import HtmlPage, PageRequest, listing, page

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

_LONGEST = 200
_MAX_FIELDS = 9
"""Fields of records that a table of one list shows as columns."""
_ACRONYMS = {"gpus": "GPUs"} | {
    word: word.upper()
    for word in ("cpu", "cuda", "gb", "gpu", "gsp", "id", "mig", "os", "ptx", "sku", "url", "wsl")
}
_NO_MATCHES = EmptyNotice("No matches.", "A record must contain every word.")
_URL = re.compile(r"https?://[^\s'\"<>;,)]+")
BRANCHES_TABLE = "driver_branches"
_RECENT = timedelta(days=3 * 365)
State = Literal["supported", "ends soon", "ended", "no date"]
_TONES: dict[State, str] = {
    "supported": "ok",
    "ends soon": "warn",
    "ended": "stale",
    "no date": "unknown",
}


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
    table = make_table(listing("facts"), tables, cells, sort=sort)
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
    titles = {one: _title_of(one) for one in fields} or {"list": "List", "says": "Statement"}
    own = (Column(key, title) for key, title in titles.items())
    columns = (Column("name", "Name", "code"), *own, Column("source", "Source"))

    def cells(one: FactRecord) -> dict[str, Any]:
        title, url = next(iter(_list_sources(one.record)), ("", None))
        record = {key: v for key, v in _without_sources(one.record).items() if v != one.name}
        if not fields:  # then the list, and the whole record
            values: dict[str, Any] = {"list": one.part, "says": _shorten(format_compact(record))}
        else:
            values = {field: _format_value(record.get(field)) for field in fields}
        place = link("facts", name, one.name)
        return {**values, "name": Cell(one.name, place), "source": Cell(_shorten(title), url)}

    shown = Listing(columns, _NO_MATCHES, name, "records")
    table = make_table(shown, found.items, cells, sort=query.sort, following=found.next)
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
            parts = value if isinstance(value, list) else [value]
            is_simple = not any(isinstance(part, dict | list) for part in parts)
            if value not in (None, "", []) and is_simple and str(value) != one.name:
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


def _without_sources(record: dict[str, Any]) -> dict[str, Any]:
    left_out = ("source", "confidence")
    return {key: v for key, v in record.items() if not any(word in key for word in left_out)}


def _shorten(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _list_sources(record: dict[str, Any]) -> list[tuple[str, str | None]]:
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
            "says": rule.documentation.partition("\n")[0].strip(" #*").replace("``", ""),
        }

    table = make_table(listing("rules"), RULES, cells, sort=ask.query.sort)
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


class BranchSupport(Struct, frozen=True):
    """The published support of a driver branch."""

    branch: Branch
    first: str
    last: str
    """Dates of its first release, and of the newest one seen; empty: not in the facts."""
    targets: tuple[str, ...]
    """Targets that declare a driver of this branch."""

    def state(self, today: date) -> State:
        """Return the state of its support on a day."""
        end = date.fromisoformat(self.branch.eol) if self.branch.eol else None
        if self.branch.ended or (end and end < today):
            return "ended"
        if end is None:
            return "no date"
        return "ends soon" if end - today < EOL_NOTICE else "supported"

    def matters(self, today: date, oldest: int) -> bool:
        """Tell whether it is listed unasked: in use, maybe supported, or ended not long ago.

        A branch without a date may be supported if it is newer than ``oldest``, which is.
        """
        newest = max(self.branch.eol or "", self.last)
        recent = newest > (today - _RECENT).isoformat()
        maybe_supported = self.state(today) != "ended" and self.branch.branch >= oldest
        return bool(self.targets) or recent or maybe_supported


class SupportQuery(TableQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Choice of branches."""

    all: Literal["yes"] | None = None


@page("/facts/support-lines", nav="facts", query=SupportQuery)
def show_support(ask: PageRequest[SupportQuery]) -> HtmlPage:
    """Show the support of driver branches, newest first."""
    named: defaultdict[int, set[str]] = defaultdict(set)
    for name, target in ask.gate.snapshot().targets.items():
        for pool in target.pools:
            if pool.driver is not None and pool.driver_os == "linux":
                named[pool.driver.major].add(name)
    targets = {branch: tuple(sorted(names)) for branch, names in named.items()}
    today = clock.today()
    records = [
        one.record
        for one in read_records(ask.service.find(Library), BRANCHES_TABLE)
        if one.part == "branches"
    ]
    every = read_support(ask.gate.facts.driver_branches.branches, records, targets)
    supported = [one for one in every if one.state(today) in ("supported", "ends soon")]
    oldest = min((one.branch.branch for one in supported), default=0)
    listed = [one for one in every if ask.query.all or one.matters(today, oldest)]

    def cells(one: BranchSupport) -> dict[str, Any]:
        state, number = one.state(today), str(one.branch.branch)
        unknown = Cell("not in the facts", tone="muted")
        return {
            "branch": Cell(number, link("facts", BRANCHES_TABLE, number)),
            "state": Cell(state, tone=_TONES[state]),
            "first": one.first or unknown,
            "last": one.last or unknown,
            "end": one.branch.eol or Cell("not published", tone="muted"),
        }

    table = make_table(listing("support"), listed, cells, sort=ask.query.sort)
    context = {
        "hidden": len(every) - len(listed),
        "all": ask.query.all,
        "on_ended": [one for one in listed if one.targets and one.state(today) == "ended"],
    }
    return HtmlPage("support-lines.html", "Support of driver branches", context, table)


def read_support(
    branches: Mapping[int, Branch],
    records: list[dict[str, Any]],
    targets: Mapping[int, tuple[str, ...]],
) -> list[BranchSupport]:
    """Return the support of branches, newest first; the records have the dates of releases."""
    first, last = (
        {int(row["branch"]): row.get(f"{which}_release_date") or "" for row in records}
        for which in ("first", "last")
    )
    return [
        BranchSupport(branch, first.get(n, ""), last.get(n, ""), targets.get(n, ()))
        for n, branch in sorted(branches.items(), reverse=True)
    ]
