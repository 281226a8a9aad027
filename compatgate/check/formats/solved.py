"""Render stacks that pass, or the nearest misses, as text for people."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from compatgate.check.formats.text import fix_option, format_stack
from compatgate.core.components import label_of
from compatgate.kit.cli.terminal import paint, strip_controls, wrap

Json = dict[str, Any]
_MARKS = {"pass": ("PASS", "green"), "warn": ("WARN", "yellow")}


def render_solved(found: Json, width: int, *, colour: bool) -> str:
    """Return the answer of the solver as text, at most ``width`` columns wide."""
    where = ", ".join(found["targets"]) or "the described pools"
    want = ", ".join(f"{n} {c}" if c != "*" else n for n, c in found["want"].items())
    count = len(found["stacks"])
    if count:
        stacks, verb = ("stacks", "pass") if count > 1 else ("stack", "passes")
        head = f"{count} {stacks} with {want} {verb} on {where}"
    else:
        head = f"no known stack with {want} passes on {where}"
    lines = wrap(strip_controls(head), width)
    lines[0] = paint(lines[0], "bold", "green" if count else "red", colour=colour)
    for text in found["unknown"]:
        lines += wrap(f"  {strip_controls(text)}", width)
    for number, one in enumerate(found["stacks"], 1):
        lines += ["", *_render_stack(number, one, width, colour=colour)]
    if found["misses"]:
        lines += ["", "nearest misses:"]
    for miss in found["misses"]:
        lines += ["", *_render_miss(miss, width)]
    if not found["complete"]:
        lines += [
            "",
            *wrap("not every combination was tried: narrow the wants", width),
        ]
    lines += ["", f"{found['evaluated']} evaluations; facts {found['facts'][:19]}"]
    return "\n".join(lines)


def _render_stack(number: int, one: Json, width: int, *, colour: bool) -> list[str]:
    worst = "warn" if any(v["verdict"] == "warn" for v in one["verdicts"]) else "pass"
    mark, hue = _MARKS[worst]
    stack = wrap(format_stack(one["stack"]), width - 9)
    lines = [f"{number:>2} {paint(f'{mark:<5}', 'bold', hue, colour=colour)} {stack[0]}"]
    lines += [f"         {line}" for line in stack[1:]]
    details = []
    if one["changes"]:
        details.append(f"changes {', '.join(map(_change, one['changes']))}")
    details += [
        f"build {name} for the GPU code in brackets: it is compiled where it is installed"
        for name in one["build"]
    ]
    for verdict in one["verdicts"]:
        said = [f"{f['rule']} {f['name']}" for f in verdict["findings"] if f["outcome"] != "waived"]
        where = strip_controls(verdict["target"] or ", ".join(verdict["pools"]))
        findings = f" ({', '.join(dict.fromkeys(said))})" if said else ""
        until = f", valid until {verdict['valid_until'][:10]}" if verdict["valid_until"] else ""
        details.append(f"{where}: {verdict['verdict']}{findings}{until}, {verdict['id']}")
    return [*lines, *_indent(details, width)]


def _change(change: Json) -> str:
    before, after = change["before"], change["after"]
    if before is None:
        return f"adds {change['name']} {after}"
    if after is None:
        return f"removes {change['name']}"
    return f"{label_of(change['name'])} {before} -> {after}"


def _render_miss(miss: Json, width: int) -> list[str]:
    lines = wrap(f"-- {format_stack(miss['stack'])}", width)
    details = []
    for verdict in miss["verdicts"]:
        where = strip_controls(verdict["target"] or ", ".join(verdict["pools"]))
        for finding in verdict["findings"]:
            if finding["outcome"] not in ("fail", "unknown"):
                continue
            said = f"{finding['outcome']} {finding['rule']} {finding['name']}"
            details.append(f"{where}: {said}: {finding['message']}")
            details += [
                f"  fix: {fix['message']}: {fix_option(fix['set'])}" for fix in finding["fixes"][:1]
            ]
    return [*lines, *_indent(details, width)]


def _indent(texts: Iterable[str], width: int) -> list[str]:
    return [f"         {line}" for text in texts for line in wrap(text, max(width - 9, 30))]
