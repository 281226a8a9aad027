"""What a cluster is told: valid by the published OpenAPI, and asking about GPU pods alone."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import celpy
import kubernetes_validate
import pytest
import yaml
from celpy.adapter import json_to_cel
from tables import read_table

from compatgate.cli.main import main
from compatgate.service.admission.kinds import load_kinds
from compatgate.service.admission.manifests import WebhookOptions, uses_gpus, webhook_objects

TABLES = Path(__file__).parents[3] / "conformance" / "admission"
CASES = [
    case
    for table in ("containers", "targets", "pools")
    for case in read_table(TABLES / f"{table}.yaml")
]
PEM = b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"


def objects(**options: Any) -> list[dict[str, Any]]:
    return webhook_objects(WebhookOptions(**options), load_kinds())


def webhooks(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    configuration: dict[str, Any] = found[-1]
    assert configuration["kind"] == "ValidatingWebhookConfiguration"
    hooks: list[dict[str, Any]] = configuration["webhooks"]
    return hooks


@pytest.mark.parametrize("version", ["1.30", "1.37"])
def test_objects_of_kubernetes_are_valid(version: str) -> None:
    for one in [*objects(), *objects(ca_bundle="TUlJQg==")]:
        if not one["apiVersion"].startswith("cert-manager"):
            kubernetes_validate.validate(one, version, strict=True)


def test_objects_that_are_applied_before_a_gate_answers_refuse_no_pod() -> None:
    assert {hook["failurePolicy"] for hook in webhooks(objects())} == {"Ignore"}


def test_where_it_is_asked_for_pods_fail_closed_and_what_makes_them_fails_open() -> None:
    pods, workloads = webhooks(objects(failure_policy="Fail"))
    assert (pods["failurePolicy"], workloads["failurePolicy"]) == ("Fail", "Ignore")


def test_every_kind_of_the_table_is_asked_about() -> None:
    asked = {
        (rule["apiGroups"][0], rule["resources"][0])
        for hook in webhooks(objects())
        for rule in hook["rules"]
    }
    assert asked == {(kind.group, kind.resource) for kind in load_kinds().file.kinds}


def test_the_cluster_and_the_gate_itself_are_never_held_up() -> None:
    for hook in webhooks(objects(namespace="gate", excluded=("gpu-operator",))):
        (selector,) = hook["namespaceSelector"]["matchExpressions"]
        assert {"kube-system", "gate", "gpu-operator"} <= set(selector["values"])


@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
def test_the_namespace_of_the_gpu_operator_is_never_held_up(policy: Any) -> None:
    def left_out(**options: Any) -> list[set[str]]:
        found = webhooks(objects(failure_policy=policy, **options))
        return [set(h["namespaceSelector"]["matchExpressions"][0]["values"]) for h in found]

    shipped = load_kinds().file.excluded_namespaces
    system = {"gate", *(one.name for one in shipped if not one.operator)}
    assert {"kube-system", "kube-public", "kube-node-lease"} < system
    assert left_out(namespace="gate") == [{*system, "gpu-operator"}] * 2
    elsewhere = left_out(namespace="gate", operators=("nvidia-gpu-operator",), excluded=("a",))
    assert elsewhere == [{*system, "nvidia-gpu-operator", "a"}] * 2


@pytest.mark.parametrize(
    ("options", "word", "policy", "said"),
    [
        ([], "note", "Ignore", "admits GPU pods unchecked while no gate answers"),
        (["--failure-policy", "Fail"], "warning", "Fail", "refuses every GPU pod while no gate"),
    ],
)
def test_the_command_says_what_happens_until_a_gate_answers(
    capsys: pytest.CaptureFixture[str], options: list[str], word: str, policy: str, said: str
) -> None:
    assert main(["k8s", "manifests", "--webhook", "--namespace", "gate", *options]) == 0
    printed = capsys.readouterr()
    assert printed.err.startswith(f"{word}: failurePolicy {policy} {said}")
    assert "https://gate.gate.svc" not in printed.err
    assert "https://compatgate.gate.svc" in printed.err
    comments = [line[2:] for line in printed.out.splitlines() if line.startswith("# ")]
    assert printed.err == f"{word}: {' '.join(comments)}\n"
    other = "Ignore" if policy == "Fail" else "Fail"
    assert f"--failure-policy {other}" in printed.err
    *_, configuration = yaml.load_all(printed.out, yaml.CSafeLoader)
    assert configuration["webhooks"][0]["failurePolicy"] == policy


def test_the_command_names_the_namespace_of_the_gpu_operator(
    capsys: pytest.CaptureFixture[str],
) -> None:
    names = ["--operator-namespace", "nv", "--operator-namespace", "nv2", "--audit", "--image", "a"]
    assert main(["k8s", "manifests", "--webhook", *names]) == 0
    found = list(yaml.load_all(capsys.readouterr().out, yaml.CSafeLoader))
    (hooks,) = [one for one in found if one["kind"] == "ValidatingWebhookConfiguration"]
    for hook in hooks["webhooks"]:
        (selector,) = hook["namespaceSelector"]["matchExpressions"]
        assert {"nv", "nv2"} <= set(selector["values"])
        assert "gpu-operator" not in selector["values"]
    (job,) = [one for one in found if one["kind"] == "CronJob"]
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    args = pod["containers"][0]["args"]
    left_out = [args[at + 1] for at, one in enumerate(args) if one == "--exclude-namespace"]
    assert left_out == ["compatgate", "nv", "nv2"]


def test_an_own_authority_takes_the_place_of_cert_manager() -> None:
    found = objects(ca_bundle="TUlJQg==")
    assert not any(one["apiVersion"].startswith("cert-manager") for one in found)
    (reasons,) = found[-1]["metadata"]["annotations"].items()
    assert reasons[0] == "compatgate.dev/excluded-namespaces"
    for one in load_kinds().file.excluded_namespaces:
        assert f"{one.name}: {one.reason}" in reasons[1]
    assert {h["clientConfig"]["caBundle"] for h in webhooks(found)} == {"TUlJQg=="}


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


def test_the_command_prints_yaml_that_is_these_objects(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "ca.pem").write_bytes(PEM + PEM)
    options = ["--namespace", "gate", "--timeout", "5", "--ca", str(tmp_path / "ca.pem")]
    assert main(["k8s", "manifests", "--webhook", *options]) == 0
    bundle = base64.b64encode(PEM + PEM).decode()
    expected = objects(namespace="gate", timeout_s=5, ca_bundle=bundle)
    assert list(yaml.load_all(capsys.readouterr().out, yaml.CSafeLoader)) == expected


@pytest.mark.parametrize(
    ("options", "field"),
    [
        (["--webhook", "--namespace", "Not_One"], "--namespace"),
        (["--webhook", "--exclude-namespace", ""], "--exclude-namespace"),
        (["--webhook", "--operator-namespace", "No/one"], "--operator-namespace"),
        (["--operator-namespace", "a"], "--operator-namespace"),
        (["--webhook", "--timeout", "60"], "--timeout"),
        (["--webhook", "--ca", "/nowhere.pem"], "--ca"),
        (["--webhook", "--kinds", "/nowhere.yaml"], "--kinds"),
    ],
)
def test_what_cannot_be_is_refused_by_its_option(
    options: list[str], field: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["k8s", "manifests", *options]) == 2
    assert f"error: {field}: " in capsys.readouterr().err


def test_a_private_key_is_no_authority(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ca.pem").write_bytes(PEM + b"-----BEGIN PRIVATE KEY-----\n")
    assert main(["k8s", "manifests", "--webhook", "--ca", str(tmp_path / "ca.pem")]) == 2
    assert "no private key" in capsys.readouterr().err
