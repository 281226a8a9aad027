"""CG410, CG411, CG412, CG414: packages, from what their own wheels were measured to hold."""

from __future__ import annotations

from collections.abc import Iterator

from compatgate.core.case import Case
from compatgate.core.facts import Pair, Source
from compatgate.core.facts.components import CudaComponents, Link
from compatgate.core.facts.records import Library
from compatgate.core.gpu_code import how_it_runs
from compatgate.core.packages import (
    GpuPackage,
    cuda_of_name,
    is_specific,
    is_stray,
    release_of,
    toolkit_targets,
    ways_here,
)
from compatgate.core.parts import FORWARD, PACKAGES, RECORDS
from compatgate.core.requires import Requirement
from compatgate.core.rules import package_files
from compatgate.core.rules.base import NOT_APPLICABLE, PASS, Answer, Candidate, Problem, rule
from compatgate.core.rules.statements import excluded, is_excluded, left_open
from compatgate.core.verdict import FindingOutcome
from compatgate.core.versions import Version, show


@rule("CG410", "package-open", reads=RECORDS)
def package_open(case: Case) -> Answer:
    """A package with GPU code, or tied to CUDA, of which no record says what it carries.

    What a wheel carries is measured from the wheel itself. Without a record of this release nobody
    knows which GPUs it runs on, or which torch it was built for: the answer is unknown, never a
    silent pass. What is compiled where it is installed has no wheel to measure: its builder has to
    say for which GPUs. Under a policy of ``packages: audit`` it is a warning. A package that works
    without its GPU code, and compiles it only for features that ask for it (``transformers``,
    ``peft``), is not open: no release of it can stop a stack.

    Example: ``xformers=0.0.99`` is open until its wheel has been measured.

    Fix: measure the wheel (``compatgate facts measure xformers==0.0.99``), or state the code that
    its builder knows: ``flash-attn=2.8.3[sm_90]``.

    Source: the list of packages in ``matrix/facts/components.yaml``.
    """
    packages = case.packages
    if not packages:
        return NOT_APPLICABLE
    carries = case.facts.packages.carries
    still = [one for one in packages if one.is_open and carries(one.name) != "options"]
    return [_open(case, one) for one in still if not is_excluded(case, one)] or PASS


def when_open(case: Case) -> FindingOutcome:
    """Return what the target's policy makes of a package that is not known."""
    return "warn" if case.policy.packages == "audit" else "unknown"


def _open(case: Case, package: GpuPackage) -> Problem:
    if package.unread:
        return package_files.unread(package, when_open(case))
    if asked := left_open(case, package, when_open(case)):
        return asked
    message = f"no record says what {package.title} carries"
    known = [str(release) for release in case.facts.recorded_versions(package.name)]
    if why := case.stack.unmeasured.get(release_of(package)):
        message += f": {why}"
    elif package.version.text in known:
        message += " here: its records are of other wheels (platform, build or digest)"
    elif known:
        message += f"; the newest release with a record is {known[-1]}"
    need = f"a record (compatgate facts measure {package.name}=={package.version}), or its GPU code"
    have = package.version.text
    return Problem(when_open(case), package.name, message, have=have, need=need)


@rule("CG411", "package-arch", reads=RECORDS | FORWARD)
def package_arch(case: Case) -> Answer:
    """A package's own libraries have no code for the pool's GPU.

    Each library that the package loads counts, by its translation units: a stray one is no support.
    The package fails where none of its libraries runs, or those that do are a few units of all;
    where a part of them does not, the rule warns, since they may be for other GPUs. Where only PTX
    runs, the driver compiles it, and must understand the PTX of the toolkit that made it (as
    CG202). Libraries with nothing but code for one architecture (``sm_90a``) are loaded there
    alone.

    Builds for GPUs of AMD or Intel (``+rocm6.2``, or linked against ROCm) fail. Of packages that
    are compiled elsewhere the rule fails what their own source, build script or documentation
    excludes.

    Example: ``faiss-gpu-cu12`` 1.14.1 has no code and no PTX for an H100 (9.0).

    Fix: a release with code for the GPU.

    Source: the record of the wheel, measured from its libraries; CUDA C++ Programming Guide,
    "Binary Compatibility" and "PTX Compatibility".
    """
    device = case.capability
    if device is None or not case.packages:
        return NOT_APPLICABLE
    answers = [_arch_of(case, package, device) for package in case.packages]
    problems = [problem for answer in answers if not isinstance(answer, str) for problem in answer]
    return problems or (PASS if PASS in answers else NOT_APPLICABLE)


def _arch_of(case: Case, package: GpuPackage, device: Pair) -> Answer:
    if package.gpus:
        return [_of_others(case, package)]
    if package.statements and (problems := excluded(case, package, device)):
        return problems
    if package.stated:
        how = how_it_runs(package.stated, device, case.facts.arch)
        names = ", ".join(code.name for code in package.stated)
        return PASS if how else [_no_code(case, package, names)]
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
        none_runs = is_stray(groups)
        names = ", ".join([*without[0].sass, *without[0].ptx])
        problems.append(_no_code(case, package, names, without[0].path, none_runs=none_runs))
    return problems or PASS


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


def _no_code(
    case: Case, package: GpuPackage, have: str, path: str = "", *, none_runs: bool = True
) -> Problem:
    """Report missing code: a failure where nothing of the package runs, a warning for a part."""
    assert case.capability is not None  # noqa: S101 - the caller checked
    where = f"{path} of {package.title}" if path else package.title
    message = f"{where} has no code for {case.gpu_name}: it carries {have}"
    return Problem(
        "fail" if none_runs else "warn",
        package.name,
        message + assumption(package),
        have=have,
        need=f"code for {show(case.capability)}",
        source=source_of(package),
        candidates=lambda: other_releases(case, package),
    )


def _jit(case: Case, package: GpuPackage, made_by: list[str | None]) -> Iterator[Problem]:
    """Report PTX that this driver cannot compile, or of which the toolkit is not known."""
    reach, driver = case.usable_cuda, case.driver
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


def assumption(package: GpuPackage) -> str:
    """Say which wheel a package is taken to be, where nothing names its file."""
    return f" ({package.assumed})" if package.assumed else ""


def source_of(package: GpuPackage) -> Source | None:
    """Return what is known of a package as a source: its record, else what is stated of it."""
    record = package.record
    if record is None:
        return package.statements[0].source if package.statements else None
    if package.installed:
        what = f" ({record.wheel})" if record.wheel else ""
        return Source(f"measured: its installed files{what}", confidence="metadata")
    proof = f", sha256 {record.sha256[:16]}" if record.sha256 else ""
    return Source(f"measured: {record.wheel}{proof}", confidence="metadata")


def other_releases(case: Case, package: GpuPackage) -> Iterator[Candidate]:
    """Offer other releases with a record, the nearest newer one first."""
    known = list(case.facts.recorded_versions(package.name))
    newer = [version for version in known if version > package.version]
    for version in (*newer, *reversed([v for v in known if v < package.version])):
        text = version.text
        yield Candidate({package.name: text}, f"use {package.name} {text}")


@rule("CG412", "package-requires", reads=PACKAGES)
def package_requires(case: Case) -> Answer:
    """A package's own requirements on another part of the stack do not hold.

    Pins and ranges are read from the metadata of the wheel. Installers hold them unless they were
    told not to (``--no-deps``, an override, two installs after each other); what was linked or
    compiled against another release then fails when it is loaded.

    Example: ``xformers`` 0.0.35 asks for torch 2.10.0; with torch 2.9.1 it is another ABI.

    Fix: the version that is required.

    Source: ``Requires-Dist`` of the wheel, in its record.
    """
    if not case.packages:
        return NOT_APPLICABLE
    problems: list[Problem] = []
    asked = False
    for package in case.packages:
        for requirement in package_files.requirements(case, package):
            asked = True
            if not requirement.holds:
                problems.append(_unmet(package, requirement))
    return problems or (PASS if asked else NOT_APPLICABLE)


def _unmet(package: GpuPackage, requirement: Requirement) -> Problem:
    name, have = requirement.name, requirement.have
    return Problem(
        "fail",
        name,
        f"{package.title} requires {name} {requirement.spec}, the stack has {have}"
        + assumption(package),
        have=have.text,
        need=requirement.spec,
        source=source_of(package),
        candidates=lambda: requirement.candidates(),
    )


@rule("CG414", "package-libraries", reads=RECORDS)
def package_libraries(case: Case) -> Answer:
    """A library needs another one that the stack brings in another major, or too old.

    A library that is linked against ``libcudart.so.13`` does not load beside a CUDA 12 runtime; a
    package that works without it (``open3d``) warns.
    cuSPARSE and cuSOLVER refer to nvJitLink by the toolkit that they are from; an older nvJitLink
    of the same major does not define these symbols, and loading stops with "undefined symbol:
    __nvJitLinkComplete_12_4". Of libraries that are named after a CUDA
    (``libbitsandbytes_cuda128.so``) a package loads the one for the stack's CUDA; releases that do
    not look for a near one do not work beside another CUDA.

    Example: ``nvidia-cusparse-cu12`` 12.3.1.170 (CUDA 12.4) beside ``nvidia-nvjitlink-cu12``
    12.1.105 fails.

    Fix: the library of the same toolkit, or a later one of its major.

    Source: NVIDIA nvJitLink documentation, "Compatibility"; the libraries' own dynamic sections,
    in the records of their wheels.
    """
    if not case.packages:
        return NOT_APPLICABLE
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
        needed = package.runtimes
        if needed:
            missing = None if needed & brought else max(needed)
            yield _other_runtime(case, package, missing, cuda) if missing else None


def _named_libraries(case: Case) -> Iterator[Problem | None]:
    """Look for the library for the stack's CUDA among alternatives that are named after one."""
    cuda = case.cuda
    if cuda is None:
        return
    for package in case.packages:
        paths = [
            path
            for group in (package.record.alternatives if package.record else ())
            for path in group
        ]
        named = sorted({pair for path in paths if (pair := cuda_of_name(path))})
        if not named:
            continue
        exact = case.facts.packages.wants_exact_cuda(package.name, package.version)
        fits = cuda.major_minor in named or (not exact and any(p[0] == cuda.major for p in named))
        yield None if fits else _no_library_for(case, package, named, cuda)


def _no_library_for(case: Case, package: GpuPackage, named: list[Pair], cuda: Version) -> Problem:
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
    return Problem(
        "warn" if case.facts.packages.is_optional(package.name) else "fail",
        package.name,
        f"{package.title} is linked against libcudart.so.{major}, the stack brings CUDA {cuda}"
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
