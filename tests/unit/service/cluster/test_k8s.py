"""``compatgate k8s manifests`` prints what ``kubectl apply`` takes."""

from __future__ import annotations

from typing import Any

import kubernetes_validate
import pytest
import yaml

from compatgate.cli.main import main


def test_the_manifests_are_objects_of_the_namespace(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["k8s", "manifests", "--namespace", "gpu-staging"]) == 0
    found = list(yaml.load_all(capsys.readouterr().out, yaml.CSafeLoader))
    assert [each["kind"] for each in found] == [
        "ServiceAccount", "Role", "RoleBinding", "NetworkPolicy", "NetworkPolicy",
    ]  # fmt: skip
    for each in found:
        kubernetes_validate.validate(each, "1.34", strict=True)
        assert each["metadata"]["namespace"] == "gpu-staging"


@pytest.mark.parametrize("name", ["", "A", "a_b", "a" * 64, "a\n"])
def test_what_is_no_namespace_is_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["k8s", "manifests", "--namespace", name]) == 2
    assert "--namespace" in capsys.readouterr().err


WATCH = ("k8s", "manifests", "--nodes", "--audit")


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[tuple[str, str], Any]:
    assert main([*WATCH, *arguments]) == 0
    found = list(yaml.load_all(capsys.readouterr().out, yaml.CSafeLoader))
    for each in found:
        kubernetes_validate.validate(each, "1.34", strict=True)
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


def test_accounts_may_do_what_their_command_does_and_no_more(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = printed(capsys)
    assert {kind for kind, _ in found} == {"ServiceAccount", "ClusterRole", "ClusterRoleBinding"}
    (nodes,) = found["ClusterRole", "compatgate-nodes"]["rules"]
    assert (nodes["resources"], nodes["verbs"]) == (["nodes"], ["get", "list"])
    read, claims, reports = found["ClusterRole", "compatgate-audit"]["rules"]
    assert (claims["apiGroups"], claims["verbs"]) == (["resource.k8s.io"], ["get"])
    assert (read["resources"], read["verbs"]) == (["nodes", "pods"], ["list"])
    assert reports["apiGroups"] == ["wgpolicyk8s.io"]
    (nodes,) = printed(capsys, "--taint")["ClusterRole", "compatgate-nodes"]["rules"]
    assert nodes["verbs"] == ["get", "list", "patch"]


def test_with_an_image_there_are_jobs_that_the_command_line_understands(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from compatgate.cli.main import parser_of

    found = printed(capsys, "--image", "registry.example/cg:1", "--cluster", "eu", "--taint")
    jobs = {name: each for (kind, name), each in found.items() if kind == "CronJob"}
    assert sorted(jobs) == [
        "compatgate-audit", "compatgate-nodes-reconcile", "compatgate-nodes-report",
    ]  # fmt: skip
    parser = parser_of("k8s")
    for job in jobs.values():
        pod = job["spec"]["jobTemplate"]["spec"]["template"]
        (container,) = pod["spec"]["containers"]
        parsed = parser.parse_args(container["args"][1:])
        assert (parsed.in_cluster, parsed.cluster) == (True, "eu")
        names = {env["name"] for env in container["env"]}
        assert names == {"COMPATGATE_SERVER", "COMPATGATE_TOKEN", "SSL_CERT_FILE"}
        assert pod["metadata"]["labels"]["app.kubernetes.io/name"] != "compatgate"


def test_a_gate_elsewhere_needs_no_authority_of_the_cluster(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = printed(capsys, "--image", "cg:1", "--gate", "https://gate.example")
    pod = found["CronJob", "compatgate-audit"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert "volumes" not in pod
    assert pod["containers"][0]["env"][0]["value"] == "https://gate.example"


@pytest.mark.parametrize(
    "options",
    [("--every", "0"), ("--every", "31"), ("--image", "a b"), ("--gate", "gate.example")],
)
def test_what_no_job_can_be_is_refused(
    options: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*WATCH, *options]) == 2
    assert options[0] in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--taint", "--own"])
def test_tainting_goes_with_nodes(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["k8s", "manifests", option]) == 2
    assert f"{option}: needs --nodes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("manifests --failure-policy Ignore", "--failure-policy: needs --webhook"),
        ("manifests --nodes --timeout 5", "--timeout: needs --webhook"),
        ("manifests --nodes --kinds kinds.yaml", "--kinds: needs --webhook"),
        ("manifests --exclude-namespace a", "--exclude-namespace: needs --webhook or --audit"),
        ("manifests --webhook --image a", "--image: needs --nodes or --audit"),
        ("nodes --file x.json --max-tainted 3", "--max-tainted: needs --suggest"),
    ],
)
def test_an_option_that_would_change_nothing_is_refused(
    arguments: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["k8s", *arguments.split()]) == 2
    assert said in capsys.readouterr().err


def test_each_gpu_node_reports_its_driver_also_when_it_is_tainted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from compatgate.kit.cli.parser import Parser
    from compatgate.service.cluster.labels import TAINT
    from compatgate.service.nodes import cli as nodes

    found = printed(capsys, "--image", "cg:1", "--own", "--every", "5")
    pod = found["DaemonSet", "compatgate-nodes-driver"]["spec"]["template"]["spec"]
    assert TAINT in [toleration["key"] for toleration in pod["tolerations"]]
    assert pod["automountServiceAccountToken"] is False
    (container,) = pod["containers"]
    assert {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "utility"} in container["env"]
    assert "limits" in container["resources"]
    assert not any("nvidia" in name for name in container["resources"]["limits"])
    parser = Parser(prog="compatgate nodes")
    nodes.add_arguments(parser)
    parsed = parser.parse_args(container["args"][1:])
    assert (parsed.action, parsed.name, parsed.every) == ("report", "$(NODE_NAME)", "5m")
