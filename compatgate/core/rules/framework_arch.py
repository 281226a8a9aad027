"""CG405: whether a framework's published build has code for the GPU."""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from compatgate.core import changes
from compatgate.core.case import Case
from compatgate.core.facts import Build, Pair
from compatgate.core.frameworks import Found
from compatgate.core.gpu_code import how_it_runs
from compatgate.core.parts import CODE, RECORDS
from compatgate.core.rules.base import NOT_APPLICABLE, PASS, Answer, Problem, rule
from compatgate.core.rules.each import each
from compatgate.core.versions import parse_version, show


@rule("CG405", "framework-arch", reads=CODE | RECORDS)
def framework_arch(case: Case) -> Answer:
    """The published wheel has no code for the pool's GPU.

    Architectures belong to the wheel, not to the CUDA it is for: Volta is absent from torch 2.7
    cu128, present in 2.8 to 2.10, absent from 2.11. A newer driver does not help. What a build by
    conda, by NVIDIA's containers or by anybody else has code for is unknown until ``arch`` states
    it. The wheels for Windows and for Linux on Arm have lists of their own; where one is not known,
    the answer is unknown. A published minimum may deny a GPU; it is no proof for GPUs that came
    with the build's own toolkit or later, nor for Tegra parts. Where the code is in plugins (JAX),
    their measured wheels deny a GPU for which they have none. Where the files themselves were read
    (an image, a folder), CG411 judges them.

    Example: an RTX 5090 (12.0) with torch 2.5.1+cu121 fails; a cu128 build is needed.

    Fix: a build, or a release, with code for the GPU.

    Source: TORCH_CUDA_ARCH_LIST of the build scripts and of measured wheels; each project's
    published minimum compute capability.
    """
    return each(case, _arch_of)


def _arch_of(case: Case, found: Found) -> Answer:
    device, build = case.capability, found.build
    if device is None or found.name in case.stack.measured:
        return NOT_APPLICABLE  # CG411 judges what was measured
    if not found.published and not found.without_cuda:
        stated = case.stack.arch is not None  # CG201 judges it
        whose = "conda's build" if found.conda else "this build"
        return NOT_APPLICABLE if stated else _not_known(case, found, whose)
    if build is None:
        return NOT_APPLICABLE
    if build.plugins and (problems := _by_plugins(case, found, build, device)):
        return problems
    if build.sass is not None:
        return _by_code(case, found, build, device)
    if build.minimum_capability is not None:
        return _by_minimum(case, found, build, device, build.minimum_capability)
    return _not_known(case, found, f"the {build.title} wheel")


def _by_code(case: Case, found: Found, build: Build, device: Pair) -> Answer:
    pool = case.pool
    code = build.code_for(pool.os, pool.cpu)
    if code is None:
        where = "Windows" if pool.os == "windows" else f"Linux {pool.cpu}"
        return _not_known(case, found, f"the wheel for {where}")
    if how_it_runs(code, device, case.facts.arch):
        return PASS
    message = f"the {build.title} wheel of {found.title} has no code for {case.gpu_name}"
    return _no_code(case, found, build, message, ", ".join(one.name for one in code))


def _by_plugins(case: Case, found: Found, build: Build, device: Pair) -> list[Problem]:
    """Return what the wheels of the build's plugins were measured to lack for a GPU.

    They deny and prove nothing: a plugin (JAX) compiles most of what it runs for the GPU at hand.
    One that the stack names is judged by CG411.
    """
    from compatgate.core.package_code import is_stray, ways_here
    from compatgate.core.packages import package_finder
    from compatgate.core.rules.package_arch import no_code

    pool, problems = case.pool, list[Problem]()
    finder = package_finder(case.facts, pool.os, pool.cpu, case.stack.get("python"))
    for name in build.plugins:
        if name in case.stack.packages:
            continue
        plugin = finder.find(name, parse_version(name, found.version.public))
        groups = ways_here(plugin, device, None, case.facts.arch)
        if groups and is_stray(groups):
            library = groups[0][0][0]
            have = ", ".join([*library.sass, *library.ptx])
            problems.append(no_code(case, plugin, have, library.path))
    candidates = partial(changes.build_with_code, case, found)
    return [replace(one, component=found.name, candidates=candidates) for one in problems]


def _by_minimum(case: Case, found: Found, build: Build, device: Pair, minimum: Pair) -> Answer:
    if device >= minimum:
        if _existed(case, build, device) or case.has_record(found.name):
            return PASS
        return _not_known(case, found, f"the {build.title} wheel")
    message = f"{found.title} needs compute capability {show(minimum)}, not {case.gpu_name}"
    return _no_code(case, found, build, message, f">={show(minimum)}")


def _existed(case: Case, build: Build, device: Pair) -> bool:
    """Tell whether a published minimum speaks of a GPU: one that toolkits knew before this build's.

    It says nothing of GPUs that came later or with the same toolkit, nor of Tegra parts.
    """
    facts = case.facts.arch
    fact = facts.capabilities.get(show(device))
    if fact is None or device in facts.tegra:
        return False
    return fact.first_toolkit < (build.cuda or (build.cuda_major, 0))


def _no_code(case: Case, found: Found, build: Build, message: str, have: str) -> Answer:
    assert case.capability is not None  # noqa: S101 - the caller checked
    return (
        Problem(
            "fail",
            found.name,
            message,
            have=have,
            need=f"code for {show(case.capability)}",
            source=build.arch_source or build.source,
            candidates=lambda: changes.build_with_code(case, found),
        ),
    )


def _not_known(case: Case, found: Found, what: str) -> Answer:
    """Unknown where the project publishes this for other releases, else not checked."""
    if case.has_record(found.name):
        return NOT_APPLICABLE  # CG411 judges what its wheel was measured to hold
    publishes = any(
        build.sass is not None or build.minimum_capability is not None
        for release in found.table.releases
        for build in release.builds
    )
    return (
        Problem(
            "unknown" if publishes and case.stack.arch is None else "not-checked",
            found.name,
            f"which GPUs {what} of {found.title} has code for is not known",
            have=found.version.text,
            need="the build's list: state it as arch=sm_..",
        ),
    )
