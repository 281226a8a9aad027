"""Check packages for CG410 and CG411: unknown packages, and whether code runs on the GPU.

Loaded by the first question that names a package. Where no wheel was measured, statements about a
package exclude GPUs, or leave them open.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from compatgate.core.facts import Facts
from compatgate.core.facts.frameworks import Container
from compatgate.core.facts.nvidia import Pair, Source
from compatgate.core.facts.packages import NO_GPU_CODE
from compatgate.core.facts.records import Library, Statement
from compatgate.core.gpu_code import Arch, find_run_mode, parse_arch
from compatgate.core.package_cuda import cuda_of_package
from compatgate.core.package_finder import AS_BUILT, release_of
from compatgate.core.package_wheels import is_for_platform
from compatgate.core.packages import (
    GpuPackage,
    holds_toolkit,
    is_made_for,
    is_pinned_with,
    is_specific,
    is_stray,
    library_modes,
    requirements_of,
    toolkit_targets,
)
from compatgate.core.parts import Candidate
from compatgate.core.performance import near_names
from compatgate.core.rule import (
    NOT_APPLICABLE,
    PASS,
    FindingOutcome,
    Problem,
    RuleAnswer,
    report_missing_fact,
    report_no_effect,
)
from compatgate.core.rule_context import RuleContext
from compatgate.core.stack_facts import find_floor, find_toolkit
from compatgate.core.versions import Version, format_parts, parse_version


def check_open(context: RuleContext) -> RuleAnswer:
    """Report the packages that are open."""
    still = [one for one in context.packages if one.is_open and not _needs_no_record(context, one)]
    found = [
        _report_like_near(context, one) if _suits_near(context, one) else _report_open(context, one)
        for one in still
        if not is_excluded(context, one)
    ]
    for package in context.packages:
        if paths := package.unread_for(context.cuda):  # another question did not need them
            message = f"{paths[0]} of {package.title}, for CUDA {context.cuda}, was not read"
            need = f"state cuda={context.cuda} with --read-wheels"
            found.append(Problem(outcome_of_open(context), package.name, message, need=need))
    found += [one for p in context.packages if p.fetched for one in _judge_compiled(context, p)]
    return found or PASS


def _needs_no_record(context: RuleContext, package: GpuPackage) -> bool:
    """Tell whether a package runs without a record: it has no code, or is stated to support it."""
    if package.name == "tritonserver":
        image = context.facts.containers.find(package.version.text)
        if image and is_supported_by_image(context, image):
            return True
    carries = context.facts.packages.carries(package.name)
    return carries == "options" or (carries in NO_GPU_CODE and not package.unread)


def is_supported_by_image(context: RuleContext, image: Container) -> bool:
    """Tell whether the notes of NVIDIA's image name the GPU, and its CUDA makes code that runs.

    Its kernels are not listed and may need the driver to compile PTX: the notes decide on which
    drivers it runs, not minor-version compatibility.
    """
    device, driver = context.capability, context.driver
    if not (device and image.cuda and image.min_cc_stated):
        return False
    if driver is None or context.os == "windows" or image.driver_stated is None:
        return False
    if driver.parts < _numbers(image.driver_stated):
        older = [_numbers(one) for one in image.data_center_driver_branches or ()]
        listed = any(one[0] == driver.parts[0] and one <= driver.parts for one in older)
        if not listed or context.forward is None or not context.forward.usable:
            return False
    toolkit = context.facts.arch.toolkits.get(format_parts(image.cuda.major_minor))
    code = [Arch("sass", one) for one in (toolkit.sass if toolkit else ())]
    named = [one for one in code if one.capability >= image.min_cc_stated]
    return find_run_mode(named, device, context.facts.arch) is not None


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def _judge_compiled(context: RuleContext, package: GpuPackage) -> tuple[Problem]:
    """Judge a package that may be compiled in place of the wheel that is assumed."""
    cuda, device = context.cuda, context.capability
    made = package.scripted_code(cuda.major_minor) if cuda else ()
    message = f"{package.title}: {package.assumed}"
    if device and find_run_mode(made, device, context.facts.arch):
        names = ", ".join(code.name for code in made)
        return report_no_effect(package.name, f"{message}; one compiled in its place has {names}")
    message += "; which code one compiled in its place has is not known"
    need = f"the code that it was built for, like {package.name}={package.version}[sm_90]"
    return report_missing_fact(package.name, message, need=need, have=package.version.text)


def _suits_near(context: RuleContext, package: GpuPackage) -> bool:
    """Tell whether the releases before and after one without a record are known to run here."""
    if package.near:
        several = any if _is_nightly(package) else all
        return several(_runs_here(context, one, package) for one in package.near)
    around = _images_around(context, package)
    return bool(around) and all(is_supported_by_image(context, one) for one in around)


def _images_around(context: RuleContext, package: GpuPackage) -> tuple[Container, ...]:
    """Return NVIDIA's images before and after a month of Triton without notes of its own."""
    month = package.version.text
    if package.name != "tritonserver" or not context.facts.containers.cuda_of(month):
        return ()
    image = context.facts.containers.find(month)
    if image and image.min_cc_stated and image.driver_stated:
        return ()
    around = context.facts.containers.around(month)
    if image is None or image.driver_stated is None:
        return around
    return tuple(replace(image, min_cc_stated=one.min_cc_stated) for one in around)


def _is_nightly(package: GpuPackage) -> bool:
    """Tell whether one of several releases is enough, as a nightly build leads to either."""
    return ".dev" in package.version.whole


def _runs_here(context: RuleContext, package: GpuPackage, instead_of: GpuPackage) -> bool:
    """Tell whether a measured release runs on the GPU, the driver and the rest of the stack."""
    device, cuda, torch = context.capability, context.cuda, context.stack.get("torch")
    if device is None:
        return False
    beside = format_parts(torch.major_minor) if torch else None
    of_one_torch = package.torch_abis or (beside and package.built_for_torch)
    if of_one_torch and (beside is None or package.built_for_torch != beside):
        known = [*context.packages, *(near for one in context.packages for near in one.near)]
        if package.built_for_torch or not is_pinned_with(instead_of, "torch", known, context.stack):
            return False
    if package.shipped and check_package(context, package, device) != PASS:
        return False
    linked = package.runtimes(cuda) if cuda else {}
    if linked and cuda and cuda.major not in linked:
        return False
    asked = requirements_of(package, context.stack)
    driver, needed = context.usable_driver, cuda_of_package(package)
    if driver is None or not all(one.holds for one in asked if one.name not in ("cudnn", "nccl")):
        return False
    if context.jetson or needed is None:
        return True
    needs = parse_version("cuda", format_parts((*needed, 0)[:2]))
    floor = find_floor(needs, find_toolkit(needs, context.facts), context.pool, context.facts)
    return floor is not None and driver >= floor[0]


def _report_like_near(context: RuleContext, package: GpuPackage) -> Problem:
    title, have = package.title, package.version.text
    if _images_around(context, package):
        images = [one.release for one in context.facts.containers.around(have)]
        message = f"the notes of {title} are not known; it is assumed to be like "
        message += f"{' and '.join(images)}, whose notes support this GPU and driver"
        return Problem("warn", package.name, message, have=have)
    message = f"no record describes the content of {title}; it is assumed to be "
    near = package.near
    if _is_nightly(package):
        near = tuple(one for one in near if _runs_here(context, one, package))[:1]
    built = [one for one in near if one.record and not one.record.wheel]
    if built:
        names = _name_near(package, near)
        message += AS_BUILT if near[0].version == package.version else f"built like {names}"
    else:
        message += describe_near(package, near)
    return Problem("warn", package.name, message, have, advise_record(package.name, have))


def _name_near(package: GpuPackage, near: Sequence[GpuPackage]) -> str:
    if near[0].platform.os != package.platform.os:
        return f"its wheel for {near[0].platform.os.capitalize()}"
    return " and ".join(one.version.text for one in near)


def describe_near(package: GpuPackage, near: Sequence[GpuPackage]) -> str:
    """Return ``like 1.0 and 1.2, which were measured and run here``, of an unmeasured release."""
    here = "were measured and run here" if len(near) > 1 else "was measured and runs here"
    return f"like {_name_near(package, near)}, which {here}"


def _report_open(context: RuleContext, package: GpuPackage) -> Problem:
    have = package.version.text
    if package.unread:
        first, more = package.unread[0], len(package.unread) - 1
        others = f" and {more} more" if more else ""
        message = f"{first}{others} of {package.title} could not be read: its content is not known"
        need = f"its GPU code, as {package.name}={package.version}[sm_..]"
        return Problem(outcome_of_open(context), package.name, message, have, need)
    if asked := report_local_build(context, package, outcome_of_open(context)):
        return asked
    message = f"no record describes the content of {package.title}"
    known = [str(release) for release in context.facts.recorded_versions(package.name)]
    near = meant_package(package.name, context.facts)
    if why := context.stack.unmeasured.get(release_of(package)):
        message += f": {why}"
    elif package.version.text in known:
        message += " here: its records are of other wheels (platform, build or digest)"
    elif known:
        message += f"; the newest release with a record is {known[-1]}"
    elif near:
        message += f"; did you mean {near}?"
    if optional := context.facts.packages.is_optional(package.name):
        message += "; it works without its GPU code"
    outcome: FindingOutcome = "warn" if optional else outcome_of_open(context)
    code = f"its GPU code, like {package.name}={have}[sm_90]"
    need = code if near else f"{advise_record(package.name, have)}; or {code}"
    return Problem(outcome, package.name, message, have=have, need=need)


def meant_package(name: str, facts: Facts) -> str:
    """Return the known package that a name unknown to the facts is nearly spelt like, or nothing.

    Nobody is told to download what is probably a misspelt name.
    """
    known = facts.framework_names | facts.recorded | facts.packages.by_name.keys()
    near = [] if name in known else near_names(name, known, cutoff=0.85)
    return near[0] if near else ""


def advise_record(name: str, version: str) -> str:
    """Say how a wheel gets a record, for a check and for a gate."""
    file = f"{name}.yaml"
    return (
        "a record: check --read-wheels measures the wheel; for a gate, run compatgate facts measure"
        f" {name}=={version} --overlay {file} and start it with --facts {file}"
    )


def check_arch(context: RuleContext) -> RuleAnswer:
    """Report the packages whose code does not run on the pool's GPU."""
    device = context.capability
    if device is None:
        return NOT_APPLICABLE
    situation = ("CG411", device, context.cuda and context.cuda.major_minor, context.compiles_up_to)
    problems: list[Problem] = []
    passed = False
    for package in context.packages:
        answer: RuleAnswer | None = package.memory.get(situation)
        if answer is None:
            answer = check_package(context, package, device)
            if isinstance(answer, str):  # a package without a problem caches that
                package.memory[situation] = answer
        if isinstance(answer, str):
            passed = passed or answer == PASS
        else:
            problems += answer
    return problems or (PASS if passed else NOT_APPLICABLE)


def check_package(context: RuleContext, package: GpuPackage, device: Pair) -> RuleAnswer:
    """Judge the code of one package on a GPU."""
    if package.gpus:
        message = f"{package.title} is a build for GPUs of {package.gpus}: it has no code for "
        message += f"{context.gpu_name}{describe_assumption(package)}"
        have, source = package.version.text, source_of(package)
        return [Problem("fail", package.name, message, have, "a build for CUDA", source)]
    if package.statements and (problems := find_exclusions(context, package, device)):
        return problems
    if package.stated:
        how = find_run_mode(package.stated, device, context.facts.arch)
        names = ", ".join(code.name for code in package.stated)
        return PASS if how else [report_no_code(context, package, names)]
    if package.toolkits:  # a library of the CUDA toolkit
        targets = toolkit_targets(package, device, context.facts.arch)
        if targets is None:
            return NOT_APPLICABLE
        newest = format_parts(package.toolkits[-1])
        message = f"{package.title} is of CUDA {newest}, which does not target {context.gpu_name}"
        have = package.version.text
        return PASS if targets else [Problem("unknown", package.name, message, have=have)]
    if package.record is None:
        return PASS if package.compiled in ("run", "shipped") else NOT_APPLICABLE
    if context.facts.packages.carries(package.name) == "libraries":
        return NOT_APPLICABLE  # a library for others says by itself where it cannot be used
    if not package.libraries:
        return _check_wheel_without_code(context, package)
    return _check_libraries(context, package, device) or PASS


def _check_libraries(context: RuleContext, package: GpuPackage, device: Pair) -> list[Problem]:
    problems: list[Problem] = []
    without: list[Library] = []
    facts = context.facts
    groups = library_modes(package, device, context.cuda, facts.arch)
    for group in groups:
        ways = [how for _, how in group]
        if not any(ways):
            without.append(group[0][0])
        elif "sass" not in ways:
            problems += _check_ptx(context, package, [library.ptx_cuda for library, _ in group])
    # It works without libraries for one GPU alone, or all of its own where they are an option.
    if all(map(is_specific, without)) or facts.packages.is_optional(package.name):
        return problems
    outcome: FindingOutcome = "fail"
    if not is_stray(groups):
        # A part has no code for the GPU. Where other libraries were made for this GPU, that part is
        # for other GPUs. Where they have PTX alone, the package was not made for this GPU, and may
        # need that part.
        run = [library for group in groups for library, how in group if how]
        made = any(is_made_for(one, device, facts.arch) for one in run)
        outcome = "warn" if made else "unknown"
    names = ", ".join([*without[0].sass, *without[0].ptx])
    problems.append(report_no_code(context, package, names, without[0].path, outcome))
    return problems


def _check_wheel_without_code(context: RuleContext, package: GpuPackage) -> RuleAnswer:
    """Report a wheel for CPUs, whose release has code for GPUs on another platform.

    It fails where its digest or file is stated; a version alone may mean another build.
    """
    record, facts = package.record, context.facts
    if record is None or package.installed or facts.packages.carries(package.name) != "code":
        return NOT_APPLICABLE
    if facts.packages.is_optional(package.name) or record.wheel.endswith("-any.whl"):
        return NOT_APPLICABLE
    others = facts.records(facts.recorded_name(package.name, package.version.cuda))
    release = [one for one in others if one.version == record.version]
    coded = [one for one in release if any(library.carries_code for library in one.libraries)]
    if not coded or any(is_for_platform(one.wheel, package.platform) for one in coded):
        return NOT_APPLICABLE
    pool = context.pool
    where = "Windows" if pool.os == "windows" else f"Linux {pool.cpu}"
    message = f"the wheel of {package.title} for {where} has no code for GPUs, unlike "
    message += f"{coded[0].wheel}{describe_assumption(package)}"
    need = "a build with CUDA, stated with its label or file"
    outcome: FindingOutcome = "unknown" if package.assumed else "fail"
    return [Problem(outcome, package.name, message, record.wheel, need, source_of(package))]


def report_no_code(
    context: RuleContext,
    package: GpuPackage,
    have: str,
    path: str = "",
    outcome: FindingOutcome = "fail",
) -> Problem:
    """Report that a package has no code for the GPU."""
    assert context.capability is not None  # noqa: S101 - the caller checked
    where = f"{path} of {package.title}" if path else package.title
    message = f"{where} has no code for {context.gpu_name}: it has {have}"
    codes = [code for name in have.split(", ") if name for code in parse_arch(name)]
    if outcome == "unknown":
        message += "; the rest is PTX, and whether it works without this part is not known"
    elif dispute := context.find_dispute(codes):
        outcome, message = "unknown", f"{message}; {dispute.text}"
    return Problem(
        outcome,
        package.name,
        message + describe_assumption(package),
        have=have,
        need=f"code for {format_parts(context.capability)}",
        source=source_of(package),
        candidates=lambda: other_releases(context, package),
    )


def _check_ptx(
    context: RuleContext, package: GpuPackage, made_by: list[str | None]
) -> Iterator[Problem]:
    reach, driver = context.compiles_up_to, context.driver
    if driver is None or reach is None:
        return
    known = [tuple(map(int, cuda.split(".")[:2])) for cuda in made_by if cuda]
    title = package.title
    if not known:
        message = f"{title} needs its PTX compiled, and the toolkit that made it is not known"
        have = package.version.text
        yield Problem("unknown", package.name, message, have=have, source=source_of(package))
        return
    newest = max(known)
    if newest <= reach:
        return
    what = f"{title} needs its PTX of CUDA {format_parts(newest)} compiled"
    limit = f"driver {driver} understands PTX up to CUDA {format_parts(reach)}"
    yield Problem(
        "unknown" if context.forward_may_help or not context.driver_cuda_is_exact else "fail",
        package.name,
        f"{what}; {limit}{describe_assumption(package)}",
        have=package.version.text,
        need=f"a driver of CUDA {format_parts(newest)} or newer",
        source=source_of(package),
    )


def find_exclusions(context: RuleContext, package: GpuPackage, device: Pair) -> list[Problem]:
    """Report the statements that exclude a package on a GPU.

    A capability that the source refuses denies, for any compiled code. A build script with a fixed
    list denies where neither a record nor the asker names the code.
    """
    return [
        problem
        for statement in package.statements
        if (problem := _check_statement(context, package, statement, device))
    ]


def _check_statement(
    context: RuleContext, package: GpuPackage, statement: Statement, device: Pair
) -> Problem | None:
    least, last = statement.least_capability, statement.last_capability
    says = f": {statement.says}" if statement.says else ""
    system = "windows" if package.platform.os == "windows" else "linux"
    if statement.systems and system not in statement.systems:
        names = " and ".join(one.title() for one in statement.systems)
        message = f"{package.title} is published for {names} alone{says}"
        return _report_exclusion(package, statement, message, need=names)
    if (least and device < least) or (last and device > last):
        range_of = "compute capability " + (f"{format_parts(least)} " if least else "up ")
        range_of += f"to {format_parts(last)}" if last else "and newer"
        message = f"{package.title} runs on {range_of}, not on {context.gpu_name}{says}"
        return _report_exclusion(package, statement, message, need=range_of)
    if package.record or package.stated or not statement.fixed:
        return None
    code = [code for build in _script_builds(statement, context.cuda) for code in build]
    if not code or find_run_mode(code, device, context.facts.arch):
        return None
    names = ", ".join(dict.fromkeys(one.name for one in code))
    message = f"the build script of {package.title} makes code only for {names}, none of which"
    message += f" runs on {context.gpu_name}{says}"
    return _report_exclusion(package, statement, message, need=f"code for {format_parts(device)}")


def _report_exclusion(
    package: GpuPackage, statement: Statement, message: str, need: str
) -> Problem:
    """Report an exclusion; a derived statement never denies."""
    outcome: FindingOutcome = "unknown" if statement.source.confidence == "derived" else "fail"
    have, source = package.version.text, statement.source
    return Problem(outcome, package.name, message, have=have, need=need, source=source)


def is_excluded(context: RuleContext, package: GpuPackage) -> bool:
    """Tell whether a package is denied on this GPU, so that its code need not be stated."""
    device = context.capability
    if device is None or not package.statements:
        return False
    return any(problem.outcome == "fail" for problem in find_exclusions(context, package, device))


def report_local_build(
    context: RuleContext, package: GpuPackage, outcome: FindingOutcome
) -> Problem | None:
    """Judge a package that is compiled where it is installed by what a build on this GPU makes.

    That it was built beside this stack is assumed: a warning, and never a denial. The answer is
    open where the CUDA makes no such code, or a label names another build.
    """
    statement = next((one for one in package.statements if one.compiled == "install"), None)
    if statement is None:
        return None
    message = f"{package.title} is compiled where it is built: "
    torch, wheels = context.stack.get("torch"), statement.torch_wheels
    if not package.version.local and _is_made_here(context, package, statement):
        outcome = "warn"
        message += f"it is assumed to be built with CUDA {context.cuda} for {context.gpu_name}"
    else:
        message += "its GPU code depends on how it was built"
        if torch and wheels and format_parts(torch.major_minor) not in wheels:
            message += f"; its project publishes wheels for torch {wheels[0]} to {wheels[-1]} only"
    code = [c for build in _script_builds(statement, context.cuda) for c in build if not c.suffix]
    names = list(dict.fromkeys(one.name for one in code))
    example = "+".join(names) or "sm_80+sm_90"
    need = f"the code that it was built for, like {package.name}={package.version}[{example}]"
    if names:
        need += " where its build script had no other list"
    return Problem(
        outcome, package.name, message, package.version.text, need, source=statement.source
    )


def _is_made_here(context: RuleContext, package: GpuPackage, statement: Statement) -> bool:
    """Tell whether a build with the stack's CUDA makes code for the GPU.

    Who builds an extension gets code for the GPU that is there, unless the script has a list. A
    project with such a list has wheels, too: where these are not known to be for the stack's torch,
    one for another torch may be installed.
    """
    cuda, device, torch = context.cuda, context.capability, context.stack.get("torch")
    toolkit = context.facts.arch.toolkits.get(format_parts(cuda.major_minor)) if cuda else None
    if cuda is None or device is None or toolkit is None:
        return False
    wheels, code = statement.torch_wheels, [Arch("sass", one) for one in toolkit.sass]
    if torch and (wheels or statement.builds) and format_parts(torch.major_minor) not in wheels:
        return False
    if statement.builds:
        listed = package.scripted_code(cuda.major_minor)
        code = [one for one in listed if one.capability in toolkit.sass]
    how = find_run_mode(code, device, context.facts.arch)
    return how == "sass" or (how is not None and device in toolkit.sass)


def _script_builds(statement: Statement, cuda: Version | None) -> Iterator[tuple[Arch, ...]]:
    """Yield the code that the build script makes with toolkits of the stack's CUDA major."""
    for build in statement.builds:
        if (
            build.cuda is None
            or cuda is None
            or any(holds_toolkit(build.cuda, (cuda.major, minor)) for minor in range(10))
        ):
            yield build.code


def outcome_of_open(context: RuleContext) -> FindingOutcome:
    """Return the outcome of an unknown package by the target's policy."""
    return "warn" if context.policy.packages == "audit" else "unknown"


def describe_assumption(package: GpuPackage) -> str:
    """Say which wheel a package is assumed to be, where nothing names its file."""
    return f" ({package.assumed})" if package.assumed else ""


def source_of(package: GpuPackage) -> Source | None:
    """Return the source of a package's facts: its record, else a statement about it."""
    record = package.record
    if record is None or not (record.wheel or package.installed):
        stated = sorted(package.statements, key=lambda one: not (record and one.wheels))
        return stated[0].source if stated else None
    if package.installed:
        what = f" ({record.wheel})" if record.wheel else ""
        return Source(f"measured: its installed files{what}", None, "metadata")
    proof = f", sha256 {record.sha256[:16]}" if record.sha256 else ""
    return Source(f"measured: {record.wheel}{proof}", None, "metadata")


def other_releases(context: RuleContext, package: GpuPackage) -> Iterator[Candidate]:
    """Yield other releases with a record, the nearest newer one first."""
    known = list(context.facts.recorded_versions(package.name))
    newer = [version for version in known if version > package.version]
    for version in (*newer, *reversed([v for v in known if v < package.version])):
        text = version.text
        yield Candidate({package.name: text}, f"use {package.name} {text}")
