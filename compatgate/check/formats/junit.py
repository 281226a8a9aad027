"""Render verdicts as JUnit XML: one test case per checked rule.

Source: the schema of Jenkins' xUnit plugin, junit-10.xsd; GitLab reads the same format.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from compatgate.check.formats import text
from compatgate.check.reports import Answer, Json, View

_INVALID = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot carry."""
_KINDS = {"failures": "failure", "errors": "error", "skipped": "skipped"}
"""Counter attribute of a suite to the counted element."""


def render(answers: Sequence[Answer], view: View) -> str:
    """Render one test suite per answer; warnings are output of a passing case."""
    suites = [_suite(answer) for answer in answers]
    total = {key: sum(counts[key] for counts, _ in suites) for key in ("tests", *_KINDS)}
    total.pop("skipped")  # only suites have this attribute
    return "\n".join(
        [
            '<?xml version="1.0" encoding="UTF-8"?>',
            f'<testsuites name="compatgate" {_counted(total)}>',
            *(line for _, lines in suites for line in lines),
            "</testsuites>",
        ]
    )


def _suite(answer: Answer) -> tuple[dict[str, int], list[str]]:
    from compatgate.core.rules import BY_ID

    verdict = answer.verdict
    passed = [(rule, BY_ID[rule].name if rule in BY_ID else rule) for rule in _passed(verdict)]
    cases = {rule: _case(rule, name, []) for rule, name in passed}
    grouped: dict[str, list[Json]] = {}
    for finding in verdict["findings"]:
        grouped.setdefault(finding["rule"], []).append(finding)
    let_pass = verdict["mode"] if verdict["allowed"] else ""
    cases |= {r: _case(r, group[0]["name"], group, let_pass) for r, group in grouped.items()}
    counts = {"tests": len(cases)}
    counts |= {
        key: sum(f"<{element} " in case for case in cases.values())
        for key, element in _KINDS.items()
    }
    of = f"{answer.file}: " if answer.file else ""
    name = _attribute(f"compatgate: {of}{text.place_words(verdict)}")
    when = _attribute(verdict["decided_at"])
    return counts, [
        f'  <testsuite name="{name}" {_counted(counts)} timestamp="{when}">',
        *_properties(verdict),
        *(cases[rule] for rule in sorted(cases)),
        "  </testsuite>",
    ]


def _counted(counts: Mapping[str, int]) -> str:
    return " ".join(f'{key}="{count}"' for key, count in counts.items())


def _passed(verdict: Json) -> list[str]:
    return list(verdict["checked"]["passed"])


def _properties(verdict: Json) -> list[str]:
    answer, _ = text.headline(verdict)
    values = {
        "answer": answer,
        "stack": text.stack_words(verdict["stack"]),
        "verdict": verdict["id"],
        "facts": verdict["facts"],
        "matrix_revision": str(verdict["matrix_revision"]),
    }
    items = [
        f'      <property name="{name}" value="{_attribute(value)}"/>'
        for name, value in values.items()
    ]
    return ["    <properties>", *items, "    </properties>"]


def _case(rule: str, name: str, findings: list[Json], let_pass: str = "") -> str:
    start = (
        f'    <testcase classname="compatgate.{_attribute(name)}" name="{rule} {_attribute(name)}"'
    )
    inner = [line for finding in findings for line in _outcome(finding, let_pass)]
    return "\n".join([f"{start}>", *inner, "    </testcase>"]) if inner else f"{start}/>"


def _outcome(finding: Json, let_pass: str) -> list[str]:
    """Return the element of a finding; findings that the target's mode allows are output."""
    message = _attribute(finding["message"])
    body = _escaped(_details(finding))
    kind = finding["outcome"]
    if let_pass and kind in ("fail", "unknown"):
        kind = f"{kind}, allowed by mode '{let_pass}'"
    if kind == "fail":
        return [f'      <failure type="fail" message="{message}">{body}</failure>']
    if kind == "unknown":
        return [f'      <error type="unknown" message="{message}">{body}</error>']
    if kind == "not-checked":
        return [f'      <skipped message="{message}"/>']
    return [f"      <system-out>{_escaped(kind)}: {body}</system-out>"]


def _details(finding: Json) -> str:
    lines = [finding["message"]]
    for label in ("have", "need"):
        if finding[label]:
            lines.append(f"{label}: {finding[label]}")
    lines.append(f"pools: {', '.join(finding['pools'])}")
    lines += [f"fix: {fix['message']} ({text.fix_option(fix['set'])})" for fix in finding["fixes"]]
    if source := text.source_words(finding["source"]):
        lines.append(f"source: {source}")
    return "\n".join(lines)


def _escaped(text: str) -> str:
    clean = _INVALID.sub("\ufffd", text)
    return clean.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _attribute(text: str) -> str:
    return _escaped(text).replace('"', "&quot;").replace("\n", "&#10;")
