"""Histories of metrics over REST, on the command line and on their page.

Links beside a history narrow, widen and move its time.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from canary_runs import evidence, host, suites
from flask.testing import FlaskClient
from msgspec.structs import replace

from compatgate.canary.run import Env, Metric, Origin, Report, StepResult
from compatgate.canary.workload import MetricSpec
from compatgate.service.app import Rooms

API = "/api/v1/metric-histories"


@pytest.fixture
def measured(client: FlaskClient, rooms: Rooms, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Twelve runs; from the seventh on, with another driver, the metric is 20 % slower."""
    library = suites()
    metrics = {"time": MetricSpec("ms", "lower", 0.05)}
    library.workloads["gemm"] = replace(library.workloads["gemm"], metrics=metrics)
    monkeypatch.setattr(rooms.runs, "catalogue", lambda: library)
    made = []
    for number in range(12):
        body = {"suite": "dl-core", "target": "prod-a100", "stack": {"cuda": "12.4"}}
        answer = client.post("/api/v1/runs", json=body).get_json()
        made.append(answer["runs"][0]["id"])
        lease = rooms.runs.queue.lease("w1", [host()])
        assert lease is not None
        value = (10.0 if number < 6 else 12.0) + number % 3 / 100
        env = Env(driver="535.183.01" if number < 6 else "550.54.15", versions={"cuda": "12.4.1"})
        report = Report(env, (Metric("time", "ms", (value, value, value)),))
        origin = Origin("sha256:1", "A100-SXM4-80GB", "docker", development=False)
        result = StepResult("gemm-0", "gemm", 0, "passed", report=report, origin=origin)
        rooms.runs.queue.record(lease, result)
        rooms.runs.queue.finish(lease, "passed", "", evidence(lease))
    return made


def test_the_change_is_told_with_its_run_and_what_changed_with_it(
    client: FlaskClient, measured: list[str]
) -> None:
    (found,) = client.get(f"{API}?workload=gemm").get_json()["items"]
    assert (found["step"], found["metric"], len(found["points"])) == ("gemm-0", "time", 12)
    (change,) = found["changes"]
    assert change["run"] == measured[6]
    assert change["change"] == pytest.approx(0.2, abs=0.01)
    assert change["parts"] == [{"part": "driver", "before": "535.183.01", "after": "550.54.15"}]
    assert client.get(f"{API}?workload=gem").get_json()["items"] == []
    assert client.get(f"{API}?gpu=L4").get_json()["items"] == []
    assert len(client.get(f"{API}?runs=4").get_json()["items"][0]["points"]) == 4


def test_a_discarded_run_is_not_followed(client: FlaskClient, measured: list[str]) -> None:
    headers = {"X-Compatgate-Reason": "wrong host"}
    answer = client.post(f"/api/v1/runs/{measured[0]}/discard", headers=headers)
    assert answer.status_code == 200, answer.text
    (found,) = client.get(API).get_json()["items"]
    assert measured[0] not in {point["run"] for point in found["points"]}


@pytest.mark.parametrize("query", ["runs=0", "runs=401", "runs=x", "gpus=L4"])
def test_a_wrong_filter_is_refused(shared_client: FlaskClient, query: str) -> None:
    answer = shared_client.get(f"{API}?{query}")
    assert answer.status_code == 400
    assert json.loads(answer.text)["field"] in ("runs", "gpus", "query.runs")


def test_the_page_draws_the_metric_and_names_the_change(
    client: FlaskClient, measured: list[str]
) -> None:
    page: Any = client.get("/ui/workloads/gemm/history").text
    assert "535.183.01" in page
    assert "+20.0 % since" in page
    assert f"/runs/{measured[6]}" in page
    assert page.count('<tr data-mark="') == 12
    assert page.count('data-name="1 driver 5') == 1
    later = client.get("/ui/workloads/gemm/history?since=2999-01-01").text
    assert ("in this time" in later, '<tr data-mark="' in later) == (True, False)
    assert "No finished run" in client.get("/ui/workloads/nccl/history").text
    assert client.get("/ui/workloads/nothing/history").status_code == 404


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize(("targets", "points"), [(["prod-*"], 12), (["lab-*"], 0)])
def test_a_limited_token_sees_the_runs_of_its_targets_alone(
    client: FlaskClient, rooms: Rooms, targets: list[str], points: int
) -> None:
    secret = rooms.tokens.create("team", ["read"], by="test", targets=targets).secret
    headers = {"Authorization": f"Bearer {secret}"}
    items = client.get(API, headers=headers).get_json()["items"]
    assert sum(len(item["points"]) for item in items) == points
