"""``compatgate k8s audit``: what runs is decided again."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from api_objects import Fault, Objects
from werkzeug.serving import make_server

from compatgate.kit import clock
from compatgate.service.app import Rooms
from compatgate.service.gate.questions.service import Gate
from compatgate.web.app import create_app
from compatgate.web.service import Settings

from .conftest import Run

Add = Callable[..., dict[str, Any]]
WRONG = "cuda=12.4,arch=sm_90"


@contextmanager
def over_rest(rooms: Rooms) -> Iterator[str]:
    """Serve a gate, and give its URL."""
    settings = Settings(anonymous=frozenset({"gate", "read"}), overlays=())
    server = make_server("127.0.0.1", 0, create_app(rooms, settings))
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()


def outcomes(out: str) -> dict[str, str]:
    return {one["pod"]: one["outcome"] for one in json.loads(out)["results"]}


def test_each_pod_is_decided_as_admission_would_now(run: Run, node: Add, pod: Add) -> None:
    node("a1")
    pod("good", "cuda=12.4,cudnn=9.1.0,torch=2.4.1+cu124,arch=sm_80,python=3.11,nccl=2.20.5")
    pod("bad", WRONG)
    pod("open", "")
    pod("elsewhere", namespace="unknown", on="gone")
    pod("none", gpus="0")
    status, out, _ = run("audit", "--format", "json")
    assert status == 1
    found = outcomes(out)
    assert found == {"good": "warn", "bad": "fail", "open": "fail", "elsewhere": "warn"}


def test_the_text_names_what_is_wrong_in_a_line(run: Run, node: Add, pod: Add) -> None:
    node("a1")
    pod("bad", WRONG)
    status, out, err = run("audit")
    assert status == 1
    assert "CG201" in out
    assert "container app (registry.example/team/app:1.2) may not run on prod-a100" in out
    assert "1 GPU pods: 1 fail" in err


def test_the_node_that_a_pod_runs_on_tells_its_target(run: Run, node: Add, pod: Add) -> None:
    node("a1")
    node("l1", "580.95.05", **{"nvidia.com/gpu.product": "NVIDIA-L4"})
    pod("a", on="a1")
    pod("b", on="l1")
    results = json.loads(run("audit", "--format", "json")[1])["results"]
    assert {one["pod"]: one["target"] for one in results} == {"a": "prod-a100", "b": ""}


def test_a_pod_that_names_a_more_lenient_target_than_that_of_its_node_is_reported(
    run: Run, node: Add, pod: Add
) -> None:
    node("a1")
    pod("sly", WRONG, **{"compatgate.dev/target": "staging-h100"})
    pod("sly-too", WRONG, **{"compatgate.dev/target": "dev-rtx"})
    results = json.loads(run("audit", "--format", "json")[1])["results"]
    found = [(one["outcome"], one["rule"], one["target"]) for one in results]
    assert found == [("fail", "CG831", "prod-a100")] * 2
    assert "names staging-h100, but namespace, node selector and request" in results[0]["message"]


def test_a_gate_over_rest_decides_about_placement_as_a_database_does(
    run: Run, node: Add, pod: Add, rooms: Rooms
) -> None:
    node("h1", "580.95.05", **{"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"})
    here = {"namespace": "staging-a", "on": "h1"}
    pod("whole", "cuda=12.8,arch=sm_90", **here)
    pod("sly", "cuda=12.8,arch=sm_90", **here, **{"compatgate.dev/target": "prod-a100"})
    small = pod("small", "cuda=12.8,arch=sm_90", **here)
    small["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/mig-3g.40gb": "1"}
    told = {}
    with over_rest(rooms) as url:
        for name, place in (("local", ()), ("rest", ("--server", url))):
            results = json.loads(run("audit", *place, "--format", "json")[1])["results"]
            told[name] = [(one["pod"], one["outcome"], one["rule"]) for one in results]
    assert told["rest"] == told["local"]
    assert ("sly", "fail", "CG831") in told["rest"]
    assert ("small", "warn", "CG832") in told["rest"]


def test_pods_that_are_alike_are_asked_about_once(
    run: Run, node: Add, pod: Add, rooms: Rooms, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    preview = Gate.preview
    monkeypatch.setattr(
        Gate, "preview", lambda self, body: asked.append(body) or preview(self, body)
    )
    node("a1")
    for number in range(20):
        pod(f"p{number}")
    assert len(outcomes(run("audit", "--format", "json")[1])) == 20
    assert len(asked) == 1


def test_what_has_ended_or_has_no_node_does_not_run(run: Run, pod: Add, objects: Objects) -> None:
    for phase in ("Succeeded", "Failed"):
        pod(phase.lower())["status"]["phase"] = phase
    del pod("waiting")["spec"]["nodeName"]
    assert outcomes(run("audit", "--format", "json")[1]) == {}


def test_namespaces_that_admission_leaves_out_are_left_out(run: Run, node: Add, pod: Add) -> None:
    node("a1")
    pod("plugin", namespace="kube-system")
    pod("operand", namespace="gpu-operator")
    pod("mine", WRONG)
    out = run("audit", "--exclude-namespace", "gpu-operator", "--format", "json")[1]
    assert outcomes(out) == {"mine": "fail"}
    named = run("audit", "--namespace", "kube-system", "--format", "json")[1]
    assert list(outcomes(named)) == ["plugin"]


@pytest.mark.parametrize("fault", [Fault("GET", "/pods", 410), Fault("GET", "/pods", 429)])
def test_lists_go_on_where_the_server_falters(
    run: Run, node: Add, pod: Add, objects: Objects, fault: Fault
) -> None:
    node("a1")
    for number in range(5):
        pod(f"p{number}")
    objects.page = 2
    objects.faults = [fault]
    assert len(outcomes(run("audit", "--format", "json")[1])) == 5


def test_a_list_that_breaks_off_says_nothing_about_any_pod(
    run: Run, node: Add, pod: Add, objects: Objects
) -> None:
    node("a1")
    pod("one")
    objects.faults = [Fault("GET", "/pods", 503)] * 9
    assert run("audit")[:2] == (3, "")


def test_a_gate_that_is_away_says_nothing_about_any_pod(run: Run, node: Add, pod: Add) -> None:
    node("a1")
    pod("one")
    status, out, err = run("audit", "--server", "http://127.0.0.1:9")
    assert (status, out) == (3, "")
    assert "does not answer" in err


def test_a_waiver_exempts_here_as_it_does_there(
    run: Run, node: Add, pod: Add, rooms: Rooms
) -> None:
    from compatgate.kit.principal import Authorship

    spec = {"rules": ["CG822"], "targets": ["prod-a100"], "owner": "team-night",
            "reason": "it cannot wait", "match": {"everything": True},
            "expires": (clock.today() + timedelta(days=1)).isoformat()}  # fmt: skip
    rooms.matrix.create(
        "Waiver", {"metadata": {"name": "night"}, "spec": spec}, Authorship("t", "t")
    )
    node("a1")
    pod("by-note", WRONG, **{"compatgate.dev/waiver": "night"})
    pod("by-name", WRONG, namespace="ml-night")
    pod("not", WRONG)
    out = run("audit", "--exempt", "ml-n*=night", "--format", "json")[1]
    assert outcomes(out) == {"by-note": "skip", "by-name": "skip", "not": "fail"}


def test_annotations_that_mean_nothing_are_errors_of_that_pod_alone(
    run: Run, node: Add, pod: Add
) -> None:
    node("a1")
    pod("odd", "cuda=latest")
    pod("lost", **{"compatgate.dev/target": "nowhere"})
    pod("bad", WRONG)
    status, out, _ = run("audit", "--format", "json")
    assert status == 1
    assert outcomes(out) == {"odd": "error", "lost": "error", "bad": "fail"}


@pytest.mark.parametrize("every", ["1s", "often", "0m"])
def test_how_often_must_be_a_duration_that_is_not_too_short(run: Run, every: str) -> None:
    status, _, err = run("audit", "--every", every)
    assert status == 2
    assert "--every" in err
