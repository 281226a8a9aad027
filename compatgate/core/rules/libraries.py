"""CG301 to CG303, CG501 and CG502: compare cuDNN and NCCL with CUDA, the GPU and the driver.

cuDNN's support matrices list CUDA versions, GPUs and drivers for each release and build.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from msgspec.structs import replace

from compatgate.core import changes
from compatgate.core.constraints import parse_constraint
from compatgate.core.facts.nvidia import CudnnBuild, CudnnRow, NcclRelease, Pair
from compatgate.core.parts import CUDNN, FORWARD, NCCL
from compatgate.core.rule import (
    NOT_APPLICABLE,
    PASS,
    Answer,
    FindingOutcome,
    Problem,
    report_left_out,
    report_missing_fact,
    report_no_effect,
    rule,
)
from compatgate.core.rule_context import RuleContext
from compatgate.core.rules.framework_builds import ask_each_framework
from compatgate.core.stack_facts import FrameworkMatch, name_known
from compatgate.core.versions import Version, format_parts


@rule("CG301", "cudnn-cuda", reads=CUDNN)
def cudnn_cuda(context: RuleContext) -> Answer:
    """The cuDNN build and the CUDA major do not belong together.

    A cuDNN build is for one CUDA major, and works with every minor of it. CUDA 12 builds begin
    with 8.8.0, CUDA 11 builds end with 9.10.2, CUDA 13 builds begin with 9.12.0. The build is
    stated as a local version, ``cudnn=9.1.0+cu12``. A major alone (``cudnn=8``) is compared with
    CUDA and with what frameworks ask for, by its major.

    Fix: use a cuDNN release that was built for this CUDA major.

    Source: cuDNN Support Matrix; versions of nvidia-cudnn-cu11, -cu12 and -cu13 on the package
    index.
    """
    have, cuda = context.stack.get("cudnn"), context.cuda
    if have is None:
        return NOT_APPLICABLE
    if have.is_major:
        return _check_series(context, have)
    release = context.cudnn_release
    if release is None:
        known = [one.version for one in context.facts.cudnn.releases]
        return _report_unknown_release("cudnn", "cuDNN", have, known)
    major = have.cuda[0] if have.cuda else (cuda.major if cuda else None)
    if major is None:
        return NOT_APPLICABLE
    built = ", ".join(str(m) for m in sorted(release.builds))
    if major not in release.builds:
        message = f"cuDNN {have} has no build for CUDA {major}, only for CUDA {built}"
    elif cuda and major != cuda.major:
        message = f"this cuDNN {have.public} was built for CUDA {major}, the stack has CUDA {cuda}"
    else:
        return PASS
    return Problem(
        "fail",
        "cudnn",
        message,
        have=have.text,
        need=f"a build for CUDA {cuda.major if cuda else major}",
        source=release.source,
        candidates=lambda: changes.other_cudnn(context),
    )


def _check_series(context: RuleContext, have: Version) -> Answer:
    releases = context.facts.cudnn.releases
    builds = {cuda for one in releases if one.version.major == have.major for cuda in one.builds}
    cuda = context.cuda
    if cuda is None or cuda.major in builds:
        message = f"which release of cuDNN {have} is installed is not stated: its GPUs and driver "
        return report_left_out("cudnn", f"{message}not checked")
    names = ", ".join(str(major) for major in sorted(builds))
    message = f"no cuDNN {have} has a build for CUDA {cuda.major}"
    message += f", only for CUDA {names}" if names else ""
    return Problem(
        "fail" if builds else "unknown",
        "cudnn",
        message,
        have=have.text,
        need=f"a build for CUDA {cuda.major}",
        source=releases[-1].source,
    )


def _report_unknown_release(
    component: str, title: str, have: Version, known: Sequence[Version]
) -> Answer:
    message = f"{title} {have} is not known; {name_known(known, have)}"
    need = f"a known release, or a record of this one in an overlay of {component}"
    return Problem("unknown", component, message, have=have.text, need=need)


@rule("CG302", "cudnn-gpu", reads=CUDNN)
def cudnn_gpu(context: RuleContext) -> Answer:
    """The cuDNN release does not support the GPU's compute capability.

    9.11 dropped Maxwell, Pascal and Volta, also in its CUDA 12 build. Blackwell is listed in
    9.10.2, with CUDA 12.8 or newer only. From 9.0.0 on, a GPU newer than the listed ones is a
    warning: only some operation graphs work on it (hardware forward compatibility). If the stack
    states no cuDNN, the rule checks the versions that a framework's build contains or requires,
    and fails if none supports the GPU; it warns for releases that were seen to run all the same.

    Example: TensorFlow 2.3 requires cuDNN 7, which supports no GPU of 8.6.

    Fix: use a cuDNN release that lists the GPU.

    Source: cuDNN Support Matrix, per release; cuDNN 9.0.0 Release Notes, hardware forward
    compatibility.
    """
    have, device = context.stack.get("cudnn"), context.capability
    no_release = have is None or have.is_major
    if no_release and device is not None and device not in context.facts.arch.tegra:
        return ask_each_framework(context, _check_brought)
    build = build_of(context)
    if have is None or device is None or build is None or context.cudnn_release is None:
        return NOT_APPLICABLE
    if device in context.facts.arch.tegra:
        message = "cuDNN on Tegra has a separate matrix: CG131 compares it with the L4T release"
        return report_no_effect("cudnn", message)
    support = support_of(context, build, device)
    if support is Support.LISTED:
        return PASS
    if support is Support.UNKNOWN:
        message = f"whether cuDNN {have} supports {context.gpu_name} is not published"
        return Problem("unknown", "cudnn", message, have=have.text)
    forward = have >= context.facts.cudnn.forward_compatible_from
    outcome: FindingOutcome = "fail"
    if support is Support.NEWER and forward:
        outcome, need, source = "warn", None, context.facts.cudnn.forward_source
        message = f"does not list {context.gpu_name}: only operation graphs that are hardware "
        message += "forward compatible work"
    else:
        message, need = _explain_unsupported(context, build, support)
        too_old = support is Support.TOO_OLD
        source = (build.capability_source if too_old else None) or build.source
    return Problem(
        outcome,
        "cudnn",
        f"cuDNN {have} {message}",
        have=have.text,
        need=need,
        source=source,
        candidates=lambda: changes.other_cudnn(context),
    )


def _check_brought(context: RuleContext, found: FrameworkMatch) -> Answer:
    """Judge the releases that a framework's build asks for, where the stack states none."""
    pin = found.build.pins.get("cudnn") if found.build else None
    device = context.capability
    if found.build is None or pin is None or pin.optional or pin.floor is None or device is None:
        return NOT_APPLICABLE
    asked = parse_constraint("cudnn", pin.spec)
    builds = [
        (release.version, release.builds[found.build.cuda_major])
        for release in context.facts.cudnn.releases
        if found.build.cuda_major in release.builds
        and (
            release.version.at(3) == pin.floor.at(3) if pin.exact else asked.allows(release.version)
        )
    ]
    if not builds or not all(_excludes(context, one, version, device) for version, one in builds):
        return PASS if builds else NOT_APPLICABLE
    message = f"{found.title} requires cuDNN {pin.spec}, which does not support {context.gpu_name}"
    source = builds[-1][1].capability_source or builds[-1][1].source
    below = any(one.minimum_capability and device < one.minimum_capability for _, one in builds)
    if not below and (seen := found.table.source_on_newer_gpus(found.version, device)):
        message += " itself: the driver compiles its PTX, for minutes at the first start"
        return Problem("warn", found.name, message, have=f"cuDNN {pin.spec}", source=seen)
    if not below or (found.release and found.release.inferred):
        source = replace(source, confidence="derived")  # its PTX may yet be compiled
    return Problem(
        "fail",
        found.name,
        message,
        have=f"cuDNN {pin.spec}",
        source=source,
        candidates=lambda: changes.other_build(context, found),
    )


def _excludes(context: RuleContext, build: CudnnBuild, version: Version, device: Pair) -> bool:
    """Tell whether a build has no code for a GPU: it is below the minimum, or newer than the build.

    A newer one is not listed, or first known to a toolkit of a later major; from 9.0.0 on it may
    work all the same.
    """
    if build.minimum_capability and device < build.minimum_capability:
        return True
    if version >= context.facts.cudnn.forward_compatible_from:
        return False
    if covers(build.capabilities, device):
        return False  # machine code of the same major runs
    fact = context.facts.arch.capabilities.get(format_parts(device))
    if fact and context.cuda and fact.first_toolkit[0] > context.cuda.major:
        toolkit = context.facts.arch.toolkits.get(format_parts(context.cuda.major_minor))
        return toolkit is None or not covers(toolkit.sass, device)
    newest = max(build.capabilities, default=None)
    return newest is not None and device > newest


def _explain_unsupported(
    context: RuleContext, build: CudnnBuild, support: Support
) -> tuple[str, str | None]:
    minimum, device = build.minimum_capability, context.capability
    if support is Support.TOO_OLD and minimum:
        lowest = format_parts(minimum)
        message = f"does not support {context.gpu_name}: its lowest compute capability is {lowest}"
        return message, f">={lowest}"
    if support is Support.OTHER_CUDA and device:
        listing = [row for row in build.rows if covers(row.capabilities, device)]
        names = ", ".join(format_parts(c) for c in sorted({c for row in listing for c in row.cuda}))
        return f"supports {context.gpu_name} with CUDA {names} only, not with {context.cuda}", names
    names = ", ".join(format_parts(c) for c in build.capabilities)
    return f"does not list {context.gpu_name}" + (f", only {names}" if names else ""), names or None


@rule("CG303", "cudnn-driver", reads=CUDNN | FORWARD)
def cudnn_driver(context: RuleContext) -> Answer:
    """The driver is below the minimum that the cuDNN release was published with.

    The support matrix of the release has a minimum for each CUDA and GPU: Blackwell on 9.10.2
    needs 570.26, other GPUs the minimum of the CUDA major.

    Fix: raise the driver, or use an older cuDNN.

    Source: cuDNN Support Matrix, column "Driver".
    """
    have, driver = context.stack.get("cudnn"), context.usable_driver
    build = build_of(context)
    if have is None or driver is None or build is None or context.driver is None:
        return NOT_APPLICABLE
    if context.capability in context.facts.arch.tegra:
        return NOT_APPLICABLE  # its matrix is another one: CG302 says so
    floors = _find_floors(context, build)
    if not floors:
        return _check_without_rows(context, have, driver)
    floor = min(floors)
    if driver >= floor:
        return PASS
    if context.floor and driver < context.floor[0] and floor <= context.floor[0]:
        return NOT_APPLICABLE  # CG101 asks for at least as much
    return Problem(
        "fail",
        "driver",
        f"driver {context.driver} is too old for cuDNN {have} on {context.gpu_name}, "
        f"which needs {floor} or newer",
        have=context.driver.text,
        need=f">={floor}",
        source=build.source,
        candidates=lambda: (changes.raise_driver(context, floor), *changes.other_cudnn(context)),
    )


def _find_floors(context: RuleContext, build: CudnnBuild) -> list[Version]:
    return [row.driver[context.os] for row in find_rows(context, build) if context.os in row.driver]


def _check_without_rows(context: RuleContext, have: Version, driver: Version) -> Answer:
    """Judge a release without driver minimums by the highest of all releases for the CUDA major."""
    if context.floor and driver < context.floor[0]:
        return NOT_APPLICABLE  # CG101 fails
    major, memory = _cudnn_major(context), context.facts.memory
    builds = [one.builds[major] for one in context.facts.cudnn.releases if major in one.builds]
    key = ("highest driver of cuDNN", major, context.os)
    if key not in memory:
        drivers = [row.driver.get(context.os) for one in builds for row in one.rows]
        memory[key] = max((one for one in drivers if one), default=None)
    if memory[key] is None or driver >= memory[key]:
        return NOT_APPLICABLE
    lowest = [min(floors) for one in builds if (floors := _find_floors(context, one))]
    highest = max(lowest, default=driver)
    if driver >= highest:
        return NOT_APPLICABLE
    message = f"which driver cuDNN {have} needs on {context.gpu_name} is not known; other releases"
    message += f" need up to {highest}"
    return report_missing_fact("driver", message, need=f">={highest}", have=str(context.driver))


class Support(Enum):
    """The support of a GPU by the matrices."""

    LISTED = "listed"
    TOO_OLD = "below the published minimum"
    OTHER_CUDA = "listed with other toolkits of the CUDA major only"
    NEWER = "newer than everything that is listed"
    UNLISTED = "not listed, though not newer"
    UNKNOWN = "no list says"


def build_of(context: RuleContext) -> CudnnBuild | None:
    """Return the build of the stack's cuDNN release for its CUDA major; None if not known."""
    release = context.cudnn_release
    return release.builds.get(_cudnn_major(context)) if release else None


def support_of(context: RuleContext, build: CudnnBuild, device: Pair) -> Support:
    """Return the support of a device by this build, from the support matrices."""
    minimum = build.minimum_capability
    if minimum and device < minimum:
        return Support.TOO_OLD
    listed = build.capabilities
    if not listed:
        return _infer_support(context, device, minimum)
    if not covers(listed, device):
        return Support.NEWER if device > max(listed) else Support.UNLISTED
    speaking = _rows_of_cuda(context, build)
    if speaking and not any(_may_list(row, device) for row in speaking):
        return Support.OTHER_CUDA
    return Support.LISTED


def _infer_support(context: RuleContext, device: Pair, minimum: Pair | None) -> Support:
    release = context.cudnn_release
    lists = context.facts.cudnn_lists.get(_cudnn_major(context), []) if release else []
    same = [one for one in lists if release and one[0].major == release.version.major]
    before = [listed for v, listed in same if release and v < release.version][-1:]
    after = [listed for v, listed in same if release and v > release.version][:1]
    earlier, later = (bool(side) and covers(side[0], device) for side in (before, after))
    if earlier and (later or minimum):
        return Support.LISTED
    if not earlier and not later and minimum and (not after or device < max(after[0])):
        newest = max(before[0]) if before else None
        return Support.NEWER if newest and device > newest else Support.LISTED
    if after and not later and device > max(after[0]):
        return Support.NEWER
    if before and not earlier and device > max(before[0]):
        return Support.NEWER
    series = context.cuda and format_parts(context.cuda.major_minor)
    toolkit = context.facts.arch.toolkits.get(series) if series else None
    known = minimum is not None and toolkit is not None and covers(toolkit.sass, device)
    return Support.LISTED if known else Support.UNKNOWN


def find_rows(context: RuleContext, build: CudnnBuild) -> list[CudnnRow]:
    """Return the rows for this CUDA and GPU; empty when the GPU is listed with other CUDA only."""
    rows = _rows_of_cuda(context, build) or list(build.rows)
    device = context.capability
    if device is None:
        return rows
    listing = [row for row in rows if _may_list(row, device)]
    newer = device > max(build.capabilities, default=(0, 0))
    return listing or (rows if newer else [])


def covers(listed: Sequence[Pair], device: Pair) -> bool:
    """Return whether a list covers a device; one capability stands for all that share its code."""
    return any(c[0] == device[0] and c[1] <= device[1] for c in listed)


def _rows_of_cuda(context: RuleContext, build: CudnnBuild) -> list[CudnnRow]:
    series = context.cuda.major_minor if context.cuda else None
    return [row for row in build.rows if not row.cuda or series in row.cuda]


def _may_list(row: CudnnRow, device: Pair) -> bool:
    return not row.capabilities or covers(row.capabilities, device)


def _cudnn_major(context: RuleContext) -> int:
    have = context.stack.get("cudnn")
    if have and have.cuda:
        return have.cuda[0]
    return context.cuda.major if context.cuda else 0


def _nccl_release(context: RuleContext) -> NcclRelease | None:
    have = context.stack.get("nccl")
    if have is None:
        return None
    return context.facts.nccl_releases.get(have.at(3))


def _nccl_major(context: RuleContext) -> int | None:
    have = context.stack.get("nccl")
    if have and have.cuda:
        return have.cuda[0]
    return context.cuda.major if context.cuda else None


@rule("CG501", "nccl-cuda", reads=NCCL)
def nccl_cuda(context: RuleContext) -> Answer:
    """The NCCL build and the CUDA major do not belong together.

    A build is for one CUDA major (``nvidia-nccl-cu12``, ``libnccl2=2.21.5-1+cuda12.4``) and works
    with every minor of it. The first CUDA 13 builds came with 2.27.7.

    Fix: use an NCCL release that was built for this CUDA major.

    Source: versions of nvidia-nccl-cu11, -cu12 and -cu13 on the package index; NVIDIA/nccl.
    """
    have, cuda = context.stack.get("nccl"), context.cuda
    if have is None:
        return NOT_APPLICABLE
    release = _nccl_release(context)
    if release is None:
        known = [one.version for one in context.facts.nccl.releases]
        return _report_unknown_release("nccl", "NCCL", have, known)
    major = _nccl_major(context)
    if major is None:
        return NOT_APPLICABLE
    if cuda and have.cuda and have.cuda[0] != cuda.major:
        message = f"this NCCL {have.public} was built for CUDA {have.cuda[0]}, the stack has {cuda}"
    elif not release.cuda:
        message = f"which CUDA NCCL {have} was packaged for is not published"
        if cuda and have.cuda:
            return report_no_effect("nccl", f"{message}; its label says CUDA {have.cuda[0]}")
        need = f"the build: nccl={have.public}+cu{major}"
        return report_missing_fact("nccl", message, need=need, have=have.text)
    elif major not in release.cuda:
        built = ", ".join(map(str, release.cuda))
        message = f"NCCL {have} has no build for CUDA {major}, only for CUDA {built}"
    else:
        return PASS
    return Problem(
        "fail",
        "nccl",
        message,
        have=have.text,
        need=f"a build for CUDA {cuda.major if cuda else major}",
        source=release.source,
        candidates=lambda: changes.other_nccl(context),
    )


@rule("CG502", "nccl-gpu", reads=NCCL)
def nccl_gpu(context: RuleContext) -> Answer:
    """The NCCL build has no code for the GPU by default (a warning).

    From 2.28.3 on, the CUDA 11 and 12 builds have no code for Maxwell, and CUDA 13 builds start at
    7.5. The list is from the default build of the sources; NVIDIA's own packages are not
    documented.

    Source: NVIDIA/nccl makefiles/common.mk at each tag.
    """
    have, device = context.stack.get("nccl"), context.capability
    release, major = _nccl_release(context), _nccl_major(context)
    if have is None or device is None or release is None or major is None:
        return NOT_APPLICABLE
    minimum = release.minimum_capability.get(major)
    if minimum is None:
        return NOT_APPLICABLE
    if device >= minimum:
        return PASS
    lowest = format_parts(minimum)
    return Problem(
        "warn",
        "nccl",
        f"NCCL {have} for CUDA {major} is built by default for {lowest} and newer, "
        f"not for {context.gpu_name}",
        have=have.text,
        need=f"a build with sm_{device[0]}{device[1]}",
        source=release.source,
        candidates=lambda: changes.other_nccl(context),
    )
