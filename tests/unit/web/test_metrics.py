"""Metrics have bounded labels, and a scrape waits for no database."""

from __future__ import annotations

import datetime
import re
import ssl
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from compatgate.core.matrix import Evidence
from compatgate.core.versions import parse_version
from compatgate.errors import Unavailable
from compatgate.kit import clock
from compatgate.kit.http.certificates import CertificatePair, certificate_end
from compatgate.kit.principal import Authorship
from compatgate.service.app import Rooms
from compatgate.service.matrix.snapshots.snapshot import add_evidence
from compatgate.service.runs.queue.schemas import RunRequest
from compatgate.web import figures
from compatgate.web.figures import Background, evidence_of
from compatgate.web.metric_table import GATE

STACK = {"cuda": "12.4", "arch": ["sm_80"]}
QUESTION = {"target": "prod-a100", "stack": STACK}
GATE_PATH = "/api/v1/gate"


def samples(client: FlaskClient, name: str) -> dict[tuple[tuple[str, str], ...], float]:
    """The samples of a metric, by their labels."""
    text = client.get("/metrics").text
    return {
        tuple(sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == f"compatgate_{name}"
    }


def labels(**values: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(values.items()))


def test_decisions_are_counted_by_target_and_deciding_rule(client: FlaskClient) -> None:
    verdict = client.post(GATE_PATH, json=QUESTION).json
    effect = {"verdict": verdict["verdict"], "allowed": str(verdict["allowed"]).lower()}
    counted = samples(client, "target_decisions_total")
    assert counted == {labels(target="prod-a100", **effect): 1}
    deciding = {f["rule"] for f in verdict["findings"] if f["outcome"] == verdict["verdict"]}
    assert samples(client, "rule_decisions_total") == {
        labels(rule=rule, **effect): 1 for rule in deciding
    }


def test_targets_beyond_the_limit_count_together(make_client: Callable[..., FlaskClient]) -> None:
    client = make_client(metric_targets=0)
    client.post(GATE_PATH, json=QUESTION)
    client.post(GATE_PATH, json={"pool": {"gpu": "L4", "driver": "570.124.06"}, "stack": STACK})
    counted = samples(client, "target_decisions_total")
    assert {dict(key)["target"] for key in counted} == {"other", "none"}


def test_namespaces_beyond_the_limit_count_together(
    client: FlaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("compatgate.web.metrics._MAX_NAMESPACES", 3)
    container = {"name": "c", "image": "a:1", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    for number in range(6):
        request = {
            "uid": "u",
            "operation": "CREATE",
            "namespace": f"team-{number}",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "object": {"metadata": {"name": "p"}, "spec": {"containers": [container]}},
        }
        review = {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": request,
        }
        assert client.post("/hooks/kubernetes/validate", json=review).status_code == 200
    counted = samples(client, "admission_unmatched_total")
    assert counted == {
        labels(namespace="team-0"): 1,
        labels(namespace="team-1"): 1,
        labels(namespace="team-2"): 1,
        labels(namespace="other"): 3,
    }


def test_the_state_of_the_gate_is_shown(client: FlaskClient, rooms: Rooms) -> None:
    assert samples(client, "ready") == {(): 1}
    assert samples(client, "matrix_revision") == {(): rooms.gate.snapshot().revision}
    assert 0 <= samples(client, "snapshot_age_seconds")[()] < 60
    assert 0 <= samples(client, "stored_figures_age_seconds")[()] < 60
    assert samples(client, "canary_runs") == {
        labels(state="waiting"): 0,
        labels(state="running"): 0,
    }
    assert samples(client, "drifted_nodes")[labels(target="prod-a100", what="driver")] == 0
    assert samples(client, "spool_batches") == {(): 0}


def test_incidents_are_counted_by_kind_and_level_until_they_are_snoozed(
    client: FlaskClient, rooms: Rooms, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "EVERY_SECONDS", 0.0)
    rooms.incidents.survey()
    (number,) = [one.id for one in rooms.incidents.list(kind="driver-branch").items]
    branch = labels(kind="driver-branch", level="warn")
    counted = samples(client, "incidents")
    assert counted[branch] == 1
    assert counted[labels(kind="drift", level="warn")] == 0
    rooms.incidents.snooze(number, clock.now() + datetime.timedelta(days=1), Authorship("t", ""))
    assert samples(client, "incidents")[branch] == 0


def test_a_waiting_run_has_an_age(client: FlaskClient, rooms: Rooms) -> None:
    rooms.runs.submit(RunRequest(suite="smoke", host="cpu", stack={"cuda": "12.4"}), by="tester")
    time.sleep(0.01)
    assert samples(client, "canary_runs")[labels(state="waiting")] == 1
    assert samples(client, "canary_oldest_waiting_seconds")[()] > 0


def test_a_scrape_waits_for_no_stalled_database(
    client: FlaskClient, rooms: Rooms, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = samples(client, "canary_runs")
    stalled = threading.Event()
    monkeypatch.setattr(rooms.runs, "queue_state", Stalled(stalled).state)
    monkeypatch.setattr(rooms.gate, "readiness", Stalled(stalled))
    monkeypatch.setattr(figures, "EVERY_SECONDS", 0.0)
    began = time.monotonic()
    for _ in range(20):
        assert samples(client, "canary_runs") == known
    assert time.monotonic() - began < 10  # 20 waits of half a second each would take longer
    assert samples(client, "stored_figures_age_seconds")[()] > 0.4
    stalled.set()


class Stalled:
    """A readiness check that does not answer."""

    def __init__(self, until: threading.Event) -> None:
        self._until = until

    def state(self) -> dict[str, Any]:
        self._until.wait()
        raise Unavailable("stalled")


def test_figures_of_a_function_that_fails_grow_older(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "EVERY_SECONDS", 0.0)
    answers: list[Any] = [7, Unavailable("away"), 8]

    def read() -> int:
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return int(found)

    background = Background(read)
    first = background.latest()
    assert first is not None
    assert first[0] == 7
    time.sleep(0.01)
    second = background.latest()
    assert second is not None
    assert second[0] == 7
    assert second[1] > first[1]
    third = background.latest()
    assert third is not None
    assert third[0] == 8


def test_a_failed_transaction_is_counted(client: FlaskClient, rooms: Rooms) -> None:
    from sqlalchemy import text

    with pytest.raises(Unavailable), rooms.gate.database.reading() as session:
        session.execute(text("SELECT * FROM nothing_of_this_name"))
    assert sum(samples(client, "database_errors_total").values()) == 1


def test_evidence_has_the_age_of_the_oldest_that_policy_requires(rooms: Rooms) -> None:
    snapshot = rooms.gate.snapshot()
    target = snapshot.targets["prod-a100"]
    policy = replace(target.policy.canary, require=True, suites=("smoke", "dl-core"))
    target = replace(target, policy=replace(target.policy, canary=policy))
    snapshot = replace(snapshot, targets={"prod-a100": target})
    pool = target.pools[0]
    assert pool.gpu
    assert pool.driver
    missing = evidence_of(snapshot, ["prod-a100"])["prod-a100"]
    assert missing[0] is None
    assert missing[1]["missing"] >= 1
    day = 86400
    runs = [
        Evidence(
            id=f"run_{suite}",
            suite=suite,
            sku=pool.gpu.sku,
            driver=pool.driver,
            components={"cuda": parse_version("cuda", "12.4")},
            outcome="passed",
            finished=int(clock.now().timestamp()) - day * (number + 1),
        )
        for number, suite in enumerate(policy.suites)
    ]
    age, states = evidence_of(add_evidence(snapshot, runs, 1), ["prod-a100"])["prod-a100"]
    assert age == pytest.approx(day * len(policy.suites), abs=60)
    assert states == {"missing": 0, "stale": 0, "failed": 0}


def test_the_end_of_a_certificate_is_its_notafter(tmp_path: Path) -> None:
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    made += ["-nodes", "-keyout", str(key), "-out", str(certificate), "-subj", "/CN=gate"]
    subprocess.run([*made, "-days", "30"], check=True, capture_output=True)
    pair = CertificatePair(str(certificate), str(key))
    end = certificate_end(pair)
    asked = ["openssl", "x509", "-in", str(certificate), "-noout", "-enddate"]
    stated = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
    assert end == ssl.cert_time_to_seconds(stated.strip().partition("=")[2])
    assert end - datetime.datetime.now(datetime.UTC).timestamp() > 29 * 86400
    assert certificate_end(CertificatePair(str(tmp_path / "none"), str(key))) == 0


def test_every_metric_has_the_prefix_and_a_meaning(client: FlaskClient) -> None:
    client.post(GATE_PATH, json=QUESTION)
    for family in text_string_to_metric_families(client.get("/metrics").text):
        assert family.name.startswith("compatgate_")
        assert re.fullmatch(r"[A-Z0-9].+\.", family.documentation), family.name


def test_what_is_exported_is_what_the_table_lists(
    make_client: Callable[..., FlaskClient], tmp_path: Path
) -> None:
    pair = CertificatePair(str(tmp_path / "none.crt"), str(tmp_path / "none.key"))
    text = make_client(certificate=pair).get("/metrics").text
    exported = {
        (family.name.removeprefix("compatgate_"), family.type): family.documentation
        for family in text_string_to_metric_families(text)
    }
    assert exported == {(spec.name, spec.type): spec.meaning for spec in GATE}


def test_the_labels_are_those_of_the_table(client: FlaskClient) -> None:
    client.post(GATE_PATH, json=QUESTION)
    found = {spec.name: {*spec.labels} for spec in GATE}
    for family in text_string_to_metric_families(client.get("/metrics").text):
        for sample in family.samples:
            labelled = set(sample.labels) - {"le"}
            assert labelled == found[family.name.removeprefix("compatgate_")], sample.name
