"""Make the first five checks of a runbook on a GPU host, each with one line and one command.

A check says ``ok``, ``not-ok``, or ``could-not-look`` where what it needs cannot be seen; the last
is never taken for the first. The thresholds are compatgate's own and say where to look.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from compatgate.canary.health.events import KernelErrors
from compatgate.canary.health.host import HERE, Host, InputCounters, Traffic, look_at_host
from compatgate.canary.health.host import read_input_counters as read_counters
from compatgate.canary.health.judge import SLOWDOWN_REASONS, judge_health
from compatgate.canary.health.kernel_log import KMSG, read_kernel_log
from compatgate.canary.health.records import Record
from compatgate.canary.health.snapshot import PROGRAM, Gpu, SmiAnswer, ask_nvidia_smi, snapshot
from compatgate.core.facts import Facts
from compatgate.discovery.machine.files import Root
from compatgate.errors import Unavailable

State = Literal["ok", "not-ok", "could-not-look"]
_Result = tuple[State, str]
BUSY_PERCENT = 50
"""Utilisation from which a GPU counts as busy."""
IDLE_CLOCK_SHARE = 1 / 3
"""Share of the highest clock below which a busy GPU counts as stuck at idle clocks."""
MAX_IOWAIT = 10.0
"""Percent of all CPU time that may wait for input and output."""
MAX_PRESSURE = 25.0
"""Percent of the last 10 s in which some task may wait for input and output."""
MAX_DROPS = 0.1
"""Percent of the packets of a network device that may be dropped."""
_LEAST_DROPS = 10
_PASSED_THROUGH = "vfio-pci"
_VERSIONS = "cat /proc/driver/nvidia/version; nvidia-smi -q | grep -iE 'version|fabric' -A1"
_NO_DRIVER = "no NVIDIA GPU on the PCI bus and no driver: run this on the GPU node itself"


class Check(Struct, frozen=True):
    """One check: ``visible-gpus``, ``recent-errors``, ``work``, ``input`` or ``versions``."""

    id: str
    name: str
    state: State
    found: str
    more: str


class Observation(Struct, frozen=True):
    """The input of the checks; ``log_problem`` says why there is no kernel log."""

    host: Host
    answers: tuple[SmiAnswer, SmiAnswer]
    log: KernelErrors | None
    log_problem: str | None
    counters: tuple[InputCounters, InputCounters]

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """Return the GPUs that the driver lists at the end; those of the begin where none is."""
        for answer in reversed(self.answers):
            if answer.snapshot:
                return answer.snapshot.gpus
        return ()

    @property
    def said(self) -> str | None:
        """Return the failure of nvidia-smi, if there is one."""
        return self.answers[1].said or self.answers[0].said

    @property
    def blind(self) -> bool:
        """Tell whether the machine shows neither a GPU nor a driver."""
        return not (self.host.gpus or self.host.has_driver or self.gpus)


def observe(
    facts: Facts,
    *,
    seconds: float = 1.0,
    root: Root = HERE,
    program: str = PROGRAM,
    log: KernelErrors | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Observation:
    """Look at a host at the begin and the end of an interval.

    ``root`` has the host's ``/proc``, ``/sys`` and ``/dev``; without ``log`` the host's kernel log
    is read.
    """
    this_machine = root.is_here
    first = ask_gpus(program, this_machine)
    before = read_counters(root)
    sleep(seconds)
    after = read_counters(root)
    second = ask_gpus(program, this_machine)
    problem = None
    if log is None:
        try:
            log, _ = read_kernel_log(
                facts.xid, None, facts.error_signatures, kmsg=root.at(KMSG), programs=this_machine
            )
        except Unavailable as error:
            problem = error.problem
    add_answer(log, second)
    return Observation(look_at_host(root), (first, second), log, problem, (before, after))


def ask_gpus(program: str = PROGRAM, nvml: bool = True) -> SmiAnswer:
    """Return the state of the GPUs from NVML, else from nvidia-smi."""
    now = snapshot() if nvml else None
    return SmiAnswer(now, None) if now else ask_nvidia_smi(program)


def add_answer(log: KernelErrors | None, answer: SmiAnswer) -> None:
    """Add the failure of nvidia-smi to the errors of the host; it names causes as a log does."""
    if log is not None and answer.said:
        log.add(Record(answer.said))


def check_all(seen: Observation, facts: Facts) -> tuple[Check, ...]:
    """Return the five checks, in the order of a runbook."""
    errors = _check_errors(seen, facts)
    privilege = "sudo " if seen.log is None and errors[0] == "could-not-look" else ""
    listed = (
        ("visible-gpus", "visible GPUs", _check_gpus(seen), "nvidia-smi -L; lspci -nn -d 10de:"),
        ("recent-errors", "recent errors", errors, f"{privilege}compatgate health"),
        ("work", "utilisation and clocks", _check_work(seen), "nvidia-smi dmon -s pucvt -c 5"),
        ("input", "input", _check_input(seen), "vmstat 1 5; ip -s link; cat /proc/pressure/io"),
        ("versions", "versions loaded", _check_versions(seen), _VERSIONS),
    )
    return tuple(Check(id_, name, *result, more) for id_, name, result, more in listed)


# --- 1: visible GPUs ----------------------------------------------------------------------------


def _check_gpus(seen: Observation) -> _Result:
    """Check that the driver lists as many GPUs as it should.

    These are those on the PCI bus that no virtual machine has; in a container, those that it was
    given.
    """
    host, gpus = seen.host, seen.gpus
    if seen.blind:
        return "could-not-look", _NO_DRIVER
    mine = [device for device in host.gpus if device.driver != _PASSED_THROUGH]
    strange = [f"{d.address} ({d.driver or 'no driver'})" for d in mine if d.driver != "nvidia"]
    given = len(host.nodes) if 0 < len(host.nodes) < len(mine) else len(mine)
    found = f"{len(gpus)} listed by the driver, {len(mine)} on the PCI bus"
    found += f", {given} given to this container" if given < len(mine) else ""
    if not gpus and not seen.said and not strange:
        why = f" ({host.other})" if host.other else ""
        found += f": neither NVML nor nvidia-smi is available{why}"
        return "could-not-look", found
    lost = [gpu.pci or str(gpu.index) for gpu in gpus if gpu.lost]
    faults = [f"does not answer: {', '.join(lost)}"] if lost else []
    if len(gpus) < max(given, 1):
        faults += [f"not NVIDIA's driver: {', '.join(strange)}"] if strange else []
        faults += [" ".join(seen.said.split())[:160]] if seen.said else []
        return "not-ok", "; ".join([found, *faults])
    if lost:
        return "not-ok", "; ".join([found, *faults])
    products = sorted({gpu.name for gpu in gpus if gpu.name})
    return "ok", f"{found}: {', '.join(products)}" if products else found


# --- 2: recent errors ---------------------------------------------------------------------------


def _check_errors(seen: Observation, facts: Facts) -> _Result:
    """Check the kernel log since boot and the memory errors of each GPU."""
    now = seen.answers[1].snapshot or seen.answers[0].snapshot
    quiet = now and replace(
        now, gpus=tuple(replace(gpu, throttle=None, processes=None) for gpu in now.gpus)
    )
    events = seen.log.events() if seen.log else ()
    health = judge_health(None, (quiet,) if quiet else (), None, events, rma=facts.xid.rma)
    if health and health.state != "healthy":
        count = f" (1 of {len(health.reasons)})" if len(health.reasons) > 1 else ""
        return "not-ok", f"{health.reasons[0]}{count}"
    if seen.log is None:
        return "could-not-look", seen.log_problem or "no kernel log"
    if seen.blind and not events:
        return "could-not-look", f"no error, but {_NO_DRIVER}"
    notes = sum(event.count for event in events)
    found = "none since boot" if not events else f"none that needs action, {notes} noted"
    return "ok", found


# --- 3: utilisation and clocks ------------------------------------------------------------------


def _check_work(seen: Observation) -> _Result:
    """Check what each GPU does, and whether its clocks fit that."""
    samples = [answer.snapshot.gpus for answer in seen.answers if answer.snapshot]
    known = [gpu for gpu in seen.gpus if gpu.utilisation is not None]
    lowered = []
    for gpu in seen.gpus:
        reasons = {reason for one in _of(gpu, samples) for reason in one.throttle or ()}
        slow = (text for reason, text in SLOWDOWN_REASONS.items() if reason in reasons)
        lowered += [f"GPU {gpu.index}: {text}" for text in slow]
    if not known and not lowered:
        why = (
            _NO_DRIVER if seen.blind else "the GPUs report nothing (no NVML, no nvidia-smi, or MIG)"
        )
        return "could-not-look", why
    busy = [
        gpu
        for gpu in known
        if min(one.utilisation or 0 for one in _of(gpu, samples)) >= BUSY_PERCENT
    ]
    stuck = [
        gpu
        for gpu in busy
        if gpu.sm_clock_mhz
        and gpu.sm_clock_max_mhz
        and gpu.sm_clock_mhz < IDLE_CLOCK_SHARE * gpu.sm_clock_max_mhz
    ]
    hung = [g for g in known if busy and g.processes and _most(g, samples) == 0]
    states = [
        *lowered,
        *(f"GPU {g.index}: busy at {g.sm_clock_mhz} of {g.sm_clock_max_mhz} MHz" for g in stuck),
        *(f"GPU {g.index}: 0 % with a process, while others work" for g in hung),
    ]
    summary = f"{len(busy)} busy, {len(known) - len(busy)} idle"
    waiting = sum(bool(g.processes) and _most(g, samples) == 0 for g in known)
    if states:
        return "not-ok", f"{summary}; {'; '.join(states[:4])}"
    if waiting:
        summary += f", {waiting} of them with a process that waits or hangs"
    return "ok", f"{summary} ({_figures(known)})"


def _of(gpu: Gpu, samples: Sequence[Sequence[Gpu]]) -> list[Gpu]:
    return [one for gpus in samples for one in gpus if one.index == gpu.index]


def _most(gpu: Gpu, samples: Sequence[Sequence[Gpu]]) -> int:
    return max(one.utilisation or 0 for one in _of(gpu, samples))


def _figures(gpus: Sequence[Gpu]) -> str:
    """Return the range of utilisation and clocks: ``0 to 98 %, 345 to 1980 MHz``."""
    ranges = [
        ("%", [gpu.utilisation for gpu in gpus if gpu.utilisation is not None]),
        ("MHz", [gpu.sm_clock_mhz for gpu in gpus if gpu.sm_clock_mhz is not None]),
    ]
    return ", ".join(
        f"{min(values)} {unit}"
        if min(values) == max(values)
        else f"{min(values)} to {max(values)} {unit}"
        for unit, values in ranges
        if values
    )


# --- 4: input -----------------------------------------------------------------------------------


def _check_input(seen: Observation) -> _Result:
    """Check whether CPUs wait for storage, and whether the network drops packets."""
    before, after = seen.counters
    figures: list[str] = []
    bad: list[str] = []
    if None in (before.cpu, after.cpu, before.iowait, after.iowait):
        share = None
    else:
        total = (after.cpu or 0) - (before.cpu or 0)
        if total <= 0:
            share = None
        else:
            share = max(0.0, 100 * ((after.iowait or 0) - (before.iowait or 0)) / total)
    if share is not None:
        (bad if share >= MAX_IOWAIT else figures).append(f"iowait {share:.1f} %")
    if after.pressure is not None:
        text = f"I/O pressure {after.pressure:.1f} %"
        (bad if after.pressure >= MAX_PRESSURE else figures).append(text)
    if before.network is not None and after.network is not None:
        drops = _drops(before.network, after.network)
        bad += drops
        figures += [] if drops else [f"no drops on {len(after.network)} network device(s)"]
    if bad:
        return "not-ok", "; ".join([*bad, *figures])
    if share is None or after.network is None:
        what = [
            word
            for word, gone in (("iowait", share is None), ("network", after.network is None))
            if gone
        ]
        found = "; ".join([f"the kernel shows no {' and no '.join(what)}", *figures])
        return "could-not-look", found
    return "ok", "; ".join(figures)


def _drops(before: dict[str, Traffic], after: dict[str, Traffic]) -> list[str]:
    """Return the network devices that dropped packets in the interval."""
    drops = []
    for name, now in after.items():
        then = before.get(name, now)
        packets, dropped = now.packets - then.packets, now.dropped - then.dropped
        if dropped >= _LEAST_DROPS and 100 * dropped > MAX_DROPS * packets:
            drops.append(f"{name} dropped {dropped} of {packets} packets")
    return drops


# --- 5: versions --------------------------------------------------------------------------------


def _check_versions(seen: Observation) -> _Result:
    """Check that module, libraries and GSP firmware are of one version, and the fabric is up."""
    host, module = seen.host, seen.host.module
    now = seen.answers[1].snapshot or seen.answers[0].snapshot
    if seen.blind:
        return "could-not-look", _NO_DRIVER
    if module is None:
        if host.gpus and not host.other and not host.nodes:
            owners = sorted({device.driver or "no driver" for device in host.gpus})
            return "not-ok", f"the module nvidia is not loaded ({', '.join(owners)})"
        if now is None or now.driver is None:
            what = f"{host.other}: no version is shown" if host.other else "no version is shown"
            return "could-not-look", what
    loaded = module.version if module else (now.driver if now else None) or ""
    flavour = {True: " (open)", False: " (proprietary)", None: ""}[module.open if module else None]
    versions = [f"module {loaded}{flavour}"]
    bad = []
    if host.libraries and loaded not in host.libraries:
        bad.append(f"libraries {', '.join(host.libraries)}, module {loaded}")
    elif host.libraries:
        versions.append(f"libraries {', '.join(host.libraries)}")
    firmware = sorted({gpu.gsp for gpu in seen.gpus if gpu.gsp})
    if firmware:
        (versions if firmware == [loaded] else bad).append(f"GSP firmware {', '.join(firmware)}")
    if now and now.cuda:
        versions.append(f"CUDA up to {now.cuda}")
    waiting = [gpu for gpu in seen.gpus if gpu.fabric not in (None, "completed")]
    if waiting:
        who = "runs" if host.fabric_manager else "is not seen"
        state = (waiting[0].fabric or "").replace("_", " ")
        bad.append(
            f"fabric {state} on {len(waiting)} GPU(s), Fabric Manager {who} (CUDA error 802)"
        )
    elif host.switches:
        versions.append(f"Fabric Manager {'runs' if host.fabric_manager else 'not seen'}")
    if host.fabric_manager_version not in (None, loaded):
        bad.append(f"Fabric Manager {host.fabric_manager_version}, module {loaded}")
    return "not-ok" if bad else "ok", "; ".join([*bad, *versions])
