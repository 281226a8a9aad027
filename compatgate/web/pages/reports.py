"""Show the report about a period, on one target or on all."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from compatgate.kit.clock import parse_moment
from compatgate.kit.http.links import link
from compatgate.service.attention.reports.formats import arrange
from compatgate.service.attention.reports.service import make_report
from compatgate.web.page import HtmlPage, PageRequest, page

_Text = Annotated[str, Meta(max_length=64)]
_MAX_QUESTIONS, _MAX_ROWS = 50, 200
"""What a page shows of a report; the command and REST give the whole."""


class PeriodQuery(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The period of a report, as dates or times in UTC."""

    since: _Text = ""
    until: _Text = ""

    def period(self) -> tuple[datetime | None, datetime | None]:
        """Return both ends; None where none is stated."""
        since, until = self.since.strip(), self.until.strip()
        return (
            parse_moment(since, field="since") if since else None,
            parse_moment(until, field="until", end_of_day=True) if until else None,
        )


def _report_page(ask: PageRequest[PeriodQuery], sections: Sequence[Any] = ()) -> HtmlPage:
    name = ask.args.get("name")
    context = {"name": name, "sections": sections, "place_of": _place_of}
    return HtmlPage("report.html", f"{name}: report" if name else "Postmortem", context)


def _make_report(ask: PageRequest[PeriodQuery]) -> HtmlPage:
    name = ask.args.get("name")
    period = ask.query.period()
    newest = slice(-_MAX_ROWS - 1, None)  # one more, which tells that there are more
    most = {"questions": _MAX_QUESTIONS, "changes": _MAX_ROWS + 1}
    report = make_report(ask.gate, ask.rooms.nodes, name, *period, **most)
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


_REFERENCE = re.compile(r"(vd_|run_|revision )[0-9a-f]+")
_PLACES = {"vd_": "verdicts", "run_": "runs", "revision ": "revisions"}


def _place_of(text: str) -> str | None:
    """Return the page of a verdict, run or revision that a cell names; None: it is other text."""
    match = _REFERENCE.fullmatch(text)
    return link(_PLACES[match[1]], text.removeprefix("revision ")) if match else None
