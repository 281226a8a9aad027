"""What an API server refuses by itself agrees with the gate: checked with a CEL implementation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import celpy
import pytest
from celpy.adapter import json_to_cel
from tables import read_table

from compatgate.service.cluster.chart import asked_objects
from compatgate.service.cluster.kinds import Kinds, load_kinds
from compatgate.service.cluster.matching import find_pods, unknown_kind
from compatgate.service.cluster.pods import declines_gpus, gpu_containers, pods_of

TABLES = Path(__file__).parents[3] / "conformance" / "admission"
CASES = [
    case
    for table in ("containers", "targets", "pools", "requests")
    for case in read_table(TABLES / f"{table}.yaml")
    if case.get("kind", "Pod") == "Pod" and "template" in case
]
OWN = "compatgate.dev/"
GPU = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
NO_GPU = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": "0", "cpu": "1"}}}
DEVICES = "/var/run/nvidia-container-devices"


def pod(*containers: dict[str, Any], paths: tuple[str, ...] = (), **own: str) -> dict[str, Any]:
    """A pod with volumes of these paths, and these annotations."""
    volumes = [{"name": f"v{n}", "hostPath": {"path": path}} for n, path in enumerate(paths)]
    return {
        "metadata": {"name": "p", "annotations": {f"{OWN}{k}": v for k, v in own.items()}},
        "spec": {"containers": list(containers), "volumes": volumes},
    }


def env(**variable: Any) -> dict[str, Any]:
    return {"name": "c", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", **variable}]}


def mounting(path: str) -> dict[str, Any]:
    return {"name": "c", "volumeMounts": [{"name": "v0", "mountPath": path}]}


REFUSED: list[tuple[dict[str, Any], str]] = [
    (pod(GPU, gpu="no"), "compatgate.dev/gpu is malformed"),
    (pod(NO_GPU, gpu="maybe"), "compatgate.dev/gpu is malformed"),
    (pod(GPU, target="prod a100"), "compatgate.dev/target is malformed"),
    (pod(GPU, target="-prod"), "compatgate.dev/target is malformed"),
    (pod(GPU, target="a" * 129), "compatgate.dev/target is malformed"),
    (pod(GPU, stack="cuda 12.4"), "compatgate.dev/stack is malformed"),
    (pod(GPU, stack="cuda=12.4,cudnn"), "compatgate.dev/stack is malformed"),
    (pod(GPU, stack="=12.4"), "compatgate.dev/stack is malformed"),
    (pod(GPU, stack="cuda= "), "compatgate.dev/stack is malformed"),
    (pod(GPU, gpu="false"), "a container requests GPUs"),
    (pod(GPU, gpu=" FALSE"), "a container requests GPUs"),
    (pod(NO_GPU, {"name": "d", "resources": {"requests": {"nvidia.com/mig-1g.10gb": "1"}}},
         gpu="false"), "a container requests GPUs"),
    (pod(env(value="all"), gpu="false"), "a container requests GPUs"),
    (pod(env(valueFrom={"fieldRef": {"fieldPath": "metadata.name"}}), gpu="false"),
     "a container requests GPUs"),
    (pod(mounting(f"{DEVICES}/all"), paths=("/dev/null",), gpu="false"),
     "a container requests GPUs"),
    (pod({"name": "c"}, paths=("/data", "/dev/nvidia0")), "/dev/nvidia*"),
    (pod({"name": "c"}, paths=("//dev/./nvidia-caps/",)), "/dev/nvidia*"),
    (pod(GPU, paths=("/dev//nvidiactl",)), "/dev/nvidia*"),
]  # fmt: skip
ADMITTED: list[dict[str, Any]] = [
    pod(GPU),
    pod(GPU, gpu="true"),
    pod(GPU, gpu=" True\n"),
    pod(GPU, target="prod-a100", stack="cuda=12.4, cudnn=9.1.0,arch=sm_80+sm_90,"),
    pod(GPU, target=" prod-a100 ", stack="torch==2.4.1+cu124"),
    pod(GPU, target="", stack="", gpu=""),
    pod(NO_GPU, gpu="false"),
    pod(env(value="void"), gpu="false"),
    pod(env(value=""), gpu="false"),
    pod(mounting(f"{DEVICES}/all"), paths=("/data",), gpu="false"),
    pod(mounting(f"{DEVICES}/imex/all"), paths=("/dev/null",), gpu="false"),
    pod({"name": "c"}, paths=("/dev/shm", "/dev", "/dev/dri", "/opt/dev/nvidia", "/dev/nvram")),
    {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}},
]


class Server:
    """What an API server makes of the policy."""

    def __init__(self, kinds: Kinds) -> None:
        self._environment = celpy.Environment()
        spec = asked_objects(kinds)["policy"]
        self._conditions = [self._program(one["expression"]) for one in spec["matchConditions"]]
        self._validations = [
            (self._program(one["expression"]), one["message"]) for one in spec["validations"]
        ]

    def _program(self, expression: str) -> Any:
        return self._environment.program(self._environment.compile(expression))

    def messages(self, document: dict[str, Any]) -> list[str]:
        """The messages of the validations that fail; an error fails the test."""
        known = {"object": json_to_cel(document)}
        if not all(one.evaluate(known) for one in self._conditions):
            return []
        return [message for one, message in self._validations if not one.evaluate(known)]


@pytest.fixture(scope="module")
def server() -> Server:
    return Server(load_kinds())


def test_a_policy_warns_or_denies_and_looks_at_new_pods() -> None:
    policy = asked_objects(load_kinds())["policy"]
    assert policy["actions"] == {"warn": ["Warn", "Audit"], "deny": ["Deny", "Audit"]}
    looked_at = [(rule["resources"], rule["operations"]) for rule in policy["resourceRules"]]
    assert looked_at == [(["pods"], ["CREATE"]), (["pods/ephemeralcontainers"], ["UPDATE"])]


def test_what_contradicts_itself_is_refused_with_reason_and_fix(server: Server) -> None:
    for document, part in REFUSED:
        (said,) = server.messages(document)
        assert part in said, document
        assert said.startswith("compatgate: ")
        assert "; fix: " in said
        assert said.isprintable()
        assert len(said) < 250


def test_other_pods_are_admitted(server: Server) -> None:
    for document in ADMITTED:
        assert server.messages(document) == [], document


def test_the_policy_refuses_only_what_the_gate_refuses_or_ignores_with_a_warning(
    server: Server,
) -> None:
    refused = 0
    for case in CASES:
        template, answer = case["template"], case["answer"]
        annotations = {**case.get("annotations", {}), **template.get("annotations", {})}
        document = {"metadata": {"annotations": annotations}, "spec": template["spec"]}
        said = server.messages(document)
        if any("requests GPUs" in one for one in said):
            kinds = load_kinds()
            (seen,) = pods_of(document, kinds.of("", "Pod"))
            assert declines_gpus(seen)
            assert list(gpu_containers(seen, kinds)), case["name"]
        elif said:
            assert (answer["allowed"], answer.get("code")) == (False, 422), case["name"]
        refused += bool(said)
    assert refused >= 3


def test_pods_of_published_manifests_are_admitted(server: Server) -> None:
    kinds, looked_at = load_kinds(), 0
    for row in read_table(TABLES / "corpus.yaml")["rows"]:
        version, _, kind = row["kind"].partition(" ")
        group = version.rpartition("/")[0]
        asked = kinds.of(group, kind) or unknown_kind(kind)
        for found in find_pods({"metadata": {}, **row["object"]}, asked, kinds).pods:
            document = {"metadata": {"annotations": dict(found.annotations)}, "spec": found.spec}
            assert server.messages(stored(document)) == [], row["file"]
            looked_at += 1
    assert looked_at >= 100


def stored(value: Any) -> Any:
    """A pod as the API server has it: quantities are text."""
    if isinstance(value, dict):
        return {
            key: {name: str(count) for name, count in inner.items()}
            if key in ("limits", "requests") and isinstance(inner, dict)
            else stored(inner)
            for key, inner in value.items()
        }
    return [stored(item) for item in value] if isinstance(value, list) else value
