"""SARIF 2.1.0, for code scanning.

Source: OASIS, Static Analysis Results Interchange Format (SARIF) Version 2.1.0; what GitHub reads
of it: GitHub Docs, "SARIF support for code scanning".
"""

from __future__ import annotations

from typing import Any

import msgspec

from compatgate import __version__
from compatgate.cli.formats import Json, View, words
from compatgate.core.rules import RULES
from compatgate.core.rules.base import Rule

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
HOME = "https://compatgate.dev"
_LEVELS = {
    "fail": ("error", "fail"),
    "unknown": ("error", "fail"),
    "warn": ("warning", "fail"),
    "waived": ("warning", "fail"),
    "not-checked": ("none", "notApplicable"),
}
"""Outcome to SARIF's level and kind; a level other than none needs the kind fail."""


def render(verdict: Json, view: View) -> str:
    """A log with one run."""
    indexes = {rule.id: index for index, rule in enumerate(RULES)}
    run = {
        "tool": {"driver": _driver()},
        "results": [_result(finding, verdict, indexes) for finding in verdict["findings"]],
        "invocations": [{"executionSuccessful": True, "endTimeUtc": verdict["decided_at"]}],
        "properties": {
            "verdict": verdict["verdict"],
            "allowed": verdict["allowed"],
            "id": verdict["id"],
            "facts": verdict["facts"],
            "matrixRevision": verdict["matrix_revision"],
        },
    }
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return msgspec.json.format(msgspec.json.encode(log), indent=2).decode()


def _driver() -> dict[str, Any]:
    return {
        "name": "compatgate",
        "version": __version__,
        "semanticVersion": __version__,
        "informationUri": HOME,
        "rules": [_rule(rule) for rule in RULES],
    }


def _rule(rule: Rule) -> dict[str, Any]:
    text = rule.documentation
    return {
        "id": rule.id,
        "name": "".join(part.capitalize() for part in rule.name.split("-")),
        "shortDescription": {"text": text.partition("\n")[0]},
        "fullDescription": {"text": " ".join(text.partition("\n\n")[0].split())},
        "help": {"text": text, "markdown": text.replace("``", "`")},
        "helpUri": f"{HOME}/rules#{rule.id.lower()}",
        "defaultConfiguration": {"level": "error"},
    }


def _result(finding: Json, verdict: Json, indexes: dict[str, int]) -> dict[str, Any]:
    level, kind = _LEVELS[finding["outcome"]]
    result: dict[str, Any] = {
        "ruleId": finding["rule"],
        "level": level,
        "kind": kind,
        "message": {"text": _message(finding)},
        "locations": [_location(pool, verdict) for pool in finding["pools"]],
        "partialFingerprints": {"compatgate/v1": _fingerprint(finding, verdict)},
        "properties": {key: finding[key] for key in ("outcome", "component", "have", "need")},
    }
    if finding["rule"] in indexes:
        result["ruleIndex"] = indexes[finding["rule"]]
    if finding["outcome"] == "waived":
        result["suppressions"] = [{"kind": "external", "status": "accepted"}]
    return result


def _message(finding: Json) -> str:
    lines = [finding["message"]]
    lines += [f"Fix: {fix['message']} ({words.fix_option(fix['set'])})" for fix in finding["fixes"]]
    return "\n".join(lines)


def _location(pool: str, verdict: Json) -> dict[str, Any]:
    """There is no file: the place is a pool of a target."""
    target = verdict["target"] or "pool"
    name = f"{target}/{pool}"
    return {
        "physicalLocation": {"artifactLocation": {"uri": f"compatgate/{_path(name)}"}},
        "logicalLocations": [{"name": pool, "fullyQualifiedName": name, "kind": "resource"}],
    }


def _path(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-._/" else "-" for c in name)


def _fingerprint(finding: Json, verdict: Json) -> str:
    parts = (verdict["target"] or "pool", finding["rule"], finding["component"], *finding["pools"])
    return "/".join(map(str, parts))
