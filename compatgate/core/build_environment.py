"""Set the variables that make a builder without a GPU resolve packages as a pool would.

Package managers look for a driver and a GPU and, finding none, choose CPU builds. Each variable
here tells one of them what the pool has:

* ``CONDA_OVERRIDE_CUDA``: version of conda's ``__cuda``, the CUDA that the driver reports. Source:
  CEP 30 and conda, "Managing virtual packages".
* ``CONDA_OVERRIDE_CUDA_ARCH``: version of ``__cuda_arch``, the lowest compute capability of all
  devices. Source: CEP 46.
* ``UV_TORCH_BACKEND``: the PyTorch index that ``uv pip`` uses. Source: uv, "Using uv with PyTorch".
* ``UV_CUDA_DRIVER_VERSION``: the driver that uv assumes where the backend is ``auto``. Source: uv,
  crates/uv-torch/src/accelerator.rs.
* ``TORCH_CUDA_ARCH_LIST``: GPU code that ``torch.utils.cpp_extension`` compiles.
* ``CMAKE_CUDA_ARCHITECTURES`` and ``CUDAARCHS``: GPU code that CMake compiles; the first is passed
  on with ``-D`` and read by many builds, the second is what CMake itself reads. Source: CMake,
  "CUDAARCHS" and "CUDA_ARCHITECTURES".
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from compatgate.core.facts import Facts
from compatgate.core.facts.frameworks import Build
from compatgate.core.facts.nvidia import Pair
from compatgate.core.gpu_code import find_run_mode
from compatgate.core.matrix import Matrix
from compatgate.core.request import Pool, Target
from compatgate.core.rule_context import RuleContext
from compatgate.core.stack import Stack
from compatgate.core.versions import Version, format_parts, parse_version

# astral-sh/uv crates/uv-torch/src/backend.rs, enum TorchBackend (uv 0.13), from CUDA 11.0 on.
UV_BACKENDS = (
    *("cu132", "cu130", "cu129", "cu128", "cu126", "cu125", "cu124", "cu123", "cu122", "cu121"),
    *("cu120", "cu118", "cu117", "cu116", "cu115", "cu114", "cu113", "cu112", "cu111", "cu110"),
)
"""Newest first. An index without a known PyTorch build is skipped."""
MEANINGS = {
    "CONDA_OVERRIDE_CUDA": "CUDA that the driver reports, as conda's __cuda",
    "CONDA_OVERRIDE_CUDA_ARCH": "lowest compute capability, as conda's __cuda_arch",
    "UV_TORCH_BACKEND": "newest PyTorch index whose builds run on driver and GPU",
    "UV_CUDA_DRIVER_VERSION": "driver that uv assumes with UV_TORCH_BACKEND=auto",
    "TORCH_CUDA_ARCH_LIST": "GPU code of PyTorch extensions",
    "CMAKE_CUDA_ARCHITECTURES": "GPU code of CMake builds, for -D",
    "CUDAARCHS": "GPU code of CMake builds, as CMake itself reads it",
}


class BuildEnvironment(Struct, frozen=True):
    """The variables of a builder, and the reasons for which some have no value."""

    # name to value, in the order of `MEANINGS`; a variable without a value is absent
    variables: dict[str, str]
    conflicts: tuple[str, ...] = ()  # what is missing, or where the pools differ, one sentence each


def build_environment(pools: Sequence[Pool], facts: Facts) -> BuildEnvironment:
    """Return the variables with which a build suits every pool.

    Versions are the lowest of all pools; the GPU code covers all pools.
    """
    conflicts: list[str] = []
    unknown = [pool.name for pool in pools if pool.gpu is None]
    if unknown:
        conflicts.append(f"no GPU code: the GPU of {_name_pools(unknown)} is not stated")
        capabilities = []
    else:
        capabilities = sorted({pool.gpu.capability for pool in pools if pool.gpu})
    drivers = _drivers(pools, conflicts)
    cudas = _cudas(pools, facts, conflicts) if drivers else []
    cuda = min(cudas, default=None)
    backend = _backend(pools, facts, conflicts) if drivers and capabilities else None
    numbers = ";".join(format_parts(c).replace(".", "") for c in capabilities)
    values = {
        "CONDA_OVERRIDE_CUDA": format_parts(cuda) if cuda else None,
        "CONDA_OVERRIDE_CUDA_ARCH": format_parts(capabilities[0]) if capabilities else None,
        "UV_TORCH_BACKEND": backend,
        "UV_CUDA_DRIVER_VERSION": min(drivers).text if drivers else None,
        "TORCH_CUDA_ARCH_LIST": ";".join(map(format_parts, capabilities)) or None,
        "CMAKE_CUDA_ARCHITECTURES": numbers or None,
        "CUDAARCHS": numbers or None,
    }
    known = {name: value for name in MEANINGS if (value := values[name])}
    return BuildEnvironment(known, tuple(conflicts))


def _drivers(pools: Sequence[Pool], conflicts: list[str]) -> list[Version]:
    """Return the drivers of all pools; empty when they cannot be compared."""
    unknown = [pool.name for pool in pools if pool.driver is None]
    systems = sorted({pool.driver_os for pool in pools})
    if unknown:
        conflicts.append(f"no driver variables: the driver of {_name_pools(unknown)} is not stated")
        return []
    if len(systems) > 1:
        conflicts.append(
            "no driver variables: Linux and Windows drivers have different numbers; name the "
            "pools of one system at a time"
        )
        return []
    return [pool.driver for pool in pools if pool.driver]


def _cudas(pools: Sequence[Pool], facts: Facts, conflicts: list[str]) -> list[Pair]:
    """Return the CUDA that each pool's driver reports; empty when one is not known."""
    reported = {pool.name: _make_context(pool, facts).driver_cuda for pool in pools}
    unknown = [name for name, cuda in reported.items() if cuda is None]
    if unknown:
        conflicts.append(
            f"no CONDA_OVERRIDE_CUDA: the CUDA of the driver of {_name_pools(unknown)} is not known"
        )
        return []
    return [cuda for cuda in reported.values() if cuda]


def _backend(pools: Sequence[Pool], facts: Facts, conflicts: list[str]) -> str | None:
    """Return the newest index that uv knows and that has a PyTorch build for every pool."""
    builds = _published_builds(facts)
    suitable = {
        pool.name: [
            label
            for label in builds
            if any(_build_runs(pool, build, facts) for build in builds[label])
        ]
        for pool in pools
    }
    for label in builds:
        if all(label in labels for labels in suitable.values()):
            return label
    ranges = "; ".join(
        f"{name} {', '.join(labels) if labels else 'none'}" for name, labels in suitable.items()
    )
    conflicts.append(f"no UV_TORCH_BACKEND: no PyTorch index suits every pool ({ranges})")
    return None


def _published_builds(facts: Facts) -> dict[str, list[Build]]:
    """Return PyTorch builds by index, in the order of `UV_BACKENDS`."""
    torch = facts.framework("torch")
    builds: dict[str, list[Build]] = {}
    for release in torch.releases if torch else ():
        for build in release.builds:
            if build.label and build.listed:
                builds.setdefault(build.label, []).append(build)
    return {label: builds[label] for label in UV_BACKENDS if label in builds}


def _build_runs(pool: Pool, build: Build, facts: Facts) -> bool:
    """Return whether the driver carries the build's CUDA, and the GPU its code.

    Minor-version compatibility is enough for code that is compiled for the GPU, as for uv's
    ``auto``; PTX needs a driver of that CUDA.
    """
    if build.cuda is None or pool.gpu is None or pool.driver is None:
        return False
    stack = Stack({"cuda": parse_version("cuda", format_parts(build.cuda))})
    context = _make_context(pool, facts, stack)
    if context.jetson:
        from compatgate.core.jetson import match_toolkit

        libcuda = context.driver_cuda
        ways = ("same", "older", "minor")
        if libcuda is None or match_toolkit(context.jetson, libcuda, build.cuda)[0] not in ways:
            return False
    elif context.floor is None or pool.driver < context.floor[0]:
        return False
    if build.sass is None:
        toolkit = facts.arch.toolkits.get(format_parts(build.cuda))
        return toolkit is not None and pool.gpu.capability in toolkit.sass
    how = find_run_mode(build.code_on(pool.os, pool.cpu), pool.gpu.capability, facts.arch)
    return how == "sass" or (how == "ptx" and build.cuda <= (context.driver_cuda or (0, 0)))


def _make_context(pool: Pool, facts: Facts, stack: Stack | None = None) -> RuleContext:
    return RuleContext(
        stack or Stack({}), pool, Target("", (pool,)), facts, Matrix(), today="", now=0
    )


def _name_pools(names: Sequence[str]) -> str:
    if len(names) > 1:
        return f"pools {', '.join(names)}"
    return "the pool" if names[0] == "pool" else f"pool {names[0]}"
