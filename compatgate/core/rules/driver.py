"""CG101 to CG104: compare the driver, or forward compatibility, with the stack's CUDA.

A driver's branch also has an end of life.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from itertools import chain

from compatgate.core import changes
from compatgate.core.facts.nvidia import Pair, Source
from compatgate.core.parts import CODE, CUDA, DRIVER, FORWARD, RECORDS, Candidate
from compatgate.core.rule import (
    NOT_APPLICABLE,
    PASS,
    Answer,
    FindingOutcome,
    Problem,
    report_missing_fact,
    report_no_effect,
    rule,
)
from compatgate.core.rule_context import CompiledHere, RuleContext
from compatgate.core.stack_facts import find_floor
from compatgate.core.versions import Version, format_parts


@rule("CG101", "driver-too-old", reads=CUDA | FORWARD)
def driver_too_old(context: RuleContext) -> Answer:
    """The driver is older than the minimum for the stack's CUDA.

    From CUDA 11 on, programs built with any toolkit of a major run on a driver at or above that
    major's minimum (minor-version compatibility); CUDA 11.0 has a separate minimum, and before
    CUDA 11 each toolkit needs its own driver. A newer driver always runs an older toolkit's
    programs: the upper bounds in NVIDIA's table say where minor-version compatibility applies, not
    what works.

    A usable forward-compatibility package (``cuda-compat``, see CG103) lowers the minimum. Drivers
    of a Jetson have other numbers: CG131 judges the Jetson by its L4T release. If a build names
    only a CUDA major (``cupy-cuda13x``), it needs the lowest driver of that major, whatever older
    CUDA the rest of the stack has.

    Example: CUDA 12.1 on driver 525.60.12 fails; it needs 525.60.13.

    Fix: raise the driver, use an older CUDA, or add the forward-compatibility package.

    Source: CUDA Toolkit Release Notes, "CUDA Toolkit and Minimum Required Driver Version for CUDA
    Minor Version Compatibility".
    """
    cuda, driver = context.cuda, context.driver
    if driver is None:
        return NOT_APPLICABLE
    newer = _check_major(context, driver, cuda.major if cuda else 0)
    if cuda is None or newer is not NOT_APPLICABLE:
        return newer
    if context.toolkit is None:
        table, series = context.facts.cuda_driver, format_parts(cuda.major_minor)
        newest = table.toolkits[-1].version.text
        why = f"CUDA {cuda} is not known; the newest known is {newest}"
        if unreleased := table.never_released.get(series):
            why = f"CUDA {series} was never released as a toolkit ({unreleased.title})"
        return Problem("unknown", "cuda", why, have=cuda.text, need=newest)
    if context.jetson:
        return NOT_APPLICABLE  # its driver has numbers of its own: CG131 judges the L4T release
    if context.floor is None:
        return _check_without_floor(context, cuda, driver)
    floor, source = context.floor
    if driver >= floor:
        return PASS
    forward = context.forward
    if forward and forward.usable and context.usable_driver and context.usable_driver >= floor:
        return PASS
    message = f"driver {driver} is too old for CUDA {cuda}, which needs {floor} or newer"
    if forward and context.forward_may_help:
        message += f"; forward compatibility could lift that, but {forward.reason}"
    return Problem(
        "unknown" if context.forward_may_help else "fail",
        "driver",
        message,
        have=driver.text,
        need=f">={floor}",
        source=source,
        candidates=lambda: chain(
            (changes.raise_driver(context, floor),),
            changes.older_cuda(context),
            changes.add_forward_compat(context),
        ),
    )


def _check_without_floor(context: RuleContext, cuda: Version, driver: Version) -> Answer:
    newer = (one for one in context.facts.cuda_driver.toolkits if one.version > cuda)
    floors = [find_floor(one.version, one, context.pool, context.facts) for one in newer]
    lowest = min((floor[0] for floor in floors if floor), default=None)
    if lowest and driver >= lowest:
        return PASS
    message = f"no {context.os} driver minimum for CUDA {cuda} is published"
    need = f">={lowest}, which runs a newer CUDA" if lowest else "a CUDA with a published minimum"
    return report_missing_fact("driver", message, need=need, have=driver.text)


def _check_major(context: RuleContext, driver: Version, known: int) -> Answer:
    if context.jetson:
        return NOT_APPLICABLE  # CG131 judges it
    versions, frameworks = context.stack.versions.items(), context.facts.frameworks
    named = [(v.cuda[0], name) for name, v in versions if name in frameworks and v.cuda]
    labels = [label for label in named if label[0] > known]
    if not labels:
        return NOT_APPLICABLE
    major, name = max(labels)
    compat = context.facts.cuda_driver.minor_compat.get(major)
    floor = compat.minimum.get(context.os) if compat else None
    if compat is None or floor is None or driver >= floor:
        return NOT_APPLICABLE  # CG901 asks for the CUDA
    message = f"driver {driver} is too old for CUDA {major}, for which {name} is built: each of "
    message += f"its releases needs {floor} or newer"
    outcome: FindingOutcome = "unknown" if context.stack.cuda_compat else "fail"
    return report_older_driver(context, outcome, message, floor, compat.source)


def report_older_driver(
    context: RuleContext,
    outcome: FindingOutcome,
    message: str,
    minimum: Version,
    source: Source | None,
) -> Problem:
    """Report a driver below a minimum, which raising it mends."""
    return Problem(
        outcome,
        "driver",
        message,
        have=context.driver.text if context.driver else None,
        need=f">={minimum}",
        source=source,
        candidates=lambda: (changes.raise_driver(context, minimum),),
    )


@rule("CG102", "minor-compat-limits", reads=CODE | RECORDS | FORWARD)
def minor_compat_limits(context: RuleContext) -> Answer:
    """The driver is older than the toolkit's own and runs it by minor-version compatibility only.

    Compatible is not identical: code with SASS for the GPU runs, but PTX made by the newer toolkit
    is not understood by the older driver, and driver features that came with the toolkit are
    absent. The rule warns, and fails when the workload needs its PTX compiled on this driver, or
    compiles to PTX when it runs.

    Example: CUDA 12.1 with ``sm_80`` code on driver 525.60.13 warns; with only ``compute_80`` it
    fails.

    Fix: raise the driver to the toolkit's own, or build SASS for the GPU.

    Source: CUDA Compatibility guide, "Minor Version Compatibility", limitations; CUDA Toolkit
    Release Notes, "CUDA Toolkit and Corresponding Driver Versions".
    """
    cuda, driver, toolkit = context.cuda, context.driver, context.toolkit
    if cuda is None or driver is None or toolkit is None or context.floor is None:
        return NOT_APPLICABLE
    if cuda.major < context.facts.cuda_driver.first_compatible_major or driver < context.floor[0]:
        return NOT_APPLICABLE
    own = toolkit.driver.get(context.os)
    older = context.driver_cuda is None or context.driver_cuda < cuda.major_minor
    if own is None and not (older and context.driver_cuda_is_exact):
        why = f"no {context.os} driver of CUDA {cuda} itself is published: limits not checked"
        return report_no_effect("driver", why)  # CG202 judges PTX, all else is a warning
    usable = context.usable_cuda if context.forward and context.forward.usable else None
    if (own and driver >= own) or (usable and usable >= cuda.major_minor):
        return PASS
    made_by = context.ptx_cuda
    needs_jit = older and (
        (made_by is not None and made_by > (context.driver_cuda or (0, 0)))
        or any(run_time_outcome(context, one) == "fail" for one in context.run_time_code)
    )
    than = f"CUDA {cuda}'s own driver {own}" if own else f"CUDA {cuda}"
    limit = _describe_limit(context, older=older, needs_jit=needs_jit)
    has = f"CUDA {format_parts(context.driver_cuda)}" if context.driver_cuda else "an older CUDA"
    return Problem(
        ("unknown" if explain_open_reach(context) else "fail") if needs_jit else "warn",
        "driver",
        f"driver {driver} ({has}) is older than {than}: it works by "
        f"minor-version compatibility for code with SASS for this GPU, {limit}",
        have=driver.text,
        need=f">={own}" if own else f"a driver of CUDA {format_parts(cuda.major_minor)} or newer",
        source=weakest_source(context, toolkit.source) if needs_jit else toolkit.source,
        candidates=lambda: chain(
            (changes.raise_driver(context, own),) if own else (),
            changes.add_sass(context) if needs_jit else (),
        ),
    )


def _describe_limit(context: RuleContext, *, older: bool, needs_jit: bool) -> str:
    if needs_jit:
        return "but this workload needs its PTX compiled, which this driver cannot do"
    if not older:
        return "and lacks later fixes of the toolkit's own driver"
    limit = "but cannot compile PTX made by this toolkit and lacks its newer driver features"
    if context.run_time_code and context.run_time_code[0].makes == "cubin":
        limit += f" ({context.run_time_code[0].title} makes machine code when it runs)"
    elif context.code is None:
        limit += " (the stack states no arch, so whether it needs that was not checked)"
    return limit


@rule("CG103", "forward-compat", reads=FORWARD)
def forward_compat(context: RuleContext) -> Answer:
    """The forward-compatibility package is in the stack and cannot be used here.

    ``cuda-compat`` brings a newer user-mode driver. It works on data-center GPUs (and select RTX
    products), on Linux, on the host driver branches that the package was published for (a list,
    not a floor), and never on a host driver that is newer than the package itself.

    The package counts only if it is loaded. ``cuda-compat-use`` says when that is. ``always`` (the
    default): the library path contains the package. ``newer``: NVIDIA's container runtime loads
    the package if its driver branch is newer than the host's, as in ``nvidia/cuda`` images.
    ``tried``: a start script loads the package if it works, as in NGC images. A package that is
    not loaded does no harm. On a Jetson, the upgrade packages of its L4T release count instead.

    Example: an image with ``cuda-compat`` 12.8 on a GeForce host stops with error 804. (A driver
    that was updated without a restart causes the same error; error 803 means a second libcuda.)

    Fix: remove the package, or use a host driver that runs the toolkit without the package.

    Source: CUDA Compatibility guide, "Forward Compatibility"; NVIDIA/nvidia-container-toolkit: the
    ELF note of the shipped libcuda, and ``cudacompat.go``, which decides whether it is loaded.
    """
    forward, compat = context.forward, context.stack.cuda_compat
    if forward is None or compat is None or forward.aside:
        return NOT_APPLICABLE
    if forward.usable:
        table, gpu = context.facts.forward_compat, context.pool.gpu
        if context.jetson or not gpu or gpu.segment not in table.conditional_segments:
            return PASS
        message = f"forward compatibility on {gpu.segment} products is supported for select "
        message += f"NGC-Server-Ready SKUs only; whether {gpu.sku} is one is not published"
        return Problem("warn", "cuda-compat", message, have=compat.text, source=table.hardware)
    return Problem(
        "unknown" if forward.usable is None else "fail",
        "cuda-compat",
        f"cuda-compat {compat} is not usable here: {forward.reason}"
        if forward.usable is False
        else f"whether cuda-compat {compat} is usable here is not known: {forward.reason}",
        have=compat.text,
        need=forward.need or None,
        source=forward.source,
        candidates=lambda: _propose_without_compat(context),
    )


def _propose_without_compat(context: RuleContext) -> Iterator[Candidate]:
    package = context.forward.package if context.forward else None
    own = context.facts.driver_branches.branches.get(package.driver_branch) if package else None
    if own and own.first and context.stack.compat_use == "newer":
        raised = changes.raise_driver(context, own.first)
        yield Candidate(raised.set, f"{raised.message}: the package is then not used")
    yield Candidate({"cuda-compat": None}, "remove the cuda-compat package from the image")
    if context.floor:
        floor = context.floor[0]
        what = f"remove the cuda-compat package and raise the driver to {floor} or newer"
        yield Candidate({"cuda-compat": None, "driver": f">={floor}"}, what)


EOL_NOTICE = timedelta(days=90)


@rule("CG104", "driver-branch-eol", reads=DRIVER, pool_only=True)
def driver_branch_eol(context: RuleContext) -> Answer:
    """The driver branch is past its end of life, or within 90 days of it (a warning).

    A branch past its end of life gets no security fixes, and later cuda-compat packages do not
    support it. If NVIDIA has published two dates, the earlier one counts.

    Fix: move to a supported branch.

    Source: NVIDIA Data Center Drivers documentation, "Supported Drivers and CUDA Toolkit Versions".
    """
    branch, driver = context.branch, context.driver
    if driver is None or context.jetson:
        return NOT_APPLICABLE
    if branch is None:
        why = f"end of life of branch {driver.major} not checked: not in the facts"
        return report_no_effect("driver", why)
    when = branch.eol
    if when and when >= context.today:
        notice = (date.fromisoformat(when) - EOL_NOTICE).isoformat()
        context.holds_through(when)
        if context.today < notice:
            context.holds_until(notice)
            return PASS
        message = f"driver branch {branch.branch} reaches its end of life on {when}"
    elif when or branch.ended:
        message = f"driver branch {branch.branch} is past its end of life"
        message += f" ({when})" if when else ""
    else:
        return report_no_effect("driver", f"no end of life of branch {branch.branch} is published")
    return Problem(
        "warn",
        "driver",
        message,
        have=driver.text,
        need="a supported branch",
        source=branch.source,
        candidates=lambda: _find_supported_branch(context),
    )


def _find_supported_branch(context: RuleContext) -> Iterator[Candidate]:
    """Yield the nearest newer branch that is not past its end of life."""
    own = context.branch.branch if context.branch and context.os == "linux" else None
    for branch in context.facts.driver_branches.branches.values():
        if own is None or branch.branch <= own or not branch.eol or branch.eol <= context.today:
            continue
        if last := branch.last:
            what = f"move to branch {branch.branch} (driver {last}), supported to {branch.eol}"
            yield Candidate({"driver": last.text}, what)


def find_shortfall(context: RuleContext, cuda: Pair | None) -> Pair | None:
    """Return the published CUDA of a newer branch that falls short of a CUDA, as the driver does.

    It stands for the driver's own where that is not published, or only derived.
    """
    driver = context.driver
    if driver is None or cuda is None or context.os != "linux" or context.jetson:
        return None
    for branch in context.facts.driver_branches.branches.values():
        published = branch.cuda and branch.source.confidence != "derived"
        if branch.branch > driver.major and published and branch.cuda and branch.cuda < cuda:
            return branch.cuda
    return None


def find_reach(context: RuleContext, cuda: Pair | None) -> Pair | None:
    """Return the newest CUDA that the pool supports, or an upper bound of it below ``cuda``."""
    reach = context.usable_cuda
    limit = None if context.driver_cuda_is_exact else find_shortfall(context, cuda)
    return max(limit, reach or limit) if limit else reach


def explain_open_reach(context: RuleContext, cuda: Pair | None = None) -> str:
    """Return why the pool may support a newer CUDA than is known; empty if it does not.

    Args:
        context: the question.
        cuda: what must be supported; a newer branch can show that this one does not.
    """
    if context.forward and context.forward_may_help:
        return f"whether cuda-compat is usable here is not known ({context.forward.reason})"
    if not context.driver_cuda_is_exact and not find_shortfall(context, cuda):
        return f"the CUDA version of driver {context.driver} is not published"
    return ""


def run_time_outcome(context: RuleContext, code: CompiledHere) -> FindingOutcome:
    """Return the outcome of code that is compiled when it runs, on a driver of an older CUDA.

    An assumed CUDA and a derived source never deny, nor does a reach that is not known.
    """
    if code.makes == "cubin":
        return "warn"
    assumed = context.stack.assumed or code.source.confidence == "derived"
    cuda = context.cuda.major_minor if context.cuda else None
    return "unknown" if assumed or explain_open_reach(context, cuda) else "fail"


def weakest_source(context: RuleContext, published: Source) -> Source:
    """Return the weakest source of a comparison of PTX with a driver: a derived one, if any.

    A derived branch counts only where no newer one is published to understand too little as well.
    """
    builds = [found.build for found in context.built] if context.stack.arch is None else []
    codes = (build.arch_source for build in builds if build and build.sass)
    branches, driver = context.facts.driver_branches.branches, context.driver
    made_by = context.ptx_cuda or (context.cuda.major_minor if context.cuda else None)
    is_short = find_shortfall(context, made_by)
    branch = branches.get(driver.major) if driver and not is_short else None
    told = (*codes, branch.source if branch else None)
    return next((one for one in told if one and one.confidence == "derived"), published)
