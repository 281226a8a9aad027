"""Watch GPUs while a step runs: of the worker's machine, or of a cluster's nodes.

On a cluster the jobs look at their nodes: the batch script asks ``nvidia-smi -q -x`` and ``dmesg``
on every node, outside of the container, before and after the program, and leaves the answers in the
job's folder. The worker reads them when the job has ended. What the image runs cannot write there,
because a container does not contain the folder.
"""

from __future__ import annotations

import io
import shlex
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from compatgate.canary.health import KernelLog, Snapshot, judge_health, read_log, snapshot
from compatgate.canary.health.snapshot import parse_smi
from compatgate.core.facts.xid import XidTable


class HostObservation(Struct, frozen=True):
    """State of the host while a step ran, as in `Health`, and its plain data.

    It is ``unknown`` if it could not be read, and ``unobserved`` if the operator turned the watch
    off or there are no GPUs.
    """

    state: str
    reason: str = ""
    body: dict[str, Any] | None = None

    def spoils(self, *, passed: bool) -> bool:
        """Return whether the result is unusable; a suspect GPU excuses a failure only."""
        return self.state in ("sick", "shared", "unknown") or (
            self.state == "suspect" and not passed
        )


Observe = Callable[[], HostObservation]
"""Function of a watch on a host; called once, after the block."""
OpenHostWatch = Callable[[Sequence[int]], AbstractContextManager[Observe]]
"""Opener of watches on GPU slots of the host."""
_UNOBSERVED = HostObservation("unobserved")


@contextmanager
def skip_watch(slots: Sequence[int]) -> Iterator[Observe]:
    """Watch nothing: the host has no GPUs, or its operator chose ``health = "none"``."""
    yield lambda: _UNOBSERVED


def watch_nodes(jobs: JobHealth, table: XidTable) -> OpenHostWatch:
    """Return the watch of a host whose jobs look at their own nodes.

    The thread that started the job calls for the observation.
    """

    @contextmanager
    def watch(slots: Sequence[int]) -> Iterator[Observe]:
        yield lambda: jobs.observe(table) if slots else _UNOBSERVED

    return watch


def watch_local(
    table: XidTable,
    sample: float,
    *,
    look: Callable[[], Snapshot | None] = snapshot,
    log: Callable[[XidTable], KernelLog] = KernelLog,
) -> OpenHostWatch:
    """Return the watch of this machine's GPUs, with ``sample`` seconds between two snapshots.

    ``look`` returns a snapshot; None if there is no NVML. A step without GPUs is not watched.
    """

    @contextmanager
    def watch(slots: Sequence[int]) -> Iterator[Observe]:
        observed = _UNOBSERVED
        if not slots:
            yield lambda: observed
            return
        before, during, ended = look(), list[Snapshot](), threading.Event()

        def take_snapshots() -> None:
            while not ended.wait(sample):
                if seen := look():
                    during.append(seen)

        with log(table) as kernel:
            thread = threading.Thread(target=take_snapshots, name="gpu health")
            thread.start()
            try:
                yield lambda: observed
            finally:
                ended.set()
                thread.join()
                observed = _conclude(table, slots, before, during, look(), kernel)

    return watch


def _conclude(
    table: XidTable,
    slots: Sequence[int],
    before: Snapshot | None,
    during: Sequence[Snapshot],
    after: Snapshot | None,
    kernel: KernelLog,
) -> HostObservation:
    if before is None:
        return HostObservation("unknown", "NVML does not answer on the worker's machine")
    named = [name for gpu in before.gpus if gpu.index in slots if (name := gpu.uuid or gpu.pci)]
    if len(named) < len(slots):
        missing = f"NVML does not show every GPU of slots {', '.join(map(str, slots))}"
        return HostObservation("unknown", missing)
    judged = judge_health(before, during, after, kernel.events(), gpus=named, rma=table.rma)
    if judged is None:
        return HostObservation("unknown", "nothing was observed")
    body = msgspec.to_builtins(judged)
    if kernel.problem and judged.state == "healthy":
        return HostObservation("unknown", kernel.problem, body)
    return HostObservation(judged.state, "; ".join(judged.reasons), body)


FOLDER = "health"
_LARGEST = 4 << 20
_RANK = ("healthy", "unknown", "suspect", "shared", "sick")
# A node that does not answer must not hold the job: nvidia-smi hangs when a GPU is lost.
_LOOK = """\
n=${SLURM_NODEID:-0}
timeout -k 5 30 nvidia-smi -q -x </dev/null >"health/$1-$n" 2>&1 || echo failed >>"health/$1-$n"
timeout -k 5 10 dmesg </dev/null 2>/dev/null | tail -c 1000000 >"health/$1-kernel-$n"
[ "$1" = after ] || echo "${SLURM_JOB_GPUS:-}" >"health/gpus-$n"
"""
FUNCTION = """\
mkdir -p health
look() {{
    {spread} sh -c {program} sh "$1" </dev/null >>slurm-health.log 2>&1
}}
"""


def make_function(nodes: int) -> str:
    """Return the shell function ``look``, which takes ``before`` or ``after``."""
    spread = f"srun --overlap --nodes={nodes} --ntasks-per-node=1" if nodes > 1 else ""
    return FUNCTION.format(spread=spread, program=shlex.quote(_LOOK))


class JobHealth:
    """The jobs that this worker's threads started last, and what their nodes left.

    An engine's thread runs one step at a time, so a thread's last job is that of the step that it
    watches.
    """

    def __init__(self) -> None:
        self._local = threading.local()

    def started(self, folder: Path, *, nodes: int, gpus: int) -> None:
        """Remember the job that the thread has started."""
        self._local.job = (folder, nodes, gpus)

    def observe(self, table: XidTable) -> HostObservation:
        """Return what the nodes of the thread's last job observed; forget the job."""
        job = getattr(self._local, "job", None)
        self._local.job = None
        if job is None:
            return HostObservation("unknown", "no job was started")
        folder, nodes, gpus = job
        results = [_observe_node(folder / FOLDER, node, gpus, table) for node in range(nodes)]
        worst = max(results, key=lambda one: _RANK.index(one.state))
        reasons = "; ".join(dict.fromkeys(one.reason for one in results if one.reason))
        return HostObservation(worst.state, reasons, worst.body)


def _observe_node(folder: Path, node: int, wanted: int, table: XidTable) -> HostObservation:
    """Judge one node; what it did not tell is ``unknown``, never healthy."""
    where, answer = f"node {node}", _text(folder / f"before-{node}")
    before = _with_gpus(parse_smi(answer))
    if before is None:
        answer = " ".join(answer.split())[:200] or "it was not asked"
        return HostObservation("unknown", f"{where}: no answer of nvidia-smi: {answer}")
    gpus = _names(before, wanted, _text(folder / f"gpus-{node}"))
    if gpus is None:
        return HostObservation("unknown", f"{where}: not known which of its GPUs the job had")
    later = _text(folder / f"after-{node}")
    after = _with_gpus(parse_smi(later))
    if after is None and later:
        after = Snapshot(before.at, before.driver, ())
    earlier = set(_text(folder / f"before-kernel-{node}").splitlines())
    kernel = _text(folder / f"after-kernel-{node}").splitlines()
    new = "".join(f"{line}\n" for line in kernel if line not in earlier)
    errors, _ = read_log(io.BytesIO(new.encode()), table)
    # A job that was ended has no second snapshot; what was seen before still counts.
    judged = judge_health(before, (), after or before, errors.events(), gpus=gpus, rma=table.rma)
    if judged is None:
        return HostObservation("unknown", f"{where}: nothing was observed")
    reasons = [*judged.reasons]
    if after is None:
        reasons.append("the job was ended before the second look at its GPUs")
    if not (earlier or kernel):
        reasons.append("the kernel log of the node cannot be read, so Xid errors are not seen")
    return HostObservation(judged.state, "; ".join(reasons), msgspec.to_builtins(judged))


def _with_gpus(found: Snapshot | None) -> Snapshot | None:
    return found if found and found.gpus else None


def _names(seen: Snapshot, wanted: int, listed: str) -> tuple[str, ...] | None:
    """Return the job's GPUs: all that a confined job sees, else those that Slurm names."""
    if len(seen.gpus) == wanted:
        chosen = list(seen.gpus)
    else:
        numbers = {int(word) for word in listed.strip().split(",") if word.isdecimal()}
        chosen = [gpu for gpu in seen.gpus if gpu.index in numbers]
    names = [name for gpu in chosen if (name := gpu.uuid or gpu.pci)]
    return tuple(names) if len(names) == wanted else None


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST).decode("utf-8", "replace")
    except OSError:
        return ""
