"""Run the steps of a run, each workload with each seed: prepare, execute, conclude and judge."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from compatgate.canary.engine import HostContext, Lease, Queue, Settings
from compatgate.canary.engine.baseline_judge import NO_GPU_SKU
from compatgate.canary.engine.conclude import ExecutionEnd, conclude_step, judge_host
from compatgate.canary.executors import Executor, Handle, Job, PreparedJob, Progress
from compatgate.canary.executors.host_watch import HostObservation
from compatgate.canary.forecast import Forecast, describe_left
from compatgate.canary.hosts import CLUSTERS
from compatgate.canary.run import Origin, Report, StepResult, merge_reports
from compatgate.canary.witness.challenge import strip_signatures
from compatgate.canary.witness.lookout import Lookout
from compatgate.canary.workload import Workload
from compatgate.core.gpu_code import find_run_mode
from compatgate.core.gpus import resolve_gpu
from compatgate.core.stack import parse_stack
from compatgate.errors import InfrastructureError

_FILES = 4
"""Files of the image that a program must show."""
_PROGRESS_S = 1.0
_TIME_S = 10.0
"""Pauses before a new progress is told, and before the time left is told again."""


class Step(Struct, frozen=True):
    """One workload with one seed."""

    workload: Workload
    seed: int

    @property
    def name(self) -> str:
        """Return a name that is unique in the run."""
        return f"{self.workload.name}-{self.seed}"


def plan_steps(workloads: Sequence[Workload]) -> list[Step]:
    """Return the steps of a suite, in order."""
    return [Step(workload, seed) for workload in workloads for seed in workload.seeds]


class StepRunner:
    """Runner of the steps of one leased run."""

    def __init__(
        self,
        lease: Lease,
        context: HostContext,
        planned: Sequence[Step],
        must_stop: Callable[[], bool],
        forecast: Forecast,
    ) -> None:
        self.forecast = forecast
        self._lease = lease
        self._queue = context.queue
        self._executor = context.executor
        self._context = context
        self._must_stop = must_stop
        self._files: dict[str, dict[str, str]] = {}
        self._planned = planned
        # Whether the stated stack runs on the host's GPU only through the driver's compiler.
        codes = parse_stack(lease.run.stack).arch if lease.run.stack else None
        gpu = resolve_gpu(context.gpu, context.gpus) if context.gpu else None
        self._sku, device = (gpu.sku, gpu.capability) if gpu else (NO_GPU_SKU, None)
        self._needs_ptx: bool | None = None
        if codes is not None and device is not None and context.code is not None:
            self._needs_ptx = find_run_mode(codes, device, context.code) != "sass"
        self._suite = sum(len(step.workload.metrics) for step in planned)

    def prepare(self, step: Step, reference: str | None = None) -> PreparedJob:
        """Prepare the step's image on the host, or ``reference`` in place of the one under test."""
        if self._must_stop():
            raise ExecutionStopped
        run = self._lease.run
        workload = step.workload
        job = Job(
            run=run.id,
            attempt=self._lease.attempt,
            step=step.name,
            workload=workload,
            seed=step.seed,
            image=self._context.images.check(reference or run.image),
            gpu_slots=self._lease.slots[: workload.gpus],
            needs_ptx=self._needs_ptx,
        )
        prepared = self._executor.prepare(job, self._telling())
        if job.image is None or self._executor.kind not in CLUSTERS or not workload.proofs:
            return prepared
        # The worker does not start the container there, so a wrapper may take another image.
        if prepared.image not in self._files and self._context.read_content is not None:
            self._queue.say(self._lease, "reading the image", None)
            known = self._context.read_content(prepared.image).files
            paths = secrets.SystemRandom().sample(sorted(known), min(_FILES, len(known)))
            self._files[prepared.image] = {path: known[path] for path in paths}
        files = self._files.get(prepared.image, {})
        return replace(prepared, job=replace(prepared.job, files=files))

    def _telling(self) -> Progress:
        """Return a progress callback that writes now and then; engines report very often.

        The callback also stops a long pull when the run must stop.
        """
        latest, before = "", 0.0

        def tell(doing: str, share: float | None) -> None:
            nonlocal latest, before
            if self._must_stop():
                raise ExecutionStopped
            now = time.monotonic()
            if doing != latest or now - before >= _PROGRESS_S:
                latest, before = doing, now
                self._queue.say(self._lease, doing, share)

        return tell

    def run(self, step: Step, prepared: PreparedJob) -> StepResult:
        """Run a step, repeat it where that may settle its outcome, and record the result.

        A workload of hours is never repeated. The reason of each repetition is shown.
        """
        reports: list[Report] = []
        hung = 0
        most = self._context.settings.repeats if step.workload.paired else 0
        place = f"{self._planned.index(step) + 1} of {len(self._planned)}"
        again = ""
        began: datetime | None = None
        while True:
            number = len(reports) + hung
            name = f"{step.name}-again{number}" if number else step.name
            doing = f"running {step.name} ({place}){again}"
            result, report = self.run_once(self._executor, step, prepared, name, step.name, doing)
            began = began or result.started_at
            if result.attributable and result.exit_code is None:
                hung += 1
                reason = result.reason
                digest = step.workload.digest
                if earlier := self._queue.ended_in_time(self._lease, step.name, digest):
                    reason += f"; on this host it ended in time before (run {earlier})"
                    result = replace(result, outcome="failed", reason=reason)
                    break
                often = f", {hung} times" if hung > 1 else ""
                reason += f"{often}; it never ended in time on this host"
                result = replace(result, reason=reason)
                if hung > min(most, 1):
                    break
                again = f", again: {result.reason}"
                continue
            reports.append(report)
            if result.outcome != "passed":
                break
            explained = self._lease.run.explained
            judged = self._context.judge.judge(
                step.workload, reports, self._suite, explained=explained
            )
            result = replace(
                result,
                outcome=judged.outcome,
                reason=judged.explanation,
                judgement=msgspec.to_builtins(judged),
                report=msgspec.to_builtins(merge_reports(reports)),
            )
            if not judged.more or len(reports) > most:
                break
            again = f", again: {judged.more} more values are needed"
        result = replace(result, started_at=began)  # what is repeated takes longer
        self._queue.record(self._lease, result)
        return result

    def run_once(
        self,
        executor: Executor,
        step: Step,
        prepared: PreparedJob,
        name: str,
        log_name: str,
        doing: str,
    ) -> tuple[StepResult, Report]:
        """Execute a step once, show what it is ``doing``, and conclude it; nothing is recorded."""
        workload = step.workload
        lookout = Lookout(workload, executor, self._context.reader(workload))
        job = lookout.prepare(replace(prepared.job, step=name))
        prepared = replace(prepared, job=job)
        log = StepLog(self._queue, self._lease, log_name, workload.limits.output)
        began = datetime.now(UTC)
        shown = _ShownProgress(self._queue, self._lease, self.forecast, step.name, doing)
        shown.tell(None)

        def must_stop() -> bool:
            log.tick()
            shown.tick(lookout.progress)
            return self._must_stop()

        def note_start(handle: Handle) -> None:
            shown.begin()
            lookout.started(handle)

        def take(data: bytes) -> None:
            lookout.feed(data)
            log.feed(strip_signatures(data))

        def say_waiting(why: str) -> None:
            if why:
                waits = f"{step.name} waits: {why}"
                self._queue.say(self._lease, waits, None, self.forecast.left_s())
            else:
                shown.tell(None)

        try:
            with self._context.watch(job.gpu_slots) as observe:
                ended = execute(
                    executor,
                    prepared,
                    take,
                    must_stop,
                    settings=self._context.settings,
                    waits=say_waiting,
                    started=note_start,
                )
        finally:
            lookout.close()
            log.close()
        self.forecast.end(step.name, (datetime.now(UTC) - began).total_seconds())
        report = lookout.report()
        result = self._conclude(step, prepared, began, ended, report, observe())
        return result, report

    def _conclude(
        self,
        step: Step,
        prepared: PreparedJob,
        began: datetime,
        ended: ExecutionEnd,
        report: Report,
        observed: HostObservation,
    ) -> StepResult:
        """Return the result of a step; raise where the host's fault may pass."""
        workload = step.workload
        concluded = conclude_step(workload, ended, report, gpu_seen=observed.state == "healthy")
        verdict = judge_host(concluded, observed)
        if verdict.passing and workload.paired and not self._lease.is_last:
            raise InfrastructureError(f"{step.name}: {verdict.reason}")
        return StepResult(
            name=step.name,
            workload=workload.name,
            seed=step.seed,
            outcome=verdict.outcome,
            reason=verdict.reason,
            exit_code=ended.exit_code,
            image=prepared.image,
            report=msgspec.to_builtins(report),
            health=observed.body,
            started_at=began,
            finished_at=datetime.now(UTC),
            origin=Origin(
                workload.digest,
                self._sku,
                self._executor.kind,
                self._executor.development,
            ),
            attributable=verdict.attributable,
        )


class _ShownProgress:
    """Progress of one process and of its run, as people see it."""

    def __init__(
        self, queue: Queue, lease: Lease, forecast: Forecast, name: str, doing: str
    ) -> None:
        self._queue = queue
        self._lease = lease
        self._forecast = forecast
        self._name = name
        self._doing = doing
        self._began = time.monotonic()
        self._done: float | None = None
        self._told = self._began

    def begin(self) -> None:
        """Count from now on: the job has begun."""
        self._began = time.monotonic()

    def tick(self, done: float | None) -> None:
        """Tell a new progress, and how time passes, now and then."""
        silent = time.monotonic() - self._told
        if silent >= (_PROGRESS_S if done != self._done else _TIME_S):
            self.tell(done)

    def tell(self, done: float | None) -> None:
        """Tell what runs, how far it is, and how long the run may still take."""
        self._told, self._done = time.monotonic(), done
        now = self._name, self._told - self._began, done
        left = self._forecast.left_s(*now)
        parts = (self._doing, "" if done is None else f"{done:.0%}", describe_left(left))
        doing = ", ".join(filter(None, parts))
        self._queue.say(self._lease, doing, self._forecast.share(*now), left)


class ExecutionStopped(Exception):
    """Error: the run was cancelled, or the lease is lost."""


def execute(
    executor: Executor,
    prepared: PreparedJob,
    take: Callable[[bytes], None],
    must_stop: Callable[[], bool],
    *,
    settings: Settings,
    waits: Callable[[str], None] | None = None,
    started: Callable[[Handle], object] | None = None,
) -> ExecutionEnd:
    """Run a prepared job to its end; ``take`` gets its output.

    The time that a batch scheduler lets it wait does not count; ``waits`` gets each new reason for
    it, and "" once the job has begun. ``must_stop`` is asked every second, and kills the job. A
    host that takes longer than a lease to say how the job stands did not answer.
    """
    handle = executor.start(prepared)
    try:
        reason = ""
        while not must_stop() and (status := executor.status(handle)).state == "waiting":
            if waits and status.reason != reason:
                waits(status.reason)
                reason = status.reason
            time.sleep(settings.poll)
        if waits and reason:
            waits("")
        if started:
            started(handle)
        deadline = time.monotonic() + prepared.job.workload.timeout_s
        asked, answered = time.monotonic(), True

        def time_is_up() -> bool:
            nonlocal asked, answered
            if time.monotonic() - asked > settings.heartbeat:
                asked = time.monotonic()
                executor.status(handle)
                answered &= time.monotonic() - asked < settings.lease
            return must_stop() or time.monotonic() >= deadline

        for piece in executor.output(handle, time_is_up):
            take(piece)
        while (status := executor.status(handle)).state == "running" and not time_is_up():
            time.sleep(settings.poll)
    finally:
        executor.kill(handle)
    if must_stop():
        raise ExecutionStopped
    if status.state == "lost":
        why = status.reason or "its host does not know it"
        raise InfrastructureError(f"the job was lost: {why}")
    how: Literal["exited", "timeout", "memory"] = "timeout"
    if status.oom_killed or status.state == "exited":
        how = "memory" if status.oom_killed else "exited"
    return ExecutionEnd(how, None if how == "timeout" else status.exit_code, answered)


_PIECE_BYTES = 64 << 10
_FLUSH_S = 1.0


class StepLog:
    """Buffer that writes output to the queue now and then.

    Bytes after ``limit`` are only counted, and the log says so at its end.
    """

    def __init__(self, queue: Queue, lease: Lease, step: str, limit: int) -> None:
        self._queue = queue
        self._lease = lease
        self._step = step
        self._left = limit
        self._dropped = 0
        self._waiting = bytearray()
        self._written = time.monotonic()

    def feed(self, data: bytes) -> None:
        """Take the next piece."""
        kept = data[: self._left]
        self._left -= len(kept)
        self._dropped += len(data) - len(kept)
        self._waiting += kept
        if len(self._waiting) >= _PIECE_BYTES:
            self._write()
        self.tick()

    def tick(self) -> None:
        """Write output that has waited for long, so that a silent program's output shows."""
        if time.monotonic() - self._written >= _FLUSH_S:
            self._write()

    def close(self) -> None:
        """Write the rest."""
        if self._dropped:
            self._waiting += (
                f"\n[{self._dropped} more bytes were dropped: output limit reached]\n".encode()
            )
        self._write()

    def _write(self) -> None:
        self._written = time.monotonic()
        if self._waiting:
            self._queue.write(self._lease, self._step, bytes(self._waiting))
            self._waiting.clear()
