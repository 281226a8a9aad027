"""The admission endpoint around the decision: who may ask, failures, deadlines, links."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from flask.testing import FlaskClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from compatgate.errors import Unavailable
from compatgate.kit import clock
from compatgate.kit.principal import Authorship
from compatgate.service.app import Rooms
from compatgate.service.cluster.admission import AdmissionOptions
from compatgate.service.cluster.kinds import load_kinds
from compatgate.service.cluster.review import parse_timeout
from compatgate.service.cluster.schemas import REVIEW_EXAMPLES, AdmissionReviewAnswer

BY = Authorship("tester", "for the test")
PATH = "/hooks/kubernetes/validate"
REVIEW: dict[str, Any] = REVIEW_EXAMPLES["pod"]
UID = REVIEW["request"]["uid"]


def answer(client: FlaskClient, review: Any = REVIEW, **options: Any) -> dict[str, Any]:
    body = client.post(PATH, json=review, **options).get_json()
    assert body["response"]["uid"] == UID
    response: dict[str, Any] = body["response"]
    return response


def labels(**values: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(values.items()))


def samples(client: FlaskClient, name: str) -> dict[tuple[tuple[str, str], ...], float]:
    """The samples of a metric, by their labels."""
    return {
        labels(**sample.labels): sample.value
        for family in text_string_to_metric_families(client.get("/metrics").text)
        for sample in family.samples
        if sample.name == f"compatgate_{name}"
    }


def without_gpus() -> dict[str, Any]:
    review = copy.deepcopy(REVIEW)
    del review["request"]["object"]["spec"]["containers"][0]["resources"]
    return review


def test_a_token_is_needed_where_nobody_may_ask_and_the_uid_is_answered_all_the_same(
    make_client: Callable[..., FlaskClient], rooms: Rooms
) -> None:
    client = make_client(anonymous=frozenset())
    refused = client.post(PATH, json=REVIEW)
    assert refused.status_code == 401
    assert refused.headers["WWW-Authenticate"].startswith("Bearer")
    assert refused.get_json()["response"]["uid"] == UID
    assert refused.get_json()["response"]["status"]["reason"] == "Unauthorized"
    secret = rooms.tokens.create("cluster", ["gate"], by="tester").secret
    bearer = {"Authorization": f"Bearer {secret}"}
    assert client.post(PATH, json=REVIEW, headers=bearer).status_code == 200
    reader = rooms.tokens.create("reader", ["read"], by="tester").secret
    forbidden = client.post(PATH, json=REVIEW, headers={"Authorization": f"Bearer {reader}"})
    assert forbidden.status_code == 403
    assert forbidden.get_json()["response"]["uid"] == UID


@pytest.mark.parametrize(("length", "status"), [(256, 200), (257, 400)])
def test_a_uid_that_is_longer_than_the_schema_says_is_refused(
    client: FlaskClient, length: int, status: int
) -> None:
    review = copy.deepcopy(REVIEW)
    review["request"]["uid"] = "u" * length
    sent = client.post(PATH, json=review)
    assert sent.status_code == status
    body = msgspec.convert(sent.get_json(), AdmissionReviewAnswer)
    assert body.response.uid == ("u" * length if status == 200 else "")
    if status == 400:
        assert not body.response.allowed
        assert body.response.status is not None
        assert "request.uid: longer than 256 characters" in body.response.status.message


def test_a_review_with_a_key_twice_is_refused_and_its_uid_answered(
    client: FlaskClient, rooms: Rooms
) -> None:
    text = json.dumps(REVIEW).replace('"containers":', '"containers": [], "containers":')
    body = client.post(PATH, data=text, content_type="application/json").get_json()
    assert (body["response"]["uid"], body["response"]["allowed"]) == (UID, False)
    assert body["response"]["status"]["code"] == 400
    assert "the key 'containers' appears twice" in body["response"]["status"]["message"]
    assert rooms.decisions.list_decisions().items == ()


def test_the_decision_is_in_the_log_with_its_source(client: FlaskClient) -> None:
    response = answer(client)
    (entry,) = client.get("/api/v1/decisions?limit=1").get_json()["items"]
    assert entry["source"] == "hook:kubernetes/annotation"
    found = client.get("/api/v1/decisions?source=hook:kubernetes").get_json()["items"]
    assert [one["id"] for one in found] == [entry["id"]]
    assert entry["verdict_id"] in response["auditAnnotations"]["verdicts"]


def test_the_link_leads_to_the_verdict(client: FlaskClient) -> None:
    review = copy.deepcopy(REVIEW)
    annotations = review["request"]["object"]["metadata"]["annotations"]
    annotations["compatgate.dev/stack"] = "cuda=12.1,arch=sm_90"
    response = answer(client, review, headers={"Host": "gate.example:8443"})
    message = response["status"]["message"]
    link = next(word for word in message.split() if word.startswith("http://gate.example:8443/"))
    path = link.removeprefix("http://gate.example:8443")
    assert client.get(path, follow_redirects=True).get_json()["allowed"] is False
    hostile = answer(client, review, headers={"Host": "evil.example/<script>"})
    assert "evil" not in hostile["status"]["message"]


@pytest.mark.parametrize("on_failure", ["allow", "deny"])
def test_without_a_database_the_operators_choice_counts_and_pods_without_gpus_go_on(
    on_failure: Any,
    make_client: Callable[..., FlaskClient],
    rooms: Rooms,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def away(*_: Any, **__: Any) -> Any:
        raise Unavailable("the database does not answer")

    client = make_client(admission=AdmissionOptions(load_kinds(), on_failure=on_failure))
    for name in ("answer", "evaluate"):
        monkeypatch.setattr(rooms.gate, name, away)
    response = answer(client)
    assert response["allowed"] is (on_failure == "allow")
    if on_failure == "deny":
        assert response["status"]["code"] == 503
        assert "the database does not answer" in response["status"]["message"]
    else:
        assert "nothing was checked" in response["warnings"][0]
    monkeypatch.setattr(rooms.snapshots, "current", away)
    assert answer(client, without_gpus()) == {"uid": UID, "allowed": True}


def test_a_defect_is_a_failure_and_no_500(
    client: FlaskClient, rooms: Rooms, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rooms.gate, "evaluate", lambda *_, **__: 1 / 0)
    sent = client.post(PATH, json=REVIEW)
    assert sent.status_code == 200
    assert sent.get_json()["response"]["status"]["code"] == 503
    assert "division" not in sent.text


def test_an_answer_comes_within_the_time_that_the_api_server_waits(
    client: FlaskClient, rooms: Rooms, monkeypatch: pytest.MonkeyPatch
) -> None:

    def slow(*_: Any, **__: Any) -> Any:
        time.sleep(1.0)
        raise Unavailable("too late anyway")

    monkeypatch.setattr(rooms.gate, "reads_image", lambda _: True)
    monkeypatch.setattr(rooms.gate, "answer", slow)
    began = time.monotonic()
    sent = client.post(f"{PATH}?timeout=200ms", json=REVIEW)
    assert time.monotonic() - began < 0.9
    assert "within 0.18 seconds" in sent.get_json()["response"]["status"]["message"]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10s", 9.0),
        ("500ms", 0.45),
        ("1m", 27.0),
        ("1m30s", 27.0),
        ("0s", 9.0),
        ("", 9.0),
        ("soon", 9.0),
        ("-5s", 9.0),
    ],
)
def test_the_timeout_is_read_as_the_api_server_writes_it(text: str, seconds: float) -> None:
    assert parse_timeout(text) == pytest.approx(seconds)


_KEYS = st.sampled_from(
    [
        "metadata",
        "annotations",
        "namespace",
        "spec",
        "template",
        "containers",
        "initContainers",
        "resources",
        "limits",
        "requests",
        "nvidia.com/gpu",
        "claims",
        "resourceClaims",
        "name",
        "image",
        "env",
        "value",
        "valueFrom",
        "envFrom",
        "affinity",
        "nodeAffinity",
        "requiredDuringSchedulingIgnoredDuringExecution",
        "nodeSelectorTerms",
        "nodeSelector",
        "matchExpressions",
        "key",
        "operator",
        "values",
        "nvidia.com/gpu.product",
        "compatgate.dev/target",
        "compatgate.dev/stack",
        "compatgate.dev/waiver",
        "compatgate.dev/gpu",
        "deletionTimestamp",
    ]
)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_KEYS, inner, max_size=6),
    max_leaves=25,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    document=st.fixed_dictionaries({"metadata": _JSON, "spec": _JSON}),
    kind=st.sampled_from(["Pod", "Deployment", "RayCluster", "InferenceService"]),
    operation=st.sampled_from(["CREATE", "UPDATE"]),
)
def test_any_object_is_answered_with_the_uid(
    client: FlaskClient, document: Any, kind: str, operation: str
) -> None:
    groups = {"Pod": "", "Deployment": "apps", "RayCluster": "ray.io"}
    review = copy.deepcopy(REVIEW)
    review["request"] |= {
        "object": document,
        "oldObject": document.get("spec"),
        "kind": {"group": groups.get(kind, "serving.kserve.io"), "kind": kind},
        "operation": operation,
        "dryRun": True,
    }
    sent = client.post(PATH, json=review)
    assert sent.status_code == 200
    assert sent.get_json()["response"]["uid"] == UID


def test_requirements_of_a_pod_that_are_too_many_are_refused_by_their_number(
    client: FlaskClient,
) -> None:
    review = copy.deepcopy(REVIEW)
    container = review["request"]["object"]["spec"]["containers"][0]
    container["env"] = [{"name": "NVIDIA_REQUIRE_CUDA", "value": "driver>=1 " * 2000}]
    response = answer(client, review)
    assert response["allowed"] is False
    assert "too many alternatives: 2000 (at most 256)" in response["status"]["message"]


LENIENT: dict[str, Any] = {
    "metadata": {"name": "lab"},
    "spec": {
        "pools": [{"name": "a100", "gpu": "A100-SXM4-80GB", "driver": "535.183.01"}],
        "match": {"namespaces": ["lab-*"]},
        "policy": {"mode": "audit"},
    },
}
EXEMPT: dict[str, Any] = {
    "metadata": {"name": "night"},
    "spec": {
        "rules": ["CG822"],
        "targets": ["prod-a100"],
        "match": {"everything": True},
        "owner": "team-night",
        "reason": "the registry is being moved",
        "expires": (clock.today() + timedelta(days=30)).isoformat(),
    },
}
BAD, GOOD = "cuda=12.1,arch=sm_90", "cuda=12.4,torch=2.4.1+cu124,arch=sm_80"
RESULTS: list[tuple[str, str, dict[str, Any], str | None]] = [
    # the result that is counted, namespace, annotations, and a part of the answer's first line
    ("denied", "ml-train", {"target": "prod-a100", "stack": BAD}, " may not run on prod-a100: CG"),
    ("denied", "ml-train", {"target": "nowhere"}, "target 'nowhere' does not exist"),
    ("would_deny", "lab-1", {"stack": BAD}, " would be denied on lab (mode audit): CG"),
    ("exempt", "ml-train", {"target": "prod-a100", "stack": BAD, "waiver": "night"}, "exempt by"),
    ("unmatched", "other", {}, " matches no target"),
    ("warned", "ml-train", {"target": "prod-a100", "stack": GOOD}, " on prod-a100: CG"),
]


@pytest.mark.parametrize(("result", "namespace", "own", "said"), RESULTS)
def test_a_review_is_counted_once_by_its_result_and_says_why_in_one_line(
    client: FlaskClient,
    rooms: Rooms,
    result: str,
    namespace: str,
    own: dict[str, str],
    said: str,
) -> None:
    rooms.matrix.create("Target", copy.deepcopy(LENIENT), BY)
    rooms.matrix.create("Waiver", copy.deepcopy(EXEMPT), BY)
    review = copy.deepcopy(REVIEW)
    annotations = {f"compatgate.dev/{key}": value for key, value in own.items()}
    review["request"]["namespace"] = namespace
    review["request"]["object"]["metadata"]["annotations"] = annotations
    response = answer(client, review)
    lines = [response.get("status", {}).get("message", ""), *response.get("warnings", [])]
    assert any(said in line for line in lines), lines
    assert all("\n" not in line for line in lines)
    if result in ("denied", "would_deny") and "on" in said.split():
        assert any("; fix: " in line and "; http://localhost/v/vd_" in line for line in lines)
    review["request"]["dryRun"] = True
    answer(client, review)
    counted = samples(client, "admission_reviews_total")
    assert counted == {labels(namespace=namespace, result=result): 1}
    targets = samples(client, "admission_would_deny_total")
    assert targets == ({labels(target="lab"): 1} if result == "would_deny" else {})


def test_a_review_without_gpus_is_not_counted(client: FlaskClient) -> None:
    answer(client, without_gpus())
    assert samples(client, "admission_reviews_total") == {}
