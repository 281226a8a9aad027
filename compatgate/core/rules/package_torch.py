"""CG413: whether the C++ code of packages was built for the stack's torch."""

from __future__ import annotations

import re

from compatgate.core.case import Case
from compatgate.core.facts import Source
from compatgate.core.facts.records import Record
from compatgate.core.package_builds import names_cuda
from compatgate.core.packages import GpuPackage
from compatgate.core.requires import is_pinned_with
from compatgate.core.rules.base import NOT_APPLICABLE, PASS, Answer, Problem
from compatgate.core.rules.package_problems import assumption, other_releases, source_of, when_open
from compatgate.core.verdict import FindingOutcome
from compatgate.core.versions import Version, show


def judge(case: Case) -> Answer:
    """Return the extensions that were built for another torch."""
    torch = case.stack.get("torch")
    if torch is None:
        return NOT_APPLICABLE
    answers = [_torch_of(case, package, torch) for package in case.packages]
    problems = [problem for answer in answers if not isinstance(answer, str) for problem in answer]
    return problems or (PASS if PASS in answers else NOT_APPLICABLE)


def _torch_of(case: Case, package: GpuPackage, torch: Version) -> Answer:
    if package.record and not package.torch_abis:
        return NOT_APPLICABLE
    built_for = package.built_for_torch
    if package.record is None and built_for is None:
        return _torch_of_release(case, package, torch)
    if problem := _other_minor(case, package, torch):
        return [problem]
    if package.record and all(abi.stable for abi in package.torch_abis):
        return PASS
    record = package.record
    if record and record.torch_beside == torch.public:  # the symbols themselves were compared
        if not record.torch_missing:
            return PASS
        return [_undefined(package, record, torch, source_of(package))]
    if built_for == show(torch.major_minor):
        return PASS
    optional = case.facts.packages.is_optional(package.name)
    if built_for is None:
        if is_pinned_with(package, "torch", case.packages, case.stack):
            return PASS
        message = f"{package.title} has C++ code for one torch, and its wheel does not say which"
        outcome: FindingOutcome = "warn" if optional else when_open(case)
        return [Problem(outcome, package.name, message, source=source_of(package))]
    message = f"{package.title} was built for torch {built_for}, the stack has torch {torch}"
    return [
        Problem(
            "warn" if optional else "fail",
            package.name,
            message + assumption(package),
            have=torch.text,
            need=f"torch {built_for}, or a release of {package.name} for torch {torch.public}",
            source=source_of(package),
            candidates=lambda: other_releases(case, package),
        )
    ]


def _other_minor(case: Case, package: GpuPackage, torch: Version) -> Problem | None:
    """Ask about a wheel with a label of another minor of CUDA than torch's.

    Torchaudio refuses such a torch when it is imported; what else does is not known.
    """
    label, cuda = package.version.cuda, torch.cuda
    if cuda is None or label is None or not (package.assumed and names_cuda(package.version)):
        return None
    if label == cuda or label[0] != cuda[0]:  # of another major: CG414
        return None
    message = f"{package.title} is a build for CUDA {show(label)} beside torch {torch}"
    return Problem(
        when_open(case),
        package.name,
        f"{message}: whether it loads is not known",
        have=package.version.text,
        need=f"{package.name} {package.version.public} for CUDA {show(cuda)}",
        source=source_of(package),
    )


def _torch_of_release(case: Case, package: GpuPackage, torch: Version) -> Answer:
    """Compare torch with the one that the release's other wheels were all built for.

    A release is one source: its wheels for another system or with a CUDA label are for its torch. A
    wheel that the asker names, and a label that is no CUDA, are somebody's own build.
    """
    version = package.version
    if package.name in case.stack.wheels or not _OF_THE_PROJECT.fullmatch(version.local or ""):
        return NOT_APPLICABLE
    records = [
        record
        for record in case.facts.records(package.name)
        if record.version.partition("+")[0] == version.public
        and record.built_for_torch
        and _is_for_one_torch(record)
    ]
    built_for = {record.built_for_torch for record in records}
    if len(built_for) != 1 or show(torch.major_minor) in built_for:
        return NOT_APPLICABLE
    wanted = f"torch {built_for.pop()}"
    message = f"{package.title} is a release for {wanted}, the stack has torch {torch}"
    return [
        Problem(
            "fail",
            package.name,
            f"{message} (as {records[0].wheel})",
            have=torch.text,
            need=f"{wanted}, or a release of {package.name} for torch {torch.public}",
            source=Source(f"measured: {records[0].wheel}", confidence="metadata"),
            candidates=lambda: other_releases(case, package),
        )
    ]


_OF_THE_PROJECT = re.compile(r"(cu\d+)?")
"""Labels of a project's own builds; none is the package index's wheel."""


def _is_for_one_torch(record: Record) -> bool:
    """Tell whether a wheel has code that no other minor of torch loads."""
    return any(library.torch and not library.torch.stable for library in record.libraries)


def _undefined(
    package: GpuPackage, record: Record, torch: Version, source: Source | None
) -> Problem:
    """Report a symbol that an extension asks for and the torch beside it does not define."""
    name = record.torch_missing[0]
    message = f"{package.title} asks torch for {name}, torch {torch} has no such"
    need = f"{package.name} built for torch {torch.public}"
    return Problem("fail", package.name, message, torch.text, need, source)
