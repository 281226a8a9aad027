"""CG110 to CG112: check kernel modules, GSP firmware and the NVLink fabric of a pool's nodes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from compatgate.core import changes
from compatgate.core.facts.node import FabricSystem, Flavour
from compatgate.core.facts.nvidia import Source
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
from compatgate.core.versions import Version, parse_version

_OTHER: dict[Flavour, Flavour] = {"open": "proprietary", "proprietary": "open"}


@rule("CG110", "kernel-module-flavour", reads=NODE | DRIVER, pool_only=True)
def kernel_module_flavour(context: RuleContext) -> Answer:
    """The loaded kernel modules have the wrong flavour for the GPU or for the driver branch.

    Maxwell, Pascal and Volta need the proprietary modules. Grace Hopper, Blackwell and later need
    the open ones. Turing, Ampere, Ada and Hopper on x86 may use either. Drivers before 515 have no
    open modules, drivers from 620 on no proprietary ones. While ``nouveau`` holds the GPU, the
    driver does not load at all.

    State the flavour from ``/proc/driver/nvidia/version`` of the nodes as ``kernel-modules``.

    Example: a pool of P4 with ``kernel-modules: open`` fails; a pool of B200 with
    ``kernel-modules: proprietary`` fails, too.

    Fix: install the other flavour of the same driver, or use a driver branch that has the flavour.

    Source: NVIDIA Driver Installation Guide, "Kernel Modules"; NVIDIA Linux driver README, "Open
    Linux Kernel Modules".
    """
    have = context.pool.node.get("kernel-modules")
    if have is None or context.os != "linux":
        return NOT_APPLICABLE
    if have == "nouveau":
        said = context.facts.kernel_modules.statements["nouveau"]
        return Problem(
            "fail",
            "kernel-modules",
            f"nouveau controls the GPU: {said.fact}",
            have="nouveau",
            need="open or proprietary",
            source=said.source,
            candidates=lambda: (_use_flavour("open"), _use_flavour("proprietary")),
        )
    flavour: Flavour = "open" if have == "open" else "proprietary"
    problems = [*_check_branch(context, flavour), *_check_architecture(context, flavour)]
    return problems or PASS


def _use_flavour(flavour: Flavour) -> Candidate:
    return Candidate({"kernel-modules": flavour}, f"install the {flavour} kernel modules")


def _check_branch(context: RuleContext, flavour: Flavour) -> Iterator[Problem]:
    driver, gpu = context.driver, context.pool.gpu
    if driver is None:
        return
    row = context.facts.kernel_modules.branch(driver.major)
    if row is None:
        message = f"which kernel modules branch {driver.major} has is not known"
        need = "a driver of a branch whose modules are known"
        yield from report_missing_fact("kernel-modules", message, need=need, have=flavour)
        return
    if flavour == "open" and row.open == "none":
        message = f"driver {driver} has no open kernel modules: they came with branch 515"
        yield _report_flavour(context, flavour, message, row.source, "proprietary, or driver 515")
    elif flavour == "open" and row.open == "datacenter" and gpu and gpu.segment != "datacenter":
        message = f"the open modules of branch {driver.major} are alpha on GeForce and workstation"
        message += " GPUs, which need NVreg_OpenRmEnableUnsupportedGpus=1"
        if gpu.segment is None:
            yield from report_left_out("kernel-modules", message, row.source)
            return
        yield Problem(
            "warn",
            "kernel-modules",
            message,
            have=flavour,
            need="proprietary, or driver 545 or newer",
            source=row.source,
            candidates=lambda: (_use_flavour("proprietary"),),
        )
    elif flavour == "proprietary" and row.proprietary == "removed":
        message = f"driver {driver} has no proprietary kernel modules: branch 620 removed them"
        yield _report_flavour(context, flavour, message, row.source, "open")
    elif flavour == "proprietary" and row.proprietary == "disputed":
        yield Problem(
            "unknown",
            "kernel-modules",
            f"sources disagree on whether branch {driver.major} has proprietary kernel modules: "
            f"{row.note}",
            have=flavour,
            need="open",
            source=row.source,
            candidates=lambda: (_use_flavour("open"),),
        )


def _check_architecture(context: RuleContext, flavour: Flavour) -> Iterator[Problem]:
    gpu, driver = context.pool.gpu, context.driver
    if gpu is None:
        return
    table = context.facts.kernel_modules
    row = table.row(gpu.name, gpu.capability)
    demand = row.demand(flavour) if row else None
    if row is None:
        message = f"the kernel modules for {context.gpu_name} are not in the facts"
        yield Problem("unknown", "kernel-modules", message, have=flavour)
    elif demand is None:
        what = f"the driver of {row.architecture} comes with its board: no flavour to judge"
        yield from report_no_effect("kernel-modules", what)
    elif demand == "must-not":
        needs = f"{row.architecture} needs the {_OTHER[flavour]} kernel modules"
        message = f"the {flavour} kernel modules do not support {context.gpu_name}: {needs}"
        yield _report_flavour(context, flavour, message, row.source, _OTHER[flavour])
    elif not gpu.product and table.names_products(gpu.capability):
        what = f"some products of {gpu.name} need one flavour; the product is not stated"
        yield from report_left_out("kernel-modules", what)
    elif flavour == "open" and driver and 515 <= driver.major < (row.first_branch_open or 0):
        message = f"the open kernel modules support {row.architecture} from branch"
        message += f" {row.first_branch_open} on"
        yield _report_flavour(context, flavour, message, row.source, f">={row.first_branch_open}")


def _report_flavour(
    context: RuleContext, flavour: Flavour, message: str, source: Source, need: str
) -> Problem:
    return Problem(
        "fail",
        "kernel-modules",
        message,
        have=flavour,
        need=need,
        source=source,
        candidates=lambda: _propose_flavours(context, flavour),
    )


def _propose_flavours(context: RuleContext, flavour: Flavour) -> Iterator[Candidate]:
    other = _use_flavour(_OTHER[flavour])
    yield other
    for branch in context.facts.driver_branches.branches.values():
        if branch.first and context.driver and branch.first > context.driver:
            yield changes.raise_driver(context, branch.first)
    for supported in changes.driver_for_gpu(context):
        yield Candidate({**supported.set, **other.set}, f"{supported.message}, and {other.message}")


@rule("CG111", "gsp-firmware", reads=NODE, pool_only=True)
def gsp_firmware(context: RuleContext) -> Answer:
    """GSP firmware is off but the kernel modules need it, or on but the GPU has no GSP.

    The open kernel modules need GSP firmware of exactly the driver's version. The proprietary
    modules use GSP firmware by default on Turing and later, but also work without it. GPUs before
    Turing have no GSP (a warning: the value is wrong).

    State what ``nvidia-smi -q`` prints as "GSP Firmware Version": state a version as ``on``, and
    N/A as ``off``.

    Fix: install the firmware files of the driver, and remove ``NVreg_EnableGpuFirmware=0``.

    Source: NVIDIA Linux driver README, "Open Linux Kernel Modules" and "GSP Firmware".
    """
    have, gpu = context.pool.node.get("gsp-firmware"), context.pool.gpu
    if have is None or context.os != "linux":
        return NOT_APPLICABLE
    table = context.facts.kernel_modules
    row = table.row(gpu.name, gpu.capability) if gpu else None
    modules = context.pool.node.get("kernel-modules")
    if have == "on" and row and row.gsp is False:
        message = f"GSP firmware cannot be on: {context.gpu_name} has no GSP"
        said = table.statements["gsp-default"]
        return Problem(
            "warn", "gsp-firmware", message, have, "off", said.source, _switch_gsp("off")
        )
    if have == "on":
        return PASS
    needs_open = row is not None and row.proprietary == "must-not"
    if modules == "open" or needs_open:
        said = table.statements["open-needs-gsp"]
        which = "" if modules == "open" else f"{context.gpu_name} needs the open modules, and "
        message = f"GSP firmware is off: {which}{said.fact}"
        return Problem("fail", "gsp-firmware", message, have, "on", said.source, _switch_gsp("on"))
    if modules is None and (row is None or row.gsp):
        what = "GSP firmware is off; whether the open kernel modules are loaded is not stated"
        return report_left_out("gsp-firmware", what)
    return PASS


def _switch_gsp(value: str) -> Callable[[], Iterable[Candidate]]:
    return lambda: (Candidate({"gsp-firmware": value}, f"GSP firmware {value}"),)


@rule("CG112", "fabric-manager-version", reads=NODE | DRIVER, pool_only=True)
def fabric_manager_version(context: RuleContext) -> Answer:
    """Fabric Manager or IMEX does not have exactly the version of the driver.

    On systems with NVSwitch (HGX and DGX), Fabric Manager compares its version with the loaded
    driver and stops if any part differs; CUDA then returns error 802, while ``nvidia-smi`` still
    lists the GPUs. IMEX, which connects the nodes of a GH200, GB200 or GB300 rack, must have the
    driver's version, too. NVLSM has other version numbers, and the rule does not compare it.

    Boards without NVSwitch need no Fabric Manager, and in NVL72 racks it runs in the switch trays:
    the rule does not judge its version then. A missing Fabric Manager is a note that does not
    affect the verdict.

    Example: driver 580.95.05 with ``fabric-manager: 580.82.07`` on H100 SXM fails.

    Fix: install the Fabric Manager of exactly the driver's version, and change both together.

    Source: NVIDIA Fabric Manager user guide.
    """
    if not context.pool.node or context.driver is None or context.os != "linux":
        return NOT_APPLICABLE
    gpu = context.pool.gpu
    system = context.facts.node_parts.fabric_of.get(gpu.name) if gpu else None
    node = context.pool.node
    if system is None and "fabric-manager" not in node and "imex" not in node:
        return NOT_APPLICABLE
    problems = [
        problem
        for name in ("fabric-manager", "imex")
        for problem in _check_fabric(context, name, system, context.driver)
    ]
    return problems or PASS


def _check_fabric(
    context: RuleContext, name: str, system: FabricSystem | None, driver: Version
) -> Iterator[Problem]:
    text = context.pool.node.get(name)
    title = "Fabric Manager" if name == "fabric-manager" else "IMEX"
    presence = _presence(context, name, system)
    if text is None:
        if presence == "yes":
            where = "the nodes have NVSwitch" if name == "fabric-manager" else "NVLink joins nodes"
            what = f"{title} is not stated; where {where}, it must be {driver}, as the driver"
            yield from report_left_out(name, what)
        return
    match = _DRIVER_NUMBER.match(text)
    have = parse_version("driver", match[0]) if match else None
    if have == driver:
        return
    if presence in ("no", "switch-trays"):
        where = "runs in the switch trays" if presence == "switch-trays" else "is not needed"
        what = f"{title} {where} here: its version {text} was not compared with the driver's"
        yield from report_no_effect(name, what)
        return
    said = context.facts.node_parts.fabric_rules[name]
    if have is None or driver.parts[: len(have.parts)] == have.parts:
        message = f"{title} {text} does not name all parts of a version; the driver is {driver}"
        yield Problem("unknown", name, message, text, driver.text, said.source)
        return
    yield Problem(
        "fail",
        name,
        f"{title} {text} does not have the driver's version {driver}: {said.fact}",
        have=text,
        need=driver.text,
        source=said.source,
        candidates=lambda: (
            Candidate({name: driver.text}, f"install {title} {driver}"),
            Candidate({"driver": have.text}, f"install driver {have}, the version of {title}"),
        ),
    )


def _presence(context: RuleContext, name: str, system: FabricSystem | None) -> str:
    """Return whether a service of the fabric runs on these nodes; a vGPU leaves it to its host."""
    gpu = context.pool.gpu
    if gpu and gpu.vgpu:
        return "no"
    if system:
        return system.fabric_manager if name == "fabric-manager" else system.imex
    if name == "imex" or (gpu and gpu.segment not in (None, "datacenter")):
        return "no"
    return "unknown"


_DRIVER_NUMBER = re.compile(r"\d{3}\.\d+(?:\.\d+)?")
