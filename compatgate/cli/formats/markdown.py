"""Markdown for a pull-request comment."""

from __future__ import annotations

import re

from compatgate.cli.formats import Json, View, words

_SIGNS = {"fail": "❌", "unknown": "❔", "warn": "⚠️", "waived": "🎫"}
_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~])")


def render(verdict: Json, view: View) -> str:
    """Headline, a table of findings, fixes, and what the answer rests on."""
    answer, colour = words.headline(verdict)
    sign = {"red": "❌", "yellow": "⚠️", "green": "✅"}[colour]
    parts = [
        f"### {sign} compatgate: {_text(answer)}",
        f"{_text(words.stack_words(verdict['stack']))} on **{_text(words.place(verdict))}**",
    ]
    weighing = [f for f in verdict["findings"] if f["outcome"] in _SIGNS]
    if weighing:
        parts.append(_table(weighing, pools=words.shows_pools(verdict)))
    if fixes := _fixes(weighing):
        parts.append("**Fixes** (each was evaluated)\n\n" + "\n".join(fixes))
    if skipped := words.of(verdict, "not-checked"):
        items = [f"- `{f['rule']}` {_text(f['message'])}" for f in skipped]
        parts.append(_folded("Not checked", "\n".join(items)))
    if sources := _sources(weighing):
        parts.append(_folded("Sources", "\n".join(sources)))
    parts.append(f"<sub>{_text(words.provenance(verdict))}</sub>")
    return "\n\n".join(parts)


def _table(findings: list[Json], *, pools: bool) -> str:
    columns = ["", "rule", "finding", "have", "need", *(["pools"] if pools else [])]
    rows = [columns, ["---"] * len(columns)]
    for finding in findings:
        row = [
            _SIGNS[finding["outcome"]],
            f"`{finding['rule']}` {_text(finding['name'])}",
            _text(finding["message"]),
            _code(finding["have"]),
            _code(finding["need"]),
        ]
        rows.append(row + [_text(", ".join(finding["pools"]))] * pools)
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _fixes(findings: list[Json]) -> list[str]:
    lines = [
        f"- {_text(fix['message'])}: `{words.fix_option(fix['set'])}`"
        for finding in findings
        for fix in finding["fixes"]
    ]
    return list(dict.fromkeys(lines))


def _sources(findings: list[Json]) -> list[str]:
    lines = []
    for finding in findings:
        source = finding["source"]
        if not source:
            continue
        title = _text(words.source_words({**source, "url": None}))
        link = f"[{title}]({source['url']})" if source["url"] else title
        lines.append(f"- `{finding['rule']}` {link}")
    return list(dict.fromkeys(lines))


def _folded(title: str, body: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{body}\n\n</details>"


def _code(text: str | None) -> str:
    if not text:
        return ""
    clean = " ".join(text.split()).replace("|", "\\|")
    return f"`{clean}`" if "`" not in clean else _text(text)


def _text(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))
