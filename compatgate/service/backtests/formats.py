"""Arrange a backtest in sections for people, and write it as text and as Markdown."""

from __future__ import annotations

import json
from typing import Any

from compatgate.core.rule import EXIT_ALLOWED, EXIT_DENIED, EXIT_NO_DECISION
from compatgate.kit.cli.output import format_json_time
from compatgate.kit.cli.terminal import paint, wrap
from compatgate.kit.sections import Item, Section, markdown_lines, shorten, text_lines

Body = dict[str, Any]
_TITLES = {
    "newly_denied": "Newly denied",
    "newly_unknown": "Newly stopped, because something is not known",
    "newly_allowed": "Newly allowed",
    "changed": "Another verdict, treated as before",
}
_CAUSES = {
    "facts": "the vendors' facts",
    "matrix": "the matrix",
    "evidence": "missing evidence",
    "policy": "the policy, with the same findings",
    "target": "the target",
}
_HUES = {"newly_denied": "red", "newly_unknown": "yellow", "newly_allowed": "green"}
_MAX_NAMES = 5
_MAX_EXAMPLES = 5
_MAX_PARTS = 6


def exit_status(found: Body) -> int:
    """Return the exit status of a backtest.

    Returns:
        1: something is newly denied; 3: something is newly unknown, or was not decided; 0: neither.
    """
    counts = found["counts"]
    if counts["newly_denied"]["questions"]:
        return EXIT_DENIED
    if counts["newly_unknown"]["questions"] or not found["complete"]:
        return EXIT_NO_DECISION
    return EXIT_ALLOWED


def arrange(found: Body) -> list[Section]:
    """Return the sections of a backtest that have something to show.

    Args:
        found: as `compatgate.service.backtests.schemas.BacktestBody`, in JSON form.
    """
    sections = [
        Section(
            f"{title}: {_count(found['counts'][effect])}",
            tuple(_describe_group(group) for group in found["groups"] if group["effect"] == effect),
        )
        for effect, title in _TITLES.items()
    ]
    remarks = Section("Left out", tuple(Item(remark) for remark in found["remarks"]))
    return [section for section in (*sections, remarks) if not section.is_empty]


def render_text(found: Body, width: int, *, colour: bool) -> str:
    """Return a backtest as text, at most ``width`` columns wide."""
    hue = next((_HUES[e] for e in _HUES if found["counts"][e]["questions"]), "green")
    lines = [paint(line, "bold", hue, colour=colour) for line in wrap(found["summary"], width)]
    lines += text_lines(arrange(found), width, colour=colour)
    return "\n".join([*lines, "", *wrap(_basis(found), width)])


def render_markdown(found: Body) -> str:
    """Return a backtest as Markdown, to be part of a comment."""
    from compatgate.kit.sections import markdown_text

    lines = [f"**Backtest:** {markdown_text(found['summary'])}"]
    lines += markdown_lines(arrange(found))
    return "\n".join([*lines, "", f"_{markdown_text(_basis(found))}_"])


def _describe_group(group: Body) -> Item:
    rule = f"{group['rule']} {group['name']}" if group["rule"] else "the target"
    because = "" if group["cause"] == "target" else f" ({_CAUSES[group['cause']]})"
    details = [
        f"{_count(group)} on {shorten(group['targets'], _MAX_NAMES)};"
        f" last {format_json_time(_to_text(group['last']))};"
        f" asked by {shorten(group['asked_by'], _MAX_NAMES) or 'nobody'}",
        *(_describe_example(one) for one in group["examples"][:_MAX_EXAMPLES]),
    ]
    more = group["questions"] - min(len(group["examples"]), _MAX_EXAMPLES)
    if more and group["examples"]:
        details.append(f"and {more} more")
    return Item(f"{rule}{because}: {group['message']}", tuple(details))


def _describe_example(one: Body) -> str:
    stack = [f"{name}={_format_part(value)}" for name, value in one["stack"].items()]
    moved = f"{one['before'] or 'no answer'} -> {one['after'] or 'no answer'}"
    image = f" ({one['image']})" if one["image"] else ""
    return f"{shorten(stack, _MAX_PARTS)}{image}: {moved}, {one['verdict_id']}"


def _format_part(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return "+".join(value)
    return value if isinstance(value, str) else json.dumps(value)


def _count(counts: Body) -> str:
    return ", ".join(
        f"{counts[name]} {name.removesuffix('s') if counts[name] == 1 else name}"
        for name in ("questions", "decisions", "nodes")
    )


def _to_text(moment: Any) -> str:
    return moment if isinstance(moment, str) else str(moment.isoformat())


def _basis(found: Body) -> str:
    count = found["decisions"]
    return (
        f"{count} decision{'' if count == 1 else 's'} of {found['days']} days on matrix revision "
        f"{found['matrix_revision']}; no decision was changed"
    )
