"""Wheels with a CUDA label that were not measured: what the index's wheel and scripts say."""

import pytest

from compatgate.core.facts.nvidia import Source
from compatgate.core.facts.records import Library, ProjectWheels, Record, Statement, TorchAbi
from compatgate.core.gpu_code import parse_arch

H100 = "driver=580.95.05,gpu=H100-SXM5-80GB"
V100 = "driver=580.95.05,gpu=V100-SXM2-32GB"
B200 = "driver=580.95.05,gpu=B200"
GH200 = "driver=580.95.05,gpu=GH200-96GB"
TORCH = "torch=2.9.1+cu128"
"""The build that the package index has of 2.9.1 for Linux on x86_64; it has no CUDA on Arm."""


def index_wheel(cpu="x86_64", requires=("torch (==2.9.1)",), built_for="2.9"):
    library = Library(
        "fast/_C.so",
        needs=("libcudart.so.12", "libtorch_cuda.so"),
        sass={"sm_70": 9, "sm_90": 9},
        units=9,
        torch=TorchAbi(symbols=9),
    )
    wheel = f"fast-1.0-cp312-cp312-manylinux_2_28_{cpu}.whl"
    return Record(
        "fast",
        "1.0",
        wheel,
        requires=requires,
        libraries=(library,),
        built_for_torch=built_for,
    )


def script(*code, labels=("cu130",), cpu=None, confidence="published"):
    arches = tuple(arch for name in code for arch in parse_arch(name))
    source = Source("build.sh", None, confidence=confidence)
    return Statement("==1.0", None, source, wheels=(ProjectWheels(labels, arches, cpu),))


@pytest.fixture
def ask_with(facts, ask, monkeypatch):
    """Ask with records and statements of one's own in the place of the shipped ones."""

    def asked(pool, stack, *records, said=()):
        monkeypatch.setattr(facts, "statements", lambda name: said if name == "fast" else ())
        monkeypatch.setattr(
            facts, "records", lambda name: tuple(one for one in records if one.package == name)
        )
        monkeypatch.setattr(facts, "memory", {})
        verdict = ask(pool, stack)
        about = [f for f in verdict.findings if f.component in ("fast", "torch", "torchaudio")]
        return {f.rule: f for f in about if f.rule.startswith("CG41")}

    return asked


def test_the_label_of_the_torch_that_the_index_has_names_the_indexs_own_wheel(ask_with):
    assert ask_with(H100, f"{TORCH},fast=1.0+cu128", index_wheel()) == {}
    denied = ask_with(B200, f"{TORCH},fast=1.0+cu128", index_wheel())
    assert list(denied) == ["CG411"]
    assert "assumed to be like fast-1.0-cp312" in denied["CG411"].message


@pytest.mark.parametrize(
    ("pool", "label", "record"),
    [
        (H100, "cu126", index_wheel()),  # another build than the index has
        (H100, "cu128.mine", index_wheel()),  # no label of a project
        (GH200, "cu128", index_wheel("aarch64")),  # the index has no torch with CUDA there
        (H100, "cu128", index_wheel(requires=("torch>=2.9",))),  # pins no torch
        (H100, "cu128", index_wheel(requires=("torch==2.9.1; extra == 'x'",))),
    ],
)
def test_any_other_label_is_open(ask_with, pool, label, record):
    answer = ask_with(pool, f"{TORCH},fast=1.0+{label}", record)
    assert answer["CG410"].outcome == "unknown"


def test_a_script_says_what_the_wheels_of_a_label_carry(ask_with):
    said = (script("sm_80", "sm_90"),)
    stack = "torch=2.9.1+cu130,fast=1.0+cu130"
    assert ask_with(H100, stack, index_wheel(), said=said) == {}
    denied = ask_with(B200, stack, index_wheel(), said=said)["CG411"]
    assert (denied.outcome, denied.source.title) == ("fail", "build.sh")
    assert "as its project's build script makes it" in denied.message


def test_the_ptx_of_a_script_is_of_the_toolkit_of_the_label(ask_with):
    old = "driver=580.95.05,gpu=B200"
    stack = "torch=2.9.1+cu130,fast=1.0+cu130"
    said = (script("sm_80", "compute_80"),)
    assert ask_with(old, stack, index_wheel(), said=said) == {}
    older = "driver=570.124.06,gpu=B200"
    assert ask_with(older, stack, index_wheel(), said=said)["CG411"].outcome == "fail"


def test_the_rest_is_that_of_the_releases_other_wheels(ask_with):
    said = (script("sm_90", labels=("cu126",)),)
    other_torch = ask_with(H100, "torch=2.8.0+cu126,fast=1.0+cu126", index_wheel(), said=said)
    assert {rule: one.outcome for rule, one in other_torch.items()} == {
        "CG412": "fail",
        "CG413": "fail",
    }
    said = (script("sm_90", labels=("cu130",)),)
    other_cuda = ask_with(H100, f"{TORCH},fast=1.0+cu130", index_wheel(), said=said)
    assert "linked against libcudart.so.13" in other_cuda["CG414"].message


@pytest.mark.parametrize(
    ("records", "said"),
    [
        ((), script("sm_90")),  # nothing says which torch it is for
        ((index_wheel(built_for=None),), script("sm_90")),
        ((index_wheel(),), script("sm_90", labels=("cu126",))),
        ((index_wheel(),), script("sm_90", cpu="aarch64")),
        ((index_wheel(),), script("sm_90", confidence="derived")),
    ],
)
def test_a_script_that_does_not_speak_of_the_wheel_leaves_it_open(ask_with, records, said):
    answer = ask_with(H100, "torch=2.9.1+cu130,fast=1.0+cu130", *records, said=(said,))
    assert answer["CG410"].outcome == "unknown"


def test_a_script_for_one_processor_speaks_of_that_one(ask_with):
    said = (script("sm_80", cpu="x86_64"), script("sm_90", cpu="aarch64"))
    stack = "torch=2.9.1+cu130,fast=1.0+cu130"
    assert ask_with(GH200, stack, index_wheel(), said=said) == {}
    assert ask_with(H100, stack, index_wheel(), said=said)["CG411"].outcome == "fail"


def test_a_label_of_another_minor_of_cuda_than_torchs_is_open(ask_with):
    said = (script("sm_90", labels=("cu126",)),)
    answer = ask_with(H100, f"{TORCH},fast=1.0+cu126", index_wheel(), said=said)
    assert {rule: one.outcome for rule, one in answer.items()} == {"CG413": "unknown"}
    assert "a build for CUDA 12.6 with torch 2.9.1+cu128" in answer["CG413"].message


def test_windows_is_not_spoken_of(ask_with):
    stack = "torch=2.9.1+cu130,fast=1.0+cu130"
    answer = ask_with(f"{H100},os=windows", stack, index_wheel(), said=(script("sm_90"),))
    assert answer["CG410"].outcome == "unknown"


@pytest.mark.parametrize(
    ("torch", "stable", "open_"),
    [
        ("2.5.1+cu121", False, True),
        ("2.5.1+cu124", False, False),
        ("2.5.1", False, False),
        ("2.5.1+cu121", True, False),
    ],
)
def test_a_torchaudio_without_a_label_may_be_for_another_minor(ask_with, torch, stable, open_):
    library = Library("torchaudio/_C.so", torch=TorchAbi(symbols=9, stable=stable))
    wheel = "torchaudio-2.5.1-cp312-cp312-manylinux1_x86_64.whl"
    record = Record("torchaudio", "2.5.1", wheel, libraries=(library,), built_for_torch="2.5")
    answer = ask_with(H100, f"torch={torch},torchaudio=2.5.1", record)
    assert ("CG413" in answer) == open_
    if open_:
        assert "assumed to be the index's wheel, for CUDA 12.4" in answer["CG413"].message
