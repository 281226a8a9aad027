"""Names of files say which libraries are alternatives, and what a wheel was built for."""

from __future__ import annotations

import pytest

from compatgate.discovery.wheels.names import (
    find_alternatives,
    find_torch_release,
    hash_symbol,
    is_gpu_library_name,
)


def test_the_hash_of_a_symbol_is_the_same_in_every_process():
    assert hash_symbol(b"_ZN3c105ErrorE") == 6772359913469760851


def test_libraries_that_differ_in_the_number_of_cuda_alone_are_alternatives():
    paths = [f"bnb/libbitsandbytes_cuda{number}.so" for number in (118, 126, 130)]
    assert find_alternatives([*paths, "bnb/libbitsandbytes_cpu.so"]) == (tuple(paths),)


def test_one_library_in_folders_of_architectures_is_an_alternative_of_itself():
    paths = ["sgl_kernel/sm100/common_ops.abi3.so", "sgl_kernel/sm90/common_ops.abi3.so"]
    assert find_alternatives([*paths, "sgl_kernel/flash_ops.abi3.so"]) == (tuple(paths),)


@pytest.mark.parametrize(
    "paths",
    [
        ["nvidia/cublas/lib/libcublas.so.12", "nvidia/cublas/lib/libcublasLt.so.12"],
        ["torchao/_C_cutlass_90a.abi3.so", "torchao/_C_cutlass_100a.abi3.so"],
        ["a/libx_cuda12.so"],
        ["a/cu12/libx.so", "a/cu12/liby.so"],
        ["one/_C.so", "two/_C.so"],
    ],
)
def test_other_libraries_are_not(paths):
    assert find_alternatives(paths) == ()


@pytest.mark.parametrize(
    ("requires", "version", "expected"),
    [
        (["numpy", "torch (==2.9.0)"], "0.24.0", "2.9"),
        (["torch==2.8.0+cu128"], "1.0", "2.8"),
        (["torch>=2.3,<3"], "0.48.1", None),
        (["torch (<2.5.0,>=2.4.0)"], "2.4.0", "2.4"),
        (["torch<2.3.2,>=2.3.0"], "2.3.0", "2.3"),
        (["torch<2.6,>=2.4"], "1.0", None),
        (["torch>=2,<2.1"], "1.0", None),
        (['torch==2.8.0; extra == "gpu"'], "1.0", None),
        (["not a requirement !!"], "1.0", None),
        ([], "2.8.3+cu12torch2.8cxx11abitrue", "2.8"),
        ([], "1.6.1+pt28cu128", "2.8"),
        ([], "0.7.3+cu128", None),
    ],
)
def test_pins_and_labels_say_for_which_torch_a_wheel_was_built(requires, version, expected):
    assert find_torch_release(requires, version) == expected


@pytest.mark.parametrize(
    ("soname", "expected"),
    [
        ("libcudart.so.12", True),
        ("libcudart-9335f6a2.so.12.4.127", True),
        ("libnvJitLink.so.12", True),
        ("libnccl.so.2", True),
        ("libc10_cuda.so", True),
        ("libamdhip64.so.6", True),
        ("libcurl.so.4", False),
        ("libcups.so.2", False),
        ("libnvme.so.1", False),
        ("libz.so.1", False),
        ("libgomp-24e2ab19.so.1", False),
    ],
)
def test_the_name_of_a_library_says_whether_it_is_of_gpus(soname, expected):
    assert is_gpu_library_name(soname) is expected
