"""Lay out an answer in sections for people, and write them as text, Markdown or HTML."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape

from msgspec import Struct

from compatgate.kit.cli.output import format_table, paint, strip_controls, wrap

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~])")
_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:75rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse}td,th{border:1px solid #bbb;padding:.3rem .6rem;"
    "text-align:left;vertical-align:top}.more{color:#555}pre{background:#f3f3f3;padding:1rem;"
    "overflow:auto}"
)


class Item(Struct, frozen=True):
    """A line, and lines that belong to it."""

    text: str
    details: tuple[str, ...] = ()


class Section(Struct, frozen=True):
    """A part of an answer: items, then a table, then a block of YAML as it is."""

    title: str
    items: tuple[Item, ...] = ()
    head: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    block: str = ""

    @property
    def is_empty(self) -> bool:
        """Return whether it has nothing to show."""
        return not (self.items or self.rows or self.block)


def shorten(names: Sequence[str], most: int) -> str:
    """Return names as one text, at most so many of them."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def text_lines(sections: Iterable[Section], width: int, *, colour: bool) -> list[str]:
    """Return sections as lines for a terminal; tables may be wider than ``width`` columns."""
    lines: list[str] = []
    for section in sections:
        lines += ["", paint(section.title, "bold", colour=colour)]
        for item in section.items:
            lines += [f"  {line}" for line in wrap(item.text, width - 2)]
            for detail in item.details:
                lines += [f"    {line}" for line in wrap(detail, width - 4)]
        if section.rows:
            cells = [[_clean(cell) or "-" for cell in row] for row in section.rows]
            table = format_table([name.upper() for name in section.head], cells)
            lines += [f"  {line}" for line in table.splitlines()]
        lines += [f"    {strip_controls(line)}" for line in section.block.splitlines()]
    return lines


def markdown_lines(sections: Iterable[Section]) -> list[str]:
    """Return sections as lines of Markdown."""
    lines: list[str] = []
    for section in sections:
        lines += ["", f"### {markdown_text(section.title)}", ""]
        for item in section.items:
            lines.append(f"- {markdown_text(item.text)}")
            lines += [f"    - {markdown_text(detail)}" for detail in item.details if detail]
        if section.rows:
            lines += [""] if section.items else []
            lines.append(f"| {' | '.join(section.head)} |")
            lines.append(f"|{'---|' * len(section.head)}")
            rows = (map(markdown_text, row) for row in section.rows)
            lines += [f"| {' | '.join(row)} |" for row in rows]
        if section.block:
            fence = "`" * (max(map(len, re.findall("`+", section.block)), default=2) + 1)
            lines += ["", f"{fence}yaml", *section.block.splitlines(), fence]
    return lines


def markdown_text(text: str) -> str:
    """Return text that Markdown shows as it is, on one line."""
    return _SPECIAL.sub(r"\\\1", _clean(text))


def html_page(title: str, sections: Iterable[Section]) -> str:
    """Return a page of its own, without scripts and without addresses of others."""
    name = escape(_clean(title))
    body = "".join(map(_html_section, sections))
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{name}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{name}</h1>\n{body}</body></html>\n"
    )


def _html_section(section: Section) -> str:
    parts = [f"<h2>{escape(_clean(section.title))}</h2>\n"]
    if section.items:
        parts.append("<ul>")
        for item in section.items:
            more = (f'<br><span class="more">{escape(_clean(d))}</span>' for d in item.details)
            parts.append(f"<li>{escape(_clean(item.text))}{''.join(more)}</li>\n")
        parts.append("</ul>\n")
    if section.rows:
        head = "".join(f"<th>{escape(name)}</th>" for name in section.head)
        parts.append(f"<table><tr>{head}</tr>\n")
        for row in section.rows:
            cells = "".join(f"<td>{escape(_clean(cell))}</td>" for cell in row)
            parts.append(f"<tr>{cells}</tr>\n")
        parts.append("</table>\n")
    if section.block:
        parts.append(f"<pre>{escape(section.block)}</pre>\n")
    return "".join(parts)


def _clean(text: str) -> str:
    return " ".join(strip_controls(text).split())
