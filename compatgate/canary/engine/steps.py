"""The steps of a run: each workload with each of its seeds."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import msgspec
from msgspec import Struct

from compatgate.canary.engine.conclude_step import Verdict, conclude_step
from compatgate.canary.engine.execute import Stopped, execute
from compatgate.canary.engine.judging import sku_of
from compatgate.canary.engine.log import StepLog
from compatgate.canary.engine.parts import Bench, Judged, Observed, Reader
from compatgate.canary.executors.interface import Job, Prepared, Progress
from compatgate.canary.queue import Lease
from compatgate.canary.report import Report, together
from compatgate.canary.run import Origin, Run, StepResult
from compatgate.canary.workload import Workload
from compatgate.core.gpu_code import how_it_runs
from compatgate.core.gpus import resolve_gpu
from compatgate.core.stack import parse_stack

_TELL_S = 1.0


class Step(Struct, frozen=True):
    """One workload with one seed."""

    workload: Workload
    seed: int

    @property
    def name(self) -> str:
        """Unique in the run."""
        return f"{self.workload.name}-{self.seed}"


def plan(workloads: Sequence[Workload]) -> list[Step]:
    """The steps of a suite, in order."""
    return [Step(workload, seed) for workload in workloads for seed in workload.seeds]


class Steps:
    """Runs the steps of one leased run."""

    def __init__(self, lease: Lease, bench: Bench, must_stop: Callable[[], bool]) -> None:
        self._lease = lease
        self._queue = bench.queue
        self._executor = bench.executor
        self._bench = bench
        self._must_stop = must_stop

    def prepare(self, step: Step) -> Prepared:
        """Have the step's image on the host.

        Raises:
            Stopped: the run was cancelled, or the lease is lost.
            CompatgateError: there is no such image, it may not be under test, or the host cannot
                have it.
        """
        if self._must_stop():
            raise Stopped
        run = self._lease.run
        workload = step.workload
        job = Job(
            run=run.id,
            attempt=self._lease.attempt,
            step=step.name,
            workload=workload,
            seed=step.seed,
            image=self._bench.images.check(run.image),
            gpu_slots=self._lease.slots[: workload.gpus],
            needs_ptx=_needs_ptx(run, self._bench),
        )
        return self._executor.prepare(job, self._telling())

    def _telling(self) -> Progress:
        """Tells people now and then; an engine reports a pull many times a second.

        Its calls are also where a long pull learns that it is to stop.
        """
        told, before = "", 0.0

        def tell(doing: str, share: float | None) -> None:
            nonlocal told, before
            if self._must_stop():
                raise Stopped
            now = time.monotonic()
            if doing != told or now - before >= _TELL_S:
                told, before = doing, now
                self._queue.say(self._lease, doing, share)

        return tell

    def run(self, step: Step, prepared: Prepared) -> StepResult:
        """Run a step, again while its values are too noisy to judge, and record what came of it."""
        reports: list[Report] = []
        while True:
            result, report = self._once(step, prepared, len(reports))
            reports.append(report)
            if result.outcome != "passed":
                break
            judged = self._bench.judge.judge(step.workload, reports)
            result = _with_judgement(result, reports, judged)
            if not judged.more or len(reports) > self._bench.settings.repeats:
                break
        self._queue.record(self._lease, result)
        return result

    def _once(self, step: Step, prepared: Prepared, repeat: int) -> tuple[StepResult, Report]:
        workload = step.workload
        job = prepared.job
        if repeat:
            job = msgspec.structs.replace(job, step=f"{step.name}-again{repeat}")
        prepared = msgspec.structs.replace(prepared, job=job)
        reader = self._bench.reader(workload)
        log = StepLog(self._queue, self._lease, step.name, workload.limits.output)
        began = datetime.now(UTC)

        def must_stop() -> bool:
            log.tick()
            return self._must_stop()

        try:
            with self._bench.watch(job.gpu_slots) as watching:
                ended = execute(
                    self._executor,
                    prepared,
                    _Both(reader, log),
                    must_stop,
                    poll=self._bench.settings.poll,
                    waits=lambda why: self._say_waiting(step, why),
                )
        finally:
            log.close()
        report = reader.report()
        observed = watching.observed()
        verdict = _on_a_sound_host(conclude_step(workload, ended, report), observed)
        result = StepResult(
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
            origin=self._origin(workload),
        )
        return result, report

    def _origin(self, workload: Workload) -> Origin:
        executor = self._executor
        sku = sku_of(self._bench.gpu, self._bench.gpus)
        return Origin(workload.digest, sku, executor.kind, executor.development)

    def _say_waiting(self, step: Step, why: str) -> None:
        doing = f"{step.name} waits: {why}" if why else f"running {step.name}"
        self._queue.say(self._lease, doing, None)


def _needs_ptx(run: Run, bench: Bench) -> bool | None:
    """Whether the stated stack's code runs on the host's GPU through the driver's compiler only."""
    codes = parse_stack(run.stack).arch if run.stack else None
    device = resolve_gpu(bench.gpu, bench.gpus).capability if bench.gpu else None
    if codes is None or device is None or bench.code is None:
        return None
    return how_it_runs(codes, device, bench.code) != "sass"


class _Both:
    """Hands each piece to the reader and to the log."""

    def __init__(self, reader: Reader, log: StepLog) -> None:
        self._reader = reader
        self._log = log

    def feed(self, data: bytes) -> None:
        self._reader.feed(data)
        self._log.feed(data)


def _on_a_sound_host(verdict: Verdict, observed: Observed) -> Verdict:
    """A result from a sick or shared GPU says nothing about the stack, good or bad."""
    spoilt = observed.spoils(passed=verdict.outcome == "passed")
    if not spoilt or verdict.outcome == "inconclusive":
        return verdict
    why = f"the host was {observed.state}: {observed.reason}"
    return Verdict("inconclusive", f"{why} (the workload {verdict.reason or verdict.outcome})")


def _with_judgement(result: StepResult, reports: Sequence[Report], judged: Judged) -> StepResult:
    return msgspec.structs.replace(
        result,
        outcome=judged.outcome,
        reason=judged.reason,
        judgement=judged.body,
        report=msgspec.to_builtins(together(reports)),
    )
