"""CG411 to CG414 on records of wheels for Windows, given as data."""

import pytest

from compatgate.core.facts.records import Library, Record, TorchAbi

POOL = "driver=581.29,gpu=GeForce-RTX-5090,os=windows"
LINUX = "driver=580.95.05,gpu=GeForce-RTX-5090"
BASE = "torch=2.9.1+cu128"
TAG = "cp312-cp312-win_amd64"
ANY = "py3-none-any"


def library(path="fast/_C.pyd", **fields):
    units = max([*fields.get("sass", {}).values(), *fields.get("ptx", {}).values()], default=0)
    return Library(path, units=units, **fields)


def record(*libraries, tag=TAG, **fields):
    return Record("fast", "1.0", f"fast-1.0-{tag}.whl", libraries=libraries, **fields)


def found(verdict, rule):
    return [f for f in verdict.findings if f.rule == rule]


@pytest.mark.parametrize(("code", "outcome"), [("sm_120", []), ("sm_90", ["fail"])])
def test_the_code_of_a_dll_decides_where_it_runs(ask_with, code, outcome):
    verdict = ask_with(POOL, f"{BASE},fast=1.0", record(library(sass={code: 3})))
    assert [f.outcome for f in found(verdict, "CG411")] == outcome


def test_the_record_of_another_system_is_none(ask_with):
    linux = record(
        library("fast/_C.so", sass={"sm_120": 1}), tag="cp312-cp312-manylinux_2_28_x86_64"
    )
    assert found(ask_with(POOL, f"{BASE},fast=1.0", linux), "CG410")
    windows = record(library(sass={"sm_120": 1}))
    assert found(ask_with(LINUX, f"{BASE},fast=1.0", windows), "CG410")


@pytest.mark.parametrize(
    ("name", "fails"),
    [("cudart64_12.dll", False), ("cudart64_110.dll", True), ("cudart64_13.dll", True)],
)
def test_a_dll_is_linked_against_the_stacks_cuda_runtime_or_fails(ask_with, name, fails):
    linked = record(library(needs=(name,), sass={"sm_120": 1}))
    problems = found(ask_with(POOL, f"{BASE},fast=1.0", linked), "CG414")
    assert bool(problems) is fails
    assert all(
        f"is linked against {name}, the stack brings CUDA 12.8" in f.message for f in problems
    )


@pytest.mark.parametrize(
    ("name", "cuda"),
    [
        ("cudart64_80.dll", "8.0"),
        ("cudart64_101.dll", "10.1"),
        ("cudart64_110.dll", "11.8"),
        ("CUDART64_12.DLL", "12.4"),
        ("cudart64_13.dll", "13.0"),
    ],
)
def test_the_name_of_a_runtime_says_its_major(ask_with, name, cuda):
    linked = record(library(needs=(name,)))
    assert not found(ask_with(POOL, f"cuda={cuda},fast=1.0", linked), "CG414")
    assert found(ask_with(POOL, "cuda=9.2,fast=1.0", linked), "CG414")


def test_without_a_cuda_that_is_stated_nothing_is_said_of_the_runtime(ask_with):
    linked = record(library(needs=("cudart64_13.dll",), sass={"sm_120": 1}))
    assert not found(ask_with(POOL, "fast=1.0", linked), "CG414")


def test_a_runtime_that_the_wheel_brings_needs_no_other(ask_with):
    own = record(
        library(needs=("cudart64_11.dll", "cudart64_110.dll"), sass={"sm_120": 1}),
        library("fast/cudart64_110.dll"),
        library("fast/cudart64_11.dll"),
    )
    assert not found(ask_with(POOL, f"{BASE},fast=1.0", own), "CG414")


@pytest.mark.parametrize(("cuda", "fails"), [("12.8", False), ("13.0", True)])
def test_the_alternative_for_the_stacks_cuda_is_wanted(ask_with, cuda, fails):
    paths = ("fast/libfast_cuda126.dll", "fast/libfast_cuda128.dll")
    libraries = [library(path, sass={"sm_120": 1}) for path in paths]
    verdict = ask_with(POOL, f"cuda={cuda},fast=1.0", record(*libraries, alternatives=(paths,)))
    assert bool(found(verdict, "CG414")) is fails


def test_an_alternative_that_needs_no_runtime_fits_its_cuda(ask_with):
    paths = ("fast/libfast_cuda128.dll", "fast/libfast_cuda130.dll")
    linked = library(paths[0], needs=("cudart64_12.dll",), sass={"sm_120": 1})
    static = library(paths[1], needs=("cublas64_13.dll",), sass={"sm_120": 1})
    both = record(linked, static, alternatives=(paths,))
    for cuda in ("12.8", "13.0"):
        assert not found(ask_with(POOL, f"cuda={cuda},fast=1.0", both), "CG414")
    assert found(ask_with(POOL, "cuda=11.8,fast=1.0", both), "CG414")


def test_an_extension_runs_with_the_torch_that_it_was_built_for(ask_with):
    extension = library(torch=TorchAbi(symbols=9, digest="0"), sass={"sm_120": 1})
    for built_for, outcome in (("2.9", []), ("2.8", ["fail"]), (None, ["unknown"])):
        verdict = ask_with(POOL, f"{BASE},fast=1.0", record(extension, built_for_torch=built_for))
        assert [f.outcome for f in found(verdict, "CG413")] == outcome


def test_of_a_wheel_for_every_platform_the_systems_own_libraries_count(ask_with):
    both = record(
        library("fast/libfast_cuda130.so", needs=("libcudart.so.13",), sass={"sm_90": 1}),
        library("fast/libfast_cuda128.dll", needs=("cudart64_12.dll",), sass={"sm_120": 1}),
        library("fast/libfast_cuda129.dll", needs=("cudart64_12.dll",), sass={"sm_120": 1}),
        alternatives=(("fast/libfast_cuda128.dll", "fast/libfast_cuda129.dll"),),
        tag=ANY,
    )
    windows = ask_with(POOL, f"{BASE},fast=1.0", both)
    assert not found(windows, "CG411") + found(windows, "CG414")
    linux = ask_with(LINUX, f"{BASE},fast=1.0", both)
    assert found(linux, "CG411")
    assert ["libcudart.so.13" in f.message for f in found(linux, "CG414")] == [True]


def test_libraries_of_nvidia_that_a_wheel_bundles_do_not_speak_for_the_package(ask_with):
    bundled = [
        library("fast.libs/other-0fa7eb79.dll", sass={"sm_120": 1}),
        library("fast/cudnn_ops64_9.dll", sass={"sm_120": 1}),
        library("fast/cublasLt64_12.dll", sass={"sm_120": 1}),
    ]
    verdict = ask_with(POOL, f"{BASE},fast=1.0", record(library(sass={"sm_90": 1}), *bundled))
    assert [f.outcome for f in found(verdict, "CG411")] == ["fail"]


def test_a_build_for_amd_alone_is_told_by_its_dlls(ask_with):
    verdict = ask_with(POOL, f"{BASE},fast=1.0", record(library(needs=("amdhip64_6.dll",))))
    assert ["GPUs of AMD" in f.message for f in found(verdict, "CG411")] == [True]
