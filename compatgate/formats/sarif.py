"""Render verdicts as SARIF 2.1.0, for code scanning.

Sources: OASIS, Static Analysis Results Interchange Format (SARIF) Version 2.1.0; GitHub Docs,
"SARIF support for code scanning".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from compatgate import version
from compatgate.core.rule import Rule
from compatgate.core.rules import RULES
from compatgate.formats import ci, text
from compatgate.formats.reports import Answer, Json, View
from compatgate.resources import docs_link

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
_LEVELS = {"fail": "error", "unknown": "error", "warn": "warning", "waived": "note"}
"""Outcome to level. Skipped rules become notifications, because code scanning raises an alert for
each result."""
_VERDICT = {
    **{name: name for name in ("id", "verdict", "allowed", "target", "facts")},
    "matrixRevision": "matrix_revision",
}


def render(answers: Sequence[Answer], view: View) -> str:
    """Render a log with one run; code scanning would keep only the last of several runs."""
    driver = {
        "name": "compatgate",
        "version": version(),
        "semanticVersion": version().replace(".dev", "-dev."),
        "rules": [_rule(rule) for rule in RULES],
        **({"informationUri": home} if (home := docs_link()) else {}),
    }
    indexes = {rule.id: index for index, rule in enumerate(RULES)}
    times = [str(answer.verdict["decided_at"]) for answer in answers]
    run = {
        "tool": {"driver": driver},
        "results": [
            _result(finding, answer, fingerprint, indexes)
            for finding, answer, fingerprint in ci.list_findings(answers)
            if finding["outcome"] in _LEVELS
        ],
        "invocations": [
            {
                "executionSuccessful": True,
                **({"endTimeUtc": max(times)} if times else {}),
                "toolExecutionNotifications": [
                    {
                        "associatedRule": {"id": finding["rule"]},
                        "level": "note",
                        "message": {
                            "text": f"{text.format_place(answer.verdict)}: not checked:"
                            f" {finding['message']}"
                        },
                    }
                    for answer in answers
                    for finding in text.findings_of(answer.verdict, "not-checked")
                ],
            }
        ],
        "columnKind": "unicodeCodePoints",
        "properties": {
            "verdicts": [
                {name: answer.verdict[key] for name, key in _VERDICT.items()} for answer in answers
            ]
        },
    }
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return msgspec.json.format(msgspec.json.encode(log), indent=2).decode()


def _rule(rule: Rule) -> dict[str, Any]:
    text = rule.documentation
    plain = text.replace("``", "`")
    described = {
        "id": rule.id,
        "name": "".join(part.capitalize() for part in rule.name.split("-")),
        "shortDescription": {"text": text.partition("\n")[0]},
        "fullDescription": {"text": " ".join(text.partition("\n\n")[0].split())},
        "help": {"text": plain, "markdown": plain},
        "defaultConfiguration": {"level": "error"},
        "properties": {
            "tags": ["gpu", "compatibility", "facts" if rule.about_facts else "matrix"],
            "precision": "very-high",
            "problem.severity": "error",
        },
    }
    link = docs_link("reference/rules/", f"{rule.id.lower()}-{rule.name}")
    if not link:
        return described
    help_texts = {"text": f"{plain}\n\n{link}", "markdown": f"{plain}\n\n[{rule.id}]({link})"}
    return {**described, "help": help_texts, "helpUri": link}


def _result(
    finding: Json, answer: Answer, fingerprint: str, indexes: dict[str, int]
) -> dict[str, Any]:
    level = _LEVELS[finding["outcome"]]
    if level == "error" and answer.verdict["allowed"]:
        level = "warning"
    described = text.describe_finding(finding, "Fix", "Source")
    result: dict[str, Any] = {
        "ruleId": finding["rule"],
        "level": level,
        "kind": "fail",
        "message": {"text": f"{text.format_place(answer.verdict)}: {described}"},
        "locations": [_location(finding, answer)],
        "partialFingerprints": {
            "compatgate/v1": fingerprint,
            "primaryLocationLineHash": f"{fingerprint[:16]}:1",
        },
        "properties": {
            **{key: finding[key] for key in ("outcome", "component", "have", "need", "source")},
            "verdict": answer.verdict["id"],
        },
    }
    if finding["rule"] in indexes:
        result["ruleIndex"] = indexes[finding["rule"]]
    if finding["outcome"] == "waived":
        result["suppressions"] = [{"kind": "external", "justification": finding["message"]}]
    if answer.link:
        result["hostedViewerUri"] = answer.link
    return result


def _location(finding: Json, answer: Answer) -> dict[str, Any]:
    """Return a line of a file, which code scanning requires, and the pools."""
    place = ci.place_of_finding(finding, answer)
    uri = f"file://{quote(place.path)}" if place.path.startswith("/") else quote(place.path)
    target = answer.verdict["target"] or "pool"
    return {
        "physicalLocation": {"artifactLocation": {"uri": uri}, "region": {"startLine": place.line}},
        "logicalLocations": [
            {"name": pool, "fullyQualifiedName": f"{target}/{pool}", "kind": "resource"}
            for pool in finding["pools"]
        ],
    }
