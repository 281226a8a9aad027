"""CG204 to CG206: check a build from source, its compilers, C library and C++ standard.

They ask of ``gcc``, ``clang``, ``msvc``, ``glibc`` and ``cxx`` of a stack, and of its toolkit. A
program that is already built has none of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from compatgate.core import changes, constraints
from compatgate.core.components import label_of
from compatgate.core.facts.compilers import COMPILERS, BuildConflict
from compatgate.core.parts import BUILD, Candidate
from compatgate.core.rule import NOT_APPLICABLE, PASS, Answer, Problem, rule
from compatgate.core.rule_context import RuleContext
from compatgate.core.versions import Version, format_parts


@rule("CG204", "host-compiler", reads=BUILD)
def host_compiler(context: RuleContext) -> Answer:
    """The toolkit's nvcc refuses the host compiler: "unsupported GNU version!".

    The header ``crt/host_config.h`` of each toolkit accepts a range of GCC, Clang and MSVC; any
    other version stops with a preprocessor error. The rule warns where the header accepts a
    compiler that NVIDIA's installation guide does not list. ``-allow-unsupported-compiler``
    silences the header, but later errors of the build remain.

    Example: GCC 14 with CUDA 12.4, which accepts GCC 13 at most, fails.

    Fix: an older compiler, named by ``NVCC_CCBIN`` or ``-ccbin``; or a newer toolkit.

    Source: ``crt/host_config.h`` of each toolkit; NVIDIA CUDA Installation Guide, "Host Compiler
    Support Policy".
    """
    stated = [(name, have) for name in COMPILERS if (have := context.stack.get(name))]
    if not stated:
        return NOT_APPLICABLE
    cuda = context.build_cuda
    if cuda is None:
        return [_report_no_toolkit(name, have) for name, have in stated]
    found = [one for name, have in stated if (one := _judge_compiler(context, cuda, name, have))]
    return found or PASS


def _report_no_toolkit(name: str, have: Version) -> Problem:
    message = f"which {label_of(name)} a build accepts depends on the toolkit, which is not stated"
    return Problem("unknown", name, message, have=have.text, need="cuda, like cuda=12.4")


def _judge_compiler(
    context: RuleContext, cuda: Version, name: str, have: Version
) -> Problem | None:
    table, label = context.facts.compilers, label_of(name)
    row = table.host(cuda, name)
    if row is None:
        known = cuda.major_minor in table.series
        of = "" if known else f"; the newest known is {format_parts(table.series[-1])}"
        message = f"which {label} the nvcc of CUDA {cuda} accepts is not known{of}"
        return Problem("unknown", name, message, have=have.text)
    if not row.accepts.allows(have):
        return Problem(
            "fail",
            name,
            f"the nvcc of CUDA {cuda} refuses {label} {have}: it takes {label} "
            f"{constraints.describe_range(row.accepts)}",
            have=have.text,
            need=row.accepts.text,
            source=row.source,
            candidates=lambda: _propose_compiler(context, cuda, name, have),
        )
    for listed in table.listed:
        if listed.compiler == name and listed.cuda.allows(cuda) and not listed.range.allows(have):
            message = f"the nvcc of CUDA {cuda} accepts {label} {have}, and NVIDIA's installation "
            message += f"guide does not list it, but {constraints.describe_range(listed.range)}"
            return Problem(
                "warn", name, message, have.text, listed.range.text, source=listed.source
            )
    return None


def _propose_compiler(
    context: RuleContext, cuda: Version, name: str, have: Version
) -> Iterator[Candidate]:
    """Propose the nearest version that this toolkit takes, then newer and older toolkits."""
    table = context.facts.compilers
    row = table.host(cuda, name)
    if row and (near := constraints.nearest_allowed(row.accepts, have)):
        yield Candidate({name: near}, f"build with {label_of(name)} {near}")
    taking = [
        pair
        for pair in table.series
        if (other := table.by_toolkit.get((format_parts(pair), name)))
        and other.accepts.allows(have)
    ]
    own = cuda.major_minor
    newer = [pair for pair in taking if pair > own]
    older = [pair for pair in reversed(taking) if pair < own]
    for pair in (*newer[: changes.MAX_PER_KIND], *older[:1]):
        yield from changes.move_to_cuda(context, pair)


@rule("CG205", "build-conflict", reads=BUILD)
def build_conflict(context: RuleContext) -> Answer:
    """Parts of a build do not fit together, though nvcc accepts each of them.

    Headers of the C library, of the C++ library and of the toolkit contradict each other in some
    combinations, and no option of nvcc prevents that. The rule only warns where a combination
    failed in some builds, but no source says that it always fails.

    Example: CUDA 12.8 on a distribution with glibc 2.41 stops with "exception specification is
    incompatible with that of previous function cospi".

    Fix: a newer toolkit, or a build image with an older C library or compiler.

    Source: the toolkit's headers, and the reports that each conflict names.
    """
    if not context.of_build:
        return NOT_APPLICABLE
    cuda = context.build_cuda
    if cuda is None:
        have = context.stack.get("glibc")
        return [_report_no_toolkit("glibc", have)] if have else NOT_APPLICABLE
    met = [one for one in context.facts.compilers.conflicts if _is_met(one, context, cuda)]
    return [_report_conflict(context, one, cuda) for one in met] or PASS


def _is_met(conflict: BuildConflict, context: RuleContext, cuda: Version) -> bool:
    if conflict.cpu and conflict.cpu != context.pool.cpu:
        return False
    if conflict.release and (len(cuda.parts) < 3 or cuda.at(3) != conflict.release.at(3)):
        return False
    versions = {**context.of_build, "cuda": cuda}
    return all(
        (have := versions.get(name)) is not None and constraint.allows(have)
        for name, constraint in conflict.components.items()
    )


def _report_conflict(context: RuleContext, conflict: BuildConflict, cuda: Version) -> Problem:
    name = next(name for name in conflict.components if name != "cuda")
    said = f' ("{conflict.message}")' if conflict.message else ""
    return Problem(
        conflict.outcome,
        name,
        f"CUDA {cuda}: {conflict.what}{said}; fix: {conflict.fix}",
        have=context.of_build[name].text,
        need=conflict.fix,
        source=conflict.source,
        candidates=lambda: _propose_parts(context, conflict, cuda),
    )


def _propose_parts(
    context: RuleContext, conflict: BuildConflict, cuda: Version
) -> Iterator[Candidate]:
    if conflict.release:
        series = context.facts.toolkits_of.get(cuda.major_minor, ())
        later = [one.version for one in series if one.version > cuda]
        for version in later[:1]:
            yield Candidate({"cuda": version.text}, f"use CUDA {version}")
    newer = [pair for pair in context.facts.compilers.series if pair > cuda.major_minor]
    for pair in newer:
        bound = conflict.components.get("cuda")
        if bound is None or not bound.allows(changes.toolkit_version(pair)):
            yield from changes.move_to_cuda(context, pair)
            break
    for name, constraint in conflict.components.items():
        near = constraints.nearest_outside(constraint)
        if name != "cuda" and near:
            yield Candidate({name: near}, f"build with {label_of(name)} {near}")


@rule("CG206", "cxx-standard", reads=BUILD)
def cxx_standard(context: RuleContext) -> Answer:
    """The toolkit's nvcc does not have the C++ standard: "Value 'c++20' is not defined".

    CUDA 11 accepts standards up to C++17, CUDA 12 up to C++20, CUDA 13 up to C++23.

    Example: C++20 with CUDA 11.8 fails.

    Fix: an older standard, or a newer toolkit.

    Source: NVIDIA CUDA Compiler Driver NVCC, option ``--std``; CUDA Programming Guide, "C++
    Language Support".
    """
    have, cuda = context.stack.get("cxx"), context.build_cuda
    if have is None:
        return NOT_APPLICABLE
    if cuda is None:
        return _report_no_toolkit("cxx", have)
    table = context.facts.compilers.standards
    row = next((one for one in table if one.cuda.allows(cuda)), None)
    if row is None or cuda.major_minor > context.facts.compilers.series[-1]:
        message = f"which C++ standards the nvcc of CUDA {cuda} accepts is not known"
        return Problem("unknown", "cxx", message, have=have.text)
    if have.major in row.accepts:
        return PASS
    accepted = ", ".join(f"C++{one:02}" for one in row.accepts)
    return Problem(
        "fail",
        "cxx",
        f"the nvcc of CUDA {cuda} has no C++{have.major:02}: {accepted}",
        have=have.text,
        need=accepted,
        source=row.source,
        candidates=lambda: _propose_standard(context, row.accepts, have),
    )


def _propose_standard(
    context: RuleContext, accepted: tuple[int, ...], have: Version
) -> Iterator[Candidate]:
    older = [one for one in accepted if one < have.major]
    if older:
        yield Candidate({"cxx": f"{older[-1]:02}"}, f"build as C++{older[-1]:02}")
    for row in reversed(context.facts.compilers.standards):
        if have.major in row.accepts:
            series = context.facts.compilers.series
            fitting = [pair for pair in series if row.cuda.allows(changes.toolkit_version(pair))]
            for first in fitting[:1]:
                yield from changes.move_to_cuda(context, first)
