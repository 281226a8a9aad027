"""Render a plan as text for a terminal, and as Markdown for a ticket."""

from __future__ import annotations

import re
from typing import Any

from compatgate.check.formats.text import headline
from compatgate.kit.cli.output import format_table
from compatgate.kit.cli.terminal import paint, strip_controls, wrap
from compatgate.service.plans.sections import Section, arrange

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~])")


def render_text(plan: dict[str, Any], width: int, *, colour: bool) -> str:
    """Return a plan as text; tables may be wider than ``width`` columns."""
    answer, hue = headline(plan)
    first, *rest = wrap(f"{answer}: {plan['summary']}", width)
    lines = [paint(answer, "bold", hue, colour=colour) + first.removeprefix(answer), *rest]
    for remark in plan["remarks"]:
        lines += wrap(f"note: {remark}", width)
    for section in arrange(plan):
        lines += ["", paint(section.title, "bold", colour=colour), *_text_lines(section, width)]
    lines += ["", f"{_basis(plan)}; nothing was logged"]
    return "\n".join(lines)


def _text_lines(section: Section, width: int) -> list[str]:
    lines: list[str] = []
    for item in section.items:
        lines += [f"  {line}" for line in wrap(item.text, width - 2)]
        for detail in item.details:
            lines += [f"    {line}" for line in wrap(detail, width - 4)]
    if section.rows:
        cells = [[_clean(cell) for cell in row] for row in section.rows]
        table = format_table([name.upper() for name in section.head], cells)
        lines += [f"  {line}" for line in table.splitlines()]
    return lines + [f"    {strip_controls(line)}" for line in section.block.splitlines()]


def _clean(cell: str) -> str:
    return " ".join(strip_controls(cell).split()) or "-"


def _basis(plan: dict[str, Any]) -> str:
    return f"matrix revision {plan['matrix_revision']}, facts {str(plan['facts'])[:19]}"


def render_markdown(plan: dict[str, Any]) -> str:
    """Return a plan as Markdown."""
    answer, _ = headline(plan)
    lines = [f"## {_escape(answer)}: {_escape(plan['summary'])}", ""]
    lines += [f"- {_escape(remark)}" for remark in plan["remarks"]]
    for section in arrange(plan):
        lines += ["", f"### {_escape(section.title)}", "", *_markdown_lines(section)]
    return "\n".join([*lines, "", f"{_escape(_basis(plan))}."])


def _markdown_lines(section: Section) -> list[str]:
    lines: list[str] = []
    for item in section.items:
        lines.append(f"- {_escape(item.text)}")
        lines += [f"    - {_escape(detail)}" for detail in item.details if detail]
    if section.rows:
        lines += [""] if lines else []
        lines.append(f"| {' | '.join(section.head)} |")
        lines.append(f"|{'---|' * len(section.head)}")
        lines += [f"| {' | '.join(_escape(cell) for cell in row)} |" for row in section.rows]
    if section.block:
        fence = "`" * (max(map(len, re.findall("`+", section.block)), default=2) + 1)
        lines += ["", f"{fence}yaml", *section.block.splitlines(), fence]
    return lines


def _escape(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", " ".join(strip_controls(text).split()))
