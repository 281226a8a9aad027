"""CG113 to CG117: check container toolkit, DCGM and GPU Operator of a pool's nodes."""

from __future__ import annotations

from collections.abc import Iterator

from compatgate.core import changes
from compatgate.core.facts.node import Need, OperatorSeries, When
from compatgate.core.parts import CUDA, DRIVER, FORWARD, NODE, Candidate
from compatgate.core.rule import (
    NOT_APPLICABLE,
    PASS,
    Answer,
    Problem,
    report_left_out,
    report_no_effect,
    rule,
)
from compatgate.core.rule_context import RuleContext
from compatgate.core.rules.driver import report_older_driver
from compatgate.core.versions import Version

_TITLES = {
    "container-toolkit": "NVIDIA Container Toolkit",
    "dcgm": "DCGM",
    "gpu-operator": "GPU Operator",
    "driver": "driver",
}
_TOOLS = ("container-toolkit", "dcgm", "gpu-operator")


def _applies(when: When, context: RuleContext) -> bool | None:
    """Tell whether a statement is about this pool; None: a part of the node is not stated."""
    gpu, driver = context.pool.gpu, context.driver
    if when.os and context.pool.os not in when.os:
        return False
    if when.gpus and (gpu is None or gpu.name not in when.gpus):
        return False
    if when.capabilities and (gpu is None or gpu.capability not in when.capabilities):
        return False
    if when.mig and (gpu is None or gpu.mig is None):
        return False
    if when.driver_from and (driver is None or driver < when.driver_from):
        return False
    if when.segments and (gpu is None or gpu.segment not in when.segments):
        return False
    node = context.pool.node
    if any(node.get(name, "none") == "none" for name in when.uses):
        return False
    kernel = context.pool.node_version("kernel") if when.kernels else None
    if kernel and not any(one.contains(kernel) for one in when.kernels):
        return False
    stated = {name: node.get(name) for name in when.node}
    if any(have not in (None, *when.node[name]) for name, have in stated.items()):
        return False
    return None if None in stated.values() or (when.kernels and kernel is None) else True


def _name_condition(when: When) -> str:
    """Return the values of other parts that a statement is about, for messages."""
    return " and ".join(f"{name} is {' or '.join(one)}" for name, one in when.node.items())


@rule("CG113", "node-tool-too-old", reads=NODE | DRIVER, pool_only=True)
def node_tool_too_old(context: RuleContext) -> Answer:
    """The container toolkit, DCGM or the GPU Operator is older than the GPU or a mode needs.

    CDI specifications need container toolkit 1.12.0, and those of MIG devices need 1.16.1. DCGM
    supports Blackwell from 4.0.0 on. Each series of the GPU Operator lists its GPUs. For GH200,
    B200 and B300, NVIDIA publishes no minimum container toolkit: the rule then warns about a
    release older than the one in the first GPU Operator for the GPU.

    Example: a pool of MIG slices with ``container-mode: cdi`` and ``container-toolkit: 1.16.0``
    fails.

    Fix: upgrade the tool.

    Source: release notes of the NVIDIA Container Toolkit, of DCGM and of the GPU Operator.
    """
    node = context.pool.node
    if not node or node.keys().isdisjoint(_TOOLS):
        return NOT_APPLICABLE
    problems = [
        problem
        for name, needs in context.facts.node_parts.needs_of.items()
        if (have := context.pool.node_version(name))
        for need in needs
        if have < need.needs
        for problem in _report_need(context, need, have)
    ]
    return problems or PASS


def _report_need(context: RuleContext, need: Need, have: Version) -> Iterator[Problem]:
    applies = _applies(need.when, context)
    title = _TITLES[need.component]
    if applies is None:
        what = f"{title} {have} is older than {need.needs}, which is needed where"
        yield from report_left_out(need.component, f"{what} {_name_condition(need.when)}")
    elif applies:
        yield Problem(
            need.outcome,
            need.component,
            f"{title} {have} is older than {need.needs}: {need.fact}",
            have=have.text,
            need=f">={need.needs}",
            source=need.source,
            candidates=lambda: (_raise(need.component, need.needs),),
        )


def _raise(component: str, version: Version) -> Candidate:
    message = f"raise {_TITLES[component]} to {version} or newer"
    return Candidate({component: f">={version}"}, message)


@rule("CG114", "toolkit-forward-compat", reads=NODE | FORWARD | CUDA)
def toolkit_forward_compat(context: RuleContext) -> Answer:
    """The stack relies on forward compatibility, and the node's container toolkit ignores it.

    Container toolkit 1.17.4 does not mount the CUDA forward-compatibility libraries of an image.
    Older releases mount them, and 1.17.5 and newer enable them with a hook. With 1.17.4, an image
    whose CUDA is newer than the driver fails although it contains ``cuda-compat``.

    If the library path contains the package (``cuda-compat-use: always``), the program finds it
    without the toolkit.

    Example: an image with CUDA 12.8 and ``cuda-compat`` on driver 535 with ``container-toolkit:
    1.17.4`` fails.

    Fix: raise the container toolkit to 1.17.5 or newer, or the driver.

    Source: NVIDIA Container Toolkit release notes, 1.17.4 and 1.17.5.
    """
    have = context.pool.node_version("container-toolkit") if context.pool.node else None
    if have is None or context.forward is None or not context.forward.usable:
        return NOT_APPLICABLE
    said = context.facts.node_parts.statements["toolkit-compat-1.17.4"]
    if context.stack.compat_use != "newer" or have.at(3) != (1, 17, 4):
        return PASS
    floor, driver = context.floor, context.driver
    if floor is None or driver is None or driver >= floor[0]:
        return PASS
    message = f"CUDA {context.cuda} needs the forward-compatibility libraries on driver {driver}: "
    what = "raise NVIDIA Container Toolkit to 1.17.5 or newer"
    raised = Candidate({"container-toolkit": ">=1.17.5"}, what)
    fixes = (raised, changes.raise_driver(context, floor[0]))
    return Problem(
        "fail",
        "container-toolkit",
        f"{message}{said.fact}",
        have=have.text,
        need="any other release",
        source=said.source,
        candidates=lambda: fixes,
    )


@rule("CG115", "node-tool-defect", reads=NODE | DRIVER, pool_only=True)
def node_tool_defect(context: RuleContext) -> Answer:
    """A release of the container toolkit, DCGM, GPU Operator or driver has a known defect.

    The defects are data, each with a source: ``compatgate facts show node_components``. The rule
    also warns about a security flaw if the affected mode is not stated. Two notes do not affect
    the verdict: a defect that occurs only with a product that a pool cannot state (RKE2, GKE,
    SELinux), and a release that is newer than every known one.

    Example: container toolkit 1.17.7 warns: images can run code on the host (CVE-2025-23266).

    Fix: use the release that fixes the defect.

    Source: release notes of the tools, and NVIDIA's security bulletins.
    """
    node = context.pool.node
    if not node or context.os != "linux":
        return NOT_APPLICABLE
    parts = context.facts.node_parts
    problems = [
        problem
        for name in _TITLES
        if (have := (context.driver if name == "driver" else context.pool.node_version(name)))
        for problem in _report_defects(context, name, have)
    ]
    for name, known in (
        ("container-toolkit", parts.toolkit_releases[-1]),
        ("dcgm", parts.dcgm_releases[-1]),
        ("gpu-operator", parts.operators[-1].version),
    ):
        version = context.pool.node_version(name)
        if version and version.at(3) > known.at(3):
            what = f"{_TITLES[name]} {version} is newer than {known}, the newest in the facts"
            problems += report_no_effect(name, f"{what}: its defects are not known")
    return problems or PASS


def _report_defects(context: RuleContext, name: str, have: Version) -> Iterator[Problem]:
    found = [
        (defect, applies)
        for defect in context.facts.node_parts.defects_of.get(name, ())
        if defect.versions.contains(have)
        if (applies := _applies(defect.when, context)) or (applies is None and defect.cve)
    ]
    weighty = [one.fixed for one, _ in found if one.fixed and not one.where]
    fixed = max(weighty, default=None, key=lambda v: v.key)
    title = f"{_TITLES[name]} {have}"
    fixes = list[Candidate]()
    if fixed:
        of_driver = name == "driver"
        fixes.append(changes.raise_driver(context, fixed) if of_driver else _raise(name, fixed))
    for one, _ in found:
        if one.where:
            what = f"{title}, {one.where}, {one.problem}"
            yield from report_left_out(name, what, one.source)
    others = [(one.problem, [one]) for one, _ in found if not one.cve and not one.where]
    if flaws := [(one, applies) for one, applies in found if one.cve]:
        names = ", ".join(
            f"{one.cve}" if applies else f"{one.cve} (where {_name_condition(one.when)})"
            for one, applies in flaws
        )
        others.append((f"has known security flaws: {names}", [one for one, _ in flaws]))
    for what, defects in others:
        least = max((one.fixed for one in defects if one.fixed), default=None, key=lambda v: v.key)
        yield Problem(
            "fail" if any(one.outcome == "fail" for one in defects) else "warn",
            name,
            f"{title} {what}",
            have=have.text,
            need=f">={least}" if least else None,
            source=defects[-1].source,
            candidates=lambda: fixes,
        )


@rule("CG116", "dcgm-driver", reads=NODE | DRIVER, pool_only=True)
def dcgm_driver(context: RuleContext) -> Answer:
    """The DCGM of the nodes does not support a driver this old (a warning).

    DCGM 4 supports drivers of branch 450 and newer, DCGM 3.0 and 3.1 450.80.02, DCGM 2 branch 418
    (450.80.02 on systems with NVSwitch). Workloads run without DCGM: only health checks, metrics
    and diagnosis fail, so the rule does not deny. DCGM 3.2 and 3.3 have no known minimum.

    Fix: raise the driver.

    Source: DCGM release notes and DCGM user guide.
    """
    have = context.pool.node_version("dcgm") if context.pool.node else None
    driver, gpu = context.driver, context.pool.gpu
    if have is None or driver is None or context.os != "linux":
        return NOT_APPLICABLE
    parts = context.facts.node_parts
    row = next((one for one in parts.dcgm_drivers if one.versions.contains(have)), None)
    if row is None:
        return report_no_effect("dcgm", f"no driver minimum of DCGM {have} is in the facts")
    system = parts.fabric_of.get(gpu.name) if gpu else None
    switched = system is not None and system.fabric_manager == "yes"
    floor = (row.driver_nvswitch if switched else None) or row.driver
    if driver >= floor:
        return PASS
    message = f"DCGM {have} supports driver {floor} and newer, not {driver}"
    return report_older_driver(context, "warn", message, floor, row.source)


@rule("CG117", "operator-driver", reads=NODE | DRIVER, pool_only=True)
def operator_driver(context: RuleContext) -> Answer:
    """The GPU Operator's series does not list or does not recommend the driver (a warning).

    NVIDIA lists drivers for each series of the GPU Operator, and extends the list after a release.
    In addition, any driver of an active production branch is supported. The default driver of a
    release is often not the recommended driver of its series. The container of the operator has a
    minimum driver for some systems: 570.133.20 for B200.

    Example: ``gpu-operator: 25.10.1`` with its default driver 580.105.08 warns: the series
    recommends 580.178.04 and 580.95.05.

    Fix: use a driver that the series recommends.

    Source: GPU Operator documentation, "Platform Support" and "Life Cycle Policy", by series.
    """
    have = context.pool.node_version("gpu-operator") if context.pool.node else None
    driver, gpu = context.driver, context.pool.gpu
    if have is None or driver is None or context.os != "linux":
        return NOT_APPLICABLE
    parts = context.facts.node_parts
    series = parts.series.get(f"{have.major}.{have.minor}")
    if series is None:
        newest = list(parts.series)[-1]
        what = f"the drivers of GPU Operator {have} are not in the facts; the newest series is"
        return report_no_effect("gpu-operator", f"{what} {newest}")
    system = parts.fabric_of.get(gpu.name) if gpu else None
    least = system.minimum_driver if system else None
    if least and driver < least:
        message = f"the driver container for {context.gpu_name} starts with {least}, not {driver}"
        candidate = changes.raise_driver(context, least)
        need = f">={least}"
        return _report_operator(driver, message, need, series, [candidate])
    default = {one.driver_default for one in parts.operators if one.version == have}
    wanted = " or ".join(map(str, series.recommended))
    if driver in series.recommended:
        return PASS
    if driver in default:
        message = f"driver {driver} is the default of GPU Operator {have}, which recommends"
    else:
        branch = context.branch
        in_production = branch and not branch.ended and branch.type in ("PB", "LTSB")
        if branch and in_production and (branch.eol is None or branch.eol >= context.today):
            return PASS
        if driver in series.drivers:
            return PASS
        message = f"the series of GPU Operator {have} does not list driver {driver}, and its branch"
        message += " is not an active production branch; it recommends"
    fixes = [
        Candidate({"driver": one.text}, f"use driver {one}, which the GPU Operator recommends")
        for one in series.recommended
    ]
    return _report_operator(driver, f"{message} {wanted}", wanted, series, fixes)


def _report_operator(
    driver: Version, message: str, need: str, series: OperatorSeries, fixes: list[Candidate]
) -> Problem:
    return Problem("warn", "driver", message, driver.text, need, series.source, lambda: iter(fixes))
