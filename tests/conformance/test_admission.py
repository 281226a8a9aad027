"""Kubernetes objects as the API server sends them, and what the hook answers: tables as data.

Objects of Kubernetes' own kinds and the status of denials are held to the published OpenAPI
(kubernetes-validate carries it; AdmissionReview itself is not served, so not part of it).
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
from flask.testing import FlaskClient
from tables import read_table

from compatgate.core.facts import Facts
from compatgate.documents.sources import read_paths
from compatgate.kit.database import tables
from compatgate.kit.database.database import Database
from compatgate.kit.principal import Authorship
from compatgate.service.app import Rooms
from compatgate.service.cluster.admission import AdmissionOptions
from compatgate.service.cluster.kinds import load_kinds
from compatgate.service.cluster.questions import Exemption
from compatgate.service.gate.questions.service import make_gate
from compatgate.web.app import create_app
from compatgate.web.service import Settings

FOLDER = Path(__file__).with_name("admission")
PATH = "/hooks/kubernetes/validate?timeout=30s"
UID = "705ab4f5-6393-11e8-b7cc-42010a800002"
KUBERNETES = "1.37"
STACKS = {
    "good": "cuda=12.1,arch=sm_80",
    "bad": "cuda=12.1,arch=sm_90",
    "old": "cuda=12.1,arch=sm_80",
    "sm89": "cuda=12.1,arch=sm_89",
    "both": "cuda=12.1,arch=sm_80+sm_89",
}
SETTINGS: dict[str, dict[str, Any]] = {
    "": {},
    "deny-unmatched": {"unmatched": "deny"},
    "allow-unmatched": {"unmatched": "allow"},
    "exempt": {
        "unmatched": "deny",
        "exemptions": (Exemption("ml-tools", "anywhere"), Exemption("tools", "anywhere")),
    },
}
SELECTOR = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
ANSWER = {
    "type": "object",
    "required": ["apiVersion", "kind", "response"],
    "additionalProperties": False,
    "properties": {
        "apiVersion": {"const": "admission.k8s.io/v1"},
        "kind": {"const": "AdmissionReview"},
        "response": {
            "type": "object",
            "required": ["uid", "allowed"],
            "additionalProperties": False,
            "properties": {
                "uid": {"type": "string"},
                "allowed": {"type": "boolean"},
                "status": {"type": "object"},
                "warnings": {"type": "array", "items": {"type": "string", "maxLength": 256}},
                "auditAnnotations": {
                    "type": "object",
                    "propertyNames": {"pattern": "^[A-Za-z0-9][-A-Za-z0-9_.]{0,62}$"},
                    "additionalProperties": {"type": "string"},
                },
            },
        },
    },
}
PUBLISHED = resources.files("kubernetes_validate") / "kubernetes-json-schema" / "v1.37.0-local"


def _published(name: str) -> jsonschema.Draft202012Validator:
    """A type of the published OpenAPI; strict: what it does not name is not allowed."""
    schema = json.loads((PUBLISHED / f"{name}.json").read_text())
    schema["properties"] = {
        key: value for key, value in schema["properties"].items() if "$ref" not in value
    }
    return jsonschema.Draft202012Validator({**schema, "additionalProperties": False})


STATUS = _published("status-meta-v1")


def _load(name: str) -> Any:
    return read_table(FOLDER / f"{name}.yaml")


SHELLS = _load("shells")
OWN_ANNOTATIONS = [name for name, shell in SHELLS.items() if "$template" not in json.dumps(shell)]
"""Shells without a pod template: the annotations of a case are the object's own."""
TABLES = ("kinds", "containers", "targets", "pools", "requests")
CASES = [pytest.param(case, id=case["name"]) for table in TABLES for case in _load(table)]
HOSTILE = [pytest.param(case, id=case["name"]) for case in _load("hostile")]


@pytest.fixture(scope="module")
def rooms(tmp_path_factory: pytest.TempPathFactory, facts: Facts) -> Iterator[Rooms]:
    """A gate with the matrix of the tables."""
    database = Database.open(str(tmp_path_factory.mktemp("admission") / "gate.db"))
    tables.prepare_schema(database)
    rooms = Rooms(make_gate(database, facts))
    sources = read_paths([str(FOLDER / "matrix.yaml")])
    rooms.matrix.import_documents(sources, Authorship("tester", "for the table"))
    yield rooms
    rooms.close()


@pytest.fixture(scope="module")
def client(rooms: Rooms) -> Callable[[str], FlaskClient]:
    """Clients by the name of their settings."""
    kinds = load_kinds()
    apps = {
        name: create_app(
            rooms,
            Settings(
                anonymous=frozenset({"gate", "read"}),
                overlays=(),
                admission=AdmissionOptions(kinds, **options),
                public_url="https://gate.example/",
            ),
        )
        for name, options in SETTINGS.items()
    }
    return lambda name: apps[name].test_client()


def test_the_table_is_large_enough() -> None:
    assert len(CASES) + len(HOSTILE) >= 60


@pytest.mark.parametrize("case", CASES)
def test_an_object_is_answered_as_the_table_says(
    case: dict[str, Any], client: Callable[[str], FlaskClient]
) -> None:
    expected = case["answer"]
    review = review_of(case)
    document = review["request"]["object"]
    if document and not case.get("invalid"):
        _check_kind(document)
    http = client(case.get("settings", ""))
    before = _logged(http)
    answer = http.post(PATH, json=review)
    assert answer.status_code == 200, answer.text
    body = answer.get_json()
    check(body)
    response = body["response"]
    said = response.get("status", {}).get("message", "")
    assert response["allowed"] is expected["allowed"], response
    assert _logged(http) - before == expected["asked"]
    if "code" in expected:
        assert response["status"]["code"] == expected["code"]
    for part in expected.get("message", ()):
        assert part in said
    for part in expected.get("without", ()):
        assert part not in said
    warnings = response.get("warnings", [])
    for part in expected.get("warnings", ()):
        assert any(part in line for line in warnings), warnings
    if expected.get("warnings") == []:
        assert warnings == []
    if "on prod-a100" in said and "without" not in expected:
        assert "https://gate.example/v/vd_" in said


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_request_is_answered_with_its_uid_and_never_a_server_error(
    case: dict[str, Any], client: Callable[[str], FlaskClient]
) -> None:
    text = case["body"].replace("{UID}", UID)
    text = text.replace("{DEEP}", '{"a":' * 50_000 + "1" + "}" * 50_000)
    text = text.replace("{LARGE}", "x" * 9_000_000)
    media = case.get("type", "application/json")
    answer = client("").post(PATH, data=text.encode(), content_type=media)
    assert answer.status_code == case["status"], answer.text[:300]
    body = answer.get_json(force=True)
    check(body)
    response = body["response"]
    assert response["uid"] == ("" if case.get("uid") is False else UID)
    if case["status"] != 200 or "code" in case:
        assert not response["allowed"]
    if "code" in case:
        assert response["status"]["code"] == case["code"]
    if "allowed" in case:
        assert response["allowed"] is case["allowed"]
    assert case.get("message", "") in response.get("status", {}).get("message", "")


def review_of(case: dict[str, Any]) -> dict[str, Any]:
    """The AdmissionReview of a case."""
    kind = case.get("kind", "Pod")
    new = _object(case, case["template"], kind)
    old = case.get("old")
    group, _, version = SHELLS[kind]["apiVersion"].rpartition("/")
    request = {
        "uid": UID,
        "kind": {"group": group, "version": version, "kind": SHELLS[kind]["kind"]},
        "resource": {"group": group, "version": version, "resource": f"{kind.lower()}s"},
        "operation": "CREATE",
        "namespace": case.get("namespace", "ml-train"),
        "userInfo": {"username": "someone"},
        "object": new,
        "oldObject": new if old == "same" else old and _object(case, old, kind),
        "dryRun": False,
        **case.get("request", {}),
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def _object(case: dict[str, Any], template: dict[str, Any], kind: str) -> dict[str, Any]:
    spec = copy.deepcopy(template["spec"])
    if not case.get("bare"):
        spec.setdefault("nodeSelector", SELECTOR)
    if repeat := case.get("repeat"):
        (one,) = spec[repeat["path"]]
        text = json.dumps(one)
        spec[repeat["path"]] = [
            json.loads(text.replace("%d", str(n))) for n in range(repeat["times"])
        ]
    annotations = dict(case.get("annotations", {}))
    theirs = dict(template.get("annotations", {}))
    if stack := template.get("stack"):
        (annotations if kind in OWN_ANNOTATIONS else theirs)["compatgate.dev/stack"] = STACKS[stack]
    if kind in OWN_ANNOTATIONS:
        annotations |= theirs
    parts = {
        "$spec": spec,
        "$template": {"metadata": {"labels": {"app": "x"}, "annotations": theirs}, "spec": spec},
        "$annotations": annotations,
    }
    made: dict[str, Any] = _filled(SHELLS[kind], parts)
    if case.get("deleting"):
        made["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:00Z"
    if case.get("padding"):
        made["metadata"]["annotations"]["example.com/padding"] = "x" * case["padding"]
    return made


def _filled(shell: Any, parts: dict[str, Any]) -> Any:
    if isinstance(shell, dict):
        return {key: _filled(value, parts) for key, value in shell.items()}
    if isinstance(shell, list):
        return [_filled(value, parts) for value in shell]
    return parts[shell] if isinstance(shell, str) and shell in parts else shell


def _check_kind(document: dict[str, Any]) -> None:
    group = document["apiVersion"].partition("/")[0]
    if group in ("v1", "apps", "batch"):
        kubernetes_validate.validate(document, KUBERNETES, strict=True)


def check(body: dict[str, Any]) -> None:
    """Hold an answer to the form that the API server reads."""
    jsonschema.validate(body, ANSWER)
    response = body["response"]
    if response["allowed"]:
        assert "status" not in response
        return
    status = response["status"]
    assert status["message"]
    assert status["message"].isprintable()
    assert 400 <= status["code"] < 600
    STATUS.validate(status)


def _logged(client: FlaskClient) -> int:
    """How many decisions of the hook are in the log."""
    return len(client.get("/api/v1/decisions?limit=1000").get_json()["items"])
