"""What deploy tools send, and what they are answered: tables as data."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from deploy_examples import FOLDER, analysis, definition_of, load, schema_of, vendor_schema
from flask.testing import FlaskClient
from jsonschema import Draft202012Validator
from tables import read_table
from werkzeug.test import TestResponse

from compatgate.core.facts import Facts
from compatgate.documents.sources import read_paths
from compatgate.kit.database import tables
from compatgate.kit.database.database import Database
from compatgate.kit.principal import Authorship
from compatgate.service.app import Rooms
from compatgate.service.gate.questions.service import make_gate
from compatgate.web.app import create_app
from compatgate.web.deploy_hooks.questions import TYPES
from compatgate.web.service import Settings

TEMPLATE = Path(__file__).parents[2] / "deploy" / "argo-rollouts" / "analysis-template.yaml"
MOST = 1024 * 1024
MADE = {"DEEP": "[" * 100 + "]" * 100, "LARGE": " " * (MOST + 1)}


def _load(name: str) -> Any:
    return read_table(FOLDER / f"{name}.yaml")


FLAGGER = [
    pytest.param(case, kind, id=f"{case['name']}-{kind}")
    for case in _load("flagger")
    for kind in case["types"]
]
GENERIC = [pytest.param(case, id=case["name"]) for case in _load("generic")]
POLLED = [
    pytest.param(case, id=case["name"])
    for case in _load("generic")
    if all(isinstance(value, str) for value in case.get("body", {"a": 1}).values())
]
"""A query is text."""
DRIVER = [pytest.param(case, id=case["name"]) for case in _load("driver")]


@pytest.fixture(scope="module")
def rooms(tmp_path_factory: pytest.TempPathFactory, facts: Facts) -> Iterator[Rooms]:
    """A gate with the matrix of the tables."""
    database = Database.open(str(tmp_path_factory.mktemp("hooks") / "gate.db"))
    tables.prepare_schema(database)
    rooms = Rooms(make_gate(database, facts))
    rooms.matrix.import_documents(
        read_paths([str(FOLDER / "matrix.yaml")]), Authorship("t", "tables")
    )
    yield rooms
    rooms.close()


@pytest.fixture(scope="module")
def client(rooms: Rooms) -> FlaskClient:
    """Anybody may ask."""
    settings = Settings(anonymous=frozenset({"gate"}), overlays=(), max_request_size=MOST)
    return create_app(rooms, settings).test_client()


def sent(client: FlaskClient, path: str, case: dict[str, Any]) -> TestResponse:
    if "text" not in case:
        return client.post(path, json=case["body"])
    text = MADE.get(case["text"], case["text"])
    kind = case.get("type", "application/json")
    return client.post(path, data=text.encode(), content_type=kind)


# --- Flagger --------------------------------------------------------------------------------


@pytest.mark.parametrize(("case", "kind"), FLAGGER)
def test_flagger_is_answered_as_the_table_says(
    client: FlaskClient, case: dict[str, Any], kind: str
) -> None:
    metadata = case.get("metadata")
    query = case.get("query", "")
    if case.get("in") == "query":
        query = f"type={kind}"
    elif kind:
        metadata = {**metadata, "type": kind}
    payload = case.get("payload") or {
        "name": "podinfo",
        "namespace": "test",
        "phase": "Progressing",
        "checksum": "85d557f47b",
        **({} if metadata is None else {"metadata": metadata}),
    }
    answer = client.post(f"/hooks/flagger?{query}", json=payload)
    first, *others = answer.text.splitlines()
    assert answer.status_code == case["status"], answer.text
    assert re.fullmatch(case["first"], first), first
    assert answer.mimetype == "text/plain"
    assert answer.status_code != 204, "Flagger takes statuses above 202 for no"
    verdict = "rule" in answer.text or "CG" in first
    assert not verdict or others[-1].startswith("http://localhost/v/vd_")


def test_every_type_of_hook_is_in_the_table() -> None:
    assert {kind for case in _load("flagger") for kind in case["types"]} >= set(TYPES)


def test_only_what_is_denied_rolls_back() -> None:
    yes = [c for c in _load("flagger") if "rollback" in c["types"] and c["status"] <= 202]
    assert [case["first"] for case in yes] == ["rollback: denied: CG201 .*"]


# --- any tool -------------------------------------------------------------------------------


@pytest.mark.parametrize("case", GENERIC)
def test_any_tool_is_answered_as_the_table_says(client: FlaskClient, case: dict[str, Any]) -> None:
    answer = sent(client, "/hooks/generic", case)
    body = answer.get_json()
    assert (answer.status_code, body["decision"]) == (case["status"], case["decision"])
    assert re.fullmatch(case["reason"], body["reason"]), body["reason"]
    assert body["allowed"] is (case["decision"] == "allow")


@pytest.mark.parametrize("case", GENERIC)
def test_a_tool_that_reads_only_bodies_is_always_answered_200(
    client: FlaskClient, case: dict[str, Any]
) -> None:
    answer = sent(client, "/hooks/generic?status=200", case)
    assert (answer.status_code, answer.get_json()["decision"]) == (200, case["decision"])


@pytest.mark.parametrize("case", POLLED)
def test_a_tool_that_polls_is_answered_alike(client: FlaskClient, case: dict[str, Any]) -> None:
    answer = client.get("/hooks/generic", query_string=case["body"])
    assert answer.status_code == (400 if "stak" in case["body"] else case["status"])
    assert answer.headers["Cache-Control"] == "no-store"


# --- Argo Rollouts --------------------------------------------------------------------------


def metric() -> dict[str, Any]:
    template = read_table(TEMPLATE)
    found: dict[str, Any] = template["spec"]["metrics"][0]
    return found


def phase(condition: dict[str, Any], result: Any) -> str:
    """The phase of a measurement, as argoproj/argo-rollouts ``utils/evaluate`` concludes it."""
    succeeds = holds(condition["successCondition"], result)
    fails = holds(condition["failureCondition"], result)
    return "Failed" if fails else "Successful" if succeeds else "Inconclusive"


def holds(condition: str, result: Any) -> bool:
    """Evaluate ``result.NAME == "TEXT"``: all of expr-lang that the template needs."""
    tree = ast.parse(condition, mode="eval").body
    assert isinstance(tree, ast.Compare)
    assert isinstance(tree.ops[0], ast.Eq)
    left, (right,) = tree.left, tree.comparators
    assert isinstance(left, ast.Attribute)
    assert isinstance(left.value, ast.Name)
    assert left.value.id == "result"
    assert isinstance(right, ast.Constant)
    return bool(result[left.attr] == right.value)


@pytest.mark.parametrize("case", GENERIC)
def test_argo_concludes_what_the_table_says(client: FlaskClient, case: dict[str, Any]) -> None:
    answer = sent(client, "/hooks/argo-rollouts?timeout=20s", case)
    assert answer.status_code == 200, "Argo keeps no body of another status"
    assert answer.mimetype == "application/json", "Argo takes what is not JSON for a success"
    assert phase(metric(), answer.get_json()) == case["phase"]


def test_the_template_asks_what_the_hook_reads(client: FlaskClient) -> None:
    stack = "cuda=12.4,arch=sm_80"
    for where in ({"target": "prod"}, {"pool": "driver=550.54.15,gpu=A100-SXM4-80GB"}):
        (found,) = analysis("analysis-template", {**where, "stack": stack})["metrics"]
        web = found["provider"]["web"]
        path = web["url"].partition(".svc")[2]
        answer = client.open(path, method=web["method"], json=web["jsonBody"])
        assert phase(metric(), answer.get_json()) == "Successful", answer.text
    assert web["jsonPath"] == "{$}", "the whole answer is the measurement's value"


# --- driver roll-outs -----------------------------------------------------------------------


@pytest.mark.parametrize("case", DRIVER)
def test_a_driver_roll_out_is_answered_as_the_table_says(
    client: FlaskClient, case: dict[str, Any]
) -> None:
    answer = sent(client, f"/hooks/driver-rollout?{case.get('query', '')}", case)
    body = answer.get_json()
    assert (answer.status_code, body["decision"]) == (case["status"], case["decision"]), body
    assert re.fullmatch(case["reason"], body["reason"]), body["reason"]
    assert body.get("breaks", []) == case.get("breaks", [])
    assert body.get("unknown", []) == case.get("unknown", [])


# --- what the tools' own definitions say of the examples -------------------------------------

EXAMPLES = {
    "argo-rollouts/analysis-template.yaml": "argo-rollouts",
    "argo-rollouts/analysis-template-files.yaml": "argo-rollouts",
    "flagger/canary.yaml": "flagger",
    "ci/tekton/compatgate-check.yaml": "tekton",
}
WRONG: dict[str, list[Callable[[Any], object]]] = {
    "argo-rollouts/analysis-template.yaml": [
        lambda d: d["spec"]["metrics"][0].update(succesCondition="true"),
        lambda d: d["spec"]["metrics"][0]["provider"]["web"].pop("url"),
        lambda d: d["spec"]["metrics"][0]["provider"]["web"].update(timeoutSeconds="20"),
    ],
    "argo-rollouts/analysis-template-files.yaml": [
        lambda d: d["spec"]["args"].append({"value": "x"}),
        lambda d: d["spec"]["metrics"][0]["provider"]["job"].pop("spec"),
    ],
    "flagger/canary.yaml": [
        lambda d: d["spec"]["analysis"]["webhooks"][0].update(type="confirm"),
        lambda d: d["spec"]["analysis"]["webhooks"][0].update(header="x"),
        lambda d: d["spec"].pop("targetRef"),
    ],
    "ci/tekton/compatgate-check.yaml": [
        lambda d: d["spec"]["params"][0].pop("name"),
        lambda d: d["spec"]["steps"][0].update(scripts="x"),
        lambda d: d["spec"]["steps"][0]["volumeMounts"][0].update(readonly=True),
    ],
}


def definition_says(name: str, document: Any) -> list[str]:
    """What the tool's own definition has against an object."""
    definition = definition_of(name)
    assert document["apiVersion"] == definition["apiVersion"]
    assert document["kind"] == definition["kind"]
    found = Draft202012Validator(schema_of(definition["fields"])).iter_errors(
        {"spec": document["spec"]}
    )
    return [f"{error.json_path}: {error.message}" for error in found]


@pytest.mark.parametrize(("file", "name"), EXAMPLES.items())
def test_an_example_is_one_that_its_tool_takes(file: str, name: str) -> None:
    assert definition_says(name, load(file)) == []
    for change in WRONG[file]:
        wrong = load(file)
        change(wrong)
        assert definition_says(name, wrong) != []


@pytest.mark.parametrize("name", ["analysis-template", "analysis-template-files"])
def test_the_schema_of_argo_rollouts_takes_the_templates(name: str) -> None:
    validator = Draft202012Validator(vendor_schema("AnalysisTemplate"))
    spec = load(f"argo-rollouts/{name}.yaml")["spec"]
    assert [error.message for error in validator.iter_errors(spec)] == []
    assert not validator.is_valid({**spec, "metric": []})
    spec["metrics"][0]["provider"] = {"webb": {}}
    assert not validator.is_valid(spec)


def test_kubernetes_takes_the_job_and_the_volumes_of_the_examples() -> None:
    """Neither is in the tools' definitions."""
    arguments = {"where": "--target=prod", "what": "--lock=/question/uv.lock"}
    (found,) = analysis("analysis-template-files", arguments)["metrics"]
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}}
    kubernetes_validate.validate({**job, **found["provider"]["job"]}, "1.33", strict=True)
    task = load("ci/tekton/compatgate-check.yaml")["spec"]
    containers = [{"name": "x", "image": "x", "volumeMounts": task["steps"][0]["volumeMounts"]}]
    spec = {"containers": containers, "volumes": task["volumes"]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": spec}
    kubernetes_validate.validate(pod, "1.33", strict=True)


def test_argo_knows_each_argument_and_uses_it() -> None:
    for name, arguments in (
        ("analysis-template", {}),
        ("analysis-template-files", {"where": "--target=prod", "what": "--stack=cuda=12.4"}),
    ):
        found = analysis(name, arguments)
        assert found["used"] == found["declared"]
