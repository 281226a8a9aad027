"""Render verdicts for GitHub Actions and GitLab CI.

For GitHub: annotations on the run, the job's summary and the step's outputs. For GitLab: the code
quality report, which shows findings at the lines of a merge request, and variables for later steps
(dotenv, also read by Tekton) with only ASCII letters, digits and ``_.-``, so that a shell can read
the file. A finding has the same fingerprint in every run.

Sources: GitHub Docs, "Workflow commands for GitHub Actions", also its sections on environment
files and multiline strings; escaping as in actions/toolkit, packages/core/src/command.ts. GitLab
Docs, "Code Quality", section "Code Quality report format"; each issue has a description, check
name, unique fingerprint, severity and a path relative to the repository.
"""

from __future__ import annotations

import os
import re
import secrets
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from compatgate.check.formats import text
from compatgate.check.reports import Answer, Json, Place, View, render_all
from compatgate.errors import BadInput, CompatgateError
from compatgate.kit.cli.terminal import without_commands


def located_place(finding: Json, answer: Answer) -> Place:
    """Return the line of the component; without a file use the target as the required path."""
    known = answer.place(finding)
    if known is None:
        return Place(f"compatgate/{_plain(answer.verdict['target'] or 'pool')}")
    return Place(relative(known.path), known.line)


def relative(path: str) -> str:
    """Return the path relative to the working directory, with slashes; outside of it, absolute."""
    if path == "-":
        return "stdin"
    shown = os.path.relpath(path)
    outside = shown == os.pardir or shown.startswith(os.pardir + os.sep)
    shown = os.path.abspath(path) if outside else shown
    return shown.replace(os.sep, "/").encode("utf-8", "replace").decode()


def each_finding(answers: Sequence[Answer]) -> Iterator[tuple[Json, Answer, str]]:
    """Yield every finding with its answer and its fingerprint.

    A fingerprint has 64 hexadecimal digits. It is unique in a report and the same for a finding in
    every run, even if the message changes.
    """
    seen: Counter[tuple[str, ...]] = Counter()
    for answer in answers:
        for finding in answer.verdict["findings"]:
            parts = (
                answer.verdict["target"] or "pool",
                relative(answer.file) if answer.file else "",
                finding["rule"],
                str(finding["component"]),
                *finding["pools"],
            )
            number = seen[parts]
            seen[parts] += 1
            told = "\0".join((*parts, str(number))).encode("utf-8", "replace")
            yield finding, answer, sha256(told).hexdigest()


def _plain(name: str) -> str:
    return "".join(c if c.isascii() and (c.isalnum() or c in "-._") else "-" for c in name)


_COMMANDS = {"fail": "error", "unknown": "error", "warn": "warning", "waived": "notice"}


def render_github(answers: Sequence[Answer], view: View) -> str:
    """Render one annotation per finding, then one line per answer."""
    lines = [
        _annotation(finding, answer)
        for answer in answers
        for finding in answer.verdict["findings"]
        if finding["outcome"] in _COMMANDS
    ]
    for answer in answers:
        verdict = answer.verdict
        said, _ = text.headline(verdict)
        of = f"{answer.file}: " if answer.file else ""
        summary = f"{of}{said}: {text.stack_words(verdict['stack'])} on {text.place_words(verdict)}"
        lines += [_without_marks(summary), _without_marks(text.provenance(verdict))]
    return "\n".join(lines)


def command(name: str, message: str, **properties: str | int) -> str:
    """Return a workflow command: ``::error file=uv.lock,line=3::message``."""
    shown = ",".join(f"{key}={_escape_property(str(value))}" for key, value in properties.items())
    return f"::{name}{' ' if shown else ''}{shown}::{_escape_message(message)}"


def _annotation(finding: Json, answer: Answer) -> str:
    name = _COMMANDS[finding["outcome"]]
    if name == "error" and answer.verdict["allowed"]:
        name = "warning"
    title = f"{finding['rule']} {finding['name']}"
    text = _annotation_text(finding, answer.verdict)
    known = answer.place(finding)
    if known is None:
        return command(name, text, title=title)
    return command(name, text, file=relative(known.path), line=known.line, title=title)


def _annotation_text(finding: Json, verdict: Json) -> str:
    lines = [finding["message"]]
    if text.shows_pools(verdict):
        lines.append(f"pools: {', '.join(finding['pools'])}")
    if finding["need"]:
        lines.append(f"need: {finding['need']}")
    lines += [f"fix: {fix['message']} ({text.fix_option(fix['set'])})" for fix in finding["fixes"]]
    return "\n".join(lines)


def _escape_message(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape_message(text).replace(":", "%3A").replace(",", "%2C")


def _without_marks(text: str) -> str:
    """Return a line that is not a workflow command."""
    return without_commands(" ".join(text.split()))


_LARGEST_SUMMARY = 1024 * 1024


def publish(answers: Sequence[Answer]) -> None:
    """Write the job summary and the outputs ``verdict``, ``allowed``, ``id`` and ``markdown``.

    Do nothing if the environment names no files for them.

    Raises:
        BadInput: a file cannot be written.
    """
    markdown = render_all("markdown", answers)
    _append("GITHUB_STEP_SUMMARY", f"{markdown}\n\n", largest=_LARGEST_SUMMARY)
    _append("GITHUB_OUTPUT", _outputs({**text.outcome(answers), "markdown": markdown}))


def publish_error(error: CompatgateError, *, let_pass: bool) -> None:
    """Annotate that no decision was made, or that the question was malformed."""
    print(command("warning" if let_pass else "error", error.detail, title="compatgate"))
    said = {"verdict": "unknown", "allowed": "false", "id": "", "markdown": ""}
    _append("GITHUB_OUTPUT", _outputs(said))


def _outputs(values: Mapping[str, str]) -> str:
    """Format outputs with random delimiters, which no value can contain."""
    lines = []
    for name, value in values.items():
        delimiter = f"compatgate_{secrets.token_hex(16)}"
        lines.append(f"{name}<<{delimiter}\n{value}\n{delimiter}\n")
    return "".join(lines)


def _append(variable: str, text: str, *, largest: int | None = None) -> None:
    path = os.environ.get(variable)
    if not path:
        return
    data = text.encode("utf-8", "replace")
    try:
        with open(path, "ab") as file:
            if largest is None or file.tell() + len(data) <= largest:
                file.write(data)
    except OSError as error:
        raise BadInput(f"cannot write '{path}': {error.strerror}", field=variable) from None


_SEVERITIES = {"fail": "blocker", "unknown": "critical", "warn": "minor", "waived": "info"}
_ALLOWED = "major"
"""Severity of failing or unknown findings that the target's mode allows."""


def render_gitlab(answers: Sequence[Answer], view: View) -> str:
    """Render a JSON array with one issue per finding."""
    issues = [
        _issue(finding, answer, fingerprint)
        for finding, answer, fingerprint in each_finding(answers)
        if finding["outcome"] in _SEVERITIES
    ]
    return msgspec.json.format(msgspec.json.encode(issues), indent=2).decode()


def _issue(finding: Json, answer: Answer, fingerprint: str) -> dict[str, Any]:
    place = located_place(finding, answer)
    severity = _SEVERITIES[finding["outcome"]]
    if answer.verdict["allowed"] and finding["outcome"] in ("fail", "unknown"):
        severity = _ALLOWED
    fixes = "".join(f"; fix: {fix['message']}" for fix in finding["fixes"][:1])
    return {
        "description": f"{text.place_words(answer.verdict)}: {finding['message']}{fixes}",
        "check_name": f"{finding['rule']} {finding['name']}",
        "fingerprint": fingerprint,
        "severity": severity,
        "location": {"path": place.path, "lines": {"begin": place.line}},
    }


_OTHER = re.compile(r"[^A-Za-z0-9_.\-]")


def render_dotenv(answers: Sequence[Answer], view: View) -> str:
    """Render the worst answer: ``COMPATGATE_VERDICT``, ``COMPATGATE_ALLOWED`` and ``..._ID``."""
    return "\n".join(
        f"COMPATGATE_{name.upper()}={_OTHER.sub('', value)}"
        for name, value in text.outcome(answers).items()
    )
