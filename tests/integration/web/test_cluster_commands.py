"""The cluster commands against a gate that is served: the same answers as with a database."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from api_objects import Objects
from api_server import kubeconfig, serving

from .conftest import Server

Run = Callable[..., tuple[int, str, str]]
LABELS = {
    "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
    "nvidia.com/gpu.count": "8",
    "nvidia.com/cuda.driver-version.full": "550.54.15",
}


@pytest.fixture
def objects() -> Iterator[Objects]:
    """A cluster with a node and a pod that may not run there."""
    with serving(Objects()) as running:
        node: dict[str, Any] = {"metadata": {"name": "a1", "labels": LABELS}, "spec": {}}
        running.add("nodes", node)
        limits = {"limits": {"nvidia.com/gpu": "1"}}
        notes = {"compatgate.dev/stack": "cuda=12.4,arch=sm_90"}
        pod = {
            "metadata": {"name": "p1", "namespace": "ml-train", "annotations": notes},
            "spec": {"nodeName": "a1", "containers": [{"name": "app", "resources": limits}]},
            "status": {"phase": "Running"},
        }
        running.add("pods", pod)
        yield running


@pytest.fixture
def run(command: Run, shared: Server, objects: Objects, tmp_path: Path) -> Run:
    """A command that is told of the gate."""

    def running(*arguments: str, token: str = "") -> tuple[int, str, str]:
        cluster = ["--kubeconfig", kubeconfig(tmp_path, objects.url)]
        gate = ["--server", f"http://{shared.host}:{shared.port}", "--token", token or shared.token]
        return command(*arguments, *gate, *(cluster if arguments[0] == "k8s" else ()))

    return running


def test_nodes_are_reported_listed_shown_and_removed(run: Run) -> None:
    assert run("k8s", "nodes", "--report", "--cluster", "eu")[0] == 0
    (listed,) = json.loads(run("nodes", "list", "--stale", "no", "--format", "json")[1])
    assert (listed["name"], listed["driver_state"]) == ("a1", "not-blessed")
    assert "it has driver 550.54.15" in run("nodes", "show", "a1")[1]
    assert "prod-a100" in run("nodes", "drift", "--what", "driver")[1]
    assert run("nodes", "drift", "--what", "gpu")[1].startswith("no reported node")
    removed = run("nodes", "remove", "a1", "--cluster", "eu", "--reason", "scrapped")
    assert removed[:2] == (0, "removed eu/a1\n")
    status, _, err = run("nodes", "show", "a1")
    assert (status, "node 'a1' does not exist" in err) == (2, True)


def test_a_drivers_own_report_is_taken_from_a_probe(run: Run, tmp_path: Path) -> None:
    gpus = [{"product": "NVIDIA A100-SXM4-80GB", "devices": 8}]
    probe = {"compatgate": "probe/v1", "pools": [], "stack": {},
             "host": {"driver": "535.183.01", "gpus": gpus}}  # fmt: skip
    path = tmp_path / "probe.json"
    path.write_text(json.dumps(probe))
    own = ("nodes", "report", "--probe", str(path), "--cluster", "own")
    run("k8s", "nodes", "--report", "--cluster", "own")
    status, out, _ = run(*own, "--name", "a1")
    assert status == 0
    assert "the labels say driver 550.54.15, the driver itself 535.183.01" in out
    status, _, err = run(*own)
    assert (status, "--name" in err) == (2, True)


def test_what_runs_is_audited(run: Run) -> None:
    status, out, _ = run("k8s", "audit", "--format", "json")
    (found,) = json.loads(out)["results"]
    assert (status, found["outcome"], found["target"]) == (1, "fail", "prod-a100")


def test_a_token_that_may_not_is_told(run: Run, shared: Server) -> None:
    wanted = {"name": "reader", "scopes": ["read"]}
    made = shared.ask("POST", "/api/v1/tokens", wanted, shared.bearer).json()
    status, _, err = run("k8s", "audit", token=made["secret"])
    assert (status, "lacks the scope gate" in err) == (2, True)


def test_an_audit_that_goes_on_ends_in_order(
    shared: Server, objects: Objects, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "compatgate", "k8s", "audit", "--every", "30s",
               "--kubeconfig", kubeconfig(tmp_path, objects.url),
               "--server", f"http://{shared.host}:{shared.port}"]  # fmt: skip
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "COMPATGATE_TOKEN": shared.token},
    )  # fmt: skip
    assert process.stdout
    out = [process.stdout.readline() for _ in range(2)]  # the head, and the pod
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 0, err
    assert "CG201" in out[1]
    assert "1 GPU pods: 1 fail" in err
