"""Check packages for CG412 to CG414: their requirements, the torch and libraries they link to.

Loaded by the first question that names a package.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from compatgate.core.components import COMPONENTS
from compatgate.core.constraints import parse_constraint
from compatgate.core.facts.nvidia import Pair, Source
from compatgate.core.facts.packages import CudaComponents, Link
from compatgate.core.package_requirements import Requirement
from compatgate.core.package_wheels import cublas_major, has_new_abi, names_cuda
from compatgate.core.packages import GpuPackage, is_pinned_with, requirements_of
from compatgate.core.parts import Candidate
from compatgate.core.rule import NOT_APPLICABLE, PASS, FindingOutcome, Problem, RuleAnswer
from compatgate.core.rule_context import RuleContext
from compatgate.core.rules.package_code import (
    describe_assumption,
    other_releases,
    outcome_of_open,
    source_of,
)
from compatgate.core.stack_facts import default_build, is_of_other_index
from compatgate.core.versions import Version, format_parts

_DRIVER = {"driver": None}
"""Stands for the driver, which the pool has, in statements about a program."""


def check_requirements(context: RuleContext) -> RuleAnswer:
    """Report the requirements that do not hold."""
    asked = [(one, need) for one in context.packages for need in _find_requirements(context, one)]
    problems = [_report_unmet(package, need) for package, need in asked if not need.holds]
    return problems or (PASS if asked else NOT_APPLICABLE)


def _find_requirements(context: RuleContext, package: GpuPackage) -> list[Requirement]:
    """Return the requirements of a package that no rule about frameworks judges.

    Installed frameworks have metadata, too; CG402, CG403 and CG406 judge the parts in their tables.
    """
    extra = context.facts.packages.extra_of(package.name)
    asked = requirements_of(package, context.stack, extra)
    if context.driver:
        on_driver = (one.compare(context.driver) for one in package.needs.on(_DRIVER.keys()))
        asked += filter(None, on_driver)
    if not (asked and package.installed):
        return asked
    found = next((one for one in context.built if one.name == package.name), None)
    if found is None:
        return asked
    if any(by and by.requires for by in (found.release, found.build)):
        return []
    return [one for one in asked if one.name not in COMPONENTS]


def _report_unmet(package: GpuPackage, requirement: Requirement) -> Problem:
    name, have, spec = requirement.name, requirement.have, requirement.spec
    where = "pool" if name in _DRIVER else "stack"
    adding = (  # the statement that adds the requirement, if one does
        statement.source
        for statement in package.statements
        if any(_without_marker(one) == f"{name}{spec}" for one in statement.requires)
    )
    return Problem(
        "fail",
        name,
        f"{package.title} requires {name} {spec}, the {where} has {have}"
        + describe_assumption(package),
        have=have.text,
        need=spec,
        source=next(adding, None) or source_of(package),
        candidates=requirement.candidates,
    )


def _without_marker(requirement: str) -> str:
    return requirement.partition(";")[0].replace(" ", "")


def check_torch(context: RuleContext) -> RuleAnswer:
    """Report the extensions that were built for another torch."""
    torch = context.stack.get("torch")
    if torch is None:
        return NOT_APPLICABLE
    answers = [_check_package_torch(context, package, torch) for package in context.packages]
    problems = [problem for answer in answers if not isinstance(answer, str) for problem in answer]
    return problems or (PASS if PASS in answers else NOT_APPLICABLE)


def _check_package_torch(context: RuleContext, package: GpuPackage, torch: Version) -> RuleAnswer:
    if package.record and not package.torch_abis:
        return NOT_APPLICABLE
    built_for = package.built_for_torch
    if package.record is None and built_for is None:
        return _check_release_torch(context, package, torch)
    if problem := _check_label(context, package, torch):
        return [problem]
    if package.record and all(abi.stable for abi in package.torch_abis):
        return PASS
    record = package.record
    if record and record.torch_beside == torch.public:  # the symbols themselves were compared
        if not record.torch_missing:
            return PASS
        message = f"{package.title} needs {record.torch_missing[0]} of torch, which torch {torch} "
        message += "does not define"
        have, need = package.version.text, f"{package.name} built for torch {torch.public}"
        return [Problem("fail", package.name, message, have, need, source_of(package))]
    if built_for == format_parts(torch.major_minor):
        problem = _check_cxx_abi(context, package, torch)
        return [problem] if problem else PASS
    optional = context.facts.packages.is_optional(package.name)
    if built_for is None:
        if is_pinned_with(package, "torch", context.packages, context.stack):
            return PASS
        message = f"{package.title} has C++ code for one torch, and its wheel does not say which"
        outcome: FindingOutcome = "warn" if optional else outcome_of_open(context)
        return [Problem(outcome, package.name, message, source=source_of(package))]
    message = f"{package.title} was built for torch {built_for}, the stack has torch {torch}"
    source = source_of(package)
    if record and record.built_for_torch is None:  # its metadata name none, a statement does
        source = next(one.source for one in package.statements if one.torch_wheels)
    return [
        Problem(
            "warn" if optional else "fail",
            package.name,
            message + describe_assumption(package),
            have=package.version.text,
            need=f"torch {built_for}, or a release of {package.name} for torch {torch.public}",
            source=source,
            candidates=lambda: other_releases(context, package),
        )
    ]


def _check_label(context: RuleContext, package: GpuPackage, torch: Version) -> Problem | None:
    """Report a wheel for another CUDA than torch's.

    Its label says its CUDA. Without one it may be the index's wheel, which is for the CUDA of
    torch's: a guess, which never denies. A wheel that brings its own runtime finds it with a torch
    of another major, which CG414 cannot see.
    """
    label, cuda = package.version.cuda, torch.cuda
    if package.of_torchs_label:
        return _report_torchs_label(context, package, torch)
    built_for = label or _cuda_of_index_wheel(context, package, torch)
    if cuda is None or built_for is None or built_for == cuda:
        return None
    if label and not names_cuda(package.version):
        return None
    refused_by = context.facts.packages.refusal_of(package.name, built_for, cuda)
    other_major = built_for[0] != cuda[0]
    linked = other_major and context.cuda is not None and package.runtimes(context.cuda)
    if refused_by is None and (linked or not package.assumed):
        return None  # more is known of its CUDA than a label
    what = "a build" if label else "assumed to be the index's wheel,"
    message = f"{package.title} is {what} for CUDA {format_parts(built_for)} with torch {torch}"
    return Problem(
        "fail" if refused_by and label else outcome_of_open(context),
        package.name,
        f"{message}, which it refuses"
        if refused_by
        else f"{message}: whether it loads is not known",
        have=package.version.text,
        need=f"{package.name} {package.version.public} for CUDA {format_parts(cuda)}",
        source=refused_by or source_of(package),
    )


def _report_torchs_label(
    context: RuleContext, package: GpuPackage, torch: Version
) -> Problem | None:
    """Say which wheel is meant where the package index's own would be for another CUDA."""
    found = next((one for one in context.built if one.name == "torch"), None)
    if found is None or not is_of_other_index(found.table, torch):
        return None
    message = f"{package.title} is assumed to come from the index of torch {torch}: the package "
    message += "index's own wheel is for another build of torch, and may not load beside it"
    need = f"{package.name}={package.version}+{torch.local}, if it is that wheel"
    have = package.version.text
    return Problem("warn", package.name, message, have, need, source_of(package))


def _cuda_of_index_wheel(
    context: RuleContext, package: GpuPackage, torch: Version
) -> tuple[int, ...] | None:
    """Return the CUDA of torch's index wheel, for a package that refuses another one."""
    asked = context.facts.packages.by_name.get(package.name)
    if asked is None or not asked.same_cuda or package.version.local or not package.assumed:
        return None
    if all(abi.stable for abi in package.torch_abis):
        return None
    found = next((one for one in context.built if one.name == "torch"), None)
    build = default_build(found.release) if found and found.release else None
    if build is None or not build.cuda or not torch.cuda:
        return None
    refuses = context.facts.packages.refusal_of(package.name, build.cuda, torch.cuda)
    return build.cuda if refuses else None


def _check_cxx_abi(context: RuleContext, package: GpuPackage, torch: Version) -> Problem | None:
    found = next((one for one in context.built if one.name == "torch"), None)
    if found is None or found.build is None or not found.published:
        return None
    ours = has_new_abi(found.table, torch, found.build.cuda, package.platform)
    theirs = {abi.cxx11 for abi in package.torch_abis if abi.cxx11 is not None and not abi.stable}
    if ours is None or not theirs or ours in theirs:
        return None
    old, new = "the old C++ ABI (cxx11abiFALSE)", "the new C++ ABI (cxx11abiTRUE)"
    message = f"{package.title} was compiled for {old if ours else new}, torch {torch} has "
    message += new if ours else old
    outcome: FindingOutcome = "unknown" if _is_beside_other_torch(context, package) else "fail"
    return Problem(
        "warn" if context.facts.packages.is_optional(package.name) else outcome,
        package.name,
        message + describe_assumption(package),
        have=package.version.text,
        need=f"a build of {package.name} for {new if ours else old}",
        source=source_of(package),
        candidates=lambda: other_releases(context, package),
    )


def _check_release_torch(context: RuleContext, package: GpuPackage, torch: Version) -> RuleAnswer:
    """Compare torch with the torch that all other wheels of the release were built for.

    A release is one source: its wheels for another system or with a CUDA label are for its torch. A
    wheel that the asker names, and a label that names no CUDA, are private builds.
    """
    version = package.version
    if package.name in context.stack.wheels or not _PROJECT_LABEL.fullmatch(version.local or ""):
        return NOT_APPLICABLE
    records = [
        record
        for record in context.facts.records(package.name)
        if record.version.partition("+")[0] == version.public
        and record.built_for_torch
        # It has code that no other minor of torch loads.
        and any(library.torch and not library.torch.stable for library in record.libraries)
    ]
    built_for = {record.built_for_torch for record in records}
    if len(built_for) != 1 or format_parts(torch.major_minor) in built_for:
        return NOT_APPLICABLE
    wanted = f"torch {built_for.pop()}"
    message = f"{package.title} is a release for {wanted}, the stack has torch {torch}"
    return [
        Problem(
            "fail",
            package.name,
            f"{message} (as {records[0].wheel})",
            have=version.text,
            need=f"{wanted}, or a release of {package.name} for torch {torch.public}",
            source=Source(f"measured: {records[0].wheel}", None, "metadata"),
            candidates=lambda: other_releases(context, package),
        )
    ]


_PROJECT_LABEL = re.compile(r"(cu\d+)?")
"""Labels of a project's own builds; the package index's wheel has no label."""


def check_libraries(context: RuleContext) -> RuleAnswer:
    """Report the packages whose libraries do not find the libraries that they link against."""
    asked = [*_check_runtimes(context), *_check_named_libraries(context), *_check_links(context)]
    problems = [problem for problem in asked if problem is not None]
    return problems or (PASS if asked else NOT_APPLICABLE)


def _check_runtimes(context: RuleContext) -> Iterator[Problem | None]:
    """Compare the CUDA runtime that each package is linked against with the stack's."""
    cuda = context.cuda
    if cuda is None:
        return
    parts = map(context.facts.cuda_components.by_package.get, (p.name for p in context.packages))
    brought = {cuda.major, *(p.cuda_major for p in parts if p and p.component == "cudart")}
    if cublas := context.stack.get("cublas"):
        brought.add(cublas.major)
    for package in context.packages:
        if needed := package.runtimes(cuda):
            missing = None if needed.keys() & brought else max(needed)
            yield _report_other_runtime(context, package, missing, cuda) if missing else None


def _check_named_libraries(context: RuleContext) -> Iterator[Problem | None]:
    """Find the library for the stack's CUDA among alternatives that are named after a CUDA."""
    cuda = context.cuda
    if cuda is None:
        return
    for package in context.packages:
        named = package.named_cudas
        if not named:
            continue
        exact = context.facts.packages.wants_exact_cuda(package.name, package.version)
        fits = cuda.major_minor in named or (not exact and any(p[0] == cuda.major for p in named))
        yield None if fits else _report_no_library(context, package, named, cuda)


def _report_no_library(
    context: RuleContext, package: GpuPackage, named: tuple[Pair, ...], cuda: Version
) -> Problem:
    return Problem(
        "fail",
        package.name,
        f"{package.title} has no library for CUDA {format_parts(cuda.major_minor)}"
        + describe_assumption(package),
        have=f"{package.version}, with CUDA {', '.join(format_parts(pair) for pair in named)}",
        need=f"a release with a library for CUDA {format_parts(cuda.major_minor)}",
        source=source_of(package),
        candidates=lambda: other_releases(context, package),
    )


def _report_other_runtime(
    context: RuleContext, package: GpuPackage, major: int, cuda: Version
) -> Problem:
    runtime = package.runtimes(cuda)[major]
    needs = "opens" if cublas_major(runtime) else "is linked against"
    outcome: FindingOutcome = "unknown" if _means_other_build(context, package) else "fail"
    return Problem(
        "warn" if context.facts.packages.is_optional(package.name) else outcome,
        package.name,
        f"{package.title} {needs} {runtime}, the stack brings CUDA {cuda}"
        + describe_assumption(package),
        have=package.version.text,
        need=f"a build of {package.name} for CUDA {cuda.major}, or CUDA {major}",
        source=source_of(package),
    )


def _is_beside_other_torch(context: RuleContext, package: GpuPackage) -> bool:
    """Tell whether an assumed wheel is beside a torch that is not the package index's.

    ``torch=2.4.1,cuda=11.8`` came from an index for CUDA 11.8, as its xformers may have: who leaves
    out one label leaves out all. Beside ``torch=2.9.1+cu130``, a torchaudio without label may be
    that of the same index if it is there.
    """
    found = next((one for one in context.built if one.name == "torch"), None)
    if not (package.assumed and found and found.release and found.build):
        return False
    label = found.version.local
    own = next((one.release for one in context.built if one.name == package.name), None)
    labels = {build.label for build in own.builds} if own else set()
    labels.update(*(wheels.labels for one in package.statements for wheels in one.wheels))
    if package.version.local or (label and label not in labels):
        return False
    usual = default_build(found.release)
    return bool(usual and package.needs.on({"torch": None}.keys())) and usual != found.build


def _means_other_build(context: RuleContext, package: GpuPackage) -> bool:
    """Tell whether the stack's cuDNN is for another build of a framework than the index's wheel."""
    if _is_beside_other_torch(context, package):
        return True
    found = next((one for one in context.built if one.name == package.name), None)
    cudnn = context.stack.get("cudnn")
    if found is None or found.release is None or found.build is None or cudnn is None:
        return False
    usual = default_build(found.release)
    if usual is None or not package.assumed:
        return False
    meant, index = (build.pins.get("cudnn") for build in (found.build, usual))
    return bool(
        meant
        and index
        and parse_constraint("cudnn", meant.spec).allows(cudnn)
        and not parse_constraint("cudnn", index.spec).allows(cudnn)
    )


def _check_links(context: RuleContext) -> Iterator[Problem | None]:
    """Compare libraries of CUDA toolkits with those that refer to their symbols."""
    of_toolkits = [package for package in context.packages if package.toolkits]
    if len(of_toolkits) < 2:
        return
    table = context.facts.cuda_components
    parts = [(package, table.by_package[package.name]) for package in of_toolkits]
    for link in table.links:
        users = [(one, part.cuda_major) for one, part in parts if part.component in link.users]
        libraries = [(one, part) for one, part in parts if part.component == link.component]
        for library, part in libraries:
            for user in (one for one, major in users if major == part.cuda_major):
                older = library.toolkits[-1] < user.toolkits[0]
                yield _report_older(library, user, link, table) if older else None


def _report_older(
    library: GpuPackage, user: GpuPackage, link: Link, table: CudaComponents
) -> Problem:
    first = user.toolkits[0]
    needed = f"CUDA {format_parts(first)}"
    versions = table.by_package[library.name].toolkits
    fitting = [version for version, toolkits in versions.items() if toolkits[0] >= first]
    return Problem(
        "fail",
        library.name,
        f"{user.title} is of {needed} and refers to symbols of its {link.component}; "
        f"{library.title} is of CUDA {format_parts(library.toolkits[-1])}",
        have=library.version.text,
        need=f"{library.name} of {needed} or newer",
        source=link.source,
        candidates=lambda: [
            Candidate({library.name: version}, f"use {library.name} {version}")
            for version in reversed(fitting)
        ],
    )
