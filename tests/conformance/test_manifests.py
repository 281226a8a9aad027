"""Manifests are answered as the webhook answers the same objects: the tables of admission again.

Each object of the tables is asked three ways: as a dry run of the webhook, over `POST /k8s/check`,
and from a YAML file with a bundle. All say the same, and name the line of the image.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from flask.testing import FlaskClient
from test_admission import CASES, PATH, SETTINGS, client, review_of, rooms  # noqa: F401 - fixtures

from compatgate.core.facts import Facts
from compatgate.service.app import Rooms
from compatgate.service.cluster.admission import AdmissionOptions
from compatgate.service.cluster.kinds import load_kinds
from compatgate.service.cluster.manifest_checks import BundleGate, ManifestChecks
from compatgate.service.cluster.manifest_reports import CheckedManifest, make_answers
from compatgate.service.cluster.manifests import Manifest, may_have_pods, read_manifests
from compatgate.service.cluster.review import ReviewAnswer
from compatgate.service.cluster.schemas import ObjectAnswer
from compatgate.service.matrix.snapshots.snapshot import load_bundle

NEW = [case.values[0] for case in CASES]
KINDS = load_kinds()


def is_new(case: dict[str, Any]) -> bool:
    """Tell whether a case is about a new object, of a size that REST takes."""
    others = ("old", "deleting", "invalid", "padding", "repeat")
    return not any(case.get(key) for key in others) and not case.get("request")


def said_by_hook(http: FlaskClient, review: dict[str, Any]) -> tuple[bool, str, list[str]]:
    review["request"]["dryRun"] = True
    response = http.post(PATH, json=review).get_json()["response"]
    return (
        response["allowed"],
        response.get("status", {}).get("message", ""),
        response.get("warnings", []),
    )


def said(answer: dict[str, Any]) -> tuple[bool, str, list[str]]:
    """What the webhook would make of an answer."""
    lines = [
        *answer["warnings"],
        *(m for one in answer["results"] if one["outcome"] != "denied" for m in one["messages"]),
    ]
    review = ReviewAnswer(answer["allowed"], answer["message"], 403, tuple(lines)).to_json("u")
    response = review["response"]
    message = response.get("status", {}).get("message", "")
    return response["allowed"], message, response.get("warnings", [])


@pytest.fixture(scope="module")
def offline(
    rooms: Rooms,  # noqa: F811
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str], ManifestChecks]:
    """Checks with the bundle of the gate, by the name of their settings."""
    path = tmp_path_factory.mktemp("bundle") / "b"
    path.write_bytes(rooms.gate.export_bundle())
    source = BundleGate(load_bundle(str(path)).snapshot(), None)
    made = {
        name: ManifestChecks(source, AdmissionOptions(KINDS, **options))
        for name, options in SETTINGS.items()
    }
    return lambda name: made[name]


def test_objects_are_answered_as_the_webhook_answers_them(
    client: Callable[[str], FlaskClient],  # noqa: F811
    offline: Callable[[str], ManifestChecks],
    tmp_path: Path,
) -> None:
    asked = denied = 0
    for case in filter(is_new, NEW):
        review = review_of(case)
        document = review["request"]["object"]
        namespace = review["request"]["namespace"] or "default"
        http = client(case.get("settings", ""))
        expected = said_by_hook(http, review)
        body = {"object": document, "namespace": namespace}
        answer = http.post("/api/v1/k8s/check?timeout=30s", json=body)
        assert answer.status_code == 200, (case["name"], answer.text)
        found = answer.get_json()
        if found["uses_gpus"]:
            assert said(found) == expected, case["name"]
        else:  # a kind that makes no GPU pods passes in silence
            assert expected[:2] == (True, ""), case["name"]
        denied += not found["allowed"]
        path = tmp_path / "m.yaml"
        path.write_text(f"# {case['name']}\n---\n{yaml.safe_dump(document)}")
        read = read_manifests([str(path)], namespace, KINDS)
        for manifest in read.found:
            checked = offline(case.get("settings", "")).check(
                manifest.document, manifest.namespace, timeout="30s"
            )
            assert (checked.allowed, checked.message) == (found["allowed"], found["message"])
            assert list(checked.warnings) == found["warnings"], case["name"]
            assert_places(manifest, checked, path.read_text().splitlines())
            asked += 1
    assert asked >= 60
    assert denied >= 15


def assert_places(manifest: Manifest, checked: ObjectAnswer, lines: list[str]) -> None:
    """Each verdict is at the line of an image that it is about."""
    answers = list(make_answers(CheckedManifest(manifest, checked)))
    assert all(one["allowed"] for one in (a.verdict for a in answers)) is checked.allowed
    for result, answer in zip(checked.results, answers, strict=False):
        assert answer.at is not None
        line = lines[answer.at.line - 1]
        if result.verdict is not None and result.image:
            assert "image:" in line
            near = "".join(lines[answer.at.line - 1 : answer.at.line + 3])
            assert result.image.rpartition(":")[0] in near  # some kinds state parts of it
        if result.finding is not None:
            assert any(word in line for word in ("compatgate.dev/target", "limits", "name:")), line


def test_every_kind_of_admission_is_read_from_a_manifest(facts: Facts) -> None:
    del facts
    for kind in KINDS.file.kinds:
        document = {"apiVersion": f"{kind.group}/v1", "kind": kind.kind, "metadata": {}}
        assert may_have_pods(_manifest(document, kind.group), KINDS), kind.kind


def _manifest(document: dict[str, Any], group: str) -> Manifest:
    from compatgate.documents.text import RawDocument

    return Manifest(RawDocument("m.yaml", document), (), document, group, document["kind"], "x")


def test_an_answer_without_a_verdict_is_dated() -> None:
    manifest = _manifest({"kind": "Pod", "metadata": {"name": "p"}}, "")
    (answer,) = make_answers(
        CheckedManifest(manifest, ObjectAnswer(False, "", (), False, ()), "the gate is away")
    )
    assert (answer.verdict["verdict"], answer.verdict["allowed"]) == ("unknown", False)
    assert datetime.fromisoformat(answer.verdict["decided_at"]).tzinfo is not None
