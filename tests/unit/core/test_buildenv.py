"""Variables that make a builder without GPU resolve packages as a pool would."""

from __future__ import annotations

import pytest

from compatgate.catalog import load_facts
from compatgate.core.build_environment import MEANINGS, BuildEnvironment, build_environment
from compatgate.core.facts import Facts
from compatgate.core.request import parse_pool


@pytest.fixture(scope="module")
def facts() -> Facts:
    return load_facts([])


def ask(facts: Facts, *pools: dict[str, str]) -> BuildEnvironment:
    parsed = [parse_pool({"name": f"p{n}", **pool}, facts.gpus) for n, pool in enumerate(pools)]
    return build_environment(parsed, facts)


def test_a_pool_gives_every_variable(facts: Facts) -> None:
    found = ask(facts, {"driver": "535.104.05", "gpu": "A100-SXM4-80GB"})
    assert found.variables == {
        "CONDA_OVERRIDE_CUDA": "12.2",
        "CONDA_OVERRIDE_CUDA_ARCH": "8.0",
        "UV_TORCH_BACKEND": "cu129",
        "UV_CUDA_DRIVER_VERSION": "535.104.05",
        "TORCH_CUDA_ARCH_LIST": "8.0",
        "CMAKE_CUDA_ARCHITECTURES": "80",
        "CUDAARCHS": "80",
    }
    assert found.conflicts == ()
    assert list(found.variables) == list(MEANINGS)


def test_several_pools_give_the_lowest_versions_and_all_gpu_code(facts: Facts) -> None:
    found = ask(
        facts,
        {"driver": "570.124.06", "gpu": "H100-SXM5-80GB"},
        {"driver": "550.54.15", "gpu": "L4"},
        {"driver": "570.124.06", "gpu": "A100-SXM4-80GB"},
    )
    assert found.variables["CONDA_OVERRIDE_CUDA"] == "12.4"
    assert found.variables["CONDA_OVERRIDE_CUDA_ARCH"] == "8.0"
    assert found.variables["UV_CUDA_DRIVER_VERSION"] == "550.54.15"
    assert found.variables["TORCH_CUDA_ARCH_LIST"] == "8.0;8.9;9.0"
    assert found.variables["CMAKE_CUDA_ARCHITECTURES"] == "80;89;90"


@pytest.mark.parametrize(
    ("driver", "gpu", "backend"),
    [
        ("525.60.12", "A100-SXM4-80GB", "cu118"),
        ("525.60.13", "A100-SXM4-80GB", "cu129"),
        ("570.124.06", "B200", "cu129"),
        ("580.65.06", "B200", "cu132"),
        ("580.65.06", "V100-SXM2-32GB", "cu129"),
        ("580.65.06", "P100", "cu126"),
    ],
)
def test_the_backend_is_the_newest_that_driver_and_gpu_carry(
    facts: Facts, driver: str, gpu: str, backend: str
) -> None:
    assert ask(facts, {"driver": driver, "gpu": gpu}).variables["UV_TORCH_BACKEND"] == backend


def test_windows_drivers_are_compared_with_windows_minimums(facts: Facts) -> None:
    found = ask(facts, {"driver": "551.61", "gpu": "GeForce RTX 4090", "os": "windows"})
    assert found.variables["CONDA_OVERRIDE_CUDA"] == "12.4"
    assert found.variables["UV_TORCH_BACKEND"] == "cu129"


def test_pools_that_no_index_suits_are_explained(facts: Facts) -> None:
    pools = [{"driver": "580.65.06", "gpu": gpu} for gpu in ("P100", "B200")]
    found = ask(facts, *pools)
    assert "UV_TORCH_BACKEND" not in found.variables
    assert found.variables["TORCH_CUDA_ARCH_LIST"] == "6.0;10.0"
    (index,) = (text for text in found.conflicts if "UV_TORCH_BACKEND" in text)
    assert "p0 cu126" in index
    assert "cu128" in index


def test_linux_and_windows_pools_do_not_compare(facts: Facts) -> None:
    found = ask(
        facts,
        {"driver": "550.54.15", "gpu": "L4"},
        {"driver": "551.61", "gpu": "L4", "os": "windows"},
    )
    assert set(found.variables) == {
        "CONDA_OVERRIDE_CUDA_ARCH",
        "TORCH_CUDA_ARCH_LIST",
        "CMAKE_CUDA_ARCHITECTURES",
        "CUDAARCHS",
    }
    assert "different numbers" in found.conflicts[0]


def test_a_pool_without_driver_gives_gpu_code_only(facts: Facts) -> None:
    found = ask(facts, {"gpu": "8.7"})
    assert found.variables["CMAKE_CUDA_ARCHITECTURES"] == "87"
    assert "CONDA_OVERRIDE_CUDA" not in found.variables
    assert "the driver of pool p0 is not stated" in found.conflicts[0]


def test_a_pool_without_gpu_gives_driver_versions_only(facts: Facts) -> None:
    found = ask(facts, {"driver": "535.104.05"})
    assert set(found.variables) == {
        "CONDA_OVERRIDE_CUDA",
        "UV_CUDA_DRIVER_VERSION",
    }
    assert "the GPU of pool p0 is not stated" in found.conflicts[0]


def test_a_driver_that_is_older_than_all_that_is_known_is_explained(facts: Facts) -> None:
    found = ask(facts, {"driver": "340.29", "gpu": "P100"})
    assert "CONDA_OVERRIDE_CUDA" not in found.variables
    assert "UV_TORCH_BACKEND" not in found.variables
    assert len(found.conflicts) == 2
