"""JUnit XML: one test case per rule that was checked, in the dialect that CI servers read."""

from __future__ import annotations

import re

from compatgate.cli.formats import Json, View, words

_INVALID = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot carry."""


def render(verdict: Json, view: View) -> str:
    """A test suite; passed rules pass, warnings are output of a passing case."""
    from compatgate.core.rules import BY_ID

    passed = [(rule, BY_ID[rule].name if rule in BY_ID else rule) for rule in _passed(verdict)]
    cases = {rule: _case(rule, name, []) for rule, name in passed}
    grouped: dict[str, list[Json]] = {}
    for finding in verdict["findings"]:
        grouped.setdefault(finding["rule"], []).append(finding)
    cases |= {rule: _case(rule, group[0]["name"], group) for rule, group in grouped.items()}
    failures, errors, skipped = (
        sum(f"<{kind} " in case for case in cases.values())
        for kind in ("failure", "error", "skipped")
    )
    name = _attribute(f"compatgate: {words.place(verdict)}")
    counts = f'tests="{len(cases)}" failures="{failures}" errors="{errors}" skipped="{skipped}"'
    return "\n".join(
        [
            '<?xml version="1.0" encoding="UTF-8"?>',
            f'<testsuites name="compatgate" {counts}>',
            f'  <testsuite name="{name}" {counts} timestamp="{_attribute(verdict["decided_at"])}">',
            *_properties(verdict),
            *(cases[rule] for rule in sorted(cases)),
            "  </testsuite>",
            "</testsuites>",
        ]
    )


def _passed(verdict: Json) -> list[str]:
    return list(verdict["checked"]["passed"])


def _properties(verdict: Json) -> list[str]:
    answer, _ = words.headline(verdict)
    values = {
        "answer": answer,
        "stack": words.stack_words(verdict["stack"]),
        "verdict": verdict["id"],
        "facts": verdict["facts"],
        "matrix_revision": str(verdict["matrix_revision"]),
    }
    items = [
        f'      <property name="{name}" value="{_attribute(value)}"/>'
        for name, value in values.items()
    ]
    return ["    <properties>", *items, "    </properties>"]


def _case(rule: str, name: str, findings: list[Json]) -> str:
    start = (
        f'    <testcase classname="compatgate.{_attribute(name)}" name="{rule} {_attribute(name)}"'
    )
    inner = [line for finding in findings for line in _outcome(finding)]
    return "\n".join([f"{start}>", *inner, "    </testcase>"]) if inner else f"{start}/>"


def _outcome(finding: Json) -> list[str]:
    message = _attribute(finding["message"])
    body = _escaped(_details(finding))
    kind = finding["outcome"]
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
    lines += [f"fix: {fix['message']} ({words.fix_option(fix['set'])})" for fix in finding["fixes"]]
    if source := words.source_words(finding["source"]):
        lines.append(f"source: {source}")
    return "\n".join(lines)


def _escaped(text: str) -> str:
    clean = _INVALID.sub("\ufffd", text)
    return clean.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _attribute(text: str) -> str:
    return _escaped(text).replace('"', "&quot;").replace("\n", "&#10;")
