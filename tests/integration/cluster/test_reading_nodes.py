"""``compatgate k8s nodes``: the whole list or an error, whatever the API server does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from api_objects import Fault, Objects

from compatgate.service.app import Rooms

from .conftest import Run

Add = Callable[..., dict[str, Any]]


def names(out: str) -> list[str]:
    return [node["name"] for node in json.loads(out)]


def test_nodes_with_gpus_are_shown_against_the_matrix(
    run: Run, node: Add, objects: Objects
) -> None:
    node("a1")
    node("a2", "550.54.15")
    objects.add("nodes", {"kind": "Node", "metadata": {"name": "cpu"}})
    status, out, _ = run("nodes")
    assert status == 0
    lines = out.splitlines()
    assert len(lines) == 3
    assert "blessed" in lines[1]
    assert "it has driver 550.54.15, prod-a100 declares 535.183.01" in lines[2]


def test_nothing_is_kept_unless_it_is_to_be_reported(run: Run, node: Add, rooms: Rooms) -> None:
    node("a1")
    run("nodes", "--cluster", "eu")
    assert rooms.nodes.list().items == ()
    assert run("nodes", "--cluster", "eu", "--report")[0] == 0
    (kept,) = rooms.nodes.list().items
    assert (kept.row.cluster, kept.row.name) == ("eu", "a1")
    assert sorted(kept.row.witnesses) == ["kubelet", "labels"]


def test_pages_are_read_to_the_last(run: Run, node: Add, objects: Objects) -> None:
    for number in range(7):
        node(f"a{number}")
    objects.page = 3
    assert names(run("nodes", "--format", "json")[1]) == [f"a{i}" for i in range(7)]
    assert objects.asked("GET", "/nodes") == 3


def test_a_list_that_has_expired_is_begun_anew(run: Run, node: Add, objects: Objects) -> None:
    for number in range(4):
        node(f"a{number}")
    objects.page = 2
    gone = Fault(
        "GET", "/nodes", 410, "The provided continue parameter is too old", query="continue"
    )
    objects.faults = [gone]
    assert len(names(run("nodes", "--format", "json")[1])) == 4
    objects.faults = [gone, gone, gone]
    status, out, err = run("nodes", "--format", "json")
    assert (status, out) == (3, "")
    assert "too old" in err


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_server_is_asked_again(run: Run, node: Add, objects: Objects, status: int) -> None:
    node("a1")
    objects.faults = [Fault("GET", "/nodes", status)] * 2
    assert names(run("nodes", "--format", "json")[1]) == ["a1"]


@pytest.mark.parametrize(
    ("fault", "code", "says"),
    [
        (
            Fault("GET", "/nodes", 403, "nodes is forbidden"),
            2,
            "the Helm chart makes (nodes.report",
        ),
        (Fault("GET", "/nodes", 401, "Unauthorized"), 2, "log in again"),
        (Fault("GET", "/nodes", 400, "odd"), 2, "odd"),
    ],
)
def test_a_refusal_is_told_and_nothing_is_reported(
    run: Run, node: Add, objects: Objects, rooms: Rooms, fault: Fault, code: int, says: str
) -> None:
    node("a1")
    objects.faults = [fault]
    status, out, err = run("nodes", "--report")
    assert (status, out) == (code, "")
    assert says in err
    assert rooms.nodes.list().items == ()


def test_a_cluster_that_is_away_is_no_decision(run: Run, node: Add, objects: Objects) -> None:
    objects.faults = [Fault("GET", "/nodes", 503)] * 9
    assert run("nodes")[0] == 3


def test_what_kubectl_printed_is_read_as_well(
    run: Run, node: Add, tmp_path: Path, objects: Objects
) -> None:
    path = tmp_path / "nodes.json"
    path.write_text(json.dumps({"kind": "List", "items": [node("a1"), {"kind": "Node"}]}))
    assert names(run("nodes", "--file", str(path), "--format", "json")[1]) == ["a1"]
    assert objects.requests == []


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"kind": "Pod", "metadata": {"name": "a"}}']
)
def test_what_is_no_list_of_nodes_is_refused(run: Run, tmp_path: Path, text: str) -> None:
    path = tmp_path / "nodes.json"
    path.write_text(text)
    status, _, err = run("nodes", "--file", str(path))
    assert status == 2
    assert "kubectl get nodes -o json" in err


def test_hostile_labels_are_left_out_and_do_not_stop_the_rest(
    run: Run, tmp_path: Path, node: Add
) -> None:
    body = node("a1")
    body["metadata"]["labels"] |= {"x\n": "y", "k": "v\u0000", "long": "x" * 500, "ok": "1"}
    body["metadata"]["annotations"]["compatgate.dev/target"] = "\u202e'; rm"
    odd = {
        "kind": "Node",
        "metadata": {"name": "$(reboot)", "labels": {"nvidia.com/gpu.count": "1"}},
    }
    path = tmp_path / "nodes.json"
    path.write_text(json.dumps({"items": [body, odd, 7, None]}))
    (shown,) = json.loads(run("nodes", "--file", str(path), "--format", "json")[1])
    assert {"ok"} == set(shown["labels"]) & {"x\n", "k", "long", "ok"}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--cluster", "A b"), "--cluster"),
        (("--in-cluster",), "--in-cluster"),
        (("--context", "nowhere"), "--kubeconfig"),
    ],
)
def test_options_that_cannot_be_are_refused(run: Run, options: tuple[str, ...], says: str) -> None:
    status, _, err = run("nodes", *options)
    assert status == 2
    assert says in err
