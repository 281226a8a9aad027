"""CG414: whether the libraries that packages are linked against are there, and new enough."""

from __future__ import annotations

from collections.abc import Iterator

from compatgate.core.case import Case
from compatgate.core.facts import Pair
from compatgate.core.facts.components import CudaComponents, Link
from compatgate.core.packages import GpuPackage
from compatgate.core.rules.base import NOT_APPLICABLE, PASS, Answer, Candidate, Problem
from compatgate.core.rules.package_problems import assumption, other_releases, source_of
from compatgate.core.versions import Version, show


def judge(case: Case) -> Answer:
    """Return the packages whose libraries do not find what they are linked against."""
    asked = [*_runtimes(case), *_named_libraries(case), *_links(case)]
    problems = [problem for problem in asked if problem is not None]
    return problems or (PASS if asked else NOT_APPLICABLE)


def _runtimes(case: Case) -> Iterator[Problem | None]:
    """Compare the CUDA runtime that each package is linked against with the stack's."""
    cuda = case.cuda
    if cuda is None:
        return
    brought = {cuda.major, *_runtime_packages(case)}
    for package in case.packages:
        if needed := package.runtimes(cuda):
            missing = None if needed.keys() & brought else max(needed)
            yield _other_runtime(case, package, missing, cuda) if missing else None


def _named_libraries(case: Case) -> Iterator[Problem | None]:
    """Look for the library for the stack's CUDA among alternatives that are named after one."""
    cuda = case.cuda
    if cuda is None:
        return
    for package in case.packages:
        named = package.named_cudas
        if not named:
            continue
        exact = case.facts.packages.wants_exact_cuda(package.name, package.version)
        fits = cuda.major_minor in named or (not exact and any(p[0] == cuda.major for p in named))
        yield None if fits else _no_library_for(case, package, named, cuda)


def _no_library_for(
    case: Case, package: GpuPackage, named: tuple[Pair, ...], cuda: Version
) -> Problem:
    return Problem(
        "fail",
        package.name,
        f"{package.title} has no library for CUDA {show(cuda.major_minor)}" + assumption(package),
        have=", ".join(show(pair) for pair in named),
        need=f"a release with a library for CUDA {show(cuda.major_minor)}",
        source=source_of(package),
        candidates=lambda: other_releases(case, package),
    )


def _runtime_packages(case: Case) -> Iterator[int]:
    """Yield the majors of CUDA runtimes that are packages of their own in the stack."""
    table = case.facts.cuda_components
    for package in case.packages:
        part = table.by_package.get(package.name)
        if part and part.component == "cudart":
            yield part.cuda_major


def _other_runtime(case: Case, package: GpuPackage, major: int, cuda: Version) -> Problem:
    runtime = package.runtimes(cuda)[major]
    return Problem(
        "warn" if case.facts.packages.is_optional(package.name) else "fail",
        package.name,
        f"{package.title} is linked against {runtime}, the stack brings CUDA {cuda}"
        + assumption(package),
        have=cuda.text,
        need=f"a build of {package.name} for CUDA {cuda.major}, or CUDA {major}",
        source=source_of(package),
    )


def _links(case: Case) -> Iterator[Problem | None]:
    """Compare libraries of CUDA toolkits with those that refer to their symbols."""
    of_toolkits = [package for package in case.packages if package.toolkits]
    if len(of_toolkits) < 2:
        return
    table = case.facts.cuda_components
    for link in table.links:
        for library, user in _linked(of_toolkits, link, table):
            older = library.toolkits[-1] < user.toolkits[0]
            yield _older(library, user, link, table) if older else None


def _linked(
    packages: list[GpuPackage], link: Link, table: CudaComponents
) -> Iterator[tuple[GpuPackage, GpuPackage]]:
    """Yield the library that a link names with each of its users of the same CUDA major."""
    parts = [(package, table.by_package[package.name]) for package in packages]
    users = [(package, part.cuda_major) for package, part in parts if part.component in link.users]
    for library, part in parts:
        if part.component == link.component:
            yield from ((library, user) for user, major in users if major == part.cuda_major)


def _older(library: GpuPackage, user: GpuPackage, link: Link, table: CudaComponents) -> Problem:
    first = user.toolkits[0]
    versions = table.by_package[library.name].toolkits
    fitting = [version for version, toolkits in versions.items() if toolkits[0] >= first]
    return Problem(
        "fail",
        library.name,
        f"{user.title} is of CUDA {show(first)} and refers to symbols of its {link.component}; "
        f"{library.title} is of CUDA {show(library.toolkits[-1])}",
        have=library.version.text,
        need=f"{library.name} of CUDA {show(first)} or newer",
        source=link.source,
        candidates=lambda: [
            Candidate({library.name: version}, f"use {library.name} {version}")
            for version in reversed(fitting)
        ],
    )
