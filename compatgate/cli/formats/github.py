"""GitHub workflow commands: annotations on the run.

Source: GitHub Docs, "Workflow commands for GitHub Actions"; escaping as in actions/toolkit,
packages/core/src/command.ts.
"""

from __future__ import annotations

from collections.abc import Sequence

from compatgate.cli.formats import Answer, Json, View, located, words
from compatgate.cli.terminal import without_commands

_COMMANDS = {"fail": "error", "unknown": "error", "warn": "warning", "waived": "notice"}


def render(answers: Sequence[Answer], view: View) -> str:
    """One annotation per finding, then each answer in a line of its own."""
    lines = [
        _annotation(finding, answer)
        for answer in answers
        for finding in answer.verdict["findings"]
        if finding["outcome"] in _COMMANDS
    ]
    for answer in answers:
        verdict = answer.verdict
        said, _ = words.headline(verdict)
        of = f"{answer.file}: " if answer.file else ""
        summary = f"{of}{said}: {words.stack_words(verdict['stack'])} on {words.place(verdict)}"
        lines += [_plain(summary), _plain(words.provenance(verdict))]
    return "\n".join(lines)


def command(name: str, message: str, **properties: str | int) -> str:
    """A workflow command: ``::error file=uv.lock,line=3::message``."""
    shown = ",".join(f"{key}={_property(str(value))}" for key, value in properties.items())
    return f"::{name}{' ' if shown else ''}{shown}::{_message(message)}"


def _annotation(finding: Json, answer: Answer) -> str:
    name = _COMMANDS[finding["outcome"]]
    if name == "error" and answer.verdict["allowed"]:
        name = "warning"
    title = f"{finding['rule']} {finding['name']}"
    text = _text(finding, answer.verdict)
    known = answer.place(finding)
    if known is None:
        return command(name, text, title=title)
    return command(name, text, file=located.relative(known.path), line=known.line, title=title)


def _text(finding: Json, verdict: Json) -> str:
    lines = [finding["message"]]
    if words.shows_pools(verdict):
        lines.append(f"pools: {', '.join(finding['pools'])}")
    if finding["need"]:
        lines.append(f"need: {finding['need']}")
    lines += [f"fix: {fix['message']} ({words.fix_option(fix['set'])})" for fix in finding["fixes"]]
    return "\n".join(lines)


def _message(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")


def _plain(text: str) -> str:
    """A line that cannot be taken for a workflow command."""
    return without_commands(" ".join(text.split()))
