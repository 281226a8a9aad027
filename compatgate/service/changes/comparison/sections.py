"""Arrange what-if answers and plans for people; text, Markdown and pages show the same."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from compatgate.core.compare.differences import count_things
from compatgate.formats.text import fix_option, format_stack, headline
from compatgate.kit.cli.output import paint, print_json, wants_colour, width_of, wrap
from compatgate.kit.sections import (
    Item,
    Section,
    markdown_lines,
    markdown_text,
    shorten,
    text_lines,
)

_MAX_NAMES = 6
_MAX_DOMAINS = 4
_TITLES = {
    "facts": "Facts: broken by vendor facts",
    "matrix": "Matrix: excluded only by the matrix",
    "evidence": "Evidence: missing canary runs",
}
_MARKS = {
    "breaks": "BREAKS",
    "open": "UNKNOWN",
    "worsens": "WORSE",
    "improves": "BETTER",
    "same": "SAME",
}
Body = dict[str, Any]
"""An answer in JSON form."""


def report_plan(plan: Body) -> Report:
    """Return a `PlanBody` in JSON form as a report."""
    causes, others = arrange_causes(plan), (_edits, _owed, _subjects, _frontier, _order)
    return _report(plan, (_host(plan), *causes, *(arrange(plan) for arrange in others)))


def report_what_if(answered: Body) -> Report:
    """Return a `WhatIfBody` in JSON form as a report."""
    return _report(answered, (_host(answered), *map(_entry, answered["entries"])))


def _report(answered: Body, sections: Iterable[Section]) -> Report:
    answer, hue = headline(answered)
    facts = str(answered["facts"])[:19]
    basis = f"matrix revision {answered['matrix_revision']}, facts {facts}; nothing was logged"
    title = f"{answer}: {answered['summary']}"
    return Report(title, tuple(sections), basis, hue, answered["remarks"])


def _entry(entry: Body) -> Section:
    mark = _MARKS["open" if entry["verdict"] == "unknown" else entry["change"]]
    items = [Item(reason) for reason in entry["open"]]
    for pool in entry["pools"]:
        details = []
        for finding in pool["lost"]:
            details.append(f"{finding['outcome']} {_name_finding(finding)}")
            details += [
                f"fix: {f['message']}: {fix_option(f['set'])}" for f in finding["fixes"][:1]
            ]
        details += [f"resolved: {_name_finding(finding)}" for finding in pool["gained"]]
        verdicts = f"{pool['before']} -> {pool['after']}"
        text = f"{pool['pool']}: {verdicts}, as {format_stack(pool['stack'])}"
        items.append(Item(text, tuple(details)))
    return Section(f"{mark:<7} {entry['entry']} ({entry['status']})", tuple(items))


def _name_finding(finding: Body) -> str:
    return f"{finding['rule']} {finding['name']}: {finding['message']}"


def arrange_causes(plan: Body) -> list[Section]:
    """Return what breaks, by cause; ``plan`` needs its groups alone."""
    sections = (_cause(plan, cause) for cause in _TITLES)
    return [one for one in sections if not one.is_empty]


def arrange_outlook(plan: Body) -> list[Section]:
    """Return what follows the causes: drivers, pools and waves."""
    return [one for one in (_frontier(plan), _order(plan)) if not one.is_empty]


def _host(plan: Body) -> Section:
    items = [
        Item(f"{f['outcome']} {f['rule']} {f['message']}", (f"on {', '.join(f['pools'])}",))
        for f in plan["host"]
    ]
    return Section("Pools", tuple(items))


def _cause(plan: Body, cause: str) -> Section:
    items = []
    for group in plan["groups"]:
        if group["cause"] != cause:
            continue
        subjects = [shorten(group["entries"], _MAX_NAMES)] if group["entries"] else []
        if count := len(group["stacks"]):
            subjects.append(f"{count} running stack{'' if count == 1 else 's'}")
        details = [f"on {', '.join(group['pools'])}: {'; '.join(subjects)}"]
        if group["fix"]:
            details.append(f"fix: {group['fix']}")
        text = f"{group['outcome']} {group['rule']} {group['name']}: {group['message']}"
        items.append(Item(text, tuple(details)))
    return Section(_TITLES[cause], tuple(items))


def _edits(plan: Body) -> Section:
    items = []
    for edit in plan["edits"]:
        moves = [f"{n} {c['before']} -> {c['after']}" for n, c in edit["components"].items()]
        details = []
        if edit["becomes"] != edit["entry"]:
            details.append(f"as a new candidate, {edit['becomes']}")
        if edit["between"]:
            details.append(f"the range also allows branches {', '.join(edit['between'])}")
        if not edit["verified"]:
            details.append("this edit alone does not bless the stack; see the reasons above")
        items.append(Item(f"{edit['entry']}: {'; '.join(moves)}", tuple(details)))
    return Section("Proposed entries", tuple(items), block=plan.get("entries_yaml", ""))


def _owed(plan: Body) -> Section:
    items = []
    for run in plan["owed"]:
        weight = "required" if run["required"] else "advised"
        failed = (f"failed: {run['failed']}",) if run["failed"] else ()
        text = f"suite {run['suite']} on {run['sku']} with driver {run['driver']} ({weight})"
        items.append(Item(text, (f"for {shorten(run['entries'], _MAX_NAMES)}", *failed)))
    return Section("Required canary runs", tuple(items))


def _subjects(plan: Body) -> Section:
    rows = [
        (
            one["name"] if one["kind"] == "entry" else one["image"] or one["name"],
            one["status"],
            "; ".join(one["open"]) or f"{one['before']} -> {one['after']}",
            one["change"],
            one["cause"] or "",
        )
        for one in plan["subjects"]
    ]
    head = ("entry or stack", "status", "verdict", "change", "cause")
    return Section("Before and after", head=head, rows=tuple(rows))


def _frontier(plan: Body) -> Section:
    frontier = plan["frontier"]
    lowest = min((int(p["driver"].split(".")[0]) for p in plan["before"] if p["driver"]), default=0)
    rows = [
        (
            f"{row['branch']} {row['type'] or ''}".strip(),
            row["release"],
            "ended" if row["ended"] else row["eol"] or "",
            f"{row['keeps']}/{frontier['subjects']}",
            row["first"] or "",
            shorten(row["loses"], 3),
        )
        for row in frontier["rows"]
        if row["branch"] >= lowest
    ]
    head = ("branch", "newest", "supported to", "keeps", "keeps all from", "loses")
    text = "every driver release in the facts breaks something"
    if first := frontier["first"]:
        text = f"first release that breaks nothing: {first}"
    notes = () if frontier["complete"] else ("not every stack was evaluated: too many stacks",)
    return Section("Drivers, based only on vendor facts", (Item(text, notes),), head, tuple(rows))


def _order(plan: Body) -> Section:
    order = plan["order"]
    items = []
    for number, row in enumerate(order["pools"], 1):
        nodes = f"{row['nodes']} reported of {count_things(row['declared'], 'node')}"
        state = (f"held: {row['held']}",) if row["held"] else ()
        needed = (f"first: {', '.join(row['needed'])}",) if row["needed"] and not state else ()
        text = f"{number}. pool {row['pool']} ({row['gpu']}, {row['driver']}), {nodes}"
        items.append(Item(text, (*state, *needed)))
    for wave in order["waves"]:
        domains = []
        for one in wave["domains"]:
            mixed = f", now {' and '.join(one['mixed'])}" if one["mixed"] else ""
            size = count_things(len(list(one["nodes"])), "node")
            name = str(one["name"])
            domains.append(
                name if one["kind"] == "node" else f"{one['kind']} {name} ({size}{mixed})"
            )
        nodes = count_things(wave["nodes"], "node")
        text = f"wave {wave['number']}: {nodes} of {', '.join(wave['pools'])}"
        items.append(Item(text, (shorten(domains, _MAX_DOMAINS),)))
    items += [Item(f"note: {remark}") for remark in order["remarks"]]
    if order["left"]:
        items.append(Item(f"not in any wave: {count_things(order['left'], 'node')}"))
    return Section("Order of pools and waves", tuple(items))


class Report(Struct, frozen=True):
    """An answer for people, with the colour of its title up to the colon, and its basis.

    ``label``: stands before the title in Markdown, where the report is a part of a comment; empty:
    the title is a heading.
    """

    title: str
    sections: tuple[Section, ...]
    basis: str
    hue: str = "green"
    remarks: Sequence[str] = ()
    label: str = ""

    @property
    def parts(self) -> list[Section]:
        """Return the sections that have something to show."""
        return [section for section in self.sections if not section.is_empty]


def render_text(report: Report, width: int, *, colour: bool) -> str:
    """Return a report as text; tables may be wider than ``width`` columns."""
    first, *rest = wrap(report.title, width)
    answer, colon, about = first.partition(":")
    lines = [paint(answer, "bold", report.hue, colour=colour) + colon + about, *rest]
    for remark in report.remarks:
        lines += wrap(f"note: {remark}", width)
    lines += text_lines(report.parts, width, colour=colour)
    return "\n".join([*lines, "", *wrap(report.basis, width)])


def render_markdown(report: Report) -> str:
    """Return a report as Markdown."""
    mark = f"**{report.label}:**" if report.label else "##"
    lines = [f"{mark} {markdown_text(report.title)}"]
    if report.remarks:
        lines += ["", *(f"- {markdown_text(remark)}" for remark in report.remarks)]
    lines += markdown_lines(report.parts)
    return "\n".join([*lines, "", f"_{markdown_text(report.basis)}_"])


def print_reports(reports: Sequence[Report], answer: Any, form: str) -> None:
    """Print answers as text or Markdown, or as JSON the way that they were answer."""
    if form == "json":
        print_json(answer)
    elif form == "markdown":
        print("\n\n".join(map(render_markdown, reports)))
    else:
        width, colour = width_of(sys.stdout), wants_colour(sys.stdout)
        print("\n\n".join(render_text(one, width, colour=colour) for one in reports))
