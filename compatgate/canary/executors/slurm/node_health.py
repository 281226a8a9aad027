"""Look at the GPUs of a job's nodes before and after its program, from within the job.

The batch script asks ``nvidia-smi -q -x`` and ``dmesg`` on every node, outside of the container,
and leaves the answers in the job's folder. The worker reads them when the job has ended. What the
image runs cannot write there, because a container does not contain the folder.
"""

from __future__ import annotations

import io
import shlex
import threading
from pathlib import Path

import msgspec
from msgspec import Struct

from compatgate.canary.executors import HostObservation
from compatgate.canary.health import Event, Snapshot, judge_health, read_log
from compatgate.canary.health.snapshot import parse_smi
from compatgate.core.facts.xid import XidTable

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


class _Node(Struct, frozen=True):
    number: int
    before: Snapshot | None
    after: Snapshot | None
    answer: str
    kernel: tuple[Event, ...]
    has_kernel: bool
    gpus: tuple[str, ...] | None


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
        results = [_observe(_read(folder / FOLDER, n, gpus, table), table) for n in range(nodes)]
        worst = max(results, key=lambda one: _RANK.index(one.state))
        reasons = "; ".join(dict.fromkeys(one.reason for one in results if one.reason))
        return HostObservation(worst.state, reasons, worst.body)


def _observe(node: _Node, table: XidTable) -> HostObservation:
    """Judge one node; what it did not tell is ``unknown``, never healthy."""
    where = f"node {node.number}"
    if node.before is None:
        return HostObservation("unknown", f"{where}: no answer of nvidia-smi: {node.answer}")
    if node.gpus is None:
        return HostObservation("unknown", f"{where}: not known which of its GPUs the job had")
    # A job that was ended has no second snapshot; what was seen before still counts.
    judged = judge_health(
        node.before, (), node.after or node.before, node.kernel, gpus=node.gpus, rma=table.rma
    )
    if judged is None:
        return HostObservation("unknown", f"{where}: nothing was observed")
    reasons = [*judged.reasons]
    if node.after is None:
        reasons.append("the job was ended before the second look at its GPUs")
    if not node.has_kernel:
        reasons.append("the kernel log of the node cannot be read, so Xid errors are not seen")
    return HostObservation(judged.state, "; ".join(reasons), msgspec.to_builtins(judged))


def _read(folder: Path, node: int, gpus: int, table: XidTable) -> _Node:
    answer = _text(folder / f"before-{node}")
    before = _with_gpus(parse_smi(answer))
    after_text = _text(folder / f"after-{node}")
    earlier = set(_text(folder / f"before-kernel-{node}").splitlines())
    later = _text(folder / f"after-kernel-{node}").splitlines()
    new = "".join(f"{line}\n" for line in later if line not in earlier)
    errors, _ = read_log(io.BytesIO(new.encode()), table)
    after = _with_gpus(parse_smi(after_text))
    if after is None and after_text:
        after = Snapshot(before.at, before.driver, ()) if before else None
    return _Node(
        number=node,
        before=before,
        after=after,
        answer=" ".join(answer.split())[:200] or "it was not asked",
        kernel=tuple(errors.events()),
        has_kernel=bool(earlier or later),
        gpus=_names(before, gpus, _text(folder / f"gpus-{node}")) if before else None,
    )


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
