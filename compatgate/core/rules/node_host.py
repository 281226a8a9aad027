"""CG118 to CG124: check kernel, distribution, Secure Boot, RDMA and PCIe settings of the nodes."""

from __future__ import annotations

from collections.abc import Iterator

from compatgate.core import changes
from compatgate.core.facts.node import (
    BuildFailure,
    KernelCeiling,
    KernelSupport,
    NamedKernel,
    RdmaPath,
)
from compatgate.core.node import NODE_COMPONENTS
from compatgate.core.parts import DRIVER, NODE, Candidate
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
from compatgate.core.versions import Version, format_parts


@rule("CG118", "kernel-driver", reads=NODE | DRIVER, pool_only=True)
def kernel_driver(context: RuleContext) -> Answer:
    """The driver's modules do not support the Linux kernel of the nodes.

    Drivers from branch 555 on need Linux 4.15, older ones 3.10. A kernel is unknown if it is newer
    than every kernel that the driver's source names, and NVIDIA's table for the branch does not
    list it: the modules may not build. A kernel with reported build failures is unknown, too. For
    branches whose source names no kernel, the first patch that packagers need says where they end.
    Release candidates are not supported.

    Example: driver 535.216.03 on Linux 6.17 is unknown; its source names 6.12.

    Fix: use a driver whose source names the kernel, or an older kernel.

    Source: NVIDIA/open-gpu-kernel-modules (README and ``conftest.sh`` of each release); CUDA
    Installation Guide for Linux, "System Requirements".
    """
    kernel = context.pool.node_version("kernel") if context.pool.node else None
    driver = context.driver
    if kernel is None or driver is None or context.os != "linux":
        return NOT_APPLICABLE
    support = context.facts.kernel_support
    if "-rc" in kernel.text:
        said = support.statements["release-candidates"]
        message = f"Linux {kernel} is a release candidate: {said.fact}"
        return Problem("unknown", "kernel", message, kernel.text, None, said.source)
    if problem := _check_minimum(support, kernel, driver):
        return problem
    failed = [
        _report_failure(context, one, kernel)
        for one in support.failures
        if one.drivers.contains(driver) and one.kernels.contains(kernel)
        if one.flavour is None
        or context.pool.node.get("kernel-modules", one.flavour) == one.flavour
    ]
    if failed:
        return failed
    if (driver.major, context.pool.cpu, kernel.major_minor) in support.validated_series:
        return PASS
    mended = (  # by a release of the branch, up to this one
        one.kernels.first
        for one in support.failures
        if one.fixed and one.fixed.major == driver.major and driver >= one.fixed
    )
    if any(first and kernel.major_minor <= first.major_minor for first in mended):
        return PASS
    return _check_named(context, support, kernel, driver)


def _check_minimum(
    support: KernelSupport, kernel: Version, driver: Version
) -> tuple[Problem] | None:
    """Compare the kernel with the oldest that the branch needs.

    A branch without a row needs at most what the next newer one needs, or the newest of the table.
    """
    known = support.minimums
    later = (branch for branch in known if branch >= driver.major)
    newer = min(later, default=max(known, default=0))
    if newer not in known or kernel >= known[newer][0]:
        return None
    least, source = known[newer]
    if newer == driver.major:
        message = f"Linux {kernel} is older than {least}, which branch {driver.major} needs"
        return (Problem("fail", "kernel", message, kernel.text, f">={least}", source),)
    message = f"the oldest Linux for branch {driver.major} is not known; "
    message += f"branch {newer} needs {least}"
    need = f">={least}"
    return report_missing_fact("kernel", message, need=need, have=kernel.text, source=source)


def _report_failure(context: RuleContext, failure: BuildFailure, kernel: Version) -> Problem:
    fixed, flavour = failure.fixed, failure.flavour
    is_stated = flavour is None or "kernel-modules" in context.pool.node
    modules = f"{flavour} modules" if flavour else "modules"
    return Problem(
        "fail" if is_stated else "unknown",
        "kernel",
        f"the {modules} of driver {context.driver} failed to build on Linux {kernel}: "
        f"{failure.symptom}",
        have=kernel.text,
        need=f"driver >={fixed}" if fixed else None,
        source=failure.source,
        candidates=(lambda: (changes.raise_driver(context, fixed),)) if fixed else None,
    )


def _check_named(
    context: RuleContext, support: KernelSupport, kernel: Version, driver: Version
) -> Answer:
    """Compare the kernel with the newest that the driver's source names.

    A branch after the newest of the table was released later: it names at least what they do.
    """
    newest: NamedKernel | None = support.newest_named
    if driver.major <= max(support.named_of):
        rows = support.named_of.get(driver.major, ())
        older = (r for r in rows if r.driver == driver or (r.driver < driver and not r.beta))
        newest = max(older, key=lambda one: (one.kernel.key, one.driver.key), default=None)
    if newest is None and (ceiling := support.ceilings.get(driver.major)):
        return _check_ceiling(ceiling, kernel, driver)
    if newest is None:
        what = f"no source says which kernels driver {driver} is made for"
        if all(kernel.major_minor <= one.kernel.major_minor for one in support.named):
            return report_no_effect("kernel", f"{what}; every known one is made for Linux {kernel}")
        need = "a driver whose source names the kernel"
        return report_missing_fact(
            "kernel",
            what,
            need=need,
            have=kernel.text,
            candidates=lambda: _propose_named(context, support, kernel),
        )
    if kernel.major_minor <= newest.kernel.major_minor:
        return PASS
    return Problem(
        "unknown",
        "kernel",
        f"whether the modules of driver {driver} build on Linux {kernel} is not known: "
        f"the source of {newest.driver} names kernels up to {newest.kernel}",
        have=kernel.text,
        need=f"<={newest.kernel}",
        source=newest.source,
        candidates=lambda: _propose_named(context, support, kernel),
    )


def _check_ceiling(ceiling: KernelCeiling, kernel: Version, driver: Version) -> Answer:
    if kernel.major_minor <= ceiling.kernel.major_minor:
        return PASS
    message = f"whether the modules of driver {driver} build on Linux {kernel} is not known: "
    message += f"{ceiling.last}, the last release of branch {ceiling.branch}, builds up to "
    message += f"{ceiling.kernel} as NVIDIA published it"
    message += f"; packagers patch it up to {ceiling.patched}" if ceiling.patched else ""
    need = f"<={ceiling.kernel}"
    return Problem("unknown", "kernel", message, kernel.text, need, ceiling.source)


def _propose_named(
    context: RuleContext, support: KernelSupport, kernel: Version
) -> Iterator[Candidate]:
    own = context.driver
    naming = [
        one.driver
        for one in support.named
        if not one.beta and own and one.driver > own and one.kernel.major_minor >= kernel.at(2)
    ]
    for driver in sorted(naming, key=lambda v: (own is not None and v.major != own.major, v.key)):
        yield changes.raise_driver(context, driver)


@rule("CG119", "distribution-driver", reads=NODE | DRIVER, pool_only=True)
def distribution_driver(context: RuleContext) -> Answer:
    """NVIDIA does not list the Linux distribution of the nodes for the driver's branch (a warning).

    The list names the distributions that NVIDIA tests and supports; others can work, too, because
    their makers test their own packages. State ID and VERSION_ID of ``/etc/os-release``:
    ``ubuntu-24.04``, ``rhel-9.6``, ``sles-15.7``. Some branches have no known list.

    Fix: use a driver branch that lists the distribution.

    Source: NVIDIA Driver Installation Guide, and CUDA Installation Guide for Linux.
    """
    have = context.pool.node.get("distribution")
    driver = context.driver
    if have is None or driver is None or context.os != "linux":
        return NOT_APPLICABLE
    lists = context.facts.kernel_support.distributions
    row = lists.get(driver.major)
    if row is None:
        what = f"no list of distributions for driver branch {driver.major} is in the facts"
        return report_no_effect("distribution", what)
    if _is_listed(have, row.names):
        return PASS
    return Problem(
        "warn",
        "distribution",
        f"NVIDIA does not list {have} for driver branch {driver.major}",
        have=have,
        need=f"one of {', '.join(row.names)}",
        source=row.source,
        candidates=lambda: (
            changes.raise_driver(context, branch.first)
            for number, branch in context.facts.driver_branches.branches.items()
            if branch.first and number in lists and _is_listed(have, lists[number].names)
        ),
    )


def _is_listed(name: str, listed: tuple[str, ...]) -> bool:
    """Tell whether a list has a distribution: ``rhel-9`` covers ``rhel-9.6``."""
    return any(
        name == one or name.startswith((f"{one}.", f"{one}-")) or one.startswith(f"{name}.")
        for one in listed
    )


@rule("CG120", "secure-boot", reads=NODE, pool_only=True)
def secure_boot(context: RuleContext) -> Answer:
    """Secure Boot is on, and the nodes have software with unsigned kernel modules.

    With Secure Boot the kernel loads only modules that are signed with an enrolled key. The GPU
    Operator validated signed drivers for R470, R510 and R515 on Ubuntu only, and DOCA-Host from
    3.2 on builds modules that NVIDIA does not sign: the rule warns about both. For other modules a
    note says that their signatures are not known; it does not affect the verdict.

    Fix: sign the modules and enrol the key, use modules that the distribution signs, or switch
    Secure Boot off.

    Source: GPU Operator release notes; DOCA 3.2.1, "General Support".
    """
    node = context.pool.node
    have = node.get("secure-boot")
    if have != "on" or context.os != "linux":
        return NOT_APPLICABLE if have is None or context.os != "linux" else PASS
    said = context.facts.kernel_support.statements
    reasons = ["sb-operator"] if "gpu-operator" in node else []
    ofed = context.pool.node_version("ofed")
    if ofed and (3, 2) <= ofed.major_minor < (20, 0):
        reasons.append("sb-doca")
    if not reasons:
        return report_left_out("secure-boot", said["sb-key"].fact)
    return [
        Problem(
            "warn",
            "secure-boot",
            f"Secure Boot is on: {said[name].fact}",
            have="on",
            need="signed modules, or off",
            source=said[name].source,
            candidates=lambda: (Candidate({"secure-boot": "off"}, "switch Secure Boot off"),),
        )
        for name in reasons
    ]


@rule("CG121", "gpudirect-rdma", reads=NODE | DRIVER, pool_only=True)
def gpudirect_rdma(context: RuleContext) -> Answer:
    """RDMA to GPU memory does not work with the nodes' modules, kernel, driver or GPU.

    ``dma-buf`` needs the open kernel modules, Linux 5.12, driver 515 and a Turing or newer GPU,
    but no OFED. ``nvidia-peermem`` comes with drivers from 470 on, in either flavour. It needs
    MLNX_OFED or DOCA-OFED, and must be rebuilt after each change of OFED.

    Example: ``peer-memory: dma-buf`` with ``kernel-modules: proprietary`` fails.

    Fix: install the open modules, or use ``nvidia-peermem``.

    Source: GPU Operator documentation, "GPUDirect RDMA and GPUDirect Storage".
    """
    have = context.pool.node.get("peer-memory")
    if have is None or context.os != "linux":
        return NOT_APPLICABLE
    path = context.facts.kernel_support.rdma.get(have)
    if have == "none":
        return PASS
    if path is None:
        what = f"what {have} needs is not in the facts"
        return report_missing_fact("peer-memory", what, need="peer-memory=none", have=have)
    problems = [*_check_rdma(context, path)]
    if have == "nvidia-peermem" and "ofed" not in context.pool.node:
        what = "nvidia-peermem needs MLNX_OFED or DOCA-OFED, which is not stated"
        problems += report_left_out("peer-memory", what)
    return problems or PASS


def _check_rdma(context: RuleContext, path: RdmaPath) -> Iterator[Problem]:
    node, driver = context.pool.node, context.driver
    modules, kernel = node.get("kernel-modules"), context.pool.node_version("kernel")
    if path.needs_open and modules is None:
        what = f"{path.path} needs the open kernel modules; their flavour is not stated"
        yield from report_left_out("peer-memory", what)
    elif path.needs_open and modules != "open":
        yield _report_rdma(path, f"the kernel modules are {modules}", "kernel-modules: open")
    if path.kernel and kernel and kernel < path.kernel:
        yield _report_rdma(path, f"the kernel is {kernel}", f"kernel >={path.kernel}")
    if driver and driver < path.driver:
        yield _report_rdma(path, f"the driver is {driver}", f"driver >={path.driver}")
    least, have = path.least_capability, context.capability
    if least and have and have < least:
        what = f"{context.gpu_name} is older than {format_parts(least)}"
        yield _report_rdma(path, what, "nvidia-peermem")


def _report_rdma(path: RdmaPath, why: str, need: str) -> Problem:
    other = "nvidia-peermem" if path.path == "dma-buf" else "dma-buf"
    return Problem(
        "fail",
        "peer-memory",
        f"{path.path} does not work here: {why}: {path.fact}",
        have=path.path,
        need=need,
        source=path.source,
        candidates=lambda: (
            Candidate({"kernel-modules": "open"}, "install the open kernel modules"),
            Candidate({"peer-memory": other}, f"use {other}"),
        ),
    )


@rule("CG122", "peer-traffic", reads=NODE, pool_only=True)
def peer_traffic(context: RuleContext) -> Answer:
    """ACS or a translating IOMMU sends traffic between GPUs and NICs through the root complex.

    On bare metal, NCCL is then slow or hangs, and GPUDirect gives no advantage. A virtual machine
    with passthrough needs the opposite: ACS on, with ATS on the NIC. State ``platform:
    bare-metal`` or ``dgx/...``; the rule does not judge the settings on other platforms.

    Fix: switch ACS off on the PCIe bridges; boot with ``iommu=pt``, or switch the IOMMU off.

    Source: NCCL user guide, "Troubleshooting"; NVIDIA AI Enterprise, configuration of virtual
    machines.
    """
    node, platform = context.pool.node, context.pool.platform
    on = [name for name in ("acs", "iommu") if node.get(name) == "on"]
    if not on:
        judged = "acs" in node or "iommu" in node
        return PASS if judged else NOT_APPLICABLE
    said = context.facts.kernel_support.statements
    if platform and platform != "bare-metal" and not platform.startswith("dgx"):
        what = f"{' and '.join(on)} on {platform} were not judged: {said['ats-vm'].fact}"
        return report_no_effect(on[0], what)
    right = {"acs": "off", "iommu": "passthrough"}
    return [
        Problem(
            "warn",
            name,
            f"{NODE_COMPONENTS[name].title} is on: {said[name].fact}",
            have="on",
            need=right[name],
            source=said[name].source,
            candidates=lambda name=name: (  # type: ignore[misc]
                Candidate({name: right[name]}, f"set {name} to {right[name]}"),
            ),
        )
        for name in on
    ]


@rule("CG123", "persistence-off", reads=NODE, pool_only=True)
def persistence_off(context: RuleContext) -> Answer:
    """Persistence mode is off with the open kernel modules (a warning).

    Without persistence mode, the driver releases a GPU when its last program ends, and initialises
    it again for the next program. This takes longer with the open modules.

    Fix: run ``nvidia-persistenced``.

    Source: NVIDIA Linux driver README, "Open Linux Kernel Modules".
    """
    node = context.pool.node
    have = node.get("persistence")
    if have is None or context.os != "linux":
        return NOT_APPLICABLE
    if have == "on" or node.get("kernel-modules") != "open":
        return PASS
    said = context.facts.kernel_modules.statements["open-initialisation"]
    message = f"persistence mode is off: {said.fact}"
    fix = Candidate({"persistence": "on"}, "run nvidia-persistenced")
    return Problem("warn", "persistence", message, have, "on", said.source, lambda: (fix,))


_NOT_JUDGED = {
    "nvlsm": "NVLSM has other version numbers, and no source says which version fits a driver",
    "vbios": "no minimum VBIOS for a driver or a GPU is published",
    "efa": "no source pairs releases of the EFA installer with drivers",
}


@rule("CG124", "node-not-judged", reads=NODE | DRIVER, pool_only=True)
def node_not_judged(context: RuleContext) -> Answer:
    """No published fact judges a stated part of the nodes (a note; the verdict does not change).

    NVLSM has other version numbers, minimum VBIOS versions are not published, and no table of
    NVIDIA pairs drivers with releases of MLNX_OFED or DOCA-OFED. As a hint, the message names
    versions that vendors ship together.

    Fix: none is needed; drift compares the part with that of the other nodes.

    Source: the documents that were searched for such a table; see ``compatgate facts show
    kernel_support``.
    """
    node = context.pool.node
    if not node:
        return NOT_APPLICABLE
    notes = [one for k, why in _NOT_JUDGED.items() if k in node for one in report_no_effect(k, why)]
    if "ofed" in node:
        table, driver = context.facts.kernel_support, context.driver
        text = table.statements["no-ofed-table"].fact
        shipped = [one for one in table.ofed if driver and one.driver == driver]
        if shipped:
            named = "; ".join(f"{one.system} has {one.ofed}" for one in shipped)
            text += f". With driver {driver}: {named}"
        notes += report_no_effect("ofed", text)
    return notes or NOT_APPLICABLE
