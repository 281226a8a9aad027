"""Render a report as Markdown for a postmortem, and as a page of HTML."""

from __future__ import annotations

from typing import Any

from compatgate.kit.sections import Item, Section, html_page, markdown_lines, markdown_text, shorten

Body = dict[str, Any]
_MAX_NAMES = 5
_MAX_REASONS = 3


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
    sections = [_summary(report), _timeline(report), _different(report), _asked(report)]
    return [one for one in sections if not one.is_empty]


def _summary(report: Body) -> Section:
    basis = f"matrix revision {report['matrix_revision']}, facts {report['facts'][:19]}"
    items = [Item(part) for part in report["summary"].split("; ")]
    items += [Item(f"left out: {text}") for text in report["left_out"]]
    items.append(Item(f"today: {_minute(report['made_at'])} UTC, {basis}"))
    return Section("Summary", tuple(items))


def _timeline(report: Body) -> Section:
    rows = [
        (
            _minute(event["at"]),
            event["kind"],
            event["who"],
            "; ".join([event["what"], *event["details"][:_MAX_REASONS]]),
            event["ref"],
        )
        for event in report["timeline"]
    ]
    return Section("Time line", head=("UTC", "kind", "who", "what", "see"), rows=tuple(rows))


def _different(report: Body) -> Section:
    items = []
    for one in report["asked"]:
        if not one["differs"]:
            continue
        then, today = _answer(one, "outcome", "allowed"), _answer(one, "today", "allowed_today")
        details = [f"new ({f['cause']}): {f['rule']} {f['message']}" for f in one["new"]]
        details += [f"gone ({f['cause']}): {f['rule']} {f['message']}" for f in one["gone"]]
        text = f"{_subject(one)}: {then} then, {today} today ({one['decisions']} decisions)"
        items.append(Item(text, tuple(details)))
    return Section("Other answers today", tuple(items))


def _asked(report: Body) -> Section:
    rows = [
        (
            _subject(one),
            shorten(one["asked_by"], _MAX_NAMES),
            str(one["decisions"]),
            _answer(one, "outcome", "allowed"),
            _answer(one, "today", "allowed_today") if one["today"] else one["why"],
            "; ".join(one["reasons"][:_MAX_REASONS]),
            one["verdict_id"],
        )
        for one in report["asked"]
    ]
    head = ("stack", "who", "times", "then", "today", "reasons then", "verdict")
    return Section("Questions and answers", head=head, rows=tuple(rows))


def _answer(one: Body, outcome: str, allowed: str) -> str:
    return f"{'allowed' if one[allowed] else 'not allowed'} ({one[outcome]})"


def _subject(one: Body) -> str:
    if one["image"]:
        return str(one["image"])
    return ", ".join(
        f"{name} {'+'.join(map(str, value)) if isinstance(value, list) else value}"
        for name, value in one["stack"].items()
    )


def _minute(at: str) -> str:
    return str(at)[:16].replace("T", " ")
