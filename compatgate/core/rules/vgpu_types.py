"""CG137, CG142 and CG143: check the type of a vGPU: who knows it, and what it can do.

A type can do less than its board, and only some branches know it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from compatgate.core.facts.nvidia import VgpuType
from compatgate.core.facts.vgpu import VgpuFeature
from compatgate.core.parts import NEEDS, NODE, VERSIONS, Candidate
from compatgate.core.rule import (
    NOT_APPLICABLE,
    PASS,
    Answer,
    Problem,
    report_left_out,
    report_missing_fact,
    report_no_effect,
    rule,
)
from compatgate.core.rule_context import RuleContext
from compatgate.core.rules.vgpu import GUEST, MANAGER, propose_guests
from compatgate.core.versions import Version
from compatgate.core.vgpus import (
    VgpuName,
    compact,
    is_known_profile,
    owns_all_memory,
    parse_vgpu_name,
)


@rule("CG137", "vgpu-type", reads=GUEST, pool_only=True)
def vgpu_type(context: RuleContext) -> Answer:
    """The driver of the guest, or of its host, does not know this type of vGPU.

    Releases add types: 16.1 added L40S, branch 570 added H200, 580 added B200. Types of Volta and
    of the first Turing boards end with branch 580. A size that no known release has is unknown.

    Example: NVIDIA L40S-48Q with guest driver 535.54.03 (vGPU 16.0) is not known to work.

    Fix: use a guest driver whose branch names the type.

    Source: names of vGPUs in NVIDIA's open kernel modules, by release.
    """
    gpu = context.pool.gpu
    if gpu is None or gpu.vgpu is None:
        return NOT_APPLICABLE
    name = parse_vgpu_name(gpu.vgpu.lower())
    kind = context.facts.gpus.vgpus.get(compact(name.prefix)) if name else None
    if name is None or kind is None:
        message = f"the vGPU type {gpu.vgpu} is not in the facts"
        return report_missing_fact("gpu", message, need="a type of the facts", have=gpu.vgpu)
    problems = [*_check_profile(name, kind, gpu.vgpu)]
    for component, version in (
        ("driver", context.driver if context.os == "linux" else None),
        (MANAGER, context.pool.node_version(MANAGER)),
    ):
        if version is not None:
            problems += _check_branch(context, kind, component, version)
    return problems or PASS


def _check_profile(name: VgpuName, kind: VgpuType, text: str) -> Iterator[Problem]:
    if is_known_profile(name, kind):
        return
    known = kind.mig_backed if name.slices else kind.memory.get(name.series, ())
    listed = ", ".join(map(str, known)) or "none"
    of = "MIG-backed types" if name.slices else f"{name.series}-series sizes in GB"
    message = f"{text} is not known: the {of} of {kind.prefix} are {listed}"
    yield Problem("unknown", "gpu", message, have=text, source=kind.source)


def _check_branch(
    context: RuleContext, kind: VgpuType, component: str, version: Version
) -> Iterator[Problem]:
    table = context.facts.vgpu
    read = {branch for one in context.facts.gpus.vgpus.values() for branch in one.branches}
    if version.major not in read:
        yield from _report_unread(kind, component, version, min(read, default=0))
        return
    title = "guest driver" if component == "driver" else "vGPU manager"
    candidates = (
        partial(propose_guests, table, kind.branches, version) if component == "driver" else None
    )
    if version.major not in kind.branches:
        branches = ", ".join(map(str, kind.branches)) or "none that was read"
        message = f"{title} {version} does not support {kind.prefix}: branches with it are "
        message += branches
        need = f"branch {branches}"
        yield Problem("fail", component, message, version.text, need, kind.source, candidates)
        return
    first = kind.branches[version.major]
    if first and component == "driver" and version < first:
        message = f"{title} {version} may not support {kind.prefix}, which came with {first}"
        need = f">={first}"
        yield Problem("unknown", component, message, version.text, need, kind.source, candidates)


def _report_unread(
    kind: VgpuType, component: str, version: Version, oldest: int
) -> Iterator[Problem]:
    """Report a branch of which no release was read, unless older and newer ones have the type.

    The oldest branch that was read stands for those before it.
    """
    first, last = min(kind.branches, default=0), max(kind.branches, default=0)
    if version.major < last and (first == oldest or first < version.major):
        return
    message = f"whether {component} {version} supports {kind.prefix} is not known: no release of"
    message += f" branch {version.major} was read"
    need = f"branch {', '.join(map(str, kind.branches)) or 'of a release that names the type'}"
    yield from report_missing_fact(component, message, need=need, have=version.text)


@rule("CG142", "vgpu-cuda", reads=NODE, pool_only=True)
def vgpu_cuda(context: RuleContext) -> Answer:
    """The type of vGPU does not run CUDA.

    CUDA and OpenCL run on vGPUs of the C- and Q-series. A-series (applications) and B-series
    (desktops) do not run them, and of the M10 only the 8Q does.

    Example: a pool of ``A40-24A`` fails, ``A40-24Q`` passes.

    Fix: use a type of the C- or Q-series with the same size.

    Source: NVIDIA vGPU software user guide, "NVIDIA CUDA Toolkit and OpenCL Support on NVIDIA vGPU
    Software".
    """
    gpu = context.pool.gpu
    if gpu is None or gpu.vgpu is None:
        return NOT_APPLICABLE
    name = parse_vgpu_name(gpu.vgpu.lower())
    kind = context.facts.gpus.vgpus.get(compact(name.prefix)) if name else None
    feature = context.facts.vgpu.features.get("cuda")
    if name is None or kind is None or feature is None:
        return NOT_APPLICABLE
    if name.series not in feature.series:
        message = f"{gpu.vgpu} does not run CUDA: only C- and Q-series do"
    elif kind.cuda_only and name.ending not in kind.cuda_only:
        message = f"{gpu.vgpu} does not run CUDA: of {kind.prefix} only {kind.cuda_only[0]} does"
    else:
        return PASS
    found = tuple(
        Candidate({"gpu": other}, f"use {other}") for other in _types_with_cuda(name, kind, feature)
    )
    need = " or ".join(kind.cuda_only or (f"{one}-series" for one in sorted(feature.series)))
    return Problem("fail", "gpu", message, gpu.vgpu, need, feature.source, lambda: iter(found))


def _types_with_cuda(name: VgpuName, kind: VgpuType, feature: VgpuFeature) -> Iterator[str]:
    prefix = kind.prefix.replace(" ", "-")
    if kind.cuda_only:
        yield from (f"{prefix}-{ending}" for ending in kind.cuda_only)
        return
    for series in sorted(feature.series):
        other = VgpuName(name.prefix, name.slices, name.memory, series, name.media)
        if is_known_profile(other, kind):
            yield f"{prefix}-{other.ending}"


@rule("CG143", "vgpu-feature", reads=NODE | VERSIONS | NEEDS)
def vgpu_feature(context: RuleContext) -> Answer:
    """The type of vGPU cannot do what the workload needs.

    Unified memory and CUDA peer to peer over NVLink work on types that own all memory of a GPU;
    unified memory also works on types that own all memory of a MIG instance. Peer to peer over
    PCIe works on no type. Profilers work in Linux guests. All of these are off by default, and a
    plugin parameter of the vGPU turns them on: for a type that supports them, a note says that the
    parameter was not checked. Without a source for a type, the answer is unknown.

    Example: ``needs=unified-memory`` on ``A100D-40C`` fails, on ``A100D-80C`` it can be turned on.

    Fix: use a type that owns the whole GPU.

    Source: NVIDIA AI Enterprise documentation, "Unified Virtual Memory", "Peer-To-Peer CUDA
    Transfers"; vGPU user guide.
    """
    gpu, needs = context.pool.gpu, context.needs
    if gpu is None or gpu.vgpu is None or needs is None or not needs.features:
        return NOT_APPLICABLE
    name = parse_vgpu_name(gpu.vgpu.lower())
    kind = context.facts.gpus.vgpus.get(compact(name.prefix)) if name else None
    if name is None or kind is None:
        return report_no_effect("needs", f"{gpu.vgpu} is not in the facts")  # CG137 is unknown
    table = context.facts.vgpu.features
    return [
        problem
        for each in needs.features
        for problem in (
            _judge_feature(context, name, kind, table[each])
            if each in table
            else report_missing_fact("needs", f"{each} is not in the facts", need="a known feature")
        )
    ] or PASS


def _judge_feature(
    context: RuleContext, name: VgpuName, kind: VgpuType, feature: VgpuFeature
) -> tuple[Problem]:
    sku = context.pool.gpu.sku if context.pool.gpu else ""
    told = f": {feature.note}" if feature.note else ""
    owns = is_known_profile(name, kind) and owns_all_memory(name, kind)
    works = {
        "any": True,
        "none": False,
        "mig": bool(name.slices),
        "whole": owns,
        "whole-gpu": owns and not name.slices,
        "whole-mig": owns and bool(name.slices),
    }.get(feature.works_on or "")
    if works is False or (feature.os and context.os not in feature.os):
        message = f"{feature.title} does not work on {sku}{told}"
        largest = max(kind.memory.get("C", ()), default=0)  # the type that owns the whole GPU
        whole = f"{kind.prefix.replace(' ', '-')}-{largest}C"
        fix = Candidate({"gpu": whole}, f"use {whole}, which owns the whole GPU")
        fixes = (fix,) if kind.memory.get("C") else ()
        title, source = feature.title, feature.source
        return (Problem("fail", "gpu", message, sku, title, source, lambda: fixes),)
    if works is None or (feature.series and name.series not in feature.series):
        message = f"whether {feature.title} works on {sku} is not known{told}"
        return (Problem("unknown", "gpu", message, sku, feature.title, feature.source),)
    message = f"{feature.title} works on {sku} where it is turned on{told}"
    return report_left_out("gpu", message, feature.source)
