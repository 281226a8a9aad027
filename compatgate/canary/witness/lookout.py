"""Keep a lookout on one execution: challenge it, watch its processes, contradict its report."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from compatgate.canary.executors import Executor, Handle, Job
from compatgate.canary.run import Env, OutputReader, Report, Witness
from compatgate.canary.witness.challenge import SignedOutput, make_challenge
from compatgate.canary.witness.processes import ProcessWatch, Sighting
from compatgate.canary.workload import Workload
from compatgate.core.binding import Assurance
from compatgate.core.versions import parse_version, same_release
from compatgate.diagnostics.loaded import Library
from compatgate.errors import CompatgateError

_NO_PROCESSES = "the executor does not show the program's processes to this worker"
_NOT_FOUND = "no process of the program was found on this machine, or it ended too soon"


class Lookout:
    """Lookout on one execution, and the reader of its output."""

    def __init__(self, workload: Workload, executor: Executor, reader: OutputReader) -> None:
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
        if isinstance(self._reader, SignedOutput):
            self._reader.files = job.files
        return replace(job, challenge=self.challenge)

    def started(self, handle: Handle) -> None:
        """Begin to watch the processes of a job that has begun."""
        self._digest = self._executor.interpreter(handle)
        root = self._executor.main_process(handle)
        if root is not None:
            self._watch = ProcessWatch(root, self.challenge, self._slots)

    def close(self) -> None:
        """Stop watching."""
        if self._watch is not None:
            self._sighting = self._watch.close()
            self._watch = None

    @property
    def progress(self) -> float | None:
        """Return the share of its work that the program printed last."""
        return self._reader.progress

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
    """Return what the worker saw of an execution, and of its processes if the executor shows them.

    The digest is of the worker's program that started it; "" if the image's Python did.
    """
    signed = report.witness or Witness()
    contradictions = list(signed.contradictions)
    if workload.proofs:
        contradictions += find_impossible_times(workload, report, wall_s)
    seen = {} if signed.other_image else dict(signed.seen)
    unseen: dict[str, str] = {}
    if sighting is None or not sighting.pids:
        why = _NO_PROCESSES if sighting is None else sighting.unreadable or _NOT_FOUND
        unseen = {"processes": why, "libraries": why}
        if workload.gpus:
            unseen["gpu"] = why
    else:
        seen["processes"] = f"{len(sighting.pids)}: {', '.join(sighting.programs)}"
        if sighting.files:
            names = ", ".join(sorted(library.path for library in sighting.libraries))
            none = f"no CUDA library among {sighting.files} mapped files"
            seen["libraries"] = names or none
        else:
            unseen["libraries"] = sighting.unreadable or _NOT_FOUND
        if report.env:
            contradictions += find_other_versions(report.env, sighting.libraries)
        if workload.gpus:
            if sighting.gpu_pids:
                seen["gpu"] = f"NVML showed its processes on the GPU in {sighting.gpu_looks} looks"
            elif not sighting.gpu_looks:
                unseen["gpu"] = "NVML does not answer on the worker's machine"
            else:
                unseen["gpu"] = "NVML showed none of its processes on the GPU"
            contradictions += find_idle_gpu(workload, report, sighting)
        ran = sighting.programs
        if digest and ran and digest not in ran.values():
            what = "it should run on the worker's interpreter, but ran"
            contradictions.append(f"{what} {', '.join(ran)}")
    if workload.interpreter == "worker" and not digest:
        unseen["interpreter"] = "the executor cannot mount the worker's interpreter"
    assurance: Assurance = "challenged" if unseen else "witnessed"
    if not workload.proofs or any(by not in signed.proofs for by in workload.proofs):
        assurance = "self-reported"
    return replace(
        signed,
        assurance=assurance,
        wall_s=round(wall_s, 3),
        interpreter="worker" if digest else "image",
        seen=seen,
        not_witnessed=unseen,
        contradictions=tuple(contradictions),
    )


_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_SLACK_S, _SLACK = 2.0, 0.02
_LEAST_LOOKS = 10


def find_impossible_times(workload: Workload, report: Report, wall_s: float) -> Iterator[str]:
    """Yield the metrics whose times add up to more than the program lasted by the worker's clock.

    Where the workload says that a metric's values overlap, each of them counts alone.
    """
    for metric in report.metrics:
        scale = _SECONDS.get(metric.unit)
        spec = workload.metrics.get(metric.name)
        if scale is None or spec is None:
            continue
        times = [abs(value) * scale for value in (*metric.warmup, *metric.values)]
        claimed = max(times, default=0.0) if spec.overlaps else sum(times)
        if claimed > wall_s * (1 + _SLACK) + _SLACK_S:
            yield (
                f"the times of {metric.name} are {claimed:.1f} s together, "
                f"but the program lasted {wall_s:.1f} s"
            )


def find_other_versions(env: Env, libraries: Sequence[Library]) -> Iterator[str]:
    """Yield the components of the env line that no mapped library of that component confirms.

    A library speaks by the full version in its file's name, or by the record of its package. A
    component of which nothing was mapped that states a version is not judged.
    """
    named: dict[str, dict[str, str]] = {}
    for library in libraries:
        if library.name_version:
            named.setdefault(library.component, {})[library.name_version] = library.path
    for component, stated in env.versions.items():
        result = named.get(component)
        if result and not any(_is_same(component, stated, version) for version in result):
            seen = ", ".join(f"{version} ({path})" for version, path in sorted(result.items()))
            yield f"it says {component} {stated}, but its processes had mapped {seen}"


def _is_same(component: str, stated: str, named: str) -> bool:
    try:
        one, other = parse_version(component, stated), parse_version(component, named)
    except CompatgateError:
        return True
    parts = zip(stated.partition("+")[0].split("."), named.split("."), strict=False)
    return same_release(component, one, other) or all(a == b for a, b in parts)


def find_idle_gpu(workload: Workload, report: Report, sighting: Sighting) -> Iterator[str]:
    """Yield that NVML saw no use of the GPU at all while a program measured it."""
    if not (workload.gpus and report.metrics) or sighting.gpu_looks < _LEAST_LOOKS:
        return
    if sighting.gpu_pids or sighting.gpu_foreign or sighting.gpu_busy:
        return
    yield (
        f"it measured a GPU, but in {sighting.gpu_looks} looks NVML showed no process, no memory "
        "in use and no work on it"
    )
