"""Show what needs attention, the worst first, and what happened: audit log and reports."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from itertools import product
from typing import Annotated, Any, Literal, get_args

import msgspec
from flask import request
from msgspec import Meta, Struct
from msgspec.structs import replace

from compatgate.core.incidents import KINDS, LEVELS, TITLES, IncidentKind, IncidentLevel
from compatgate.errors import BadInput, NotFound
from compatgate.kit import clock
from compatgate.kit.http.links import link
from compatgate.kit.http.route import LARGEST
from compatgate.kit.http.schemas import Filter
from compatgate.kit.principal import Authorship
from compatgate.kit.ui.filters import count_things, format_compact
from compatgate.kit.ui.tables import (
    Cell,
    PagedTableQuery,
    list_rows,
    make_list_table,
    make_page_query,
)
from compatgate.service.attention.incidents import member_link
from compatgate.service.attention.report_formats import arrange
from compatgate.service.attention.reports import make_report
from compatgate.service.attention.schemas import IncidentBody
from compatgate.service.audit.schemas import AuditBody, AuditFilters
from compatgate.web.page import HtmlPage, PageRequest, Redirect, listing, page, read_action
from compatgate.web.pages.decisions import deciding_finding

_DAYS = 14
_WEEK = 7
_MAX_DENIED = 8
_MAX_VERDICTS = 60
_MAX_UPGRADES = 5
_EACH_KIND = 4
"""Most incidents of a kind; its title links to all of them."""
ListedState = Literal["open", "snoozed", "ended", "all"]
_LEVEL_WORDS = {"fail": "broken", "warn": "check", "info": "news"}
_MAX_DAYS = 90
_INCIDENT_PATH = f"/incidents/<int(max={LARGEST['big']}):id>"
AuditQuery = make_page_query(AuditFilters)
_Text = Annotated[str, Meta(max_length=64)]
_MAX_QUESTIONS, _MAX_ROWS = 50, 200
"""What a page shows of a report; the command and REST give the whole."""
_REFERENCE = re.compile(r"(vd_|run_|revision )[0-9a-f]+")
_PLACES = {"vd_": "verdicts", "run_": "runs", "revision ": "revisions"}


class KindSection(Struct, frozen=True):
    """The incidents of one level and kind; ``number``: of all that need attention."""

    level: IncidentLevel
    kind: IncidentKind
    title: str
    leading: tuple[IncidentBody, ...]
    number: int


@page("/attention", nav="attention")
def show_attention(ask: PageRequest[Any]) -> HtmlPage:
    """Show incidents, upgrades in progress, and what is denied."""
    snapshot = ask.gate.snapshot()
    attention = ask.rooms.incidents.attention(_EACH_KIND)
    groups: dict[tuple[IncidentLevel, IncidentKind], list[IncidentBody]] = {}
    for row in attention.leading:
        groups.setdefault((row.level, row.kind), []).append(row)
    # by level, the worst first, then in the order that a person on duty wants
    sections = [
        KindSection(level, kind, TITLES[kind], tuple(rows), attention.counts[kind][level])
        for level, kind in product(LEVELS, KINDS)
        if (rows := groups.get((level, kind)))
    ]
    days = ask.rooms.decisions.decisions_per_day(_DAYS)
    counts = attention.counts.values()
    context = {
        "sections": sections,
        "attention": attention,
        "levels": {level: sum(one.get(level, 0) for one in counts) for level in LEVELS},
        "member_link": member_link,
        "targets": len(snapshot.documents),
        "nodes": sum(pool.count for t in snapshot.targets.values() for pool in t.pools),
        "counted": days,
        "today": days.bars[-1],
        "denied": _list_denied_stacks(ask),
        "upgrades": ask.rooms.upgrades.list_open(limit=_MAX_UPGRADES),
    }
    return HtmlPage("attention.html", "Attention", context)


class DeniedStack(Struct, frozen=True):
    """A denied stack on a target, in any image, with one of its verdicts and the first finding."""

    count: int
    target: str | None
    stack: dict[str, Any]
    verdict: str
    why: str


def _list_denied_stacks(ask: PageRequest[Any]) -> list[DeniedStack]:
    """Return the most denied stacks of the week; images with the same stack count together."""
    stacks: dict[bytes, DeniedStack] = {}
    until = clock.now()
    since = until - timedelta(days=_WEEK)
    rows = ask.rooms.decisions.list_denied(since, until, limit=_MAX_VERDICTS)
    bodies = ask.rooms.decisions.read_verdicts([row.verdict_id for row in rows])
    for row in rows:
        verdict = bodies.get(row.verdict_id)
        if verdict is None:  # deleted since
            continue
        finding = deciding_finding(verdict)
        why = f"{finding['rule']} {finding['message']}" if finding else ""
        key = msgspec.json.encode([row.target, verdict["stack"], verdict["pools"]])
        known = stacks.get(key)
        count = row.count + (known.count if known else 0)
        stacks[key] = DeniedStack(count, row.target, verdict["stack"], row.verdict_id, why)
    return sorted(stacks.values(), key=lambda one: -one.count)[:_MAX_DENIED]


@page("/keys", scope=None)
def show_keys(ask: PageRequest[Any]) -> HtmlPage:
    """Show the keyboard shortcuts."""
    return HtmlPage("keys.html", "Keys")


@page("/<path:rest>", scope=None)
def show_not_found(ask: PageRequest[Any]) -> HtmlPage:
    """Report that the page does not exist."""
    raise NotFound(f"unknown page: {request.path}", hint="choose a page from the menu")


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
    table = make_list_table(listing("incidents"), found, query, _incident_cells)
    context = {"kinds": KINDS, "titles": TITLES, "states": get_args(ListedState)}
    title = TITLES[query.kind] if query.kind else "Incidents"
    return HtmlPage("incidents.html", title, context, table)


def _incident_cells(row: IncidentBody) -> dict[str, Any]:
    only = row.members[0] if row.member_count == 1 and row.members else None
    text = f"{only.name} {only.note}" if only else row.message
    if only and only.about == "baseline":  # its name is a number
        text = f"baseline {text}"
    return {
        "level": Cell(_LEVEL_WORDS[row.level], tone=row.level),
        "incident": Cell(text, link("incidents", row.id)),
        "state": "snoozed" if row.snoozed else row.state,
    }


@page(_INCIDENT_PATH, nav="incidents")
def show_incident(ask: PageRequest[Any]) -> HtmlPage:
    """Show an incident with its members."""
    row = ask.rooms.incidents.show(ask.args["id"])
    context = {
        "one": row,
        "word": _LEVEL_WORDS[row.level],
        "member_link": member_link,
        "may": ask.principal.may("operate"),
    }
    return HtmlPage("incident.html", f"Incident {row.id}: {row.message}", context)


@page(
    f"{_INCIDENT_PATH}/act", scope="operate", method="POST", nav="incidents", refused=show_incident
)
def act_on_incident(ask: PageRequest[Any]) -> Redirect:
    """Snooze or reopen an incident."""
    number, incidents = ask.args["id"], ask.rooms.incidents
    by = Authorship(ask.principal.name, ask.form.get("reason", "").strip(), ask.principal)
    if read_action(ask, "snooze", "reopen") == "snooze":
        text = ask.form.get("days", "")
        if not (text.isascii() and text.isdecimal()) or not 1 <= int(text[:3]) <= _MAX_DAYS:
            hint = f"from 1 to {_MAX_DAYS}"
            raise BadInput("is not a number of days", field="days", value=text, hint=hint)
        days = int(text[:3])
        incidents.snooze(number, clock.now() + timedelta(days=days), by)
        done = f"Snoozed incident {number} for {count_things(days, 'day')}."
    else:
        incidents.reopen(number, by)
        done = f"Reopened incident {number}."
    listed = ask.form.get("back") == "attention"
    return Redirect(link("attention") if listed else link("incidents", number), done)


@page("/audit", nav="audit", query=AuditQuery)
def show_audit(ask: PageRequest[Any]) -> HtmlPage:
    """Show changes and batches of decisions, newest first."""
    found = list_rows(ask.rooms.audit.list_audit, ask.query)
    table = make_list_table(listing("audit"), found, ask.query, _audit_cells)
    return HtmlPage("audit.html", "Audit", table=table)


@page("/audit/verify", scope="admin", nav="audit")
def show_verification(ask: PageRequest[Any]) -> HtmlPage:
    """Verify the chain, and show the result."""
    context = {"report": ask.rooms.chain.verify(full=False)}
    return HtmlPage("audit-verify.html", "Audit chain", context)


def _audit_cells(one: AuditBody) -> dict[str, Any]:
    place, revision = None, one.detail.get("revision")
    if one.subject.startswith("run_"):
        place = link("runs", one.subject)
    elif one.action.startswith("matrix.") and isinstance(revision, int):
        place = link("revisions", revision)
    return {
        "subject": Cell(one.subject, place),
        "detail": format_compact(one.detail),
        "hash": Cell(one.hash[:12], title=one.hash),
    }


class PeriodQuery(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The period of a report, as dates or times in UTC."""

    since: _Text = ""
    until: _Text = ""


def _report_page(ask: PageRequest[PeriodQuery], sections: Sequence[Any] = ()) -> HtmlPage:
    name = ask.args.get("name")
    context = {"name": name, "sections": sections, "place_of": _place_of}
    return HtmlPage("report.html", f"{name}: report" if name else "Postmortem", context)


def _make_report(ask: PageRequest[PeriodQuery]) -> HtmlPage:
    name, since, until = ask.args.get("name"), ask.query.since.strip(), ask.query.until.strip()
    period = (
        clock.parse_moment(since, field="since") if since else None,
        clock.parse_moment(until, field="until", end_of_day=True) if until else None,
    )
    newest = slice(-_MAX_ROWS - 1, None)  # one more, which tells that there are more
    most = {"questions": _MAX_QUESTIONS, "changes": _MAX_ROWS + 1}
    report = make_report(ask.gate, ask.rooms.nodes, name, *period, **most)  # type: ignore[arg-type]
    report = replace(report, timeline=report.timeline[newest], changes=[])
    sections = [
        replace(one, title=f"{one.title}: the newest {_MAX_ROWS}", rows=one.rows[-_MAX_ROWS:])
        if len(one.rows) > _MAX_ROWS
        else one
        for one in arrange(msgspec.to_builtins(report))
    ]
    return _report_page(ask, sections)


@page("/targets/<name>/report", nav="targets", query=PeriodQuery, refused=_report_page)
def show_report(ask: PageRequest[PeriodQuery]) -> HtmlPage:
    """Show what happened on a target, and what would be answered today."""
    return _make_report(ask)


@page("/report", nav="report", query=PeriodQuery, refused=_report_page)
def show_postmortem(ask: PageRequest[PeriodQuery]) -> HtmlPage:
    """Show what happened on all targets, and what would be answered today."""
    return _make_report(ask)


def _place_of(text: str) -> str | None:
    match = _REFERENCE.fullmatch(text)
    return link(_PLACES[match[1]], text.removeprefix("revision ")) if match else None
