"""Show incidents, and act on them in forms."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal, get_args

from msgspec import Meta
from msgspec.structs import replace

from compatgate.core.incidents import KINDS, LEVELS, TITLES, IncidentKind
from compatgate.errors import BadInput
from compatgate.kit import clock
from compatgate.kit.http.links import link
from compatgate.kit.http.route import LARGEST
from compatgate.kit.http.schemas import Filter
from compatgate.kit.principal import Authorship
from compatgate.kit.ui.filters import count_things
from compatgate.kit.ui.tables import (
    Cell,
    Column,
    EmptyNotice,
    PagedTableQuery,
    list_rows,
    make_list_table,
)
from compatgate.service.attention.notices.schemas import IncidentBody
from compatgate.service.attention.notices.service import member_link
from compatgate.web.page import HtmlPage, PageRequest, Redirect, page, read_action

ListedState = Literal["open", "snoozed", "resolved", "ended", "all"]
_COLUMNS = (
    Column("level", "Level", "badge"),
    Column("incident", "Incident"),
    Column("kind", "Kind", "name", of="title"),
    Column("count", "Count", "number"),
    Column("first", "Since", "time", of="first_seen"),
    Column("last", "Last seen", "time", of="last_seen"),
    Column("owner", "Owner", of="owners"),
    Column("state", "State"),
)
_EMPTY = EmptyNotice(
    "Nothing needs attention.",
    "Evidence is fresh, nodes match their targets, and no waiver or driver branch ends soon.",
)
_WORDS = {"fail": "broken", "warn": "check", "info": "news"}
_MAX_DAYS = 90
_PATH = f"/incidents/<int(max={LARGEST['big']}):id>"


class IncidentQuery(PagedTableQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of incidents."""

    kind: IncidentKind | None = None
    owner: Filter | None = None
    state: Annotated[ListedState, Meta(description="default: open")] | None = None


@page("/incidents", nav="incidents", query=IncidentQuery)
def show_incidents(ask: PageRequest[IncidentQuery]) -> HtmlPage:
    """Show incidents, on each page the worst first, then the newest."""
    query = ask.query
    state: dict[str, Any] = {"state": None if query.state == "all" else query.state}
    if query.state in (None, "open", "snoozed"):  # what is snoozed is open as well
        state = {"state": "open", "snoozed": query.state == "snoozed"}
    found = list_rows(ask.rooms.incidents.list, query, **state)
    worst_first = sorted(found.items, key=lambda row: LEVELS.index(row.level))
    found = replace(found, items=worst_first)
    table = make_list_table("incidents", _COLUMNS, found, query, _EMPTY, _cells)
    context = {"kinds": KINDS, "titles": TITLES, "states": get_args(ListedState)}
    title = TITLES[query.kind] if query.kind else "Incidents"
    return HtmlPage("incidents.html", title, context, table)


def _cells(row: IncidentBody) -> dict[str, Any]:
    only = row.members[0] if row.member_count == 1 and row.members else None
    text = f"{only.name} {only.note}" if only else row.message
    if only and only.about == "baseline":  # its name is a number
        text = f"baseline {text}"
    return {
        "level": Cell(_WORDS[row.level], tone=row.level),
        "incident": Cell(text, link("incidents", row.id)),
        "state": "snoozed" if row.snoozed else row.state,
    }


@page(_PATH, nav="incidents")
def show_incident(ask: PageRequest[Any]) -> HtmlPage:
    """Show an incident with its members."""
    row = ask.rooms.incidents.show(ask.args["id"])
    context = {
        "one": row,
        "word": _WORDS[row.level],
        "member_link": member_link,
        "may": ask.principal.may("operate"),
    }
    return HtmlPage("incident.html", f"Incident {row.id}: {row.message}", context)


@page(f"{_PATH}/act", scope="operate", method="POST", nav="incidents", refused=show_incident)
def act_on_incident(ask: PageRequest[Any]) -> Redirect:
    """Snooze, resolve or reopen an incident."""
    number, incidents = ask.args["id"], ask.rooms.incidents
    by = Authorship(ask.principal.name, ask.form.get("reason", "").strip(), ask.principal)
    match read_action(ask, "snooze", "resolve", "reopen"):
        case "snooze":
            days = _read_days(ask.form.get("days", ""))
            incidents.snooze(number, clock.now() + timedelta(days=days), by)
            done = f"Snoozed incident {number} for {count_things(days, 'day')}."
        case "resolve":
            incidents.resolve(number, by)
            done = f"Resolved incident {number}. It reopens if it happens again."
        case _:
            incidents.reopen(number, by)
            done = f"Reopened incident {number}."
    listed = ask.form.get("back") == "attention"
    return Redirect(link("attention") if listed else link("incidents", number), done)


def _read_days(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or not 1 <= int(text[:3]) <= _MAX_DAYS:
        hint = f"from 1 to {_MAX_DAYS}"
        raise BadInput("is not a number of days", field="days", value=text, hint=hint)
    return int(text[:3])
