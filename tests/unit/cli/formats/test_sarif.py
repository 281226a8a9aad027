"""SARIF 2.1.0 for code scanning."""

from __future__ import annotations

import json
from typing import Any

from compatgate.cli.formats import render
from compatgate.core.rules import RULES

Json = dict[str, Any]


def run(verdict: Json) -> Json:
    log = json.loads(render("sarif", verdict))
    assert log["version"] == "2.1.0"
    assert log["$schema"].endswith("sarif-schema-2.1.0.json")
    found: Json = log["runs"][0]
    return found


def test_every_rule_is_described_with_its_documentation(passing: Json) -> None:
    rules = run(passing)["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == [rule.id for rule in RULES]
    for rule in rules:
        assert rule["shortDescription"]["text"]
        assert rule["help"]["text"]
        assert rule["helpUri"].startswith("https://")
    assert rules[0]["name"] == "DriverTooOld"


def test_a_result_names_its_rule_level_and_place(denied: Json) -> None:
    found = run(denied)
    first = found["results"][0]
    assert (first["ruleId"], first["level"], first["kind"]) == ("CG101", "error", "fail")
    assert found["tool"]["driver"]["rules"][first["ruleIndex"]]["id"] == "CG101"
    assert first["message"]["text"].startswith("message of CG101\nFix: raise the driver")
    location = first["locations"][0]
    assert location["physicalLocation"]["artifactLocation"]["uri"] == "compatgate/pool/pool"
    assert location["logicalLocations"][0]["fullyQualifiedName"] == "pool/pool"


def test_levels_and_kinds_fit_together(denied: Json, unknown: Json, on_target: Json) -> None:
    results = [r for verdict in (denied, unknown, on_target) for r in run(verdict)["results"]]
    assert {(r["properties"]["outcome"], r["level"], r["kind"]) for r in results} == {
        ("fail", "error", "fail"),
        ("warn", "warning", "fail"),
        ("not-checked", "none", "notApplicable"),
        ("unknown", "error", "fail"),
        ("waived", "warning", "fail"),
    }


def test_a_waived_finding_is_suppressed(on_target: Json) -> None:
    waived, warning = run(on_target)["results"]
    assert waived["suppressions"] == [{"kind": "external", "status": "accepted"}]
    assert "suppressions" not in warning
    assert len(waived["locations"]) == 2


def test_fingerprints_outlive_a_rephrased_message(denied: Json) -> None:
    def fingerprints(verdict: Json) -> list[Json]:
        return [result["partialFingerprints"] for result in run(verdict)["results"]]

    changed = json.loads(json.dumps(denied).replace("message of", "words on"))
    assert fingerprints(changed) == fingerprints(denied)
    assert len({json.dumps(f) for f in fingerprints(denied)}) == 3
