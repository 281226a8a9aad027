"""What the chart's webhook asks about: GPU pods alone, and every kind that carries pods."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import celpy
import pytest
import yaml
from celpy.adapter import json_to_cel
from tables import read_table

from compatgate.cli.main import main
from compatgate.service.cluster.chart import asked_objects, uses_gpus
from compatgate.service.cluster.kinds import load_kinds

TABLES = Path(__file__).parents[3] / "conformance" / "admission"
CASES = [
    case
    for table in ("containers", "targets", "pools")
    for case in read_table(TABLES / f"{table}.yaml")
]


def test_every_kind_of_the_table_is_asked_about() -> None:
    found = asked_objects(load_kinds())
    asked = {
        (rule["apiGroups"][0], rule["resources"][0])
        for part in ("pods", "workloads")
        for rule in found[part]
    }
    assert asked == {(kind.group, kind.resource) for kind in load_kinds().file.kinds}


def test_the_namespaces_of_the_cluster_are_left_out_with_their_reasons() -> None:
    found = asked_objects(load_kinds())
    names = {one["name"] for one in found["excluded"]}
    assert {"kube-system", "kube-public", "kube-node-lease"} < names
    assert "gpu-operator" not in names, "the chart has a value for it"
    assert all(one["reason"] for one in found["excluded"])
    assert found["reasons"]["gate"]
    assert found["reasons"]["operator"]


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in CASES])
def test_the_condition_lets_every_pod_through_that_the_hook_would_see(case: dict[str, Any]) -> None:
    if case.get("kind", "Pod") != "Pod":
        pytest.skip("the condition is for pods")
    spec = case["template"]["spec"]
    pod = {"metadata": {"annotations": case.get("annotations", {})}, "spec": spec}
    sees = case["answer"]["asked"] > 0 or not case["answer"]["allowed"]
    if sees:
        assert condition(pod)


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": [{"name": "web", "image": "nginx"}]},
        {"containers": [{"name": "a", "resources": {"limits": {"nvidia.com/rdma_a": "1"}}}]},
        {"containers": [{"name": "a", "resources": {"limits": {"example.com/gpumem": "1"}}}]},
        {"containers": [{"name": "a", "resources": {}, "env": [{"name": "X", "value": "1"}]}]},
    ],
)
def test_the_condition_keeps_pods_without_gpus_from_the_hook(spec: dict[str, Any]) -> None:
    assert not condition({"metadata": {"name": "x"}, "spec": spec})


def condition(pod: dict[str, Any]) -> bool:
    environment = celpy.Environment()
    program = environment.program(environment.compile(uses_gpus(load_kinds())))
    return bool(program.evaluate({"object": json_to_cel(pod)}))


def test_the_command_prints_the_values_of_the_chart_and_knows_further_kinds(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["k8s", "manifests", "--chart-values"]) == 0
    printed = yaml.load(capsys.readouterr().out, yaml.CSafeLoader)
    assert printed == {"webhook": {"asked": asked_objects(load_kinds())}}
    kinds = tmp_path / "kinds.yaml"
    kinds.write_text(
        "kinds:\n"
        "  - {kind: Training, group: ml.example, resource: trainings, templates: [spec.pod]}\n"
    )
    assert main(["k8s", "manifests", "--chart-values", "--kinds", str(kinds)]) == 0
    assert "trainings" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "field", "hint"),
    [
        ([], "--chart-values", "the Helm chart makes the objects"),
        (["--chart-values", "--kinds", "/nowhere.yaml"], "--kinds", ""),
    ],
)
def test_what_cannot_be_is_refused_by_its_option(
    options: list[str], field: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["k8s", "manifests", *options]) == 2
    said = capsys.readouterr().err
    assert f"error: {field}: " in said
    assert hint in said
