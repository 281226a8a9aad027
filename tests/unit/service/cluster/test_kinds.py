"""The table of kinds, and an operator's own laid over it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from compatgate.core.constraints import parse_constraint
from compatgate.core.matrix import Waiver
from compatgate.core.rule import Checked, Verdict
from compatgate.errors import BadInput
from compatgate.resources import matrix_dir
from compatgate.service.cluster.kinds import load_kinds, parse_kinds
from compatgate.service.cluster.pods import gpu_containers, pods_of
from compatgate.service.cluster.questions import (
    Exemption,
    Question,
    check_exemption,
    parse_exemptions,
)

SCHEMA = json.loads((matrix_dir() / "schema" / "kinds.schema.json").read_text())

OWN = """
resources: [example.com/gpu]
kinds:
  - {kind: Training, group: ml.example, resource: trainings, templates: [spec.roles.*.pod]}
"""


def test_an_operators_kind_and_resource_are_seen(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(OWN)
    kinds = load_kinds([str(tmp_path / "own.yaml")])
    kind = kinds.of("ml.example", "Training")
    assert kind
    container = {"name": "a", "image": "x", "resources": {"limits": {"example.com/gpu": 1}}}
    document = {"spec": {"roles": [{"pod": {"spec": {"containers": [container]}}}]}}
    (pod,) = pods_of(document, kind)
    (found,) = gpu_containers(pod, kinds)
    assert found.path == "spec.roles[0].pod.spec.containers[0]"
    assert kinds.of("apps", "Deployment")
    assert kinds.is_gpu("nvidia.com/gpu")


@pytest.mark.parametrize(
    ("own", "names"),
    [
        ("resources: [example.com/gpu]", {"nvidia", "nvidia-cdi", "nvidia-legacy"}),
        ("runtimeClasses: [gpu]", {"gpu"}),
        ("runtimeClasses: []", set()),
    ],
)
def test_an_operators_runtime_classes_take_the_place_of_the_shipped_ones(
    tmp_path: Path, own: str, names: set[str]
) -> None:
    (tmp_path / "own.yaml").write_text(own)
    kinds = load_kinds([str(tmp_path / "own.yaml")])
    asked = {"nvidia", "nvidia-cdi", "nvidia-legacy", "gpu", "runc", ""}
    assert {name for name in asked if kinds.hands_out(name)} == names


def test_the_last_statement_about_a_claim_counts(tmp_path: Path) -> None:
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text("claims: [{name: '*-nic', deviceClasses: [rdma.example.com]}]")
    second.write_text(
        "claims: [{name: gpu-*, namespaces: [ml-*], deviceClasses: [gpu.nvidia.com, a.b]}]"
    )
    kinds = load_kinds([str(first), str(second)])
    assert kinds.classes_of_claim("web", "gpu-nic") == ("rdma.example.com",)
    assert kinds.classes_of_claim("ml-a", "gpu-nic") == ("gpu.nvidia.com", "a.b")
    assert kinds.classes_of_claim("ml-a", "other") is None
    assert load_kinds().classes_of_claim("ml-a", "gpu-nic") is None


@pytest.mark.parametrize(
    "text",
    [
        "[",
        "kinds: 7",
        "kinds: [{kind: A}]",
        "kinds: [{kind: A, resource: a, template: [spec]}]",
        "kinds: [{kind: A, resource: a, templates: ['spec..x']}]",
        "kinds: [{kind: A, resource: a, templates: ['$.spec']}]",
        "\x00",
    ],
)
def test_what_is_no_table_is_refused(text: str) -> None:
    with pytest.raises(BadInput) as raised:
        parse_kinds(text.encode(), "own.yaml")
    assert raised.value.field == "--kinds"


def test_an_exemption_names_a_namespace_and_a_waiver() -> None:
    assert parse_exemptions(["a-*=w"]) == (Exemption("a-*", "w"),)
    for wrong in ("a", "=w", "a="):
        with pytest.raises(BadInput):
            parse_exemptions([wrong])


@pytest.mark.parametrize(
    "text",
    [
        (matrix_dir() / "kubernetes" / "kinds.yaml").read_text(),
        OWN,
        "{}",
        "kinds: 7",
        "other: 1",
        "runtimeClasses: []",
        "runtimeClasses: [nvidia, other]",
        "runtimeClasses: nvidia",
        "runtimeClasses: null",
        "runtimeClasses: ['']",
        "resources: ['']",
        "kinds: [{kind: A}]",
        "kinds: [{kind: A, resource: a, pod: 1}]",
        "kinds: [{kind: A, resource: a, group: Big}]",
        'kinds: [{kind: "A\\n", resource: a}]',
        "kinds: [{kind: A, resource: a, specs: ['spec..x']}]",
        "kinds: [{kind: A, resource: a, containers: [model]}]",
        "kinds: [{kind: A, resource: a, scope: Cluster, search: true, lists: [a.b], itself: true}]",
        "kinds: [{kind: A, resource: a, scope: World}]",
        "kinds: [{kind: A, resource: a, inherits: ['a..b']}]",
        "shared: {resources: [{name: a/b, of: c}], annotations: [{name: x, of: y}]}",
        "shared: {annotations: [{name: x}]}",
        "aliases: {gpu: nvidia.com/gpu}",
        "aliases: {g.p: a}",
        "resourceFields: [a b]",
        "deviceClasses: ['*.example.com']",
        "otherDeviceClasses: ['*.example.com']",
        "otherDeviceClasses: ['']",
        "claims: [{name: rdma-*, namespaces: [net-*], deviceClasses: [rdma.example.com]}]",
        "claims: [{name: rdma-*, deviceClasses: []}]",
        "claims: [{name: rdma-*}]",
        "excludedNamespaces: [{name: a, reason: because}]",
        "excludedNamespaces: [{name: a}]",
        "excludedNamespaces: [{name: A, reason: because}]",
    ],
)
def test_the_schema_accepts_exactly_what_is_read(text: str) -> None:
    try:
        parse_kinds(text.encode(), "own.yaml")
        read = True
    except BadInput:
        read = False
    assert Draft202012Validator(SCHEMA).is_valid(yaml.load(text, yaml.CSafeLoader)) == read


@pytest.mark.parametrize(("other", "exempts"), [("2.4.1+cu121", True), ("2.9.1+cu130", False)])
def test_a_waiver_exempts_an_image_only_with_all_its_installations(
    other: str, exempts: bool
) -> None:
    constraints = {"torch": parse_constraint("torch", "==2.4.1+cu121")}
    waiver = Waiver("w", ("CG822",), ("prod",), "o", "r", "2026-12-31", components=constraints)
    stack = {"torch": "2.4.1+cu121", "alternatives": {"opt/venv": {"torch": other}}}
    verdict = Verdict(
        id="",
        verdict="fail",
        allowed=False,
        mode="enforce",
        target="prod",
        findings=(),
        checked=Checked((), ()),
        stack=stack,
        pools=(),
        matrix_revision=1,
        facts="",
    )
    question = Question("prod", {}, ("c",), waiver="w")
    found = check_exemption(question, verdict, "ns", (), {"w": waiver}, "2026-11-30")
    assert (found.waiver is not None) == exempts
