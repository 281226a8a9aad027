"""CG411: whether the code of packages runs on the GPU."""

from __future__ import annotations

from collections.abc import Iterator

from compatgate.core.case import Case
from compatgate.core.facts import Pair
from compatgate.core.facts.records import Library
from compatgate.core.gpu_code import how_it_runs
from compatgate.core.package_code import Ways, is_made_for, is_stray, toolkit_targets, ways_here
from compatgate.core.packages import GpuPackage, is_specific
from compatgate.core.rules.base import NOT_APPLICABLE, PASS, Answer, Problem
from compatgate.core.rules.package_problems import assumption, other_releases, source_of
from compatgate.core.rules.statements import excluded
from compatgate.core.verdict import FindingOutcome
from compatgate.core.versions import show


def judge(case: Case) -> Answer:
    """Return the packages whose code does not run on the pool's GPU."""
    device = case.capability
    if device is None:
        return NOT_APPLICABLE
    situation = ("CG411", device, case.cuda and case.cuda.major_minor, case.compiles_up_to)
    answers = [_remembered(case, package, device, situation) for package in case.packages]
    problems = [problem for answer in answers if not isinstance(answer, str) for problem in answer]
    return problems or (PASS if PASS in answers else NOT_APPLICABLE)


def _remembered(case: Case, package: GpuPackage, device: Pair, situation: object) -> Answer:
    """Judge a package; one without a problem remembers that, for each kind of situation."""
    found: Answer | None = package.memory.get(situation)
    if found is None:
        found = _arch_of(case, package, device)
        if isinstance(found, str):
            package.memory[situation] = found
    return found


def _arch_of(case: Case, package: GpuPackage, device: Pair) -> Answer:
    if package.gpus:
        return [_of_others(case, package)]
    if package.statements and (problems := excluded(case, package, device)):
        return problems
    if package.stated:
        how = how_it_runs(package.stated, device, case.facts.arch)
        names = ", ".join(code.name for code in package.stated)
        return PASS if how else [no_code(case, package, names)]
    if package.toolkits:
        return _by_toolkit(case, package, device)
    if package.record is None:
        return PASS if package.compiled == "run" else NOT_APPLICABLE
    if case.facts.packages.carries(package.name) == "libraries" or not package.libraries:
        return NOT_APPLICABLE  # a library for others says by itself where it cannot be used
    problems = []
    without: list[Library] = []
    groups = ways_here(package, device, case.cuda, case.facts.arch)
    for group in groups:
        ways = [how for _, how in group]
        if not any(ways):
            without.append(group[0][0])
        elif "sass" not in ways:
            problems += _jit(case, package, [library.ptx_cuda for library, _ in group])
    if without and not _is_optional(case, package, without):
        names = ", ".join([*without[0].sass, *without[0].ptx])
        outcome = _outcome_of_part(case, groups, device)
        problems.append(no_code(case, package, names, without[0].path, outcome))
    return problems or PASS


def _outcome_of_part(case: Case, groups: tuple[Ways, ...], device: Pair) -> FindingOutcome:
    """Say what it means that a part of a package has no code for a GPU.

    Where nothing else runs it fails. Where other libraries were made for this GPU, that part is for
    other ones. Where the others have PTX alone, nobody made the package for this GPU, and whether
    it does without that part is not known.
    """
    if is_stray(groups):
        return "fail"
    arch = case.facts.arch
    run = [library for group in groups for library, how in group if how]
    return "warn" if any(is_made_for(one, device, arch) for one in run) else "unknown"


def _of_others(case: Case, package: GpuPackage) -> Problem:
    return Problem(
        "fail",
        package.name,
        f"{package.title} is a build for GPUs of {package.gpus}: it has no code for {case.gpu_name}"
        + assumption(package),
        have=package.version.text,
        need="a build for CUDA",
        source=source_of(package),
    )


def _is_optional(case: Case, package: GpuPackage, without: list[Library]) -> bool:
    """Tell whether a package works without these libraries: for one GPU alone, or an option."""
    return case.facts.packages.is_optional(package.name) or all(map(is_specific, without))


def _by_toolkit(case: Case, package: GpuPackage, device: Pair) -> Answer:
    """Judge a library of the CUDA toolkit by what its toolkit can target."""
    targets = toolkit_targets(package, device, case.facts.arch)
    if targets is None:
        return NOT_APPLICABLE
    if targets:
        return PASS
    newest = show(package.toolkits[-1])
    message = f"{package.title} is of CUDA {newest}, which does not target {case.gpu_name}"
    return [Problem("unknown", package.name, message, have=package.version.text)]


def no_code(
    case: Case, package: GpuPackage, have: str, path: str = "", outcome: FindingOutcome = "fail"
) -> Problem:
    """Report missing code."""
    assert case.capability is not None  # noqa: S101 - the caller checked
    where = f"{path} of {package.title}" if path else package.title
    message = f"{where} has no code for {case.gpu_name}: it carries {have}"
    if outcome == "unknown":
        message += "; the rest is PTX, and whether it works without this part is not known"
    return Problem(
        outcome,
        package.name,
        message + assumption(package),
        have=have,
        need=f"code for {show(case.capability)}",
        source=source_of(package),
        candidates=lambda: other_releases(case, package),
    )


def _jit(case: Case, package: GpuPackage, made_by: list[str | None]) -> Iterator[Problem]:
    """Report PTX that this driver cannot compile, or of which the toolkit is not known."""
    reach, driver = case.compiles_up_to, case.driver
    if driver is None or reach is None:
        return
    known = [tuple(map(int, cuda.split(".")[:2])) for cuda in made_by if cuda]
    title = package.title
    if not known:
        message = f"{title} needs its PTX compiled, and the toolkit that made it is not known"
        yield Problem("unknown", package.name, message, have=driver.text, source=source_of(package))
        return
    newest = max(known)
    if newest <= reach:
        return
    what = f"{title} needs its PTX of CUDA {show(newest)} compiled"
    yield Problem(
        "unknown" if case.forward_may_help or not case.driver_cuda_is_exact else "fail",
        package.name,
        f"{what}; driver {driver} understands PTX up to CUDA {show(reach)}{assumption(package)}",
        have=driver.text,
        need=f"a driver of CUDA {show(newest)} or newer",
        source=source_of(package),
    )
