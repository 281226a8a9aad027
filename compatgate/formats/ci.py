"""Render verdicts for CI servers: GitHub Actions, GitLab CI and JUnit XML.

For GitHub: annotations on the run, the job's summary and the step's outputs. For GitLab: the code
quality report, which shows findings at the lines of a merge request, and variables for later steps
(dotenv, also read by Tekton) with only ASCII letters, digits and ``_.-``, so that a shell can read
the file. A finding has the same fingerprint in every run. JUnit XML has one test case per rule.

Sources: GitHub Docs, "Workflow commands for GitHub Actions", also its sections on environment
files and multiline strings; escaping as in actions/toolkit, packages/core/src/command.ts. GitLab
Docs, "Code Quality", section "Code Quality report format"; each issue has a description, check
name, unique fingerprint, severity and a path relative to the repository. The schema of Jenkins'
xUnit plugin, junit-10.xsd; GitLab reads the same format.
"""

from __future__ import annotations

import os
import re
import secrets
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

import msgspec

from compatgate.core.rule import REFUSING
from compatgate.documents.sources import DocumentProblem
from compatgate.errors import BadInput, CompatgateError, ManyProblems
from compatgate.formats import text
from compatgate.formats.reports import Answer, Json, Place, View, render_all
from compatgate.kit.cli.output import strip_commands

_COMMANDS = {"fail": "error", "unknown": "error", "warn": "warning", "waived": "notice"}
_SEVERITIES = {"fail": "blocker", "unknown": "critical", "warn": "minor", "waived": "info"}
_ALLOWED = "major"
"""Severity of failing or unknown findings that the target's mode allows."""
_KINDS = {"failures": "failure", "errors": "error", "skipped": "skipped"}
"""Counter attribute of a suite to the counted element."""
_NOT_OF_DOTENV = re.compile(r"[^A-Za-z0-9_.\-]")
_NOT_OF_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_LARGEST_SUMMARY = 1024 * 1024


def place_of_finding(finding: Json, answer: Answer) -> Place:
    """Return the line of the component; without a file use the target as the required path."""
    known = answer.place(finding)
    if known is None:
        name = answer.verdict["target"] or "pool"
        return Place(f"compatgate/{re.sub(r'[^A-Za-z0-9._-]', '-', name)}")
    return Place(relative_path(known.path), known.line)


def relative_path(path: str) -> str:
    """Return the path relative to the working directory, with slashes; outside of it, absolute."""
    if path == "-":
        return "stdin"
    shown = os.path.relpath(path)
    outside = shown == os.pardir or shown.startswith(os.pardir + os.sep)
    shown = os.path.abspath(path) if outside else shown
    return shown.replace(os.sep, "/").encode("utf-8", "replace").decode()


def list_findings(answers: Sequence[Answer]) -> Iterator[tuple[Json, Answer, str]]:
    """Yield every finding with its answer and its fingerprint.

    A fingerprint has 64 hexadecimal digits. It is unique in a report and the same for a finding in
    every run, even if the message changes.
    """
    seen: Counter[tuple[str, ...]] = Counter()
    for answer in answers:
        for finding in answer.verdict["findings"]:
            parts = (
                answer.verdict["target"] or "pool",
                relative_path(answer.file) if answer.file else "",
                finding["rule"],
                str(finding["component"]),
                *finding["pools"],
            )
            number = seen[parts]
            seen[parts] += 1
            told = "\0".join((*parts, str(number))).encode("utf-8", "replace")
            yield finding, answer, sha256(told).hexdigest()


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
        title = answer.heading or answer.file
        of = f"{title}: " if title else ""
        ends = (
            f"{of}{text.headline(verdict)[0]}: {text.subject(verdict)}",
            text.provenance(verdict),
        )
        lines += [strip_commands(" ".join(one.split())) for one in ends]
    return "\n".join(lines)


def workflow_command(name: str, message: str, **properties: str | int) -> str:
    """Return a workflow command: ``::error file=uv.lock,line=3::message``."""
    stated = ",".join(
        f"{key}={_escape(str(value)).replace(':', '%3A').replace(',', '%2C')}"
        for key, value in properties.items()
    )
    return f"::{name}{' ' if stated else ''}{stated}::{_escape(message)}"


def _annotation(finding: Json, answer: Answer) -> str:
    name = _COMMANDS[finding["outcome"]]
    if name == "error" and answer.verdict["allowed"]:
        name = "warning"
    known = answer.place(finding)
    at: dict[str, Any] = {}
    if known:
        at = {"file": relative_path(known.path), "line": known.line}
    title = f"{finding['rule']} {finding['name']}"
    pools = ["pools"] if text.shows_pools(answer.verdict) else []
    message = text.describe_finding(finding, *pools, "need", "fix")
    return workflow_command(name, message, **at, title=title)


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def publish(answers: Sequence[Answer]) -> None:
    """Write the job summary and the outputs ``verdict``, ``allowed``, ``id`` and ``markdown``.

    Do nothing if the environment names no files for them.
    """
    markdown = render_all("markdown", answers)
    _append("GITHUB_STEP_SUMMARY", f"{markdown}\n\n", largest=_LARGEST_SUMMARY)
    _append("GITHUB_OUTPUT", _outputs({**text.outcome(answers), "markdown": markdown}))


def publish_error(error: CompatgateError, *, let_pass: bool) -> None:
    """Annotate that no decision was made, or that the question was malformed."""
    name = "warning" if let_pass else "error"
    mistakes = error.problems if isinstance(error, ManyProblems) else ()
    for mistake in mistakes:
        if isinstance(mistake, DocumentProblem) and mistake.file and mistake.line:
            file = relative_path(mistake.file)
            print(workflow_command(name, mistake.problem, file=file, line=mistake.line))
    print(workflow_command(name, error.detail, title="compatgate"))
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


def render_gitlab(answers: Sequence[Answer], view: View) -> str:
    """Render a JSON array with one issue per finding."""
    issues = [
        _issue(finding, answer, fingerprint)
        for finding, answer, fingerprint in list_findings(answers)
        if finding["outcome"] in _SEVERITIES
    ]
    return msgspec.json.format(msgspec.json.encode(issues), indent=2).decode()


def _issue(finding: Json, answer: Answer, fingerprint: str) -> dict[str, Any]:
    place = place_of_finding(finding, answer)
    severity = _SEVERITIES[finding["outcome"]]
    if answer.verdict["allowed"] and finding["outcome"] in REFUSING:
        severity = _ALLOWED
    fixes = "".join(f"; fix: {fix['message']}" for fix in finding["fixes"][:1])
    return {
        "description": f"{text.format_place(answer.verdict)}: {finding['message']}{fixes}",
        "check_name": f"{finding['rule']} {finding['name']}",
        "fingerprint": fingerprint,
        "severity": severity,
        "location": {"path": place.path, "lines": {"begin": place.line}},
    }


def render_dotenv(answers: Sequence[Answer], view: View) -> str:
    """Render the worst answer: ``COMPATGATE_VERDICT``, ``COMPATGATE_ALLOWED`` and ``..._ID``."""
    return "\n".join(
        f"COMPATGATE_{name.upper()}={_NOT_OF_DOTENV.sub('', value)}"
        for name, value in text.outcome(answers).items()
    )


def render_junit(answers: Sequence[Answer], view: View) -> str:
    """Render one test suite per answer; warnings are output of a passing case."""
    root = Element("testsuites", name="compatgate")
    for answer in answers:
        _add_suite(root, answer)
    for counter in ("tests", "failures", "errors"):
        root.set(counter, str(sum(int(suite.get(counter, "0")) for suite in root)))
    indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(root, encoding="unicode")}'


def _add_suite(root: Element, answer: Answer) -> None:
    from compatgate.core.rules import BY_ID

    verdict = answer.verdict
    names = {r: BY_ID[r].name if r in BY_ID else r for r in verdict["checked"]["passed"]}
    found: dict[str, list[Json]] = {}
    for finding in verdict["findings"]:
        found.setdefault(finding["rule"], []).append(finding)
    names |= {rule: group[0]["name"] for rule, group in found.items()}
    title = f"compatgate: {answer.file}: " if answer.file else "compatgate: "
    suite = SubElement(root, "testsuite", name=_clean(title + text.format_place(verdict)))
    properties = SubElement(suite, "properties")
    stated = {
        "answer": text.headline(verdict)[0],
        "stack": text.format_stack(verdict["stack"]),
        "verdict": verdict["id"],
        "facts": verdict["facts"],
        "matrix_revision": str(verdict["matrix_revision"]),
    }
    for name, value in stated.items():
        SubElement(properties, "property", name=name, value=_clean(value))
    let_pass = text.format_permission(verdict) if verdict["allowed"] else ""
    for rule, name in sorted(names.items()):
        about = {"classname": _clean(f"compatgate.{name}"), "name": _clean(f"{rule} {name}")}
        case = SubElement(suite, "testcase", about)
        for finding in found.get(rule, ()):
            _add_outcome(case, finding, let_pass)
    suite.set("tests", str(len(names)))
    for counter, kind in _KINDS.items():
        suite.set(counter, str(sum(one.find(kind) is not None for one in suite)))
    suite.set("timestamp", _clean(verdict["decided_at"]))


def _add_outcome(case: Element, finding: Json, let_pass: str) -> None:
    """Add the element of a finding; findings that the target's mode allows are output."""
    message, kind = _clean(finding["message"]), finding["outcome"]
    labels = ("have", "need", "pools", "fix", "source")
    details = _clean(text.describe_finding(finding, *labels))
    if let_pass and kind in REFUSING:
        kind = f"{kind}, allowed by {let_pass}"
    if kind in REFUSING:
        element = "failure" if kind == "fail" else "error"
        SubElement(case, element, type=kind, message=message).text = details
    elif kind == "not-checked":
        SubElement(case, "skipped", message=message)
    else:
        SubElement(case, "system-out").text = f"{_clean(kind)}: {details}"


def _clean(text: str) -> str:
    """Return a text without the characters that XML cannot carry."""
    return _NOT_OF_XML.sub("\ufffd", text)
