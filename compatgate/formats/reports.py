"""Render verdicts in the chosen formats, and write them to the chosen files.

A format is a function of a module that is imported on demand. It takes answers (verdicts in the
JSON form of ``POST /gate``) and a view, and returns a text without a final newline. A check of
several lockfiles has one answer for each. Register a format in `FORMATS`.

Fields that formats need are checked: an answer of a server without them is not a decision.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

import msgspec
from msgspec import Struct

from compatgate.core.rule import OUTCOME_RANK, Checked, Finding, Outcome
from compatgate.errors import BadInput, Unavailable, quote_error

Json = dict[str, Any]
STDOUT = "-"
FORMATS: dict[str, str] = {
    "text": "compatgate.formats.text",
    "json": "compatgate.formats.reports:json",
    "sarif": "compatgate.formats.sarif",
    "junit": "compatgate.formats.ci:junit",
    "github": "compatgate.formats.ci:github",
    "gitlab-codequality": "compatgate.formats.ci:gitlab",
    "markdown": "compatgate.formats.markdown",
    "dotenv": "compatgate.formats.ci:dotenv",
}
"""Format to ``module`` (its ``render``) or ``module:name`` (its ``render_name``)."""


class Place(Struct, frozen=True):
    """A line of a file, counted from 1; 1 also means the whole file."""

    path: str
    line: int = 1


class Answer(Struct, frozen=True):
    """A verdict in the form of ``POST /gate``, with details of the question.

    The ``file`` was read, if there are several; findings whose component has no place are ``at``
    one. The link is empty if no server stores the verdict, the ``heading`` where the file is the
    title.
    """

    verdict: Json
    file: str = ""
    places: Mapping[str, Place] = {}
    at: Place | None = None
    link: str = ""
    heading: str = ""

    def place(self, finding: Json) -> Place | None:
        """Return the place of a finding."""
        return self.places.get(finding["component"]) or self.at


class View(Struct, frozen=True):
    """Width of text output, and whether it is coloured."""

    width: int = 100
    colour: bool = False


def render(name: str, verdict: Json, view: View | None = None) -> str:
    """Render a verdict in a format."""
    return render_all(name, [Answer(verdict)], view)


def render_all(name: str, answers: Sequence[Answer], view: View | None = None) -> str:
    """Render verdicts in a format."""
    module, _, function = FORMATS[name].partition(":")
    function = f"render_{function}" if function else "render"
    text: str = getattr(import_module(module), function)(answers, view or View())
    return text


class Report(Struct, frozen=True):
    """A format and its file; ``-`` is standard output."""

    form: str
    path: str = STDOUT


def read_reports(forms: Sequence[str], output: str | None) -> list[Report]:
    """Read ``--format NAME[=FILE]`` and ``--output FILE``.

    A format without a file goes to ``--output``, or else to standard output. If every format has a
    file, standard output gets the text for people.
    """
    reports: list[Report] = []
    for stated in forms:
        form, _, path = stated.partition("=")
        reports.append(Report(form, path or output or STDOUT))
    if not any("=" not in stated for stated in forms):
        reports.insert(0, Report("text", output or STDOUT))
    paths = [report.path for report in reports]
    if twice := next((path for path in paths if paths.count(path) > 1), None):
        where = "standard output" if twice == STDOUT else twice
        hint = "name a file for all but one: --format sarif=compatgate.sarif"
        raise BadInput(f"several formats write to {where}", field="--format", hint=hint)
    return reports


def open_reports(
    forms: Sequence[str], output: str | None, inputs: Iterable[str | None]
) -> list[Report]:
    """Read the options of reports; refuse one that would overwrite an input file.

    The files of an earlier run are removed, so that no old answer remains if this run fails.
    """
    reports = read_reports(forms, output)
    written = [report.path for report in reports if report.path != STDOUT]
    read = {os.path.realpath(path) for path in inputs if path and path != STDOUT}
    for path in written:
        if os.path.realpath(path) in read:
            raise BadInput(f"would overwrite the input file {path}", field="--format")
    for path in written:
        with suppress(OSError):
            if stat.S_ISREG(os.lstat(path).st_mode):
                os.unlink(path)
    return reports


def write_reports(reports: Sequence[Report], answers: Sequence[Answer]) -> None:
    """Write every report."""
    from compatgate.kit.cli.output import wants_colour, width_of

    for report in reports:
        if report.path != STDOUT:
            from compatgate.kit.cli.output import write_output

            text = render_all(report.form, answers)
            write_output(report.path, f"{text}\n".encode("utf-8", "backslashreplace"))
            continue
        view = View(width=width_of(sys.stdout), colour=wants_colour(sys.stdout))
        if text := render_all(report.form, answers, view):
            print(text)


def render_json(answers: Sequence[Answer], view: View) -> str:
    """Return the JSON document."""
    verdicts = [answer.verdict for answer in answers]
    one = len(answers) == 1 and not answers[0].file
    document = verdicts[0] if one else verdicts
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()


class _Pool(Struct):
    name: str
    gpu: str | None
    driver: str | None
    os: str


class _Verdict(Struct):
    id: str
    verdict: Outcome
    allowed: bool
    mode: str
    target: str | None
    findings: list[Finding]
    checked: Checked
    stack: dict[str, Any]
    pools: list[_Pool]
    matrix_revision: int
    facts: str
    overlays: list[str]
    evidence: list[str]
    decided_at: str
    valid_until: str | None


def verdict_of(answer: dict[str, Any], server: str) -> dict[str, Any]:
    """Validate an answer and return it unchanged, with unknown fields of newer gates."""
    try:
        msgspec.convert(answer, _Verdict)
    except msgspec.ValidationError as error:
        problem = f"the answer of the gate is not a verdict: {quote_error(error)}"
        hint = "check that the URL belongs to a gate"
        raise Unavailable(problem, field=server, hint=hint) from None
    return answer


def find_worst(verdicts: Iterable[Json]) -> Json:
    """Return the verdict that weighs most: what is denied first, then the worst outcome."""
    return max(verdicts, key=lambda v: (not v["allowed"], OUTCOME_RANK[v["verdict"]]))


def join_verdicts(verdicts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Join verdicts on several pools to one, in JSON form.

    ``id`` is that of the worst verdict, ``ids`` lists all; equal findings are merged.
    """
    if len(verdicts) == 1:
        return verdicts[0]
    worst = find_worst(verdicts)
    findings: dict[str, dict[str, Any]] = {}
    for verdict in verdicts:
        for finding in verdict["findings"]:
            key = repr({**finding, "pools": None})
            known = findings.setdefault(key, {**finding, "pools": []})
            known["pools"] = [*known["pools"], *finding["pools"]]
    objecting = {finding["rule"] for finding in findings.values()}
    return {
        **worst,
        "allowed": all(verdict["allowed"] for verdict in verdicts),
        "ids": [verdict["id"] for verdict in verdicts],
        "findings": sorted(
            findings.values(), key=lambda f: (-OUTCOME_RANK[f["outcome"]], f["rule"])
        ),
        "checked": {
            key: [
                rule
                for rule in dict.fromkeys(r for v in verdicts for r in v["checked"][key])
                if rule not in objecting
            ]
            for key in ("passed", "not_applicable")
        },
        "pools": [pool for verdict in verdicts for pool in verdict["pools"]],
    }
