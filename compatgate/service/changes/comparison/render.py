"""Write an answer in sections as text, Markdown or JSON."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from compatgate.kit.cli.output import print_json
from compatgate.kit.cli.terminal import paint, wants_colour, width_of, wrap
from compatgate.kit.sections import Section, markdown_lines, markdown_text, text_lines

Body = dict[str, Any]
"""An answer in JSON form."""


class Report(Struct, frozen=True):
    """An answer for people.

    Attributes:
        title: in one line.
        hue: colour of the title's first part, up to the colon.
        basis: what the answer rests on.
        label: stands before the title in Markdown, where the report is a part of a comment; empty:
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
