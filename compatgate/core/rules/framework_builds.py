"""CG401, CG404, CG405, CG407: check the CUDA, Python, GPU and driver of a framework's builds."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from compatgate.core import changes
from compatgate.core.facts.frameworks import Build, Release
from compatgate.core.facts.nvidia import Pair, Source
from compatgate.core.gpu_code import Arch, find_run_mode
from compatgate.core.parts import CODE, CUDA, DRIVER, FORWARD, RECORDS, Candidate
from compatgate.core.rule import (
    NOT_APPLICABLE,
    PASS,
    Answer,
    FindingOutcome,
    Problem,
    list_problems,
    report_left_out,
    report_missing_fact,
    rule,
)
from compatgate.core.rule_context import RuleContext
from compatgate.core.rules.driver import report_older_driver
from compatgate.core.stack_facts import (
    FrameworkMatch,
    accepts,
    default_build,
    find_release,
    is_index_wheel_cpu_only,
    month_of_image,
    name_known,
)
from compatgate.core.versions import Version, format_parts, parse_version

if TYPE_CHECKING:
    from compatgate.core.packages import GpuPackage


@rule("CG401", "framework-cuda", reads=DRIVER | RECORDS)
def framework_cuda(context: RuleContext) -> Answer:
    """No build of this framework release is published for this CUDA.

    The rule fails where the facts list all builds of the release and name a source for that; where
    other builds can exist (vLLM's wheels for each CUDA), the answer is unknown. The version can
    name the build (``torch=2.4.1+cu121``); otherwise the rule takes the build for
    the stack's CUDA. Wheels that are on the index but not on the install page (cu129 for torch 2.9
    to 2.13) are a warning. A version without a label is the wheel of the package index, which has
    no CUDA on some platforms (torch before 2.11, and TensorFlow, on Arm; torch on Windows). It
    fails there. It is unknown if the stack names a CUDA, if its files were read, or if the pool is
    a Jetson, for which other indexes have wheels without a label; but a digest can pin the index's
    own file, which fails. On Windows it is a warning if a build for the stated CUDA is known: the
    wheel is assumed to be that build. A release candidate or nightly build is assumed to be like
    the nearest release: a warning, and what fails for that release is unknown. This rule does not
    check builds of a conda channel (``torch=2.5.1+conda.cu126``), which are not wheels. A build
    that uses the installed toolkit (``jaxlib=0.3.15+cuda11.cudnn82``) fails with a toolkit that it
    does not accept.

    Example: torch 2.4.1 has builds for CUDA 11.8, 12.1 and 12.4; with CUDA 12.6 it fails.

    Fix: use a CUDA that the release is built for, or a release that is built for this CUDA.

    Source: the project's install page and previous versions, package metadata of each release.
    """
    answer = ask_each_framework(context, _check_cuda)
    if answer != PASS:
        return answer
    return [
        Problem(
            "warn",
            found.name,
            f"{found.title} is no release: it is assumed to be like {found.like.title}",
            have=found.version.text,
            source=found.like.release.source if found.like.release else None,
        )
        for found in context.frameworks
        if found.like
    ] or PASS


def _check_cuda(context: RuleContext, found: FrameworkMatch) -> Answer:
    if found.without_cuda:
        return _make_problem(
            found,
            "fail",
            f"{found.title} is a build for GPUs of {found.other_gpus}, without code for NVIDIA GPUs"
            if found.other_gpus
            else f"{found.title} is a build without CUDA",
            need="a CUDA build",
            candidates=lambda: changes.other_build(context, found),
        )
    if not found.published:
        what = f"{found.title} is not a published build; its CUDA, pins and GPU code not checked"
        if found.conda:
            what = f"{found.title} was built by a channel of conda: what is published about the "
            what += f"wheels of {found.name} does not hold for it; its CUDA, Python and pins not "
            what += "checked"
        return report_left_out(found.name, what)
    release, build, systems = found.release, found.build, found.table.os
    if release is None:
        return _report_unknown_release(context, found)
    if context.pool.os == "windows" and "windows" not in (release.os or systems):
        message = f"{found.title} has no GPU build for Windows"
        known = [one for one in found.table.releases if "windows" in (one.os or systems)]
        message += f"; the last release with one is {known[-1].version}" if known else ""
        return _make_problem(found, "fail", message, need="os=linux or wsl", source=release.source)
    if not found.version.local:
        if absence := found.table.source_of_absence(found.version, context.pool.cpu):
            what = f"the package index has no wheel of {found.title} for {context.pool.cpu}"
            return _report_cpu_only(context, found, release, what, absence)
        if is_index_wheel_cpu_only(found.table, release, context.pool):
            where = "Windows" if context.pool.os == "windows" else context.pool.cpu
            what = f"the wheel of {found.title} on the package index has no CUDA on {where}"
            source = release.python_source or release.source
            return _report_cpu_only(context, found, release, what, source)
    if build is None:
        return _report_no_build(context, found, release)
    if not build.listed:
        message = f"the {build.title} build of {found.title} exists on the wheel index but "
        message += "not on the install page"
        return _make_problem(found, "warn", message, source=build.source)
    stated = context.stack.get("cuda") if found.version.cuda else None
    if stated is None:
        return PASS
    if (build.compiles or found.table.loads_cuda) and not accepts(build, stated):
        message = f"{found.title} is for CUDA {build.accepts}, the stack states CUDA {stated}"
        return _make_problem(found, "fail", message, need=build.accepts, source=build.source)
    if build.cuda_major != stated.major:
        message = f"{found.title} brings CUDA {build.cuda_major}, the stack states CUDA "
        message += f"{stated}: two CUDA majors in one process"
        return _make_problem(found, "warn", message, source=build.source)
    return PASS


def _report_unknown_release(context: RuleContext, found: FrameworkMatch) -> Answer:
    if context.has_record(found.name):
        return NOT_APPLICABLE  # CG411 to CG414 judge what the wheel was measured to hold
    known = name_known([one.version for one in found.table.releases], found.version)
    name = context.facts.recorded_name(found.name, found.version.cuda)
    need = f"a known release, or a record of this one: compatgate facts measure {name}=="
    need += f"{found.version.public} --overlay {name}.yaml, for --facts {name}.yaml"
    message = f"{found.title} is not known; {known}"
    return _make_problem(found, "unknown", message, need=need)


def _make_problem(
    found: FrameworkMatch, outcome: FindingOutcome, message: str, **more: Any
) -> Answer:
    return Problem(outcome, found.name, message, have=found.version.text, **more)


def _report_cpu_only(
    context: RuleContext, found: FrameworkMatch, release: Release, what: str, source: Source
) -> Answer:
    """Report an index without a wheel with CUDA: it fails unless another build may be meant."""
    build = found.build or default_build(release)
    label = build.label if build else None
    labelled = f"{found.version.public}+{label}" if label else ""
    change = Candidate({found.name: labelled}, f"use {found.name} {labelled}, from another index")
    is_open = _may_be_another_build(context, found)
    has_cuda = context.pool.os == "windows" and "cuda" in context.stack.components
    if found.build and is_open and has_cuda:
        message = f"{what}: assumed to be {found.build.kind} of another index, as the stack has "
        message += f"CUDA {context.cuda}"
        need = f"a build with CUDA: {found.name}={labelled}"
        return _make_problem(found, "warn", message, need=need, source=source)
    if is_open:
        message = f"{what}: whether another build is meant is not known"
    else:
        message = f"{what}, and the version has no label of another build"
    return _make_problem(
        found,
        "unknown" if is_open else "fail",
        message,
        need="a build with CUDA, stated with its label",
        source=source,
        candidates=lambda: (change,) if labelled else (),
    )


def _may_be_another_build(context: RuleContext, found: FrameworkMatch) -> bool:
    """Tell whether the stack says of CUDA what the index's wheel without CUDA would contradict.

    Indexes for Jetson have wheels without a label; files that were read are what they are.
    """
    stack = context.stack
    if found.name in stack.measured:
        return True
    wheel = stack.wheels.get(found.name)
    if wheel and wheel.sha256 and _INDEX_FILE.fullmatch(wheel.file):
        return False
    if context.jetson:
        return True
    frameworks = {name: stack.get(name) for name in context.facts.frameworks if name != found.name}
    toolkits = context.facts.cuda_components.toolkits
    return (
        ("cuda" in stack.components and not stack.assumed)
        or any(text.startswith("cuda: ") for text in stack.open)
        or any(one and one.cuda for one in (*frameworks.values(), *stack.packages.values()))
        or any(toolkits(name, version.public) for name, version in stack.packages.items())
    )


_INDEX_FILE = re.compile(r"[^+]+-(?:(?:\w+\.)*(?:manylinux|musllinux)\w*(?:\.\w+)*|win\w+)\.whl")
"""Names of the package index's own wheels: it takes no file with a label or with the tag
``linux_*``; other indexes give their builds with CUDA one or the other."""


def _report_no_build(context: RuleContext, found: FrameworkMatch, release: Release) -> Answer:
    """Report a CUDA without a known build: it fails where the list of builds is complete."""
    asked = found.version.cuda or (context.cuda.parts if context.cuda else None)
    if asked is None:
        return NOT_APPLICABLE  # CG901 asks for the CUDA
    if found.version.cuda and context.has_record(found.name):
        return PASS  # its wheel was measured, or its project's build script names it
    titles = ", ".join(build.title for build in release.builds) or "no CUDA at all"
    release_name = f"{found.name} {found.version.public}"
    build = f"build of {release_name} for CUDA {format_parts(asked)}"
    # 1.13 is the series, whose rows are known
    of_patch = release.inferred and len(found.version.parts) > 2
    complete = None if of_patch else found.table.source_of_completeness(release.version)
    return Problem(
        "fail" if complete else "unknown",
        found.name,
        f"no {build} is published; there are builds for {titles}"
        if complete
        else f"whether there is a {build} is not known; known are builds for {titles}",
        have=found.version.text,
        need=titles,
        source=complete or release.source,
        candidates=lambda: changes.other_build(context, found),
    )


@rule("CG404", "framework-python", reads=CUDA | {"python"})
def framework_python(context: RuleContext) -> Answer:
    """No wheel of the framework release is for this Python.

    The tags of the wheels decide, not ``Requires-Python``: torch 2.5 says >=3.8 and has no wheel
    for 3.8.

    Fix: use a Python that has a wheel.

    Source: wheel file names on the package index; each project's tested configurations.
    """
    return ask_each_framework(context, _check_python)


def _check_python(context: RuleContext, found: FrameworkMatch) -> Answer:
    have, release = context.stack.get("python"), found.release
    if have is None or release is None:
        return NOT_APPLICABLE
    series = f"{format_parts(have.at(2))}{have.local}"
    arm = context.pool.cpu == "aarch64"
    if wheels := release.python_aarch64 if arm and release.python_aarch64 else release.python:
        if series in wheels:
            return PASS
        need = ", ".join(wheels)
    else:
        low, high = release.python_range
        if low is None and high is None:
            return NOT_APPLICABLE
        if have.local:
            message = f"whether {found.title} has a wheel for free-threaded Python is not known"
            need = f"python={format_parts(have.at(2))}, or a release whose wheels are known"
            return report_missing_fact("python", message, need=need, have=have.text)
        python = have.at(2)
        above = low is None or python >= parse_version("python", low).at(2)
        if above and (high is None or python <= parse_version("python", high).at(2)):
            return PASS
        need = f"{low or 'any'} to {high or 'any'}"
    source = release.python_source or release.source
    derived = source is not None and source.confidence == "derived"
    wheels_of = f"{found.name} {found.version.public}"
    return Problem(
        "unknown" if derived else "fail",
        "python",
        f"whether {wheels_of} has a wheel for Python {series} is not known, other releases have"
        f" them for {need}"
        if derived
        else f"{wheels_of} has no wheel for Python {series}, but for {need}",
        have=have.text,
        need=need,
        source=source,
        candidates=lambda: changes.other_python(have, release),
    )


@rule("CG405", "framework-arch", reads=CODE | RECORDS | FORWARD)
def framework_arch(context: RuleContext) -> Answer:
    """The published wheel has no code for the pool's GPU.

    Architectures depend on the wheel, not on its CUDA: Volta is absent from torch 2.7 cu128,
    present in 2.8 to 2.10, absent from 2.11. A newer driver does not help. The recipe of
    conda-forge states the GPUs of its torch builds: the rule judges them if the label names the
    channel (``torch=2.5.1+conda.forge.cu126``). If the label names an image of NVIDIA
    (``2.6.0a0+df5bbc0.nv24.12``) whose notes support the GPU and the driver, the answer is a
    warning. The GPUs of other builds (other conda channels) are unknown until ``arch`` states them.
    The wheels for Windows and for Linux on Arm have separate lists. Without a known list, the
    answer is a warning if the releases before and after have code for the GPU, on the same system
    and for the same CUDA major; otherwise it is unknown. A published
    minimum can deny a GPU, but does not prove that newer GPUs work: those that came with the
    build's own toolkit or later, and Tegra GPUs. A wheel whose PTX is older than its machine code
    (3.7 beside 9.0) is unknown on GPUs that only this PTX reaches. On a Jetson, a label of NVIDIA's
    wheels (``nv23.06``) is judged by those listed for its L4T release, and warns for another one of
    the same minor. A release candidate or nightly build is assumed to
    be like the nearest release with its build, which never denies. If plugins contain the code
    (JAX), their measured wheels deny a GPU without code. If the files themselves were read (an
    image, a folder), CG411 judges them.

    Example: an RTX 5090 (12.0) with torch 2.5.1+cu121 fails; a cu128 build is needed.

    Fix: use a build or a release with code for the GPU.

    Source: TORCH_CUDA_ARCH_LIST of the build scripts and of measured wheels; each project's
    published minimum compute capability.
    """
    return ask_each_framework(context, _check_arch)


def _check_arch(context: RuleContext, found: FrameworkMatch) -> Answer:
    device, build = context.capability, found.build
    if device is None or found.name in context.stack.measured:
        return NOT_APPLICABLE  # CG411 judges what was measured
    if found.name == "tensorrt" and context.jetson:
        from compatgate.core.jetson import ships_tensorrt

        if ships_tensorrt(context.jetson, found.version):
            return PASS
    if problem := _find_pinned_torch_without_code(context, found, device):
        return (problem,)
    private = (found.stands_in or not found.published) and not found.without_cuda
    if private and context.stack.arch is not None:
        return NOT_APPLICABLE  # CG201 judges it
    if build is None and private and not found.stands_in:
        if known := _judge_on_jetson(context, found) or _judge_by_image(context, found):
            return known
        what = "conda's build" if found.conda else "this build"
        return _report_unknown_code(context, found, what)
    if build is None:
        return _check_every_build(context, found, device)
    if build.plugins and (problems := _check_plugins(context, found, build, device)):
        return problems
    if build.sass is not None:
        if context.has_record(found.name):
            return NOT_APPLICABLE  # CG411 judges the wheel of this platform
        return _check_code(context, found, build, device)
    if build.minimum_capability is not None:
        return _check_minimum(context, found, build, device, build.minimum_capability)
    if not context.has_record(found.name) and (
        near := _judge_like_near(context, found, build, device)
    ):
        return near
    return _report_unknown_code(context, found, build.kind)


def _find_pinned_torch_without_code(
    context: RuleContext, found: FrameworkMatch, device: Pair
) -> Problem | None:
    """Return what is wrong where a release pins a torch of which no build has code for the GPU."""
    pin = found.release.pins.get("torch") if found.release else None
    if pin is None or pin.floor is None or not pin.spec.startswith("=="):
        return None
    table, arch, pool = context.facts.framework("torch"), context.facts.arch, context.pool
    torch = find_release(table, pin.floor) if table else None
    if torch is None or "torch" in context.stack.versions or device in arch.tegra:
        return None
    codes = [one.code_for(pool.os, pool.cpu) for one in torch.builds]
    if not all(codes) or any(find_run_mode(code or (), device, arch) for code in codes):
        return None
    what = f"{found.title} requires torch {torch.version}, of which no wheel has code for "
    have = ", ".join(dict.fromkeys(one.name for code in codes for one in code or ()))
    build = default_build(torch) or torch.preferred[0]
    problem = _report_no_code(context, found, build, f"{what}{context.gpu_name}", have)
    fact = arch.capabilities.get(format_parts(device))
    came_later = fact and fact.first_toolkit > max(map(_toolkit_of, torch.builds))
    return replace(problem, source=fact.source) if fact and came_later else problem


def _check_every_build(context: RuleContext, found: FrameworkMatch, device: Pair) -> Answer:
    """Judge a release whose build is not known: it fails where every build excludes the GPU."""
    builds = found.release.preferred if found.release and context.cuda is None else ()
    if (source := found.table.refuses_newer_gpus) and builds:
        fact = context.facts.arch.capabilities.get(format_parts(device))
        newest = max(_toolkit_of(build) for build in builds)
        if fact and fact.first_toolkit > newest:
            first = format_parts(fact.first_toolkit)
            message = f"{found.title} is built with CUDA {format_parts(newest)} at most, and "
            message += f"refuses {context.gpu_name}, which came with CUDA {first}"
            need = f"a release for CUDA {first} or newer"
            return _make_problem(found, "fail", message, need=need, source=source)
    minimums = [build.minimum_capability for build in builds]
    lowest = [minimum for minimum in minimums if minimum is not None]
    if not lowest or len(lowest) < len(minimums) or device >= min(lowest):
        return NOT_APPLICABLE
    return _check_minimum(context, found, builds[0], device, min(lowest))


def _judge_by_image(context: RuleContext, found: FrameworkMatch) -> Answer | None:
    """Warn where the notes of the NVIDIA image that a label names support GPU and driver."""
    containers = context.facts.containers
    month = month_of_image(found.version, containers)
    if not month or context.jetson:
        return None
    from compatgate.core.rules.package_code import is_supported_by_image

    image = containers.find(month)
    noted = image is not None and image.min_cc_stated and image.driver_stated
    images = (image,) if image and noted else containers.around(month)
    if not images or not all(is_supported_by_image(context, one) for one in images):
        return None
    of = " and ".join(one.release for one in images)
    message = f"{found.title} is assumed to be that of NVIDIA's image {month}; the notes of {of} "
    message += f"support {context.gpu_name} and driver {context.driver}"
    return _make_problem(found, "warn", message, source=images[0].source)


def _judge_on_jetson(context: RuleContext, found: FrameworkMatch) -> Answer | None:
    """Judge a build for Jetson by its index, or by NVIDIA's wheels for the L4T release."""
    if context.jetson is None:
        return None
    from compatgate.core.jetson import has_index, like_wheel

    if has_index(context.jetson, found.name, found.version.local):
        return PASS
    if not month_of_image(found.version, context.facts.containers):
        return None
    text, source = like_wheel(context.jetson, found.name, found.version) or ("", None)
    if not text or text == found.version.text:
        return PASS if text else None
    message = f"{found.title} is assumed to have the GPU code of NVIDIA's wheel {text} for "
    message += context.jetson.title
    return _make_problem(found, "warn", message, source=source)


def _check_code(context: RuleContext, found: FrameworkMatch, build: Build, device: Pair) -> Answer:
    pool = context.pool
    code = build.code_for(pool.os, pool.cpu)
    if code is None and (near := _judge_like_near(context, found, build, device)):
        return near
    if code is None and build.minimum_capability is not None:
        return _check_minimum(context, found, build, device, build.minimum_capability)
    if code is None:
        where = "Windows" if pool.os == "windows" else f"Linux {pool.cpu}"
        whose = f"{build.channel}'s build" if build.channel else "the wheel"
        return _report_unknown_code(context, found, f"{whose} for {where}")
    mode = find_run_mode(code, device, context.facts.arch)
    if mode == "ptx" and (problem := _find_outdated_ptx(context, found, build, code)):
        return problem
    if mode:
        return PASS
    message = f"{build.kind} of {found.title} has no code for {context.gpu_name}"
    have = ", ".join(one.name for one in code)
    problem = _report_no_code(context, found, build, message, have)
    if dispute := context.find_dispute(code):
        text = f"{message} itself; {dispute.text}"
        return replace(problem, outcome="unknown", message=text, source=dispute.source)
    return problem


def _find_outdated_ptx(
    context: RuleContext, found: FrameworkMatch, build: Build, code: tuple[Arch, ...]
) -> Problem | None:
    """Report a GPU for which a wheel has only PTX that is older than its machine code.

    A program chooses kernels by the GPU's capability when it runs. Those that it has for newer
    GPUs are empty in PTX for an old one: torch 2.7.0+cu118 for Windows has PTX of 3.7 alone.
    """
    made_for = [one.capability for one in code if one.kind == "sass" and not one.suffix]
    newest = max(made_for, default=None)
    ptx = max(one.capability for one in code if one.kind == "ptx")
    if newest is None or ptx >= newest:
        return None
    message = f"{build.kind} of {found.title} has only PTX of {format_parts(ptx)} for "
    message += f"{context.gpu_name}, older than its machine code for {format_parts(newest)}: "
    message += "whether that is enough is not known"
    return Problem(
        "unknown",
        found.name,
        message,
        have=", ".join(one.name for one in code),
        need=f"machine code or PTX for {format_parts(newest)} or newer",
        source=build.source_for(context.pool.os, context.pool.cpu),
        candidates=lambda: changes.build_with_code(context, found),
    )


def _judge_like_near(
    context: RuleContext, found: FrameworkMatch, build: Build, device: Pair
) -> Answer | None:
    """Warn where the wheels of the releases before and after run, for the same platform and major.

    They are the nearest whose code is known, of each release those for the nearest toolkit: one
    for CUDA 12.6 says nothing of the GPUs that came with 12.8. None where one is missing, or one
    does not run.
    """
    pool, known = context.pool, list[tuple[Version, tuple[Arch, ...]]]()
    toolkit = _toolkit_of(build)
    for release in found.table.releases:
        codes = [
            (abs(_toolkit_of(one)[1] - toolkit[1]), code)
            for one in release.builds
            if one.cuda_major == build.cuda_major and (code := one.code_for(pool.os, pool.cpu))
        ]
        nearest = min((distance for distance, _ in codes), default=0)
        known += [(release.version, code) for distance, code in codes if distance == nearest]
    older = [one for one, _ in known if one < found.version]
    newer = [one for one, _ in known if one > found.version]
    if not older or not newer or build.channel:
        return None
    near = (older[-1], newer[0])
    if not all(find_run_mode(c, device, context.facts.arch) for v, c in known if v in near):
        return None
    message = f"{build.kind} of {found.title} is assumed to have the GPU code of those of "
    message += f"{near[0]} and {near[1]}, which run on {context.gpu_name}"
    return _make_problem(found, "warn", message, source=build.source)


def _check_plugins(
    context: RuleContext, found: FrameworkMatch, build: Build, device: Pair
) -> list[Problem]:
    """Report the code for a GPU that the measured wheels of the build's plugins lack.

    These wheels can deny and prove nothing: a plugin (JAX) compiles most of its code for the GPU
    that it finds. CG411 judges a plugin that the stack names.
    """
    from compatgate.core.packages import is_stray, library_modes
    from compatgate.core.rules.package_code import report_no_code

    problems = list[Problem]()
    for plugin in _find_plugins(context, found, build):
        if plugin.name in context.stack.packages:
            continue
        groups = library_modes(plugin, device, None, context.facts.arch)
        if groups and is_stray(groups):
            library = groups[0][0][0]
            have = ", ".join([*library.sass, *library.ptx])
            problems.append(report_no_code(context, plugin, have, library.path))
    candidates = partial(changes.build_with_code, context, found)
    return [replace(one, component=found.name, candidates=candidates) for one in problems]


def _find_plugins(context: RuleContext, found: FrameworkMatch, build: Build) -> list[GpuPackage]:
    from compatgate.core.package_finder import package_finder

    pool = context.pool
    finder = package_finder(context.facts, pool.os, pool.cpu, context.stack.get("python"))
    return [finder.find(name, parse_version(name, found.version.public)) for name in build.plugins]


def _check_minimum(
    context: RuleContext, found: FrameworkMatch, build: Build, device: Pair, minimum: Pair
) -> Answer:
    if device < minimum:
        least = format_parts(minimum)
        message = f"{found.title} needs compute capability {least}, not {context.gpu_name}"
        return _report_no_code(context, found, build, message, f">={least}")
    if _minimum_covers(context, found, build, device) or context.has_record(found.name):
        return PASS
    # Where all measured wheels of the plugins have machine code for just this GPU, their project
    # builds for it: what a plugin compiles at run time can be taken to run, too.
    name, plugins = f"sm_{device[0]}{device[1]}", _find_plugins(context, found, build)
    if plugins and all(
        plugin.libraries and all(name in one.sass for one in plugin.libraries if one.sass)
        for plugin in plugins
    ):
        return PASS
    if near := _judge_like_measured(context, found, build, device):
        return near
    return _report_unknown_code(context, found, build.kind)


def _judge_like_measured(
    context: RuleContext, found: FrameworkMatch, build: Build, device: Pair
) -> Answer | None:
    """Warn where the measured wheels of the releases before and after run on the GPU."""
    from compatgate.core.package_finder import package_finder
    from compatgate.core.rules.package_code import check_package, describe_near

    pool = context.pool
    finder = package_finder(context.facts, pool.os, pool.cpu, context.stack.get("python"))
    own = finder.find(found.name, found.version)
    for package in own.near:
        answer = check_package(context, package, device)
        if build.cuda_major not in package.cuda_majors or answer == NOT_APPLICABLE:
            return None
        if any(one.outcome != "warn" for one in list_problems(answer)):
            return None
    if not own.near:
        return None
    like = describe_near(own, own.near)
    message = f"{build.kind} of {found.title} is assumed to be {like}"
    return _make_problem(found, "warn", message, source=build.source)


def _minimum_covers(
    context: RuleContext, found: FrameworkMatch, build: Build, device: Pair
) -> bool:
    """Tell whether a published minimum covers a GPU: older toolkits than the build's know it.

    It does not cover GPUs that came later, nor Tegra parts, nor those that came with its toolkit,
    unless another build of the install page has a newer one.
    """
    facts = context.facts.arch
    fact = facts.capabilities.get(format_parts(device))
    if fact is None or device in facts.tegra:
        return False
    toolkit, builds = _toolkit_of(build), found.release.builds if found.release else ()
    newest = max((_toolkit_of(one) for one in builds if one.listed), default=toolkit)
    return fact.first_toolkit <= toolkit and fact.first_toolkit < newest


def _toolkit_of(build: Build) -> Pair:
    return build.cuda or (build.cuda_major, 0)


def _report_no_code(
    context: RuleContext, found: FrameworkMatch, build: Build, message: str, have: str
) -> Problem:
    assert context.capability is not None  # noqa: S101 - the caller checked
    return Problem(
        "fail",
        found.name,
        message,
        have=have,
        need=f"code for {format_parts(context.capability)}",
        source=build.source_for(context.pool.os, context.pool.cpu),
        candidates=lambda: changes.build_with_code(context, found),
    )


def _report_unknown_code(context: RuleContext, found: FrameworkMatch, what: str) -> Answer:
    """Report unknown code, unless a record or the stated code is judged in its place."""
    if context.has_record(found.name) or context.stack.arch is not None:
        return NOT_APPLICABLE  # CG411 judges what its wheel was measured to hold, CG201 the stated
    message = f"which GPUs {what} of {found.title} has code for is not known"
    need = "the build's list: state it as arch=sm_.."
    if any(
        build.sass is not None or build.minimum_capability is not None
        for release in found.table.releases
        for build in release.builds
    ):
        return Problem("unknown", found.name, message, have=found.version.text, need=need)
    if _all_measured_run(context, found):
        return PASS
    return report_missing_fact(found.name, message, need=need, have=found.version.text)


def _all_measured_run(context: RuleContext, found: FrameworkMatch) -> bool:
    """Tell whether all measured wheels of a framework run on the GPU; its table lists no code."""
    from compatgate.core.package_finder import package_finder
    from compatgate.core.rules.package_code import check_package

    pool, device, facts = context.pool, context.capability, context.facts
    cuda = found.version.cuda or ((found.build.cuda_major,) if found.build else None)
    name = facts.recorded_name(found.name, cuda)
    finder = package_finder(facts, pool.os, pool.cpu, context.stack.get("python"))
    wheels = [finder.find(found.name, version) for version in facts.recorded_versions(name)]
    measured = [one for one in wheels if one.record]
    return (
        device is not None
        and bool(measured)
        and all(check_package(context, one, device) == PASS for one in measured)
    )


@rule("CG407", "framework-driver", reads=CUDA | FORWARD)
def framework_driver(context: RuleContext) -> Answer:
    """The driver is below the minimum that the project publishes for its build.

    Most projects name the minimum of the CUDA major (CG101). TensorRT requires more: branch 535
    for its CUDA 12 builds of 11.0. JAX up to 0.4.7 compiles with the installed toolkit, and
    requires the driver of this toolkit.

    Fix: raise the driver, or use another release.

    Source: each project's installation page.
    """
    return ask_each_framework(context, _check_driver)


def _check_driver(context: RuleContext, found: FrameworkMatch) -> Answer:
    driver, build = context.usable_driver, found.build
    if driver is None or context.driver is None or build is None or context.os not in build.driver:
        return NOT_APPLICABLE
    if context.jetson:
        return NOT_APPLICABLE  # its driver has numbers of its own
    minimum = build.driver[context.os]
    own = context.toolkit.driver.get(context.os) if context.toolkit else None
    if build.toolkit_driver and context.toolkit and own is None:
        message = f"{found.title} needs the driver of CUDA {context.cuda}, which is not known"
        need = "a CUDA whose own driver is published"
        return report_missing_fact("driver", message, need=need, have=context.driver.text)
    if build.toolkit_driver and own:
        minimum = max(minimum, own)
    if driver >= minimum:
        return PASS
    if context.floor and driver < context.floor[0] and minimum <= context.floor[0]:
        return NOT_APPLICABLE  # CG101 asks for at least as much
    message = f"driver {context.driver} is too old for {found.title}, which needs "
    message += f"{minimum} or newer"
    return report_older_driver(context, "fail", message, minimum, build.source)


def ask_each_framework(
    context: RuleContext, check: Callable[[RuleContext, FrameworkMatch], Answer]
) -> Answer:
    """Check every framework of the stack; collect the problems, and pass if one check passes.

    A release candidate or nightly build is judged by the nearest release, which never denies.
    """
    problems: list[Problem] = []
    passed = False
    for found in context.frameworks:
        answer = check(context, found.like or found)
        if isinstance(answer, str):
            passed = passed or answer == PASS
            continue
        for problem in list_problems(answer):
            if found.like:
                outcome = "unknown" if problem.outcome == "fail" else problem.outcome
                message = f"{found.title} is assumed to be like {found.like.title}: "
                message += problem.message
                problem = replace(problem, outcome=outcome, message=message)
            problems.append(problem)
    return problems or (PASS if passed else NOT_APPLICABLE)
