"""The matrix as a whole: imported, exported, compared."""

from __future__ import annotations

import yaml
from flask.testing import FlaskClient

from compatgate.service.app import Rooms

API = "/api/v1"
TARGET = """\
apiVersion: compatgate.dev/v1
kind: Target
metadata: {name: new}
spec: {pools: [{name: p, gpu: L4, driver: 550.54.15}]}
"""


def load(client: FlaskClient, text: str, query: str) -> dict[str, object]:
    answer = client.post(f"{API}/matrix/import?{query}", data=text, content_type="application/yaml")
    assert answer.status_code == 200, answer.text
    body: dict[str, object] = answer.get_json()
    return body


def test_a_dry_run_says_what_would_change_and_changes_nothing(
    client: FlaskClient, rooms: Rooms
) -> None:
    report = load(client, TARGET, "dry_run=true&reason=look")
    assert report["revision"] is None
    assert [c["name"] for c in report["changes"]] == ["new"]  # type: ignore[attr-defined]
    assert report["preview"] == {"runs": [], "needs": [], "waivers": [], "remarks": []}
    assert rooms.gate.snapshot().revision == 3


def test_an_import_is_one_revision(client: FlaskClient) -> None:
    report = load(client, TARGET, "reason=grow")
    assert report["revision"] == 4
    assert client.get(f"{API}/revisions/4").get_json()["reason"] == "grow"
    unchanged = {"changes": [], "unchanged": 1, "revision": None, "preview": None, "warnings": []}
    assert load(client, TARGET, "reason=again") == unchanged


def test_an_import_with_mistakes_reports_all_and_changes_nothing(
    client: FlaskClient, rooms: Rooms
) -> None:
    text = f"{TARGET}---\n{TARGET.replace('L4', 'L9')}---\nkind: What\n"
    answer = client.post(
        f"{API}/matrix/import?reason=x&file=a.yaml", data=text, content_type="text/yaml"
    )
    assert answer.status_code == 400
    problems = answer.get_json(force=True)["problems"]
    assert len(problems) > 1
    assert all(p["file"] == "a.yaml" and p["line"] for p in problems)
    assert rooms.gate.snapshot().revision == 3


def test_an_export_imports_again_without_a_change(client: FlaskClient) -> None:
    exported = client.get(f"{API}/matrix/export?format=yaml")
    assert exported.mimetype == "application/yaml"
    assert load(client, exported.text, "reason=x")["changes"] == []
    documents = client.get(f"{API}/matrix/export").get_json()
    assert documents == list(yaml.load_all(exported.text, yaml.CSafeLoader))
    as_json = client.post(f"{API}/matrix/import?reason=x", json=documents).get_json()
    assert as_json["unchanged"] == 3


def test_an_older_matrix_is_exported(client: FlaskClient) -> None:
    documents = client.get(f"{API}/matrix/export?revision=1").get_json()
    assert [d["kind"] for d in documents] == ["Target"]
    assert client.get(f"{API}/matrix/export?revision=0").get_json() == []


def test_revisions_are_compared(client: FlaskClient) -> None:
    last = client.get(f"{API}/revisions/3/diff").get_json()
    assert (last["older"], [c["name"] for c in last["changes"]]) == (2, ["legacy-ocr"])
    every = client.get(f"{API}/revisions/3/diff?from=0").get_json()
    assert [c["kind"] for c in every["changes"]] == ["Target", "Entry", "Waiver"]
    assert client.get(f"{API}/revisions/3/diff?from=9").status_code == 404


def test_the_facts_are_those_of_the_command_line(client: FlaskClient) -> None:
    tables = client.get(f"{API}/facts").get_json()["tables"]
    assert {"gpus", "cuda_driver", "torch"} <= {table["name"] for table in tables}
    by_alias = client.get(f"{API}/facts/gpus/a100%20sxm4%2080gb").get_json()
    assert [gpu["name"] for gpu in by_alias["gpus"]] == ["A100-SXM4-80GB"]
    assert client.get(f"{API}/facts/torch/2.4.1").status_code == 200
    found = client.get(f"{API}/facts/gpus?search=h100").get_json()["items"]
    assert all("H100" in item["name"] for item in found)


def test_rules_explain_themselves(client: FlaskClient) -> None:
    rule = client.get(f"{API}/rules/cg101").get_json()
    assert (rule["id"], rule["name"]) == ("CG101", "driver-too-old")
    assert "driver" in rule["documentation"]
