"""GitHub workflow commands: annotations on the run.

Source: GitHub Docs, "Workflow commands for GitHub Actions"; escaping as in actions/toolkit,
packages/core/src/command.ts.
"""

from __future__ import annotations

from compatgate.cli.formats import Json, View, words

_COMMANDS = {"fail": "error", "unknown": "error", "warn": "warning", "waived": "notice"}


def render(verdict: Json, view: View) -> str:
    """One annotation per finding, then the answer in a line of its own."""
    lines = [
        _command(finding, verdict)
        for finding in verdict["findings"]
        if finding["outcome"] in _COMMANDS
    ]
    answer, _ = words.headline(verdict)
    summary = f"{answer}: {words.stack_words(verdict['stack'])} on {words.place(verdict)}"
    return "\n".join([*lines, _plain(summary), _plain(words.provenance(verdict))])


def _command(finding: Json, verdict: Json) -> str:
    command = _COMMANDS[finding["outcome"]]
    if command == "error" and verdict["allowed"]:
        command = "warning"
    title = f"{finding['rule']} {finding['name']}"
    return f"::{command} title={_property(title)}::{_message(_text(finding, verdict))}"


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
    clean = " ".join(text.split())
    return f" {clean}" if clean.startswith("::") else clean
