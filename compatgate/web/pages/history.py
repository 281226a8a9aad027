"""Show what happened: the audit log with its chain, and reports about a period."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from compatgate.kit.clock import parse_moment
from compatgate.kit.http.links import link
from compatgate.kit.ui.filters import format_compact
from compatgate.kit.ui.tables import Cell, list_rows, make_list_table, make_page_query
from compatgate.service.attention.report_formats import arrange
from compatgate.service.attention.reports import make_report
from compatgate.service.audit.schemas import AuditBody, AuditFilters
from compatgate.web.page import HtmlPage, PageRequest, listing, page

AuditQuery = make_page_query(AuditFilters)
_Text = Annotated[str, Meta(max_length=64)]
_MAX_QUESTIONS, _MAX_ROWS = 50, 200
"""What a page shows of a report; the command and REST give the whole."""
_REFERENCE = re.compile(r"(vd_|run_|revision )[0-9a-f]+")
_PLACES = {"vd_": "verdicts", "run_": "runs", "revision ": "revisions"}


@page("/audit", nav="audit", query=AuditQuery)
def show_audit(ask: PageRequest[Any]) -> HtmlPage:
    """Show changes and batches of decisions, newest first."""
    found = list_rows(ask.rooms.audit.list_audit, ask.query)
    table = make_list_table(listing("audit"), found, ask.query, _cells)
    return HtmlPage("audit.html", "Audit", table=table)


@page("/audit/verify", scope="admin", nav="audit")
def show_verification(ask: PageRequest[Any]) -> HtmlPage:
    """Verify the chain, and show the result."""
    context = {"report": ask.rooms.chain.verify(full=False)}
    return HtmlPage("audit-verify.html", "Audit chain", context)


def _cells(one: AuditBody) -> dict[str, Any]:
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
        parse_moment(since, field="since") if since else None,
        parse_moment(until, field="until", end_of_day=True) if until else None,
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
