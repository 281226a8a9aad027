"""What statements about a package exclude, and what they leave open: parts of CG410 and CG411."""

from __future__ import annotations

from collections.abc import Iterator

from compatgate.core.arch import Arch
from compatgate.core.case import Case
from compatgate.core.facts import Pair
from compatgate.core.facts.records import Statement
from compatgate.core.gpu_code import how_it_runs
from compatgate.core.packages import GpuPackage
from compatgate.core.rules.base import Problem
from compatgate.core.verdict import FindingOutcome
from compatgate.core.versions import Version, show


def excluded(case: Case, package: GpuPackage, device: Pair) -> list[Problem]:
    """Return what statements say against a package on a GPU.

    A capability that the source refuses denies whatever was compiled. The list of a build script
    that takes no other one denies where neither a record nor the asker names the code.
    """
    return [
        problem
        for statement in package.statements
        if (problem := _refusal(case, package, statement, device))
    ]


def _refusal(case: Case, package: GpuPackage, statement: Statement, device: Pair) -> Problem | None:
    least, last = statement.least_capability, statement.last_capability
    says = f": {statement.says}" if statement.says else ""
    if (least and device < least) or (last and device > last):
        range_of = _range(least, last)
        message = f"{package.title} runs on {range_of}, not on {case.gpu_name}{says}"
        return _problem(package, statement, message, need=range_of)
    if package.record or package.stated or not statement.fixed:
        return None
    code = [code for build in _builds(statement, case.cuda) for code in build]
    if not code or how_it_runs(code, device, case.facts.arch):
        return None
    names = ", ".join(dict.fromkeys(one.name for one in code))
    message = f"the build script of {package.title} makes code for {names} alone, none of which"
    message += f" runs on {case.gpu_name}{says}"
    return _problem(package, statement, message, need=f"code for {show(device)}")


def _range(least: Pair | None, last: Pair | None) -> str:
    if least and last:
        return f"compute capability {show(least)} to {show(last)}"
    return (
        f"compute capability {show(least)} and newer"
        if least
        else f"compute capability up to {show(last or (0, 0))}"
    )


def _problem(package: GpuPackage, statement: Statement, message: str, need: str) -> Problem:
    """Report an exclusion; what is only derived never denies."""
    outcome: FindingOutcome = "unknown" if statement.source.confidence == "derived" else "fail"
    have, source = package.version.text, statement.source
    return Problem(outcome, package.name, message, have=have, need=need, source=source)


def is_excluded(case: Case, package: GpuPackage) -> bool:
    """Tell whether a package is denied on this GPU, so that its code is no longer asked for."""
    device = case.capability
    if device is None or not package.statements:
        return False
    return any(problem.outcome == "fail" for problem in excluded(case, package, device))


def left_open(case: Case, package: GpuPackage, outcome: FindingOutcome) -> Problem | None:
    """Ask for the GPU code of a package that is compiled where it is installed."""
    statement = next((one for one in package.statements if one.compiled == "install"), None)
    if statement is None:
        return None
    title = package.title
    message = f"{title} is compiled where it is built: its GPU code is the choice of its builder"
    message += _wheels_of_project(case, package, statement)
    code = [c for build in _builds(statement, case.cuda) for c in build if not c.suffix]
    names = list(dict.fromkeys(one.name for one in code))
    example = "+".join(names) or "sm_80+sm_90"
    need = f"the code that it was built for, like {package.name}={package.version}[{example}]"
    if names:
        need += " where its build script had no other list"
    return Problem(
        outcome,
        package.name,
        message,
        have=package.version.text,
        need=need,
        source=statement.source,
    )


def _wheels_of_project(case: Case, package: GpuPackage, statement: Statement) -> str:
    """Say that the project has no wheel for the stack's torch, which explains a local build."""
    torch = case.stack.get("torch")
    wheels = statement.torch_wheels
    if torch is None or not wheels or show(torch.major_minor) in wheels:
        return ""
    return f"; its project publishes wheels for torch {wheels[0]} to {wheels[-1]} only"


def _builds(statement: Statement, cuda: Version | None) -> Iterator[tuple[Arch, ...]]:
    """Yield what the build script makes with the toolkits of the stack's CUDA major."""
    for build in statement.builds:
        if build.cuda is None or cuda is None or _is_of_major(build.cuda, cuda.major):
            yield build.code


def _is_of_major(spec: str, major: int) -> bool:
    """Tell whether a range of toolkits holds one of a CUDA major."""
    from packaging.specifiers import SpecifierSet

    return any(SpecifierSet(spec).contains(f"{major}.{minor}") for minor in range(10))
