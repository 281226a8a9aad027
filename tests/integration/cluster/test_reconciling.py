"""``compatgate k8s reconcile``: labels and taints that are ours, never too many, never others'."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from api_objects import Fault, Objects

from compatgate.kit.principal import Authorship
from compatgate.service.app import Rooms
from compatgate.service.nodes.kubernetes.labels import LABEL, SET_ANNOTATION, TAINT

from .conftest import Run

Add = Callable[..., dict[str, Any]]
BY = Authorship("tester", "for the test")
APPLY = ("--apply", "--max-tainted", "100%")


def taints(objects: Objects, name: str) -> list[tuple[str, str]]:
    found = objects.get("nodes", name)["spec"].get("taints", [])
    return [(taint["key"], taint.get("value", "")) for taint in found]


def labels(objects: Objects, name: str) -> dict[str, str]:
    found: dict[str, str] = objects.get("nodes", name)["metadata"]["labels"]
    return found


def test_nothing_is_changed_without_apply(run: Run, node: Add, objects: Objects) -> None:
    node("a1", "550.54.15")
    status, out, err = run("reconcile", "--max-tainted", "1")
    assert status == 0
    assert "kubectl taint node a1 compatgate.dev/driver-not-blessed=550.54.15:NoSchedule" in out
    assert "1 GPU nodes (1 not-blessed), 1 to change" in err
    assert objects.asked("PATCH", "") == 0


def test_nodes_are_labelled_and_those_not_blessed_tainted(
    run: Run, node: Add, objects: Objects
) -> None:
    node("a1")
    node("a2", "550.54.15")
    node("a3", None)
    assert run("reconcile", *APPLY)[0] == 0
    states = [labels(objects, name)[LABEL] for name in ("a1", "a2", "a3")]
    assert states == ["blessed", "not-blessed", "unknown"]
    assert taints(objects, "a2") == [("nvidia.com/gpu", ""), (TAINT, "550.54.15")]
    assert taints(objects, "a1") == taints(objects, "a3") == [("nvidia.com/gpu", "")]
    assert objects.get("nodes", "a2")["metadata"]["annotations"] == {
        "a": "b", SET_ANNOTATION: "label=not-blessed taint=550.54.15",
    }  # fmt: skip


def test_a_second_time_there_is_nothing_to_do(run: Run, node: Add, objects: Objects) -> None:
    node("a1", "550.54.15")
    run("reconcile", *APPLY)
    asked = objects.asked("PATCH", "")
    _, out, err = run("reconcile", *APPLY)
    assert (out, objects.asked("PATCH", "")) == ("", asked)
    assert "0 to change" in err


def test_a_driver_that_is_blessed_later_lifts_the_taint_that_was_ours(
    run: Run, node: Add, objects: Objects, rooms: Rooms
) -> None:
    node("a1", "550.54.15")
    run("reconcile", *APPLY)
    spec = {"targets": ["prod-a100"], "components": {"driver": "550.*"}, "status": "blessed"}
    rooms.matrix.create("Entry", {"metadata": {"name": "new"}, "spec": spec}, BY)
    assert run("reconcile", "--apply", "--max-tainted", "0")[0] == 0
    assert taints(objects, "a1") == [("nvidia.com/gpu", "")]
    assert labels(objects, "a1")[LABEL] == "blessed"


def test_a_driver_that_is_not_known_any_more_keeps_the_taint(
    run: Run, node: Add, objects: Objects
) -> None:
    node("a1", "550.54.15")
    run("reconcile", *APPLY)
    body = objects.get("nodes", "a1")
    del body["metadata"]["labels"]["nvidia.com/cuda.driver-version.full"]
    objects.add("nodes", body)
    run("reconcile", *APPLY)
    assert (TAINT, "550.54.15") in taints(objects, "a1")
    assert labels(objects, "a1")[LABEL] == "unknown"


def test_another_driver_that_is_not_blessed_replaces_the_taint(
    run: Run, node: Add, objects: Objects
) -> None:
    node("a1", "550.54.15")
    run("reconcile", *APPLY)
    body = objects.get("nodes", "a1")
    body["metadata"]["labels"]["nvidia.com/cuda.driver-version.full"] = "570.124.06"
    objects.add("nodes", body)
    run("reconcile", *APPLY)
    assert taints(objects, "a1") == [("nvidia.com/gpu", ""), (TAINT, "570.124.06")]


def test_what_somebody_else_has_set_stays(run: Run, node: Add, objects: Objects) -> None:
    body = node("a1", **{LABEL: "by-hand"})
    body["spec"]["taints"].append({"key": TAINT, "value": "by-hand", "effect": "NoSchedule"})
    objects.add("nodes", body)
    status, _, err = run("reconcile", *APPLY)
    assert status == 0
    assert taints(objects, "a1") == [("nvidia.com/gpu", ""), (TAINT, "by-hand")]
    assert labels(objects, "a1")[LABEL] == "by-hand"
    assert "was not set by compatgate, and stays" in err


def test_too_many_taints_are_refused_and_nothing_at_all_is_changed(
    run: Run, node: Add, objects: Objects
) -> None:
    for number in range(10):
        node(f"a{number}", "550.54.15" if number < 2 else "535.183.01")
    status, out, err = run("reconcile", "--apply")
    assert (status, out) == (1, "")
    assert "2 of 10 GPU nodes of prod-a100 would be tainted, the limit is 1" in err
    assert "nothing is changed" in err
    assert objects.asked("PATCH", "") == 0
    assert run("reconcile", "--apply", "--max-tainted", "20%")[0] == 0


def test_the_share_is_of_each_target(run: Run, node: Add) -> None:
    for number in range(30):
        node(f"a{number}")
    l4 = {"nvidia.com/gpu.product": "NVIDIA-L4"}
    node("l1", "520.61.05", **l4)
    node("l2", "520.61.05", **l4)
    status, _, err = run("reconcile", "--apply")
    assert status == 1, err
    assert "2 of 2 GPU nodes of inference-l4" in err


def test_a_node_that_changes_meanwhile_is_read_again(run: Run, node: Add, objects: Objects) -> None:
    node("a1", "550.54.15")
    conflict = Fault("PATCH", "/nodes/a1", 409, "the object has been modified")
    objects.faults = [conflict, conflict]
    status, out, _ = run("reconcile", *APPLY)
    assert (status, out) == (0, "a1: changed (not-blessed)\n")
    assert (TAINT, "550.54.15") in taints(objects, "a1")
    assert objects.asked("GET", "/nodes/a1") == 2


def test_an_answer_that_was_lost_changes_nothing_twice(
    run: Run, node: Add, objects: Objects
) -> None:
    node("a1", "550.54.15")
    objects.faults = [Fault("PATCH", "/nodes/a1", drop=True)]
    assert run("reconcile", *APPLY)[0] == 0
    assert taints(objects, "a1") == [("nvidia.com/gpu", ""), (TAINT, "550.54.15")]


def test_one_node_that_refuses_keeps_no_other_from_its_label(
    run: Run, node: Add, objects: Objects
) -> None:
    for name in ("a1", "a2", "a3"):
        node(name)
    objects.faults = [
        Fault("PATCH", "/nodes/a1", 403, "nodes is forbidden"),
        Fault("PATCH", "/nodes/a2", 404, "not found"),
    ]
    status, out, err = run("reconcile", *APPLY, "--format", "json")
    assert status == 3
    assert [(one["node"], one["done"]) for one in json.loads(out)] == [
        ("a1", "failed"), ("a2", "gone"), ("a3", "changed"),
    ]  # fmt: skip
    assert "1 nodes could not be changed" in err


def test_plans_come_as_patches_too(run: Run, node: Add) -> None:
    node("a1", "550.54.15")
    _, out, _ = run("reconcile", "--max-tainted", "1", "--format", "json")
    (shown,) = json.loads(out)["nodes"]
    assert shown["why"] == "no blessed or deprecated entry of prod-a100 admits 550.54.15"
    assert {op["path"] for op in shown["patch"]} == {
        "/metadata/resourceVersion", "/metadata/annotations/compatgate.dev~1driver-set",
        "/metadata/labels/compatgate.dev~1driver", "/spec/taints",
    }  # fmt: skip


@pytest.mark.parametrize(("most", "says"), [("-1", "--max-tainted"), ("101%", "10% or 3")])
def test_a_limit_that_cannot_be_is_refused(run: Run, most: str, says: str) -> None:
    status, _, err = run("reconcile", "--max-tainted", most)
    assert status == 2
    assert says in err
