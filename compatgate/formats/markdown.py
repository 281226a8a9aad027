"""Render verdicts as Markdown for a comment on a pull request."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import quote

from compatgate.formats import text
from compatgate.formats.reports import Answer, Json, View
from compatgate.kit.cli.output import shorten_text
from compatgate.kit.sections import markdown_text

_SIGNS = {"fail": "❌", "unknown": "❔", "warn": "⚠️", "waived": "🎫"}
_LINKED = re.compile(r"([@#])(?=[\w\-])")
"""Characters before names and numbers that forges turn into links: people and issues."""
_NOT_IN_COMMENT = re.compile(r"(?:[^A-Za-z0-9._ /:+]|-)+")
_MOST = 60_000
"""Maximum characters; GitHub refuses comments of 65,536 and more."""
_MAX_FINDINGS = 30
_LONGEST = 600


def render(answers: Sequence[Answer], view: View) -> str:
    """Render a hidden marker, by which a bot finds its comment, and a section per answer."""
    sections = [render_section(answer) for answer in answers]
    if not sections:
        sections = ["### ✅ compatgate: nothing to check"]
    text = "\n\n".join([marker(answers), *sections])
    if len(text) > _MOST:
        short = [_head(answer) for answer in answers]
        text = "\n\n".join([marker(answers), *short, "The findings do not fit in a comment."])
    return text[:_MOST]


def marker(answers: Sequence[Answer]) -> str:
    """Return ``<!-- compatgate: target prod-a100 -->``, the same for every answer on a target."""
    manifests = any("manifest" in answer.verdict for answer in answers)
    names = (text.format_place(answer.verdict) for answer in answers)
    places = {"manifests": None} if manifests else dict.fromkeys(names)
    shown = _NOT_IN_COMMENT.sub("-", "; ".join(places))[:200].strip("-")
    return f"<!-- compatgate: {shown} -->"


def render_section(answer: Answer) -> str:
    """Render one answer: headline, table of findings, fixes and basis."""
    verdict = answer.verdict
    parts = [_head(answer)]
    weighing = [f for f in verdict["findings"] if f["outcome"] in _SIGNS]
    if weighing:
        parts.append(_table(weighing[:_MAX_FINDINGS], pools=text.shows_pools(verdict)))
    if (more := len(weighing) - _MAX_FINDINGS) > 0:
        parts.append(f"... and {more} more.")
    lines = [
        f"- {_text(fix['message'])}: {_code(text.fix_option(fix['set']))}"
        for finding in weighing[:_MAX_FINDINGS]
        for fix in finding["fixes"]
    ]
    if fixes := list(dict.fromkeys(lines)):
        parts.append("**Fixes** (each was evaluated)\n\n" + "\n".join(fixes))
    if skipped := text.findings_of(verdict, "not-checked"):
        items = [f"- `{f['rule']}` {_text(f['message'])}" for f in skipped[:_MAX_FINDINGS]]
        parts.append(_fold("Not checked", "\n".join(items)))
    if sources := _sources(weighing[:_MAX_FINDINGS]):
        parts.append(_fold("Sources", "\n".join(sources)))
    if note := text.degraded_note(verdict):
        parts.append(f"⚠️ {_text(note)}")
    link = f" · [verdict]({url})" if (url := _address(answer.link)) else ""
    parts.append(f"<sub>{_text(text.provenance(verdict))}{link}</sub>")
    return "\n\n".join(parts)


def _head(answer: Answer) -> str:
    said, colour = text.headline(answer.verdict)
    sign = {"red": "❌", "yellow": "⚠️", "green": "✅"}[colour]
    title = answer.heading or answer.file
    of = f" ({_text(title)})" if title else ""
    if "subject" in answer.verdict:
        return f"### {sign} compatgate: {_text(said)}{of}\n\n{_text(text.subject(answer.verdict))}"
    stack = _text(text.format_stack(answer.verdict["stack"]))
    where = _text(text.format_place(answer.verdict))
    return f"### {sign} compatgate: {_text(said)}{of}\n\n{stack} on **{where}**"


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


def _sources(findings: list[Json]) -> list[str]:
    lines = []
    for finding in findings:
        source = finding["source"]
        if not source:
            continue
        title = _text(text.format_source({**source, "url": None}))
        url = _address(source["url"])
        link = f"[{title}]({url})" if url else title
        lines.append(f"- `{finding['rule']}` {link}")
    return list(dict.fromkeys(lines))


def _fold(title: str, body: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{body}\n\n</details>"


def _address(url: str | None) -> str:
    """Return a web address that cannot break out of its link; empty for other addresses."""
    if not url or not url.startswith(("http://", "https://")):
        return ""
    return quote(url, safe="/:?#@!$&'*+,;=%~")


def _code(text: str | None) -> str:
    if not text:
        return ""
    clean = _shorten(text).replace("|", "\\|")
    return f"`{clean}`" if "`" not in clean else _text(text)


def _text(text: str) -> str:
    """Escape markup and mentions, on one line."""
    return _LINKED.sub("\\1\u200b", markdown_text(_shorten(text).replace("&", "&amp;")))


def _shorten(text: str) -> str:
    return shorten_text(" ".join(text.split()), _LONGEST)
