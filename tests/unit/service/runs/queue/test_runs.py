"""Canary runs over REST: asking for them, following and ending them, and what they leave."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from canary_runs import DRIVER, GPU, MEASURED, evidence, host, suites
from flask.testing import FlaskClient
from msgspec import structs

from compatgate.canary.allowed_images import read_allowed_images
from compatgate.canary.engine import BaselineKey, Lease
from compatgate.canary.judge.result import Samples
from compatgate.canary.run import StepResult
from compatgate.canary.workload import ImageSpec, MetricSpec
from compatgate.canary.workloads import Library
from compatgate.kit.principal import Authorship
from compatgate.service.app import Rooms
from compatgate.service.runs.queue import logs
from compatgate.service.runs.queue.pruning import PruneAges, prune_database

API = "/api/v1"
ASKED: dict[str, Any] = {"suite": "smoke", "target": "prod-a100", "stack": {"cuda": "12.4"}}


@pytest.fixture
def submit(client: FlaskClient) -> Callable[..., str]:
    def ask(**fields: Any) -> str:
        answer = client.post(f"{API}/runs", json=ASKED | fields)
        assert answer.status_code == 201, answer.text
        (run,) = answer.get_json()["runs"]
        return str(run["id"])

    return ask


@pytest.fixture
def lease(rooms: Rooms, submit: Callable[..., str]) -> Lease:
    """A run that a worker has."""
    submit()
    found = rooms.runs.queue.lease("w1", [host()])
    assert found
    return found


def test_a_run_is_queued_for_each_sku_and_driver_of_the_target(
    client: FlaskClient, rooms: Rooms
) -> None:
    pools = [
        {"name": "a", "gpu": GPU, "driver": DRIVER},
        {"name": "b", "gpu": "NVIDIA A100-SXM4-80GB", "driver": "535.183.1"},
        {"name": "c", "gpu": "L4", "driver": DRIVER},
    ]
    body = {"metadata": {"name": "mixed"}, "spec": {"pools": pools}}
    rooms.matrix.create("Target", body, Authorship("t", "t"))
    rooms.runs.queue.register("w2", [host("l4", gpu="L4")])
    made = client.post(f"{API}/runs", json=ASKED | {"target": "mixed"}).get_json()["runs"]
    assert [(run["gpu"], run["pool"]) for run in made] == [(GPU, "a"), ("L4", "c")]
    only = client.post(f"{API}/runs", json=ASKED | {"target": "mixed", "pool": "c"}).get_json()
    assert [run["gpu"] for run in only["runs"]] == ["L4"]
    fits = client.post(f"{API}/runs", json=ASKED | {"target": "mixed", "host": "l4"}).get_json()
    assert [run["gpu"] for run in fits["runs"]] == ["L4"]


@pytest.mark.parametrize(
    ("wrong", "status", "field", "says"),
    [
        ({"suite": "smok"}, 404, "suite", "smoke"),
        ({"suite": 7}, 400, "suite", "str"),
        ({"target": "prod-a10"}, 404, "target", "prod-a100"),
        ({"pool": "b100"}, 404, "pool", "a100-80"),
        ({"entry": "torch24"}, 404, "entry", "torch24-cu124"),
        ({"host": "a100-9"}, 404, "host", "a100-1"),
        ({"host": "cpu"}, 400, "host", "a100-1 (A100-SXM4-80GB"),
        ({"target": None}, 400, "target", "name a target or a host"),
        ({"target": None, "pool": "a100-80", "host": "cpu"}, 400, "pool", "target"),
        ({"stack": {"cuda": "new"}}, 400, "stack.cuda", "new"),
        ({"stack": {"driver": "535.1"}}, 400, "stack.driver", "pool"),
        ({"stack": {}}, 400, "stack", ""),
        ({"image": "UPPER/case"}, 400, "image", "lower"),
        ({"priority": 1001}, 400, "priority", "1000"),
        ({"priority": "high"}, 400, "priority", "int"),
        ({"suites": "smoke"}, 400, "suites", "suite"),
    ],
)
def test_what_cannot_be_run_is_refused_with_the_reason(
    shared_client: FlaskClient, wrong: dict[str, Any], status: int, field: str, says: str
) -> None:
    answer = shared_client.post(f"{API}/runs", json=ASKED | wrong)
    assert answer.status_code == status, answer.text
    problem = answer.get_json(force=True)
    assert (problem["field"] or "stack") == field
    assert says in problem["detail"]
    assert shared_client.get(f"{API}/runs").get_json()["items"] == []


def test_a_run_that_no_host_could_ever_take_is_refused(client: FlaskClient, rooms: Rooms) -> None:
    rooms.runs.queue.register("w1", [host(gpu="L4")])
    problem = client.post(f"{API}/runs", json=ASKED).get_json(force=True)
    assert problem["status"] == 400
    assert "no staging host can run it: it needs A100-SXM4-80GB" in problem["detail"]
    assert "a100-1 (L4" in problem["hint"]


@pytest.mark.parametrize("where", [{}, {"target": None, "host": "a100-1"}])
@pytest.mark.parametrize("stack", [None, {"cuda": "12.4"}])
def test_a_run_that_no_image_is_there_for_is_refused(
    client: FlaskClient, rooms: Rooms, where: dict[str, Any], stack: Any
) -> None:
    inside = ImageSpec(inside=True)
    library = suites()
    library.workloads["gemm"] = structs.replace(library.workloads["gemm"], image=inside)
    rooms.runs.catalogue = lambda: library
    asked = ASKED | {"stack": stack} | where
    problem = client.post(f"{API}/runs", json=asked).get_json(force=True)
    assert (problem["status"], problem["field"]) == (400, "image")
    assert "no image for the workload gemm on a100-1" in problem["detail"]
    assert client.get(f"{API}/runs").get_json()["items"] == []
    named = asked | {"image": "registry.example/team/app:1"}
    assert client.post(f"{API}/runs", json=named).status_code == 201
    assert client.post(f"{API}/runs", json=asked | {"suite": "hello"}).status_code == 201


def test_an_image_that_the_service_does_not_allow_is_refused(
    client: FlaskClient, rooms: Rooms, submit: Callable[..., str]
) -> None:
    outside = {"image": "evil.example/registry.example/team/app:1"}
    before = submit(**outside)
    rooms.runs.cancel(before, by="t")
    patterns = ["registry.example/team/*"]
    rooms.runs.under_test = read_allowed_images(patterns, "serve --canary-image", otherwise=())
    problem = client.post(f"{API}/runs", json=ASKED | outside).get_json(force=True)
    assert (problem["status"], problem["field"]) == (400, "image")
    assert "allowed: registry.example/team/*" in problem["detail"]
    assert "serve --canary-image PATTERN" in problem["hint"]
    again = client.post(f"{API}/runs/{before}/rerun")
    assert (again.status_code, again.get_json(force=True)["field"]) == (400, "image")
    assert [run["id"] for run in client.get(f"{API}/runs").get_json()["items"]] == [before]
    submit(image="registry.example/team/app:1")
    submit()


@pytest.mark.parametrize("executor", ["process", "slurm", "kubernetes"])
def test_a_host_that_needs_no_image_or_may_know_one_is_asked(
    client: FlaskClient, rooms: Rooms, executor: Any
) -> None:
    library = suites()
    inside = ImageSpec(inside=True)
    library.workloads["gemm"] = structs.replace(library.workloads["gemm"], image=inside)
    rooms.runs.catalogue = lambda: library
    rooms.runs.queue.register("w2", [host("other", executor=executor)])
    assert client.post(f"{API}/runs", json=ASKED).status_code == 201


@pytest.mark.parametrize("where", [{}, {"target": None, "host": "a100-1"}])
def test_a_suite_of_several_nodes_is_refused_where_every_host_is_one_machine(
    client: FlaskClient, rooms: Rooms, where: dict[str, Any]
) -> None:
    served = [host(), host("bare", executor="process")]
    rooms.runs.queue.register("w1", served)
    asked = ASKED | {"suite": "spread"} | where
    problem = client.post(f"{API}/runs", json=asked).get_json(force=True)
    assert problem["status"] == 400
    assert f"it needs 2 nodes at once, {GPU}, 2 slots" in problem["detail"]
    assert "4 slots, docker)" in problem["hint"]
    assert "several nodes at once take a slurm or kubernetes host" in problem["hint"]
    assert client.get(f"{API}/runs").get_json()["items"] == []
    rooms.runs.queue.register("w1", [*served, host("grid", executor="slurm")])
    assert client.post(f"{API}/runs", json=ASKED | {"suite": "spread"}).status_code == 201


def test_a_run_whose_driver_no_host_has_yet_waits_and_says_so(
    client: FlaskClient, rooms: Rooms, submit: Callable[..., str]
) -> None:
    rooms.runs.queue.register("w1", [host(driver="550.54.15")])
    run = client.get(f"{API}/runs/{submit()}").get_json()
    assert run["state"] == "queued"
    assert run["reason"] == f"waits for a host with driver {DRIVER} (a100-1 has 550.54.15)"


def test_a_suite_without_gpus_runs_once_on_any_host(client: FlaskClient) -> None:
    (run,) = client.post(f"{API}/runs", json=ASKED | {"suite": "hello"}).get_json()["runs"]
    assert (run["gpu"], run["driver"], run["gpus"]) == (None, None, 1)


def test_runs_are_listed_newest_first_and_by_filters(
    client: FlaskClient, rooms: Rooms, submit: Callable[..., str]
) -> None:
    first, second = submit(), submit(suite="hello", entry="torch24-cu124")
    rooms.runs.cancel(first, by="t")

    def ids(query: str) -> list[str]:
        return [run["id"] for run in client.get(f"{API}/runs?{query}").get_json()["items"]]

    assert ids("") == [second, first]
    assert ids("state=queued") == ids("suite=hello") == ids("entry=torch24-cu124") == [second]
    assert ids("state=cancelled") == ids("state=ended") == [first]
    assert ids("target=prod-a100&asked_by=anonymous") == [second, first]
    assert ids("state=active") == ids("host=a100-1") == ids("until=2020-01-01") == []
    page = client.get(f"{API}/runs?limit=1").get_json()
    assert ids(f"limit=1&cursor={page['next']}") == [first]
    assert client.get(f"{API}/runs?state=lost").status_code == 400


def test_a_run_shows_its_steps(client: FlaskClient, rooms: Rooms, lease: Lease) -> None:
    rooms.runs.queue.record(lease, StepResult("gemm-0", "gemm", 0, "failed", "check", exit_code=1))
    run = client.get(f"{API}/runs/{lease.run.id}").get_json()
    assert (run["state"], run["on_host"], run["worker"]) == ("leased", "a100-1", "w1")
    (step,) = run["steps"]
    assert (step["name"], step["outcome"], step["exit_code"]) == ("gemm-0", "failed", 1)
    assert (step["attempt"], step["host"]) == (1, "a100-1")
    assert client.get(f"{API}/runs/run_none").status_code == 404


def test_a_step_stands_beside_the_published_peaks_of_its_gpu(
    client: FlaskClient, rooms: Rooms, lease: Lease
) -> None:
    shipped = Library.open([])
    rooms.runs.catalogue = lambda: shipped
    gpus = [{"name": GPU}]
    metric = {"name": "device-copy", "unit": "GB/s", "values": [1631.2]}
    report = {"env": {"driver": DRIVER, "gpus": gpus}, "metrics": [metric]}
    step = StepResult("memory-0", "memory-bandwidth", 0, "passed", report=report)
    rooms.runs.queue.record(lease, step)
    (shown,) = client.get(f"{API}/runs/{lease.run.id}").get_json()["steps"]
    (share,) = shown["peaks"]
    assert (share["metric"], share["kind"], share["gpu"]) == ("device-copy", "memory", GPU)
    assert (share["peak"], share["share"], share["implausible"]) == (2039, 0.8, False)
    assert share["source"]["url"].startswith("https://www.nvidia.com/")
    workloads = client.get(f"{API}/workloads?limit=100").get_json()["items"]
    (gemm,) = [one for one in workloads if one["name"] == "gemm"]
    assert gemm["metrics"]["tf32"]["peak"] == "tf32"


def test_cancelling_and_running_again(
    client: FlaskClient, rooms: Rooms, lease: Lease, submit: Callable[..., str]
) -> None:
    url = f"{API}/runs/{lease.run.id}"
    assert client.post(f"{url}/rerun").status_code == 409
    assert client.post(f"{url}/cancel").get_json()["cancelling"] is True
    rooms.runs.queue.finish(lease, "cancelled", "cancelled", None)
    assert client.post(f"{url}/cancel").status_code == 409
    (again,) = client.post(f"{url}/rerun").get_json()["runs"]
    assert again["state"] == "queued"
    assert again["stack"] == ASKED["stack"]
    assert client.post(f"{API}/runs/{submit()}/cancel").get_json()["state"] == "cancelled"
    assert client.post(f"{API}/runs/run_none/cancel").status_code == 404


def test_a_log_is_text_with_a_line_for_each_step(
    client: FlaskClient, rooms: Rooms, lease: Lease
) -> None:
    for step, data in (("a-0", b"one\n"), ("a-0", b"\xff\n"), ("b-0", "größe".encode()[:3])):
        rooms.runs.queue.write(lease, step, data)
    rooms.runs.queue.write(lease, "b-0", "größe".encode()[3:])
    log = client.get(f"{API}/runs/{lease.run.id}/logs")
    assert log.mimetype == "text/plain"
    assert log.text == "==> a-0, attempt 1 <==\none\n\ufffd\n==> b-0, attempt 1 <==\ngröße"
    assert client.get(f"{API}/runs/{lease.run.id}/logs?step=b-0").text == "größe"
    assert client.get(f"{API}/runs/run_none/logs").status_code == 404


def test_a_step_that_never_was_is_not_found_once_the_run_has_ended(
    client: FlaskClient, rooms: Rooms, lease: Lease
) -> None:
    logs = f"{API}/runs/{lease.run.id}/logs"
    rooms.runs.queue.write(lease, "gemm-0", b"one")
    assert client.get(f"{logs}?step=gemm-1").text == ""  # it may come
    rooms.runs.queue.finish(lease, "error", "", None)
    problem = client.get(f"{logs}?step=gemm-1").get_json(force=True)
    assert (problem["status"], problem["field"]) == (404, "step")
    assert "did you mean gemm-0" in problem["hint"]
    assert client.get(f"{logs}?step=gemm-0").text == "one"


@pytest.mark.parametrize("how", ["", "?follow=true", "?step=a-0&after=7"])
def test_a_log_that_was_removed_is_gone_and_says_since_when(
    client: FlaskClient, rooms: Rooms, lease: Lease, how: str
) -> None:
    rooms.runs.queue.write(lease, "a-0", b"one")
    rooms.runs.queue.finish(lease, "error", "", None)
    prune_database(rooms.gate.database, PruneAges(logs=timedelta(seconds=-1)), by="keeper")
    problem = client.get(f"{API}/runs/{lease.run.id}/logs{how}").get_json(force=True)
    assert (problem["status"], problem["value"]) == (410, lease.run.id)
    assert "by keeper (link" in problem["detail"]
    assert client.get(f"{API}/runs/{lease.run.id}").status_code == 200


def events(text: str) -> list[tuple[str, Any]]:
    found = []
    for block in filter(None, text.split("\n\n")):
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        found.append((fields["event"], json.loads(fields["data"])))
    return found


def test_a_followed_log_comes_as_it_is_written_and_ends_with_the_run(
    client: FlaskClient, rooms: Rooms, lease: Lease
) -> None:
    rooms.runs.queue.write(lease, "a-0", b"one\n")

    def work() -> None:
        time.sleep(0.7)
        rooms.runs.queue.enter(lease, "running")
        rooms.runs.queue.write(lease, "a-0", b"two\n")
        rooms.runs.queue.finish(lease, "failed", "check", None)

    worker = threading.Thread(target=work)
    worker.start()
    answer = client.get(f"{API}/runs/{lease.run.id}/logs?follow=true")
    worker.join()
    assert answer.mimetype == "text/event-stream"
    found = events(answer.text)
    assert [data["text"] for name, data in found if name == "output"] == ["one\n", "two\n"]
    assert found[0][1]["state"] == "leased"
    assert found[-1] == ("end", found[-1][1])
    assert (found[-1][1]["state"], found[-1][1]["reason"]) == ("failed", "check")


def test_a_stream_is_taken_up_again_where_it_ended(
    client: FlaskClient, rooms: Rooms, lease: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "MAX_STREAM_SECONDS", 0.1)
    url = f"{API}/runs/{lease.run.id}/logs?follow=true"
    rooms.runs.queue.write(lease, "a-0", b"one")
    text = client.get(url).text
    assert events(text)[-1][0] == "output"  # no end: the run goes on
    last = text.split("id: ")[1].split("\n")[0]
    rooms.runs.queue.write(lease, "a-0", b"two")
    for again in (
        client.get(f"{url}&after={last}"),
        client.get(url, headers={"Last-Event-ID": last}),
    ):
        assert [data["text"] for name, data in events(again.text) if name == "output"] == ["two"]
    assert client.get(url, headers={"Last-Event-ID": "x"}).status_code == 400


def test_so_many_follow_at_once_and_a_place_is_freed(
    make_client: Callable[..., FlaskClient], rooms: Rooms, lease: Lease
) -> None:
    client = make_client(max_listeners=1)
    url = f"{API}/runs/{lease.run.id}/logs?follow=true"
    assert client.head(url).status_code == 200
    rooms.runs.queue.finish(lease, "passed", "", None)
    for _ in range(3):
        answer = client.get(url)
        assert answer.status_code == 200, answer.text
        answer.close()
    refused = make_client(max_listeners=0).get(url)
    assert refused.status_code == 503
    assert "--threads" in refused.get_json(force=True)["hint"]


def test_hosts_suites_and_workloads_are_listed(client: FlaskClient, lease: Lease) -> None:
    hosts = client.get(f"{API}/hosts").get_json()["items"]
    assert [(h["name"], h["gpu"], h["busy"]) for h in hosts] == [
        ("a100-1", GPU, 1),
        ("cpu", None, 0),
    ]
    assert len(client.get(f"{API}/hosts?gpu={GPU}").get_json()["items"]) == 1
    suites = client.get(f"{API}/suites").get_json()["items"]
    assert {s["name"]: s["gpus"] for s in suites}["pair"] == 2
    assert {s["name"]: s["nodes"] for s in suites}["spread"] == 2
    workloads = client.get(f"{API}/workloads?limit=1").get_json()
    assert [w["name"] for w in workloads["items"]] == ["gemm"]
    assert workloads["next"]


def test_evidence_is_listed(client: FlaskClient, rooms: Rooms, lease: Lease) -> None:
    rooms.runs.queue.finish(lease, "passed", "", evidence(lease))
    (found,) = client.get(f"{API}/evidence?suite=smoke&sku={GPU}").get_json()["items"]
    assert (found["run"], found["components"]) == (lease.run.id, MEASURED)
    assert client.get(f"{API}/evidence?outcome=failed").get_json()["items"] == []
    assert client.get(f"{API}/evidence?run={lease.run.id}").get_json()["items"] == [found]


def test_a_candidate_shows_what_it_lacks_and_its_entity_tag_still_guards_it(
    client: FlaskClient, rooms: Rooms
) -> None:
    spec = {"targets": ["prod-a100"], "components": {"cuda": "12.4.*"}, "status": "candidate"}
    rooms.matrix.create("Entry", {"metadata": {"name": "new"}, "spec": spec}, Authorship("t", "t"))
    shown = client.get(f"{API}/entries/new")
    assert [need["suite"] for need in shown.get_json()["promotion"]["needs"]] == ["smoke"]
    listed = client.get(f"{API}/entries").get_json()["items"]
    assert [entry["metadata"]["name"] for entry in listed if "promotion" in entry] == ["new"]
    tag = shown.headers["ETag"]
    changed = {"metadata": {"name": "new"}, "spec": spec | {"status": "blessed"}, "reason": "ok"}
    url = f"{API}/entries/new"
    assert client.get(url, headers={"If-None-Match": tag}).status_code == 304
    assert client.put(url, json=changed, headers={"If-Match": tag}).status_code == 200
    assert client.put(url, json=changed, headers={"If-Match": tag}).status_code == 412
    assert client.get(url, headers={"If-None-Match": tag}).status_code == 200
    assert "promotion" not in client.get(url).get_json()


def test_a_baseline_of_a_new_family_names_the_nearest_one_to_compare_with(
    client: FlaskClient, rooms: Rooms
) -> None:
    spec = {"latency": MetricSpec("ms", "lower", repetitions=3)}

    def proposed(family: str, *values: float, sku: str = GPU) -> str:
        samples = Samples("latency", "ms", (values,))
        ground = BaselineKey("gemm@0f3c", sku, family)
        for number in range(3):
            rooms.baselines.offer(ground, spec, f"run-{family}-{number}", [samples])
        asked = {"family": family, "sku": sku}
        newest = client.get(f"{API}/baselines", query_string=asked).get_json()["items"][0]
        return f"{API}/baselines/{newest['id']}"

    for family, sku in (("cuda-12.4+torch-2.3", GPU), ("cuda-12.1", GPU), ("torch-2.4", "L4")):
        client.post(proposed(family, 2.0, 2.0, 2.0, sku=sku) + "/approve")
    proposed("cuda-12.4+torch-2.4+nccl-2", 9.0, 9.0, 9.0)  # not approved, so nobody's measure
    new = proposed("cuda-12.4+torch-2.4", 2.1, 2.1, 2.1)
    near = client.get(new).get_json()["nearest"]
    assert (near["family"], near["median"]) == ("cuda-12.4+torch-2.3", 2.0)
    assert near["change"] == pytest.approx(0.05)
    ground = BaselineKey("gemm@0f3c", GPU, "cuda-12.4+torch-2.4")
    assert rooms.baselines.approved(ground) == {}
    assert client.post(f"{new}/approve").get_json()["nearest"] is None
    assert client.get(proposed("cuda-13.0", 1.0, 1.0, 1.0)).get_json()["nearest"] is None


def test_a_baseline_is_proposed_by_runs_and_approved_by_a_person(
    client: FlaskClient, rooms: Rooms
) -> None:
    ground = BaselineKey("gemm@0f3c", GPU, "torch-2.4-cu12")
    spec = {"latency": MetricSpec("ms", "lower", repetitions=3)}
    for run in ("run_0:gemm-0", "run_1:gemm-0", "run_2:gemm-0", "run_2:gemm-0"):
        values = Samples("latency", "ms", ((1.0, 1.1, 1.2),))
        other = Samples("undeclared", "ms", ((1.0, 1.1, 1.2),))
        rooms.baselines.offer(ground, spec, run, [values, other])
    rooms.baselines.offer(ground, spec, "run_3", [Samples("latency", "ms", ((1.0,),))])
    (listed,) = client.get(f"{API}/baselines?state=proposed").get_json()["items"]
    assert (listed["learnt_from"], listed["values"], listed["version"]) == (3, 9, 1)
    assert rooms.baselines.approved(ground) == {}
    url = f"{API}/baselines/{listed['id']}"
    assert client.get(url).get_json()["distribution"]["median"] == pytest.approx(1.1)
    assert client.post(f"{url}/approve").get_json()["state"] == "approved"
    assert client.post(f"{url}/approve").status_code == 409
    assert rooms.baselines.approved(ground)["latency"].values == (1.0, 1.1, 1.2) * 3
    rooms.baselines.offer(ground, spec, "run_4", [Samples("latency", "ms", ((1.0, 1.1, 1.2),))])
    newer = client.get(f"{API}/baselines?metric=latency").get_json()["items"][0]
    assert (newer["version"], newer["state"], newer["learnt_from"]) == (2, "proposed", 4)
    client.post(f"{API}/baselines/{newer['id']}/approve")
    assert client.get(url).get_json()["state"] == "replaced"
    assert len(rooms.baselines.approved(ground)["latency"].runs) == 4
    assert client.get(f"{API}/baselines/999").status_code == 404
    assert rooms.audit.list_audit(action="baseline.").items[0].actor == "anonymous"
