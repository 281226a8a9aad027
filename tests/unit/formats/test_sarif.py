"""SARIF 2.1.0 for code scanning."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from compatgate.core.rules import RULES
from compatgate.formats.reports import Answer, Place, render, render_all

Json = dict[str, Any]
SCHEMA = Path(__file__).parents[2] / "fixtures" / "schemas" / "sarif-schema-2.1.0.json"


@pytest.fixture(scope="module")
def valid() -> Callable[[str], Json]:
    """Validate a log against the schema of the OASIS; its only run."""
    schema = json.loads(SCHEMA.read_text())
    checker = jsonschema.Draft7Validator.FORMAT_CHECKER
    validator = jsonschema.Draft7Validator(schema, format_checker=checker)

    def validated(text: str) -> Json:
        log = json.loads(text)
        assert not [f"{e.json_path}: {e.message}" for e in validator.iter_errors(log)]
        (found,) = log["runs"]
        return dict(found)

    return validated


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
    assert rules[0]["name"] == "DriverTooOld"


def test_links_lead_into_the_documentation_that_an_operator_serves(
    passing: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = run(passing)["tool"]["driver"]
    assert "informationUri" not in driver
    assert not any("helpUri" in rule for rule in driver["rules"])
    monkeypatch.setenv("COMPATGATE_DOCS", "https://docs.example/compatgate/")
    driver = run(passing)["tool"]["driver"]
    assert driver["informationUri"] == "https://docs.example/compatgate/"
    link = "https://docs.example/compatgate/reference/rules/#cg101-driver-too-old"
    assert driver["rules"][0]["helpUri"] == link
    assert driver["rules"][0]["help"]["markdown"].endswith(f"[CG101]({link})")


def test_a_result_names_its_rule_level_and_place(denied: Json) -> None:
    found = run(denied)
    first = found["results"][0]
    assert (first["ruleId"], first["level"], first["kind"]) == ("CG101", "error", "fail")
    assert found["tool"]["driver"]["rules"][first["ruleIndex"]]["id"] == "CG101"
    assert first["message"]["text"].startswith(
        "A100-SXM4-80GB, driver 525.60.12: message of CG101\nFix: raise the driver"
    )
    assert "Source: CUDA Toolkit Release Notes - https://docs" in first["message"]["text"]
    (location,) = first["locations"]
    assert location["physicalLocation"] == {
        "artifactLocation": {"uri": "compatgate/pool"},
        "region": {"startLine": 1},
    }
    assert location["logicalLocations"][0]["fullyQualifiedName"] == "pool/pool"


def test_levels_and_kinds_fit_together(denied: Json, unknown: Json, on_target: Json) -> None:
    results = [r for verdict in (denied, unknown, on_target) for r in run(verdict)["results"]]
    assert {(r["properties"]["outcome"], r["level"], r["kind"]) for r in results} == {
        ("fail", "error", "fail"),
        ("warn", "warning", "fail"),
        ("unknown", "error", "fail"),
        ("waived", "note", "fail"),
    }


def test_what_was_not_checked_is_said_and_raises_no_alert(denied: Json) -> None:
    found = run(denied)
    assert not any(result["ruleId"] == "CG301" for result in found["results"])
    (note,) = found["invocations"][0]["toolExecutionNotifications"]
    assert note["associatedRule"] == {"id": "CG301"}
    assert note["message"]["text"].endswith("not checked: message of CG301")


def test_a_waived_finding_is_suppressed(on_target: Json) -> None:
    waived, warning = run(on_target)["results"]
    assert waived["suppressions"] == [{"kind": "external", "justification": "message of CG803"}]
    assert "suppressions" not in warning
    assert len(waived["locations"][0]["logicalLocations"]) == 2


def test_fingerprints_outlive_a_rephrased_message(denied: Json) -> None:
    def fingerprints(verdict: Json) -> list[Json]:
        return [result["partialFingerprints"] for result in run(verdict)["results"]]

    changed = json.loads(json.dumps(denied).replace("message of", "words on"))
    assert fingerprints(changed) == fingerprints(denied)
    assert len({json.dumps(f) for f in fingerprints(denied)}) == 2


@pytest.mark.parametrize("name", ["passing", "denied", "unknown", "on_target", "hostile"])
def test_every_log_is_valid(
    name: str, valid: Callable[[str], Json], request: pytest.FixtureRequest
) -> None:
    verdict = request.getfixturevalue(name)
    place = Place("locks/with space/\u00fc[1].lock", 3)
    many = [
        Answer(verdict, "a.lock", {"driver": place}, link="https://gate.example/api/v1/verdicts/x"),
        Answer(verdict, "/elsewhere/b.lock", {}, Place("/elsewhere/b.lock")),
        Answer(verdict),
    ]
    results = valid(render_all("sarif", many))["results"]
    said = [f for f in verdict["findings"] if f["outcome"] != "not-checked"]
    assert len(results) == 3 * len(said)
    assert len({result["partialFingerprints"]["compatgate/v1"] for result in results}) == len(
        results
    )
    valid(render_all("sarif", []))


def test_a_result_stands_at_the_line_of_its_component(denied: Json) -> None:
    answer = Answer(denied, places={"driver": Place("app/uv.lock", 17)}, at=Place("app/uv.lock"))
    found = json.loads(render_all("sarif", [answer]))["runs"][0]["results"]
    assert found[0]["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "app/uv.lock"},
        "region": {"startLine": 17},
    }


def test_what_the_mode_lets_pass_is_a_warning(denied: Json) -> None:
    assert run({**denied, "allowed": True, "mode": "audit"})["results"][0]["level"] == "warning"


def test_findings_of_one_rule_on_one_component_are_told_apart(denied: Json) -> None:
    finding = denied["findings"][0]
    found = run({**denied, "findings": [finding, {**finding, "message": "another"}]})["results"]
    first, second = (result["partialFingerprints"] for result in found)
    assert first["compatgate/v1"] != second["compatgate/v1"]
    assert first["primaryLocationLineHash"] == f"{first['compatgate/v1'][:16]}:1"
