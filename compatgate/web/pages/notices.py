"""Show incidents, and act on them in forms."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal, get_args

from msgspec import Meta

from compatgate.core.incidents import KINDS, TITLES, IncidentKind
from compatgate.errors import BadInput, CompatgateError
from compatgate.kit import clock
from compatgate.kit.http.links import link
from compatgate.kit.http.route import LARGEST
from compatgate.kit.http.schemas import Filter
from compatgate.kit.principal import Authorship
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
from compatgate.web.page import HtmlPage, PageRequest, Redirect, page

ListedState = Literal["open", "snoozed", "resolved", "ended", "all"]
_COLUMNS = (
    Column("level", "Level", "badge"),
    Column("incident", "Incident"),
    Column("kind", "Kind"),
    Column("count", "Count", "number"),
    Column("first", "Since", "time"),
    Column("last", "Last seen", "time"),
    Column("owner", "Owner"),
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
    """Show incidents, the newest first."""
    query = ask.query
    state: dict[str, Any] = {"state": None if query.state == "all" else query.state}
    if query.state in (None, "open", "snoozed"):  # what is snoozed is open as well
        state = {"state": "open", "snoozed": query.state == "snoozed"}
    found = list_rows(ask.rooms.incidents.list, query, **state)
    table = make_list_table("incidents", _COLUMNS, map(_row, found.items), found, query, _EMPTY)
    context = {"query": query, "kinds": KINDS, "states": get_args(ListedState)}
    title = TITLES[query.kind] if query.kind else "Incidents"
    return HtmlPage("incidents.html", title, context, table)


def _row(row: IncidentBody) -> tuple[Any, ...]:
    only = row.members[0] if row.member_count == 1 and row.members else None
    text = f"{only.name}: {only.note}" if only else row.message
    return (
        Cell(_WORDS[row.level], tone=row.level),
        Cell(text, href=link("incidents", row.id)),
        row.title,
        row.count,
        row.first_seen,
        row.last_seen,
        ", ".join(row.owners),
        "snoozed" if row.snoozed else row.state,
    )


@page(_PATH, nav="incidents")
def show_incident(ask: PageRequest[Any]) -> HtmlPage:
    """Show an incident with its members."""
    return _incident_page(ask)


def _incident_page(ask: PageRequest[Any], error: CompatgateError | None = None) -> HtmlPage:
    row = ask.rooms.incidents.show(ask.args["id"])
    context = {
        "one": row,
        "word": _WORDS[row.level],
        "member_link": member_link,
        "may": ask.principal.may("operate"),
        "error": error,
        "typed": ask.form,
    }
    status = error.status if error else 200
    return HtmlPage("incident.html", f"Incident {row.id}", context, status=status)


@page(f"{_PATH}/act", scope="operate", method="POST", nav="incidents")
def act_on_incident(ask: PageRequest[Any]) -> HtmlPage | Redirect:
    """Snooze, resolve or reopen an incident."""
    number, what, incidents = ask.args["id"], ask.form.get("what", ""), ask.rooms.incidents
    by = Authorship(ask.principal.name, ask.form.get("reason", "").strip(), ask.principal)
    try:
        if what == "snooze":
            days = _read_days(ask.form.get("days", ""))
            incidents.snooze(number, clock.now() + timedelta(days=days), by)
            done = f"Snoozed incident {number} for {days} day{'' if days == 1 else 's'}."
        elif what == "resolve":
            incidents.resolve(number, by)
            done = f"Resolved incident {number}. It reopens if it happens again."
        elif what == "reopen":
            incidents.reopen(number, by)
            done = f"Reopened incident {number}."
        else:
            hint = "one of snooze, resolve, reopen"
            raise BadInput("is not an action", field="what", value=what, hint=hint)
    except CompatgateError as error:
        return _incident_page(ask, error)
    listed = ask.form.get("back") == "attention"
    return Redirect(link("attention") if listed else link("incidents", number), done)


def _read_days(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or not 1 <= int(text[:3]) <= _MAX_DAYS:
        hint = f"from 1 to {_MAX_DAYS}"
        raise BadInput("is not a number of days", field="days", value=text, hint=hint)
    return int(text[:3])
