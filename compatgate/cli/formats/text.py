"""For a person at a terminal: the answer first, then the reason, then what to do."""

from __future__ import annotations

from collections.abc import Sequence

from compatgate.cli.formats import Answer, Json, View, words
from compatgate.cli.terminal import paint, printable, wrap

_MARKS = {
    "fail": ("FAIL", "red"),
    "unknown": ("UNKNOWN", "yellow"),
    "warn": ("WARN", "yellow"),
    "waived": ("WAIVED", "cyan"),
}
_LABEL = 8
"""Columns of the labels have, need, fix, source."""


def render(answers: Sequence[Answer], view: View) -> str:
    """Text of at most ``view.width`` columns; long addresses and commands are not broken."""
    return "\n\n".join(_titled(answer, view) for answer in answers)


def _titled(answer: Answer, view: View) -> str:
    """One answer, under the name of its file where there are several."""
    text = _one(answer.verdict, view)
    if not answer.file:
        return text
    return f"{paint(printable(answer.file), 'bold', colour=view.colour)}\n{text}"


def _one(verdict: Json, view: View) -> str:
    lines = _head(verdict, view)
    pools = words.shows_pools(verdict)
    for finding in words.of(verdict, "fail", "unknown"):
        lines += ["", *_reason(finding, view, pools=pools)]
    lesser = words.of(verdict, "warn", "waived")
    for finding in lesser:
        lines += ["", *_short(finding, view, pools=pools)]
    skipped = words.of(verdict, "not-checked")
    if skipped:
        lines.append("")
        lines += [line for finding in skipped for line in _skipped(finding, view)]
    lines.append("")
    lines += [_dim(line, view) for line in wrap(words.provenance(verdict), view.width)]
    return "\n".join(lines)


def _head(verdict: Json, view: View) -> list[str]:
    answer, colour = words.headline(verdict)
    text = f"{answer}: {words.stack_words(verdict['stack'])} on {words.place(verdict)}"
    first, *rest = wrap(text, view.width)
    marked = paint(answer, "bold", colour, colour=view.colour) + first.removeprefix(answer)
    lines = [marked if first.startswith(answer) else first, *rest]
    if verdict["target"] and len(verdict["pools"]) <= 4:
        pools = [f"  {p['name']}: {words.pool_words(p)}" for p in verdict["pools"]]
        lines += map(printable, pools)
    return lines


def _title(finding: Json, view: View, *, pools: bool) -> list[str]:
    """Outcome and rule; the pools beside them, or below where there is no room."""
    mark, colour = _MARKS[finding["outcome"]]
    name = printable(f"{finding['rule']} {finding['name']}")
    shown = f"{paint(f'{mark:<7}', 'bold', colour, colour=view.colour)} {name}"
    names = printable(", ".join(finding["pools"]))
    if not pools:
        return [shown]
    if len(name) + len(names) + 12 <= view.width:
        return [f"{shown}  {_dim(f'[{names}]', view)}"]
    return [shown, *_labelled("pools", names, view)]


def _reason(finding: Json, view: View, *, pools: bool) -> list[str]:
    """Everything about a finding that decides."""
    lines = _title(finding, view, pools=pools)
    lines += [f"  {line}" for line in wrap(finding["message"], view.width - 2)]
    component = finding["component"]
    if finding["have"]:
        lines += _labelled("have", f"{component} {finding['have']}", view)
    if finding["need"]:
        lines += _labelled("need", finding["need"], view)
    for fix in finding["fixes"]:
        lines += _labelled("fix", fix["message"], view)
        lines.append(
            f"  {'':<{_LABEL}}{paint(words.fix_option(fix['set']), 'bold', colour=view.colour)}"
        )
    if source := words.source_words(finding["source"]):
        lines += [_dim(line, view) for line in _labelled("source", source, view)]
    return lines


def _short(finding: Json, view: View, *, pools: bool) -> list[str]:
    lines = _title(finding, view, pools=pools)
    lines += [f"  {line}" for line in wrap(finding["message"], view.width - 2)]
    for fix in finding["fixes"][:1]:
        lines += _labelled("fix", f"{fix['message']}: {words.fix_option(fix['set'])}", view)
    return lines


def _skipped(finding: Json, view: View) -> list[str]:
    text = f"not checked: {finding['rule']} {finding['name']}: {finding['message']}"
    first, *rest = wrap(text, view.width - 2)
    return [_dim(first, view), *(_dim(f"  {line}", view) for line in rest)]


def _labelled(label: str, text: str, view: View) -> list[str]:
    first, *rest = wrap(text, max(view.width - 2 - _LABEL, 30))
    return [f"  {label:<{_LABEL}}{first}", *(f"  {'':<{_LABEL}}{line}" for line in rest)]


def _dim(text: str, view: View) -> str:
    return paint(text, "dim", colour=view.colour)
