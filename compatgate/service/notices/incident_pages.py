"""Show incidents: the list, an incident with its members, and forms that act on it."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal

from msgspec import Meta

from compatgate.core.incidents import KINDS, TITLES, IncidentKind
from compatgate.errors import BadInput, CompatgateError
from compatgate.kit import clock
from compatgate.kit.http.links import link
from compatgate.kit.http.replies import Filter
from compatgate.kit.ui.tables import (
    Cell,
    Column,
    EmptyNotice,
    PagedTableQuery,
    fetch_rows,
    make_list_table,
)
from compatgate.service.matrix.service import Authorship
from compatgate.service.notices.models import IncidentRow
from compatgate.service.notices.places import member_link
from compatgate.service.web.page import HtmlPage, PageRequest, Redirect, page
from compatgate.service.web.route import LARGEST

ShownState = Literal["open", "snoozed", "resolved", "ended", "all"]
_STATES: tuple[ShownState, ...] = ("open", "snoozed", "resolved", "ended", "all")
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
WORDS = {"fail": "broken", "warn": "check", "info": "news"}
_MAX_DAYS = 90


class IncidentQuery(PagedTableQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of incidents."""

    kind: IncidentKind | None = None
    owner: Filter | None = None
    state: Annotated[ShownState, Meta(description="default: open")] | None = None


@page("/incidents", nav="incidents", query=IncidentQuery)
def show_incidents(ask: PageRequest[IncidentQuery]) -> HtmlPage:
    """Show incidents, the newest first."""
    query = ask.query
    asked = {"kind": query.kind, "owner": query.owner, **filters_of(query.state)}
    found = fetch_rows(ask.gate.incidents.list, query.cursor, **asked)
    table = make_list_table("incidents", _COLUMNS, map(_row, found.items), found, query, _EMPTY)
    context = {"query": query, "kinds": KINDS, "states": _STATES}
    title = TITLES[query.kind] if query.kind else "Incidents"
    return HtmlPage("incidents.html", title, context, table)


def filters_of(state: ShownState | None) -> dict[str, Any]:
    """Return the filters of a state as people choose it; None: what needs attention."""
    if state == "all":
        return {}
    if state in (None, "open", "snoozed"):
        return {"state": "open", "snoozed": state == "snoozed"}
    return {"state": state}


def _row(row: IncidentRow) -> tuple[Any, ...]:
    place = link("incidents", row.id)
    only = row.members[0] if row.number == 1 and row.members else None
    return (
        Cell(WORDS[row.level], tone=row.level),
        Cell(f"{only.name}: {only.note}" if only else row.message, href=place),
        TITLES[row.kind],
        row.count,
        row.first_seen,
        row.last_seen,
        ", ".join(row.owners),
        "snoozed" if row.is_snoozed else row.state,
    )


@page(f"/incidents/<int(max={LARGEST['big']}):id>", nav="incidents")
def show_incident(ask: PageRequest[Any]) -> HtmlPage:
    """Show an incident with its members."""
    return _incident_page(ask)


def _incident_page(ask: PageRequest[Any], error: CompatgateError | None = None) -> HtmlPage:
    row = ask.gate.incidents.show(ask.args["id"])
    context = {
        "one": row,
        "title_of_kind": TITLES[row.kind],
        "word": WORDS[row.level],
        "member_link": member_link,
        "may": ask.principal.may("operate"),
        "error": error,
        "typed": ask.form,
    }
    status = error.status if error else 200
    return HtmlPage("incident.html", f"Incident {row.id}", context, status=status)


@page(
    f"/incidents/<int(max={LARGEST['big']}):id>/act",
    scope="operate",
    method="POST",
    nav="incidents",
)
def act_on_incident(ask: PageRequest[Any]) -> HtmlPage | Redirect:
    """Snooze, resolve or reopen an incident."""
    number, what = ask.args["id"], ask.form.get("what", "")
    by = Authorship(ask.principal.name, ask.form.get("reason", "").strip(), ask.principal)
    try:
        if what == "snooze":
            days = _read_days(ask.form.get("days", ""))
            ask.gate.incidents.snooze(number, clock.now() + timedelta(days=days), by)
            done = f"Snoozed incident {number} for {days} day{'' if days == 1 else 's'}."
        elif what == "resolve":
            ask.gate.incidents.resolve(number, by)
            done = f"Resolved incident {number}. It reopens if it happens again."
        elif what == "reopen":
            ask.gate.incidents.reopen(number, by)
            done = f"Reopened incident {number}."
        else:
            hint = "one of snooze, resolve, reopen"
            raise BadInput("is not an action", field="what", value=what, hint=hint)
    except CompatgateError as error:
        return _incident_page(ask, error)
    home = ask.form.get("back") == "home"
    return Redirect(link() if home else link("incidents", number), done)


def _read_days(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or not 1 <= int(text[:3]) <= _MAX_DAYS:
        hint = f"from 1 to {_MAX_DAYS}"
        raise BadInput("is not a number of days", field="days", value=text, hint=hint)
    return int(text[:3])
