"""Show the vendors' facts with sources, the support of driver branches, and the rules."""

from __future__ import annotations

import re
from collections import defaultdict
from datetime import date, timedelta
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

from markupsafe import Markup
from msgspec import Meta

from compatgate.core.rules import BY_ID, RULES
from compatgate.documents.sources import suggest_name
from compatgate.errors import NotFound
from compatgate.kit import clock
from compatgate.kit.http.links import link
from compatgate.kit.ui.filters import format_compact
from compatgate.kit.ui.tables import Cell, Column, EmptyNotice, TableQuery, make_table
from compatgate.service.facts.api import read_records, read_tables
from compatgate.service.facts.schemas import FactRecord
from compatgate.service.facts.support_lines import (
    LEFT,
    RIGHT,
    ROW,
    TOP,
    WIDTH,
    SupportedBranch,
    draw_support,
    read_branches,
)
from compatgate.service.web.page import HtmlPage, PageRequest, page

if TYPE_CHECKING:
    from markdown_it import MarkdownIt


_LONGEST = 200
_URL = re.compile(r"https?://[^\s'\"<>;,)]+")
_NO_MATCHES = EmptyNotice("No matches.", "A record must contain every word.")


class FactsQuery(TableQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of records."""

    q: Annotated[str, Meta(max_length=200)] = ""
    part: Annotated[str, Meta(max_length=100)] = ""


@page("/facts", nav="facts", query=TableQuery)
def show_tables(ask: PageRequest[TableQuery]) -> HtmlPage:
    """Show the tables of facts, and the digest of all facts."""
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
        for table in read_tables(ask.service)
    ]
    table = make_table("facts", columns, rows, _NO_MATCHES, sort=ask.query.sort, label="tables")
    return HtmlPage("facts.html", "Facts", {"facts": ask.gate.facts}, table)


@page("/facts/<table>", nav="facts", query=FactsQuery)
def show_table(ask: PageRequest[FactsQuery]) -> HtmlPage:
    """Show the records of a table."""
    name, query = ask.args["table"], ask.query
    known = read_records(ask.service, name)
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
    rows = [_record_row(name, one) for one in found]
    table = make_table(name, columns, rows, _NO_MATCHES, sort=query.sort, label="records")
    parts = sorted({one.part for one in known})
    context = {"name": name, "query": query, "parts": parts}
    return HtmlPage("fact-table.html", f"Facts: {name}", context, table)


@page("/facts/<table>/<path:name>", nav="facts")
def show_record(ask: PageRequest[Any]) -> HtmlPage:
    """Show the records with a name."""
    table, name = ask.args["table"], ask.args["name"]
    found = [one for one in read_records(ask.service, table) if one.name == name]
    if not found:
        problem = f"record {name!r} does not exist in {table}"
        raise NotFound(
            problem, field="name", value=name, hint="see the page of the table for all names"
        )
    context = {
        "table_name": table,
        "name": name,
        "found": found,
        "plain": _drop_sources,
        "sources": _list_sources,
    }
    return HtmlPage("fact.html", f"{name}", context)


def _record_row(table: str, one: FactRecord) -> tuple[Any, ...]:
    plain = {key: value for key, value in _drop_sources(one.record).items() if value != one.name}
    says = _shorten(format_compact(plain))
    sources = _list_sources(one.record)
    title, url = sources[0] if sources else ("", None)
    name = Cell(one.name, link("facts", table, one.name))
    return (name, one.part, says, Cell(_shorten(title), url))


def _drop_sources(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record without its sources."""
    return {key: value for key, value in record.items() if "source" not in key}


def _shorten(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _list_sources(record: dict[str, Any]) -> list[tuple[str, str | None]]:
    """Return the sources of a record, each with its first URL."""
    said = [value for key, value in record.items() if "source" in key]
    texts = [str(one) for value in said for one in (value if isinstance(value, list) else [value])]
    return [(text, _find_url(text)) for text in texts]


def _find_url(text: str) -> str | None:
    found = _URL.search(text)
    return found[0].rstrip(".") if found else None


@page("/rules", nav="rules", query=TableQuery)
def show_rules(ask: PageRequest[TableQuery]) -> HtmlPage:
    """Show all rules."""
    columns = (
        Column("id", "Rule", "code"),
        Column("name", "Name"),
        Column("by", "Decided by"),
        Column("says", "Checks"),
    )
    rows = [
        (
            Cell(rule.id, link("rules", rule.id)),
            rule.name,
            "the vendors' facts" if rule.about_facts else "matrix, policy and evidence",
            _first_line(rule.documentation),
        )
        for rule in RULES
    ]
    table = make_table(
        "rules", columns, rows, EmptyNotice("No rules."), sort=ask.query.sort, label="rules"
    )
    return HtmlPage("listing.html", "Rules", table=table)


@page("/rules/<id>", nav="rules")
def show_rule(ask: PageRequest[Any]) -> HtmlPage:
    """Show what a rule checks, why, and how to fix its findings."""
    rule = BY_ID.get(ask.args["id"].upper())
    if rule is None:
        hint = suggest_name(ask.args["id"].upper(), BY_ID)
        name = ask.args["id"]
        raise NotFound(f"rule {name} does not exist", field="id", value=name, hint=hint)
    context = {"rule": rule, "text": Markup(_make_markdown().render(rule.documentation))}  # noqa: S704
    return HtmlPage("rule.html", f"{rule.id} {rule.name}", context)


@cache
def _make_markdown() -> MarkdownIt:
    """Return a Markdown renderer that escapes HTML, also in this project's docstrings."""
    from markdown_it import MarkdownIt  # not at every start: it loads sixty modules

    return MarkdownIt("commonmark", {"html": False})


def _first_line(text: str) -> str:
    lines = [line.strip(" #*") for line in text.splitlines() if line.strip()]
    return lines[0] if lines else ""


TABLE = "driver_branches"
_RECENT = timedelta(days=3 * 365)
_NO_BRANCHES = EmptyNotice("No driver branches.", "The fact table driver_branches has none.")
_COLUMNS = (
    Column("branch", "Branch", "name"),
    Column("state", "Support", "badge"),
    Column("type", "Type"),
    Column("first", "First release", "name"),
    Column("last", "Last release seen", "name"),
    Column("end", "Supported until", "name"),
    Column("targets", "Targets"),
    Column("remark", "Remark"),
)
_SUPPORTED = ("supported", "ends soon")
_TONES = {"supported": "ok", "ends soon": "warn", "ended": "stale", "no date": "unknown"}


class SupportQuery(TableQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Choice of branches."""

    all: Literal["yes"] | None = None


@page("/facts/support-lines", nav="facts", query=SupportQuery)
def show_support(ask: PageRequest[SupportQuery]) -> HtmlPage:
    """Show the support of driver branches on a line of time."""
    today = clock.today()
    records = [one.record for one in read_records(ask.service, TABLE) if one.part == "branches"]
    every = read_branches(records, _targets_by_branch(ask))
    supported = [int(one.name) for one in every if one.state(today) in _SUPPORTED]
    oldest = min(supported, default=0)
    shown = [one for one in every if ask.query.all or matters(one, today, oldest)]
    rows = [_row(one, today) for one in shown]
    table = make_table(
        "support", _COLUMNS, rows, _NO_BRANCHES, sort=ask.query.sort, label="driver branches"
    )
    context = {
        "chart": draw_support(shown, today),
        "hidden": len(every) - len(shown),
        "all": ask.query.all,
        "on_ended": [one for one in shown if one.targets and one.state(today) == "ended"],
        "g": {"width": WIDTH, "left": LEFT, "right": RIGHT, "top": TOP, "row": ROW},
        "today": today,
    }
    return HtmlPage("support-lines.html", "Support of driver branches", context, table)


def matters(one: SupportedBranch, today: date, oldest: int) -> bool:
    """Return whether a branch is shown unasked: in use, maybe supported, or ended not long ago.

    Args:
        one: the branch.
        today: the date.
        oldest: number of the oldest branch that is supported.
    """
    days = [day for day in (one.end, one.last) if day]
    recent = max(days, default=date.min) > today - _RECENT
    living = one.state(today) != "ended" and int(one.name) >= oldest
    return bool(one.targets) or recent or living


def _targets_by_branch(ask: PageRequest[Any]) -> dict[int, list[str]]:
    """Return the targets of the matrix by the branches of their Linux drivers."""
    found: defaultdict[int, set[str]] = defaultdict(set)
    for name, target in ask.gate.snapshot().targets.items():
        for pool in target.pools:
            if pool.driver is not None and pool.driver_os == "linux":
                found[pool.driver.major].add(name)
    return {branch: sorted(names) for branch, names in found.items()}


def _row(one: SupportedBranch, today: date) -> tuple[Any, ...]:
    state = one.state(today)
    first, last, end = one.stated
    nothing = Cell("not in the facts", tone="muted")
    return (
        Cell(one.name, link("facts", TABLE, one.name)),
        Cell(state, tone=_TONES[state]),
        one.kind,
        first or nothing,
        last or nothing,
        end or Cell("not published", tone="muted"),
        ", ".join(one.targets),
        one.remark,
    )
