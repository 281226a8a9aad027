"""Keep a lookout on one execution: challenge it, watch its processes, and state what was seen."""

from __future__ import annotations

import time
from typing import Protocol, runtime_checkable

from msgspec.structs import replace

from compatgate.canary.executors.jobs import Handle, Job
from compatgate.canary.run import Report, Witness
from compatgate.canary.witness import contradict
from compatgate.canary.witness.challenge import SignedOutput, make_challenge
from compatgate.canary.witness.processes import ProcessWatch, Sighting
from compatgate.canary.workload import Workload
from compatgate.core.binding import Assurance

_NO_PROCESSES = "the executor does not show the program's processes to this worker"
_NOT_FOUND = "no process of the program was found on this machine, or it ended too soon"


class OutputReader(Protocol):
    """Reader of one execution's output."""

    def feed(self, data: bytes) -> None:
        """Read the next piece."""
        ...

    def report(self) -> Report:
        """Return the report; called once, at the end."""
        ...


@runtime_checkable
class ShowsProcesses(Protocol):
    """Executor whose programs may run on the worker's own machine."""

    def main_process(self, handle: Handle) -> int | None:
        """Return the number of a process that is the program or its ancestor, on this machine."""
        ...


@runtime_checkable
class HasInterpreter(Protocol):
    """Executor that can run programs on the worker's interpreter."""

    def interpreter(self, handle: Handle) -> str:
        """Return the digest of the worker's program that runs a job; "" if the image's does."""
        ...


class Lookout:
    """Lookout on one execution, and the reader of its output.

    Args:
        workload: that runs.
        executor: that runs it.
        reader: of the workload's adapter.

    Attributes:
        challenge: to send to the program.
    """

    def __init__(self, workload: Workload, executor: object, reader: OutputReader) -> None:
        self.challenge = make_challenge()
        self._workload = workload
        self._executor = executor
        self._reader = SignedOutput(reader, workload, self.challenge) if workload.proofs else reader
        self._began = time.monotonic()
        self._slots: tuple[int, ...] = ()
        self._digest = ""
        self._watch: ProcessWatch | None = None
        self._sighting: Sighting | None = None

    def prepare(self, job: Job) -> Job:
        """Return the job with the challenge."""
        self._slots = job.gpu_slots
        return replace(job, challenge=self.challenge)

    def started(self, handle: Handle) -> None:
        """Begin to watch the processes of a job that has begun."""
        if isinstance(self._executor, HasInterpreter):
            self._digest = self._executor.interpreter(handle)
        if isinstance(self._executor, ShowsProcesses):
            root = self._executor.main_process(handle)
            if root is not None:
                self._watch = ProcessWatch(root, self.challenge, self._slots)

    def close(self) -> None:
        """Stop watching."""
        if self._watch is not None:
            self._sighting = self._watch.close()
            self._watch = None

    def feed(self, data: bytes) -> None:
        """Read the next piece of output."""
        self._reader.feed(data)

    def report(self) -> Report:
        """Return the report with what was seen."""
        report = self._reader.report()
        wall_s = time.monotonic() - self._began
        return replace(
            report,
            witness=conclude_witness(
                self._workload, report, self._sighting, wall_s, digest=self._digest
            ),
        )


def conclude_witness(
    workload: Workload,
    report: Report,
    sighting: Sighting | None,
    wall_s: float,
    *,
    digest: str = "",
) -> Witness:
    """Return what the worker saw of an execution.

    Args:
        workload: that ran.
        report: of its program, with what the signatures show.
        sighting: of its processes; None if the executor does not show them.
        wall_s: seconds by the worker's clock.
        digest: of the worker's program that started it; "" if the image's Python did.
    """
    signed = report.witness or Witness()
    contradictions = list(signed.contradictions)
    if workload.proofs:
        contradictions += contradict.find_impossible_times(workload, report, wall_s)
    seen: dict[str, str] = {}
    unseen: dict[str, str] = {}
    if sighting is None or not sighting.pids:
        why = _NO_PROCESSES if sighting is None else sighting.unreadable or _NOT_FOUND
        unseen = {"processes": why, "libraries": why}
        if workload.gpus:
            unseen["gpu"] = why
    else:
        seen["processes"] = f"{len(sighting.pids)}: {', '.join(sighting.programs)}"
        _note_libraries(sighting, seen, unseen)
        if report.env:
            contradictions += contradict.find_other_versions(report.env, sighting.libraries)
        if workload.gpus:
            _note_gpu(sighting, seen, unseen)
            contradictions += contradict.find_idle_gpu(workload, report, sighting)
        if digest:
            contradictions += contradict.find_other_program(sighting, digest)
    if workload.interpreter == "worker" and not digest:
        unseen["interpreter"] = "the executor cannot mount the worker's interpreter"
    return replace(
        signed,
        assurance=_rate(workload, signed, unseen),
        wall_s=round(wall_s, 3),
        interpreter="worker" if digest else "image",
        seen=seen,
        not_witnessed=unseen,
        contradictions=tuple(contradictions),
    )


def _rate(workload: Workload, signed: Witness, unseen: dict[str, str]) -> Assurance:
    if not workload.proofs or any(by not in signed.proofs for by in workload.proofs):
        return "self-reported"
    return "challenged" if unseen else "witnessed"


def _note_libraries(sighting: Sighting, seen: dict[str, str], unseen: dict[str, str]) -> None:
    if not sighting.files:
        unseen["libraries"] = sighting.unreadable or _NOT_FOUND
        return
    names = ", ".join(sorted(library.path for library in sighting.libraries))
    seen["libraries"] = names or f"no CUDA library among {sighting.files} mapped files"


def _note_gpu(sighting: Sighting, seen: dict[str, str], unseen: dict[str, str]) -> None:
    if sighting.gpu_pids:
        seen["gpu"] = f"NVML showed its processes on the GPU in {sighting.gpu_looks} looks"
    elif not sighting.gpu_looks:
        unseen["gpu"] = "NVML does not answer on the worker's machine"
    else:
        unseen["gpu"] = "NVML showed none of its processes on the GPU"
