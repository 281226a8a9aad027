"""Judge whether a GPU was fit for a run, from snapshots and kernel errors around it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Literal

from msgspec import Struct

from compatgate.canary.health.events import Event
from compatgate.canary.health.host_causes import HOST
from compatgate.canary.health.snapshot import Gpu, Snapshot
from compatgate.core.facts.xid import RmaRule

State = Literal["healthy", "suspect", "shared", "sick"]
_RANK: dict[State, int] = {"healthy": 0, "suspect": 1, "shared": 2, "sick": 3}

RESET_GPU = "reset the GPU (nvidia-smi --gpu-reset -i ID) before the next run; reboot if that fails"
DRAIN_GPU = "take the GPU out of service after its current work has ended"
REPLACE_GPU = "take the GPU out of service, run the field diagnostics, and have it replaced (RMA)"
REBOOT_MACHINE = "reboot the machine; if the GPU is still missing, check its seating and power"
WAIT_FOR_OTHERS = "run again when no other process uses the GPU"
CHECK_COOLING = "check cooling, power supply and power limits, then run again"
RUN_AGAIN = "run again"

# Clock reasons that neither the workload nor its limits explain.
SLOWDOWN_REASONS = {
    "hw_slowdown": "the hardware lowered the clocks",
    "hw_thermal_slowdown": "the hardware lowered the clocks because of heat",
    "hw_power_brake_slowdown": "an external power brake lowered the clocks",
    "sw_thermal_slowdown": "the driver lowered the clocks because of heat",
}
_RECOVERY = {
    "gpu_reset": RESET_GPU,
    "node_reboot": REBOOT_MACHINE,
    "drain_p2p": f"{DRAIN_GPU}, and its NVLink peers too",
    "drain_and_reset": f"{DRAIN_GPU}; then {RESET_GPU}",
}


class Health(Struct, frozen=True):
    """Health of the GPUs during a run, with reasons, the most severe first, and actions for them.

    It is the worst of ``healthy``; ``suspect``: a problem may have affected the run; ``shared``: a
    foreign process used the GPU; ``sick``: do not trust the GPU until the actions are done.
    """

    state: State
    reasons: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    events: tuple[Event, ...] = ()


class _Finding(Struct, frozen=True):
    state: State
    reason: str
    action: str


def judge_health(
    before: Snapshot | None,
    during: Sequence[Snapshot],
    after: Snapshot | None,
    events: Iterable[Event],
    *,
    gpus: Collection[str] | None = None,
    rma: Sequence[RmaRule] = (),
) -> Health | None:
    """Compare the observations around a run of some GPUs (UUIDs or PCI addresses; None: all).

    Return None if nothing was observed, which does not mean healthy.
    """
    snapshots = [
        {gpu.pci or gpu.uuid or f"GPU {gpu.index}": gpu for gpu in snapshot.gpus}
        if snapshot
        else {}
        for snapshot in (before, *during, after)
    ]
    names = None if gpus is None else {name.lower() for name in gpus}
    identities: dict[str, None] = {}
    for snapshot in snapshots:
        for identity, gpu in snapshot.items():
            own = {name.lower() for name in (gpu.uuid, gpu.pci) if name}
            if names is None or names & own:
                identities[identity] = None
                names = None if names is None else names | own
    concerning = tuple(
        event
        for event in events
        if names is None or event.sxid is not None or event.device in {HOST, *names}
    )
    if before is None and after is None and not during and not concerning:
        return None
    points = [*_judge_events(concerning)]
    for identity in identities:
        seen = [snapshot.get(identity) for snapshot in snapshots]
        points += _judge_gpu(identity, seen, after is not None, rma)
    if before is not None and after is None:
        points.append(_Finding("sick", "NVML does not answer after the run", REBOOT_MACHINE))
    points.sort(key=lambda point: -_RANK[point.state])
    return Health(
        points[0].state if points else "healthy",
        tuple(dict.fromkeys(point.reason for point in points)),
        tuple(dict.fromkeys(point.action for point in points if point.action)),
        concerning,
    )


def _judge_events(events: Iterable[Event]) -> Iterator[_Finding]:
    for event in events:
        code = f"Xid {event.xid}" if event.xid is not None else f"SXid {event.sxid}"
        code = event.kind if event.xid is None and event.sxid is None else code
        reason = f"{event.device}: {code}, {event.meaning}"
        if event.severity == "fatal":
            yield _Finding("sick", reason, event.action)
        elif event.severity == "warning" and not event.known:
            yield _Finding("suspect", f"{reason} (not in NVIDIA's table)", RUN_AGAIN)
        elif event.severity == "warning" and event.origin == ("hardware",):
            yield _Finding("sick", reason, f"{event.action}; {RESET_GPU}")
        elif event.severity == "warning" and "application" not in event.origin:
            yield _Finding("suspect", reason, event.action)


def _judge_gpu(
    name: str, seen: Sequence[Gpu | None], has_after: bool, rma: Sequence[RmaRule]
) -> Iterator[_Finding]:
    before, *during, after = seen
    there = [gpu for gpu in seen if gpu is not None]
    if any(gpu.lost for gpu in there) or (before and has_after and after is None):
        yield _Finding("sick", f"{name}: the GPU does not answer", REBOOT_MACHINE)
        return
    yield from _judge_memory(name, there)
    last = there[-1]
    for rule in rma:  # thresholds of NVIDIA's; a failed remapping is judged without them
        value = getattr(last, rule.measure)
        if value is not None and rule.measure != "remap_failed" and value >= (rule.limit or 1):
            words = rule.measure.replace("_", " ")
            what = words if rule.limit is None else f"{words}: {value}, the limit is {rule.limit}"
            yield _Finding("sick", f"{name}: {what}", REPLACE_GPU)
    if last.recovery not in (None, "none"):
        action = _RECOVERY.get(last.recovery or "", DRAIN_GPU)
        yield _Finding("sick", f"{name}: the driver requests recovery ({last.recovery})", action)
    samples = [gpu for gpu in during if gpu is not None] or there
    for slowdown, text in SLOWDOWN_REASONS.items():
        if times := sum(slowdown in (gpu.throttle or ()) for gpu in samples):
            reason = f"{name}: {text} ({times} of {len(samples)} samples)"
            yield _Finding("suspect", reason, CHECK_COOLING)
    # A process that computed before the run, and during it, is not the run's.
    earlier = {process.pid for process in (before.processes if before else None) or ()}
    later = {p.pid for gpu in (*during, after) if gpu for p in gpu.processes or ()}
    if foreign := earlier & later:
        pids = ", ".join(map(str, sorted(foreign)[:8]))
        reason = f"{name}: a foreign process used the GPU (pid {pids})"
        yield _Finding("shared", reason, WAIT_FOR_OTHERS)


def _judge_memory(name: str, there: Sequence[Gpu]) -> Iterator[_Finding]:
    first, last = there[0], there[-1]
    if last.remap_failed:
        yield _Finding("sick", f"{name}: a memory row could not be remapped", REPLACE_GPU)
    for what, then, now in (
        ("uncorrected ECC errors", first.ecc_uncorrected_volatile, last.ecc_uncorrected_volatile),
        ("rows remapped for errors", first.remapped_uncorrected, last.remapped_uncorrected),
        ("pages retired for double-bit errors", first.retired_pages, last.retired_pages),
    ):
        if then is not None and now is not None and now > then:
            yield _Finding("sick", f"{name}: {what} during the run: {now - then}", RESET_GPU)
    if number := first.ecc_uncorrected_volatile:
        reason = f"{name}: uncorrected ECC errors since the driver was loaded: {number}"
        yield _Finding("suspect", reason, RESET_GPU)
    if last.remap_pending:
        yield _Finding("suspect", f"{name}: a row remapping needs a reset", RESET_GPU)
    if last.retirement_pending:
        yield _Finding("suspect", f"{name}: a page retirement needs a reboot", REBOOT_MACHINE)
