"""The CUDA that a stack of packages alone is assumed to have."""

import pytest

from compatgate.core.facts.nvidia import Source
from compatgate.core.facts.records import Library, Record, Statement
from compatgate.core.package_cuda import assume_cuda


def wheel(*needs, opens=(), ptx_cuda=None, requires=()):
    library = Library("fast/_C.so", needs=needs, opens=opens, ptx_cuda=ptx_cuda)
    if ptx_cuda:
        library = Library("fast/_C.so", needs=needs, ptx={"compute_90": 1}, ptx_cuda=ptx_cuda)
    tag = "cp312-cp312-linux_x86_64"
    return Record("fast", "1.5", f"fast-1.5-{tag}.whl", libraries=(library,), requires=requires)


@pytest.fixture
def assume(facts, stack_of, pool_of, monkeypatch):
    """Return the CUDA that is assumed for a stack, beside one wheel or statement."""

    def assumed(text, record=None, part="cuda", **stated):
        said = (Statement(">=1", None, Source("setup.py", None), **stated),) if stated else ()
        monkeypatch.setattr(facts, "records", lambda name: (record,) if record else ())
        monkeypatch.setattr(facts, "statements", lambda name: said if name == "fast" else ())
        monkeypatch.setattr(facts, "memory", {})
        stack = assume_cuda(stack_of(text), facts, [pool_of("driver=580.65.06,gpu=T4")])
        found = stack.get(part)
        return found.text if found else None

    return assumed


@pytest.mark.parametrize(
    ("stack", "cuda"),
    [
        ("fast=1.5+cu118", "11.8"),
        ("fast-cu12=1.5", "12.0"),
        ("fast-cuda120=1.5", "12.0"),
        ("fast-cu118=1.5,other-cu11=2.0", "11.8"),
        ("fast-cu118=1.5,other-cu12=2.0", None),
        ("fast=1.5", None),
        ("fast-cu12=1.5,cuda=12.4", "12.4"),
    ],
)
def test_a_label_or_a_name_tells_the_cuda(assume, stack, cuda):
    assert assume(stack) == cuda


@pytest.mark.parametrize(
    ("record", "cuda"),
    [
        (wheel("libcudart.so.12"), "12.0"),
        (wheel("libcublas.so.11"), "11.0"),
        (wheel(opens=("libcublas.so.12",)), "12.0"),
        (wheel("libcudart.so.12", ptx_cuda="12.6"), "12.6"),
        (wheel(ptx_cuda="12.6"), "12.6"),
        (wheel("libcudart.so.12", "libcudart.so.11.0"), None),
        (wheel("libcudart.so.12", requires=("nvidia-cuda-runtime-cu12>=12.6,<13",)), "12.6"),
        (wheel(), None),
    ],
)
def test_a_wheel_tells_the_cuda_that_its_libraries_need(assume, record, cuda):
    assert assume("fast=1.5", record) == cuda


def test_a_statement_tells_the_cuda_of_the_index_s_wheel(assume):
    assert assume("fast=1.5", cuda="12.8") == "12.8"


def test_a_statement_and_a_wheel_that_contradict_each_other_tell_nothing(assume):
    assert assume("fast=1.5", wheel("libcudart.so.11.0"), cuda="12.8") is None


@pytest.mark.parametrize(
    ("requires", "cuda"),
    [
        (("torch==2.5.1",), "12.4"),
        (("torch", "vllm==0.5.4"), "12.1"),
        (("torch", "vllm<=0.7.2,>=0.6.4.post1"), "12.4"),
        (("torch>=2.5",), None),
        (("torch==2.5.*",), None),
    ],
)
def test_the_torch_or_the_vllm_that_a_package_pins_tells_the_cuda(assume, requires, cuda):
    assert assume("fast=1.5", wheel(requires=requires)) == cuda


@pytest.mark.parametrize(
    ("code", "cuda"),
    [
        ({"118": "sm_75", "126": "sm_75", "129": "sm_90"}, "12.6"),  # 12.9's has none for a T4
        ({"118": "sm_90"}, None),
    ],
)
def test_of_libraries_for_each_cuda_the_newest_that_runs_on_the_gpu_tells_it(assume, code, cuda):
    made = tuple(
        Library(f"fast/libfast_cuda{tag}.so", sass={name: 4}, units=4) for tag, name in code.items()
    )
    group = tuple(one.path for one in made)
    file = "fast-1.5-py3-none-manylinux_2_24_x86_64.whl"
    assert (
        assume("fast=1.5", Record("fast", "1.5", file, libraries=made, alternatives=(group,)))
        == cuda
    )


@pytest.mark.parametrize(
    ("stack", "torch"),
    [
        ("fast=1.5", "2.9.1+cu128"),
        ("fast=1.5,cuda=12.6", "2.9.1+cu126"),
        ("fast=1.5+cu126", "2.9.1+cu126"),
        ("fast=1.5,cuda=11.8", None),  # the project offers none
        ("fast=1.5,torch=2.4.1", "2.4.1"),
        ("fast=0.5", None),
    ],
)
def test_the_parts_that_a_program_brings_are_those_for_the_cuda_that_is_stated(
    assume, stack, torch
):
    brings = {"torch": ("2.9.1+cu128", "2.9.1+cu126")}
    assert assume(stack, part="torch", brings=brings) == torch


@pytest.mark.parametrize(
    ("part", "found"), [("cuda", "12.2"), ("ctranslate2", "4.4.0"), ("torch", None)]
)
def test_a_program_may_bring_its_cuda_and_packages(assume, part, found):
    brings = {"cuda": ("12.2",), "ctranslate2": ("4.4.0",)}
    assert assume("fast=1.5", part=part, brings=brings) == found
