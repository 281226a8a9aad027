"""A spec against pools: what holds, what fails, and what is not checked."""

from __future__ import annotations

from pathlib import Path

import pytest

from compatgate.core.facts import Facts
from compatgate.core.request import parse_pool
from compatgate.core.stack import parse_stack
from compatgate.discovery.integrations.nfd_evaluate import evaluate_spec
from compatgate.discovery.integrations.nfd_spec import build_spec, load_devices, read_spec

FOLDER = Path(__file__).parents[3] / "fixtures" / "neighbours"
H100 = {"driver": "580.82.07", "gpu": "H100-SXM5-80GB"}


def answers(facts: Facts, rules: str, **pool: str):
    text = f"version: v1alpha1\ncompatibilities: [{{rules: [{rules}]}}]"
    [one] = read_spec(text).compatibilities
    place = parse_pool(pool or H100, facts.gpus)
    return evaluate_spec(one, [place], facts.gpus, load_devices())


def outcome(facts: Facts, term: str, **pool: str) -> str:
    [answer] = answers(facts, f"{{name: r, matchFeatures: [{term}]}}", **pool)
    assert bool(answer.why) == (answer.outcome != "pass")
    return answer.outcome


def label(name: str, op: str, *values: str, kind: str = "") -> str:
    listed = ", ".join(f'"{value}"' for value in values)
    typed = f", type: {kind}" if kind else ""
    expression = f"{{op: {op}, value: [{listed}]{typed}}}"
    return f"{{feature: local.label, matchExpressions: {{nvidia.com/{name}: {expression}}}}}"


def test_the_published_example_is_not_checked_and_says_what_of_it() -> None:
    from compatgate.catalog import load_facts

    facts = load_facts()
    [one] = read_spec((FOLDER / "image-compatibility.yaml").read_text()).compatibilities
    found = evaluate_spec(one, [parse_pool(H100, facts.gpus)], facts.gpus, load_devices())
    assert [answer.outcome for answer in found] == ["unknown", "unknown"]
    assert found[0].why[0] == "not checked: kernel.loadedmodule: vfio-pci Exists"


@pytest.mark.parametrize(
    ("gpu", "expected"),
    [("A100-SXM4-80GB", "pass"), ("H100-SXM5-80GB", "fail"), ("GeForce-RTX-4090", "unknown"),
     ("8.0", "unknown"), ("Jetson-AGX-Orin", "unknown")],
)  # fmt: skip
def test_what_compatgate_wrote_it_reads(facts: Facts, gpu, expected) -> None:
    stack = parse_stack({"cuda": "12.4", "arch": ["sm_80"]})
    [one] = build_spec(stack, facts, load_devices()).spec.compatibilities
    pool = parse_pool({"driver": "580.82.07", "gpu": gpu}, facts.gpus)
    first, second = evaluate_spec(one, [pool], facts.gpus, load_devices())
    assert first.outcome == expected
    assert second.outcome == ("unknown" if "Jetson" in gpu else "pass")


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ('vendor: {op: In, value: ["10de"]}', "pass"),
        ('vendor: {op: In, value: ["10de"]}, class: {op: In, value: ["0300", "0302"]}', "pass"),
        ('vendor: {op: In, value: ["10de"]}, class: {op: In, value: ["0302"]}', "unknown"),
        ('vendor: {op: In, value: ["8086"]}', "unknown"),
        ('vendor: {op: NotIn, value: ["10de"]}', "unknown"),
        ('vendor: {op: In, value: ["10de"]}, sriov_totalvfs: {op: Exists}', "unknown"),
        ('vendor: {op: In, value: ["10de"]}, device: {op: In, value: ["20b0"]}', "fail"),
        ('vendor: {op: In, value: ["10de"]}, device: {op: In, value: ["2330"]}', "unknown"),
        ('vendor: {op: In, value: ["10de"]}, device: {op: In, value: ["ffff"]}', "unknown"),
        ('vendor: {op: In, value: ["10de"]}, device: {op: NotIn, value: ["20b0"]}', "pass"),
        ('vendor: {op: In, value: ["10de"]}, device: {op: Exists}', "unknown"),
    ],
)
def test_of_pci_devices_the_gpu_alone_is_known(facts: Facts, asked, expected) -> None:
    assert outcome(facts, f"{{feature: pci.device, matchExpressions: {{{asked}}}}}") == expected


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        (label("cuda.driver.major", "Ge", "580"), "pass"),
        (label("cuda.driver.major", "Gt", "580"), "fail"),
        (label("cuda.driver.major", "Lt", "570"), "fail"),
        (label("cuda.driver.major", "GtLt", "570", "590"), "pass"),
        (label("cuda.driver.major", "GeLe", "570", "575"), "fail"),
        (label("cuda.driver.major", "Ge", "x"), "unknown"),
        (label("cuda.driver.major", "Ge"), "unknown"),
        (label("cuda.driver-version.full", "Ge", "580.65.6", kind="version"), "pass"),
        (label("cuda.driver-version.full", "Ge", "595.1", kind="version"), "fail"),
        (label("cuda.driver-version.full", "Ge", "580.65.06"), "unknown"),
        (label("cuda.driver-version.full", "In", "580.82.07"), "pass"),
        (label("gpu.compute.major", "In", "8", "9"), "pass"),
        (label("gpu.compute.major", "NotIn", "9"), "fail"),
        (label("gpu.compute.major", "InRegexp", "^9$"), "unknown"),
        (label("gpu.compute.major", "Exists"), "pass"),
        (label("gpu.compute.major", "DoesNotExist"), "fail"),
        (label("gpu.product", "In", "NVIDIA-H100-80GB-HBM3"), "pass"),
        (label("gpu.product", "In", "NVIDIA-L4"), "fail"),
        (label("gpu.product", "In", "some-thing"), "unknown"),
        (label("gpu.memory", "Gt", "1"), "unknown"),
        (label("mig.capable", "IsTrue"), "unknown"),
    ],
)
def test_labels_of_gpu_feature_discovery_are_told_by_the_pool(facts: Facts, term, expected) -> None:
    assert outcome(facts, term) == expected


def test_without_a_driver_its_module_and_labels_are_not_known(facts: Facts) -> None:
    module = "{feature: kernel.loadedmodule, matchExpressions: {nvidia: {op: Exists}}}"
    assert outcome(facts, module) == "pass"
    assert outcome(facts, module, gpu="L4") == "unknown"
    assert outcome(facts, label("cuda.driver.major", "Ge", "1"), gpu="L4") == "unknown"


def test_all_terms_and_one_alternative_must_hold(facts: Facts) -> None:
    yes, no = label("gpu.compute.major", "In", "9"), label("gpu.compute.major", "In", "8")
    open_ = label("gpu.memory", "Gt", "1")

    def both(*terms: str) -> str:
        return outcome(facts, ", ".join(terms))

    def either(*terms: str) -> str:
        alternatives = ", ".join(f"{{matchFeatures: [{term}]}}" for term in terms)
        return answers(facts, f"{{name: r, matchAny: [{alternatives}]}}")[0].outcome

    assert [both(yes, no), both(yes, open_), both(no, open_)] == ["fail", "unknown", "fail"]
    assert [either(yes, no), either(no, no), either(no, open_), either(open_, yes)] == [
        "pass", "fail", "unknown", "pass",
    ]  # fmt: skip
    assert answers(facts, "{name: empty}")[0].outcome == "unknown"
    assert outcome(facts, "{feature: cpu.cpuid, matchName: {op: In, value: [AVX]}}") == "unknown"
