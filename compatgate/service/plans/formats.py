"""Render a plan as text for a terminal, and as Markdown for a ticket."""

from __future__ import annotations

from typing import Any

from compatgate.check.formats.text import headline
from compatgate.kit.cli.terminal import paint, wrap
from compatgate.kit.sections import markdown_lines, markdown_text, text_lines
from compatgate.service.plans.sections import arrange


def render_text(plan: dict[str, Any], width: int, *, colour: bool) -> str:
    """Return a plan as text; tables may be wider than ``width`` columns."""
    answer, hue = headline(plan)
    first, *rest = wrap(f"{answer}: {plan['summary']}", width)
    lines = [paint(answer, "bold", hue, colour=colour) + first.removeprefix(answer), *rest]
    for remark in plan["remarks"]:
        lines += wrap(f"note: {remark}", width)
    lines += text_lines(arrange(plan), width, colour=colour)
    return "\n".join([*lines, "", f"{_basis(plan)}; nothing was logged"])


def render_markdown(plan: dict[str, Any]) -> str:
    """Return a plan as Markdown."""
    answer, _ = headline(plan)
    lines = [f"## {markdown_text(answer)}: {markdown_text(plan['summary'])}", ""]
    lines += [f"- {markdown_text(remark)}" for remark in plan["remarks"]]
    lines += markdown_lines(arrange(plan))
    return "\n".join([*lines, "", f"{markdown_text(_basis(plan))}."])


def _basis(plan: dict[str, Any]) -> str:
    return f"matrix revision {plan['matrix_revision']}, facts {str(plan['facts'])[:19]}"
