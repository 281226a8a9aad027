"""CG415: the glibc that wheels need, and the one that a stack runs with."""

import pytest

from compatgate.core.facts.records import Record
from compatgate.core.rules.package_glibc import read_tag

T4 = "driver=580.95.05,gpu=T4"


def node(**parts):
    return {"driver": "580.95.05", "gpu": "T4", "node": parts}


def outcome(verdict):
    return next((f.outcome for f in verdict.findings if f.rule == "CG415"), "pass")


@pytest.mark.parametrize(
    ("stack", "expected"),
    [
        ("torch=2.7.0+cu118,glibc=2.27", "fail"),
        ("torch=2.7.0+cu118,glibc=2.28", "pass"),
        ("torch=2.7.0+cu118,glibc=2.35", "pass"),
        ("torch=2.6.0+cu124,glibc=2.17", "pass"),
        ("torch=2.6.0+cu126,glibc=2.17", "fail"),
        ("torch=2.5.1+cu121,glibc=2.12", "fail"),
        ("torch=2.7.0a0+nv25.02,cuda=12.8,glibc=2.17", "pass"),
        ("torch=2.7.0+cu118", "pass"),
    ],
)
def test_the_stated_glibc_is_compared_with_what_the_wheels_of_torch_need(ask, stack, expected):
    assert outcome(ask(T4, stack)) == expected


def test_a_distribution_of_the_nodes_leaves_open_what_a_container_has(ask):
    verdict = ask(node(distribution="ubuntu-18.04"), "torch=2.7.0+cu118")
    assert outcome(verdict) == "unknown"
    finding = next(f for f in verdict.findings if f.rule == "CG415")
    assert "ubuntu-18.04 has 2.27" in finding.message
    assert finding.fixes[0].set == {"glibc": "2.28"}


@pytest.mark.parametrize("name", ["ubuntu-22.04", "rhel-9.4", "a-distribution-1"])
def test_a_newer_distribution_and_an_unknown_one_are_no_problem(ask, name):
    assert outcome(ask(node(distribution=name), "torch=2.7.0+cu118")) == "pass"


def test_an_image_brings_its_own_glibc(ask):
    pool = node(distribution="centos-7")
    assert outcome(ask(pool, "torch=2.7.0+cu118", image="registry.example/app:1")) == "pass"


def test_windows_has_no_glibc(ask):
    assert outcome(ask(f"{T4},os=windows", "torch=2.7.0+cu118,glibc=2.17")) == "pass"


def test_what_others_concluded_never_denies(ask):
    assert outcome(ask(T4, "vllm=0.5.2,glibc=2.31")) == "unknown"


@pytest.mark.parametrize(
    ("tag", "expected"),
    [
        ("manylinux_2_28_x86_64", "2.28"),
        ("manylinux_2_27_x86_64.manylinux_2_28_x86_64", "2.27"),
        ("manylinux_2_17_aarch64.manylinux2014_aarch64", "2.17"),
        ("manylinux1_x86_64", "2.5"),
        ("linux_x86_64", None),
        ("any", None),
        ("win_amd64", None),
    ],
)
def test_a_platform_tag_names_the_lowest_glibc(facts, tag, expected):
    found = read_tag(f"x-1.0-py3-none-{tag}.whl", facts.glibc)
    assert (found.text if found else None) == expected


def test_the_wheel_of_a_package_is_judged_by_its_tag(ask_with):
    one = Record("fast", "1.0", "fast-1.0-cp312-cp312-manylinux_2_28_x86_64.whl")
    assert outcome(ask_with(T4, "cuda=12.8,fast=1.0,glibc=2.17", one)) == "fail"
    assert outcome(ask_with(T4, "cuda=12.8,fast=1.0,glibc=2.31", one)) == "pass"
