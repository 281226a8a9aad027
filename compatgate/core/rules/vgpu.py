"""CG135, CG136, CG138 and CG139: check a vGPU guest's driver and services against its host.

A guest has a driver of vGPU software, which its host must take. A pool without vGPUs costs one look
at each rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from compatgate.core import changes
from compatgate.core.facts.vgpu import Vgpu, VgpuFeature
from compatgate.core.node import NODE_COMPONENTS
from compatgate.core.parts import DRIVER, NODE, Candidate
from compatgate.core.rule import NOT_APPLICABLE, PASS, Answer, Problem, report_no_effect, rule
from compatgate.core.rule_context import RuleContext
from compatgate.core.versions import Version

MANAGER = "vgpu-manager"  # the part of a node that is its host's driver
GUEST = DRIVER | NODE  # the parts that decide on host and guest


def is_guest(context: RuleContext) -> bool:
    """Return whether the pool's nodes are vGPU guests."""
    pool = context.pool
    return pool.platform == "vgpu" or (pool.gpu is not None and pool.gpu.vgpu is not None)


@rule("CG135", "vgpu-host-guest", reads=GUEST, pool_only=True)
def vgpu_host_guest(context: RuleContext) -> Answer:
    """The vGPU host does not support guests with this driver.

    NVIDIA supports guests of the host's own major release and of the one before, and on a host of
    a long-term branch guests of the long-term branch before it. No list contains a guest of a
    later major: its vGPU does not load. Some older guests are in no list, but pass the interface
    check of the host's driver: the rule warns about these. The host refuses other older guests.

    The host's driver is ``node.vgpu-manager`` of the pool; GPU Feature Discovery labels it
    ``nvidia.com/vgpu.host-driver-version``. The host's driver never raises the guest's CUDA.

    Example: a guest with 550.163.01 (vGPU 17) on a host with 535.288.01 (vGPU 16) fails.

    Fix: use the newest guest driver of the host's release, or a newer vGPU manager on the host.

    Source: release notes of NVIDIA vGPU software (R418, R525 and R580) on compatible releases;
    interface versions in the open kernel modules.
    """
    manager, driver = context.pool.node_version(MANAGER), context.driver
    if manager is None or driver is None or not is_guest(context):
        return NOT_APPLICABLE
    table = context.facts.vgpu
    host = table.of_branch.get(manager.major)
    guest = table.of_branch.get(driver.major) if context.os == "linux" else None
    if context.os != "linux":  # one release that lists guests before and after this driver
        below = [one.vgpu for parts, one in table.windows_guests if parts <= driver.parts][-1:]
        above = [one.vgpu for parts, one in table.windows_guests if parts >= driver.parts][:1]
        guest = below[0] if below and below == above else None
    if host is None or guest is None:
        unknown = f"vGPU manager {manager}" if host is None else f"driver {driver}"
        why = f"the vGPU release of {unknown} is not known, so whether they fit is not either"
        return Problem("unknown", "driver", why, have=driver.text)
    if guest == host:
        return PASS
    window = table.windows.get(host)
    if window and guest in window.guests:
        return PASS
    return _refuse_guest(context, table, host, guest, manager)


def _refuse_guest(
    context: RuleContext, table: Vgpu, host: int, guest: int, manager: Version
) -> Answer:
    window, driver = table.windows.get(host), context.driver
    both = f"a guest of vGPU {guest} (driver {driver}) on a host of vGPU {host} ({manager})"
    have = driver.text if driver else None
    need = f"a guest of vGPU {' or '.join(map(str, window.guests if window else (host,)))}"

    def candidates() -> Iterator[Candidate]:
        return _other_releases(context, table, host, guest)

    if guest > host:
        message = f"{both} is in no list of combinations: the vGPU does not load"
        source = table.rules.get("guest newer than host")
        return Problem("fail", "driver", message, have, need, source, candidates)
    if window and guest in window.accepts:
        message = f"{both} passes the host's interface check, but NVIDIA does not list it"
        return Problem("warn", "driver", message, have, need, window.source, candidates)
    if window and guest < window.lowest:
        message = f"{both} is refused: the host takes guests from vGPU {window.lowest} on"
        source = table.rules.get("guest below the interface")
        return Problem("fail", "driver", message, have, need, source, candidates)
    message = f"{both}: no source was found that allows or refuses it"
    return Problem("unknown", "driver", message, have, need, candidates=candidates)


def _other_releases(
    context: RuleContext, table: Vgpu, host: int, guest: int
) -> Iterator[Candidate]:
    """Yield the newest guest driver of the host's release, then a host of the guest's."""
    wanted = table.newest(host)
    if wanted and context.os == "linux" and wanted.guest_linux:
        message = f"use guest driver {wanted.guest_linux} of vGPU {wanted.release}"
        yield Candidate({"driver": wanted.guest_linux.text}, message)
    if context.os == "windows":
        found = [one for _, one in table.windows_guests if one.vgpu == host]
        if found and found[-1].guest_windows:
            message = f"use guest driver {found[-1].guest_windows} of vGPU {found[-1].release}"
            yield Candidate({"driver": found[-1].guest_windows.text}, message)
    newer = table.newest(guest) if guest > host else None
    if newer and newer.host:
        message = f"raise the vGPU manager of the hosts to {newer.host} (vGPU {newer.release})"
        yield Candidate({MANAGER: newer.host.text}, message)


@rule("CG136", "vgpu-guest-driver", reads=GUEST, pool_only=True)
def vgpu_guest_driver(context: RuleContext) -> Answer:
    """The driver of a vGPU guest is not a guest driver of vGPU software.

    A vGPU needs the guest driver of a vGPU release. The data-center driver ends with "NVRM: The
    NVIDIA GPU ... is not supported". Only some branches have vGPU releases: 535, 550, 570, 580 and
    595 do; 545, 560, 575 and 590 do not. If the branch has vGPU releases but none has this driver,
    the answer is unknown: a cloud can publish its own driver, as Azure does.

    Example: driver 560.35.03 in a guest with GRID A100D-40C fails.

    Fix: use the guest driver of the next vGPU release.

    Source: NVIDIA vGPU software documentation, list of branches; GPU Operator issue 1371.
    """
    driver = context.driver
    if driver is None or not is_guest(context):
        return NOT_APPLICABLE
    table = context.facts.vgpu
    source = table.rules.get("data-center driver")
    if context.os == "windows":
        known = {parts for parts, _ in table.windows_guests}
        return PASS if driver.parts in known else _unknown_guest(context, table, driver)
    if driver.parts in table.guests:
        return PASS
    newest = max(table.of_branch)
    if driver.major in table.of_branch or driver.major > newest:
        return _unknown_guest(context, table, driver)
    message = f"driver {driver} is not a guest driver: branch {driver.major} has no vGPU release"
    need = f"a driver of branch {' or '.join(map(str, sorted(table.of_branch)[-5:]))}"
    return Problem(
        "fail", "driver", message, driver.text, need, source, lambda: _nearest_guests(table, driver)
    )


def _unknown_guest(context: RuleContext, table: Vgpu, driver: Version) -> Answer:
    message = f"no vGPU release that the facts know has the guest driver {driver}"
    of_branch = table.of_branch.get(driver.major)
    newest = table.newest(of_branch) if of_branch and context.os == "linux" else None
    if newest:
        message += f"; the newest of its branch is {newest.guest_linux} (vGPU {newest.release})"
    return Problem(
        "unknown",
        "driver",
        message,
        driver.text,
        newest.guest_linux.text if newest and newest.guest_linux else None,
        candidates=lambda: _nearest_guests(table, driver) if newest else iter(()),
    )


def _nearest_guests(table: Vgpu, driver: Version) -> Iterator[Candidate]:
    """Yield guest drivers of the driver's own branch, of the next ones, then of older ones."""
    yield from propose_guests(table, table.of_branch, driver)


def propose_guests(table: Vgpu, branches: Iterable[int], driver: Version) -> Iterator[Candidate]:
    """Yield the newest guest driver of each branch: newer branches first, the nearest first."""
    nearest = sorted(branches, key=lambda one: (one < driver.major, abs(one - driver.major)))
    for branch in nearest[: changes.MAX_PER_KIND]:
        release = table.newest(table.of_branch[branch])
        if release and release.guest_linux:
            message = f"use guest driver {release.guest_linux} of vGPU {release.release}"
            yield Candidate({"driver": release.guest_linux.text}, message)


_SERVICES = ("dcgm", "fabric-manager", "nvlsm", "imex")


@rule("CG138", "vgpu-service", reads=NODE, pool_only=True)
def vgpu_service(context: RuleContext) -> Answer:
    """A service that the pool states for its nodes does not work in a vGPU guest.

    NVIDIA's driver container omits Fabric Manager, NVLSM and IMEX with a vGPU driver: they belong
    on the host. NVIDIA's documents disagree about DCGM, so the rule does not judge it.

    Example: a pool of ``H100XM-80C`` that states ``node.fabric-manager`` is a warning.

    Fix: remove the service from the guests.

    Source: NVIDIA's driver container; DCGM user guide; vGPU user guide.
    """
    stated = [name for name in _SERVICES if name in context.pool.node]
    if not stated or not is_guest(context):
        return NOT_APPLICABLE
    features = context.facts.vgpu.features
    return [
        problem
        for name in stated
        if name in features and features[name].works_on in ("none", None)
        for problem in _report_service(name, features[name], context.pool.node[name])
    ] or PASS


def _report_service(name: str, feature: VgpuFeature, have: str) -> tuple[Problem]:
    title = NODE_COMPONENTS[name].title
    if feature.works_on is None:
        message = f"whether {title} works in a vGPU guest: {feature.note}"
        return report_no_effect(name, message, feature.source)
    reason = f": {feature.note}" if feature.note else ""
    problem = Problem(
        "warn",
        name,
        f"{title} does not work in a vGPU guest{reason}",
        have=have,
        source=feature.source,
        candidates=lambda: (Candidate({name: None}, f"remove {title} from the guests"),),
    )
    return (problem,)


@rule("CG139", "vgpu-host", reads=GUEST, pool_only=True)
def vgpu_host(context: RuleContext) -> Answer:
    """The nodes of the pool are vGPU hosts: their driver is the vGPU manager.

    The vGPU manager serves virtual machines; ``nvidia-smi`` on the host prints ``CUDA Version:
    N/A``. It is not known whether a container can run on the host itself: its GPUs belong to the
    guests.

    Example: a pool of A40 whose driver and ``node.vgpu-manager`` are both 535.154.02.

    Fix: describe the guests: the GPU that they show (``A40-48Q``) and their driver.

    Source: release numbers of vGPU managers, in NVIDIA's security bulletins.
    """
    manager, driver = context.pool.node_version(MANAGER), context.driver
    if manager is None or driver is None or is_guest(context) or manager.parts != driver.parts:
        return NOT_APPLICABLE
    message = (
        f"driver {driver} is the vGPU manager of these nodes: workloads run in their guests, "
        "which have a driver and a GPU name of their own"
    )
    return Problem("unknown", "driver", message, have=driver.text)
