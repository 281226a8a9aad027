"""Lay a report out for a postmortem: as Markdown, as a page of HTML, and for the pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compatgate.kit.sections import Item, Section, html_page, markdown_lines, markdown_text, shorten

Body = dict[str, Any]
ALL_TARGETS = "all targets"
"""Name of a report that is not about one target."""
_MAX_NAMES = 5
_MAX_REASONS = 3
_ASKED = ("Stack", "Who", "Times", "Then", "Today", "Reasons then", "Verdict")


def render_markdown(report: Body) -> str:
    """Return a report as Markdown."""
    return "\n".join([f"## {markdown_text(_title(report))}", *markdown_lines(arrange(report))])


def render_html(report: Body) -> str:
    """Return a report as a page of HTML that needs nothing else."""
    return html_page(_title(report), arrange(report))


def _title(report: Body) -> str:
    return f"{report['target']}, {_minute(report['since'])} to {_minute(report['until'])} UTC"


def arrange(report: Body) -> list[Section]:
    """Return the sections of a report that have something to show."""
    basis = f"matrix revision {report['matrix_revision']}, facts {report['facts'][:19]}"
    summary = [
        *report["summary"].split("; "),
        *(f"Left out: {text}" for text in report["left_out"]),
        f"Today: {_minute(report['made_at'])} UTC, {basis}",
    ]
    events = [
        (
            _minute(event["at"]),
            event["kind"],
            event["who"],
            "; ".join([event["what"], *event["details"][:_MAX_REASONS]]),
            event["ref"],
        )
        for event in report["timeline"]
    ]
    on_all = report["target"] == ALL_TARGETS
    different = [_compare(one, on_all) for one in report["asked"] if one["differs"]]
    rows = [
        (
            name_subject(one["image"], one["stack"], one["target"] if on_all else None),
            shorten(one["asked_by"], _MAX_NAMES),
            str(one["decisions"]),
            _answer(one, "outcome", "allowed"),
            _answer(one, "today", "allowed_today") if one["today"] else one["why"],
            "; ".join(one["reasons"][:_MAX_REASONS]),
            one["verdict_id"],
        )
        for one in report["asked"]
    ]
    sections = [
        Section("Summary", tuple(map(Item, summary))),
        Section("Timeline", head=("UTC", "Kind", "Who", "What", "See"), rows=tuple(events)),
        Section("Other answers today", tuple(different)),
        Section("Questions and answers", head=_ASKED, rows=tuple(rows)),
    ]
    return [one for one in sections if not one.is_empty]


def _compare(one: Body, on_all: bool) -> Item:
    then, today = _answer(one, "outcome", "allowed"), _answer(one, "today", "allowed_today")
    details = [
        f"{side} ({finding['cause']}): {finding['rule']} {finding['message']}"
        for side in ("new", "gone")
        for finding in one[side]
    ]
    subject = name_subject(one["image"], one["stack"], one["target"] if on_all else None)
    text = f"{subject}: {then} then, {today} today ({one['decisions']} decisions)"
    return Item(text, tuple(details))


def _answer(one: Body, outcome: str, allowed: str) -> str:
    refused = "undecided" if one[outcome] == "unknown" else "denied"
    return f"{'allowed' if one[allowed] else refused} ({one[outcome]})"


def name_subject(image: str | None, stack: Mapping[str, Any], target: str | None) -> str:
    """Return what a question was about: an image, or the components of a stack, on a target."""
    what = image or ", ".join(
        f"{name} {'+'.join(map(str, value)) if isinstance(value, list) else value}"
        for name, value in stack.items()
    )
    return f"{what} on {target}" if target else what


def _minute(at: str) -> str:
    return str(at)[:16].replace("T", " ")
