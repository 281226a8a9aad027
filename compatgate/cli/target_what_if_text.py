"""What a change of a target does, for a person at a terminal: what breaks first."""

from __future__ import annotations

from typing import Any

from compatgate.cli.formats.words import fix_option, headline, stack_words
from compatgate.cli.terminal import paint, printable, wrap

_MARKS = {
    "breaks": ("BREAKS", "red"),
    "open": ("UNKNOWN", "yellow"),
    "worsens": ("WORSE", "yellow"),
    "improves": ("BETTER", "green"),
    "same": ("SAME", "dim"),
}


def render(found: dict[str, Any], width: int, *, colour: bool) -> str:
    """Text of at most so many columns."""
    answer, hue = headline(found)
    first, *rest = wrap(f"{answer}: {found['summary']}", width)
    lines = [paint(answer, "bold", hue, colour=colour) + first.removeprefix(answer), *rest]
    for remark in found["remarks"]:
        lines += wrap(f"note: {remark}", width)
    for finding in found["host"]:
        lines += ["", *_finding(finding, width, indent="")]
    for entry in found["entries"]:
        lines += ["", *_entry(entry, width, colour=colour)]
    facts = str(found["facts"])[:19]
    lines += ["", f"matrix revision {found['matrix_revision']}, facts {facts}; nothing was logged"]
    return "\n".join(lines)


def _entry(entry: dict[str, Any], width: int, *, colour: bool) -> list[str]:
    kind = "open" if entry["verdict"] == "unknown" else entry["change"]
    mark, hue = _MARKS[kind]
    shown = paint(f"{mark:<7}", "bold", hue, colour=colour)
    lines = [f"{shown} {printable(entry['entry'])} ({entry['status']})"]
    for reason in entry["open"]:
        lines += [f"  {line}" for line in wrap(reason, width - 2)]
    for pool in entry["pools"]:
        text = (
            f"{pool['pool']}: {pool['before']} -> {pool['after']}, as {stack_words(pool['stack'])}"
        )
        lines += [f"  {line}" for line in wrap(text, width - 2)]
        for finding in pool["lost"]:
            lines += _finding(finding, width, indent="    ")
        for finding in pool["gained"]:
            lines += _wrapped(f"gone: {_said(finding)}", width, "    ")
    return lines


def _finding(finding: dict[str, Any], width: int, *, indent: str) -> list[str]:
    lines = _wrapped(f"{finding['outcome']} {_said(finding)}", width, indent)
    for fix in finding["fixes"][:1]:
        lines += _wrapped(f"fix: {fix['message']}: {fix_option(fix['set'])}", width, f"{indent}  ")
    return lines


def _said(finding: dict[str, Any]) -> str:
    return f"{finding['rule']} {finding['name']}: {finding['message']}"


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    return [f"{indent}{line}" for line in wrap(text, max(width - len(indent), 30))]
