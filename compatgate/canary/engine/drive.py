"""Drive a leased run from beginning to end: it always ends, or goes back to the queue."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from compatgate.canary.engine import (
    HostContext,
    ImageContent,
    Lease,
    LeaseLost,
    Order,
    Queue,
    Settings,
)
from compatgate.canary.engine.conclude import (
    Conclusion,
    Conditions,
    Expectation,
    conclude_run,
    find_tested_image,
)
from compatgate.canary.engine.pairs import PairSession, ReferenceUnusable, check_pairs, is_compared
from compatgate.canary.engine.steps import ExecutionStopped, Step, StepRunner, plan_steps
from compatgate.canary.forecast import Forecast
from compatgate.canary.judge.paired.blocks import PAIRED_JUDGE
from compatgate.canary.judge.result import JUDGE
from compatgate.canary.judge.workload import WorkloadJudgement
from compatgate.canary.run import BY_HISTORY, Report, StepResult
from compatgate.canary.workload import Workload
from compatgate.core.binding import Binding, SuiteDefinition, define_suite, require_definition
from compatgate.core.gpus import resolve_gpu
from compatgate.core.stack import Stack, parse_stack
from compatgate.core.versions import parse_version
from compatgate.errors import CompatgateError, InfrastructureError, Unavailable, quote_error
from compatgate.kit import tracing

_log = logging.getLogger(__name__)


def drive(
    lease: Lease, context: HostContext, hand_back: Callable[[], bool] = lambda: False
) -> bool:
    """Carry a leased run to its end; return False if the host or a service that it needs failed.

    Such a failure, one of the database, or ``hand_back`` (asked every second) returns the run to
    the queue; any other error ends the run, with the reason. A run with a lost lease is dropped
    without a trace: it belongs to another worker.
    """
    failed = False
    retrying = RetryingQueue(context.queue, context.settings)
    context = replace(context, queue=cast("Queue", retrying))
    try:
        with Heartbeat(context.queue, lease, context.settings) as heartbeat:
            try:
                with tracing.span(
                    "canary.run",
                    {
                        "compatgate.run": lease.run.id,
                        "compatgate.suite": lease.run.suite,
                        "compatgate.host": lease.host,
                        "compatgate.attempt": lease.attempt,
                    },
                ):
                    _execute_run(lease, context, lambda: heartbeat.must_stop() or hand_back())
            except ExecutionStopped:
                if heartbeat.order == "cancel":
                    _end_run(lease, context, Conclusion("cancelled", "cancelled"))
                elif heartbeat.order == "go":
                    context.executor.clean(lease.run.id)
                    context.queue.retry(lease, "its worker was stopped")
                else:
                    raise LeaseLost from None
            except Unavailable as error:
                failed = True
                context.executor.clean(lease.run.id)  # the next attempt may be on another host
                context.queue.retry(lease, error.detail)
            except CompatgateError as error:
                _end_run(lease, context, Conclusion("error", error.detail))
    except LeaseLost:
        _log.warning("lease of run %s lost; another worker has it", lease.run.id)
    except Unavailable as error:
        failed = True
        _log.warning("run %s stopped; another worker will take it: %s", lease.run.id, error.detail)
    except Exception as error:
        _log.exception("unexpected error ended run %s", lease.run.id)
        _end_run(
            lease,
            context,
            Conclusion("error", f"unexpected error: {type(error).__name__}: {quote_error(error)}"),
        )
    return not failed


def _execute_run(lease: Lease, context: HostContext, must_stop: Callable[[], bool]) -> None:
    run = lease.run
    if lease.attempt > run.max_attempts:
        _give_up(lease, context)
        return
    if lease.abandoned or lease.attempt > 1:
        context.executor.clean(run.id)
    workloads = list(context.workloads(run.suite))
    require_definition(run.suite, lease.definition, _define(workloads))
    results = _run_steps(lease, context, must_stop, workloads)
    context.queue.enter(lease, "judging")
    blocks = [one for one in context.queue.results(lease) if one.block]
    conditions = _make_conditions(lease, context, workloads, blocks)
    conclusion = conclude_run(run, results, conditions, context.gpus)
    evidence = conclusion.evidence
    if evidence and (image := find_tested_image(results, conditions.tested)) is not None:
        context.queue.say(lease, "reading the image", None)
        content = ImageContent(why="this worker reads no images")
        if context.read_content is not None:
            content = context.read_content(image)
        bound = replace(
            evidence.bound or Binding(),
            content=content.digest,
            content_why=content.why,
            images=content.images,
        )
        conclusion = replace(conclusion, evidence=replace(evidence, bound=bound))
    if conclusion.sound and conclusion.outcome in ("passed", "inconclusive"):
        by_name = {workload.name: workload for workload in workloads}
        for result in results:
            context.judge.offer(run.id, by_name[result.workload], result)
    _end_run(lease, context, conclusion)


def _give_up(lease: Lease, context: HostContext) -> None:
    """End a run that is out of attempts, even on a host that is gone for good."""
    run = lease.run
    reason = (
        f"gave up after {run.max_attempts} attempts: {run.reason or 'workers stopped responding'};"
        f" once that is fixed: compatgate canary rerun {run.id}"
    )
    try:
        context.executor.clean(run.id)
    except InfrastructureError as error:
        reason += f"; leftovers on {lease.host} are removed when the host answers ({error.detail})"
    context.queue.finish(lease, "inconclusive", reason, None)


def _run_steps(
    lease: Lease, context: HostContext, must_stop: Callable[[], bool], workloads: Sequence[Workload]
) -> list[StepResult]:
    planned = plan_steps(workloads)
    stored = context.queue.results(lease)
    done = {result.name: result for result in stored}
    todo = [step for step in planned if step.name not in done]
    by_history = lease.run.against is not None and lease.run.against.asked == BY_HISTORY
    if not todo and not (by_history and _needs_pairs(done.values())):
        return [done[step.name] for step in planned]
    known = context.queue.lengths(lease, [step.name for step in planned])
    forecast = Forecast({step.name: 1 for step in todo}, known)
    steps = StepRunner(lease, context, planned, must_stop, forecast)
    context.queue.enter(lease, "preparing")
    if not by_history and check_pairs(lease, context):
        with suppress(ReferenceUnusable):
            return _run_pairs(lease, context, steps, planned, stored)
    prepared = {}
    for step in todo:
        with tracing.span("canary.prepare", {"compatgate.step": step.name}):
            prepared[step.name] = steps.prepare(step)
    context.queue.enter(lease, "running")
    for step in todo:
        with tracing.span("canary.step", {"compatgate.step": step.name}):
            done[step.name] = steps.run(step, prepared[step.name])
    results = [done[step.name] for step in planned]
    if by_history and _needs_pairs(results) and check_pairs(lease, context):
        with suppress(ReferenceUnusable):
            return _run_pairs(lease, context, steps, planned, [*stored, *results])
    return results


def _needs_pairs(results: Iterable[StepResult]) -> bool:
    """Return whether only pairs can answer: history shows too much noise, and nothing failed."""
    results = list(results)
    judged = [one.judgement for one in results if one.judgement]
    return all(one.outcome in ("passed", "inconclusive") for one in results) and any(
        msgspec.convert(judgement, WorkloadJudgement).pairs for judgement in judged
    )


def _run_pairs(
    lease: Lease,
    context: HostContext,
    steps: StepRunner,
    planned: Sequence[Step],
    stored: Sequence[StepResult],
) -> list[StepResult]:
    session = PairSession(steps, lease, context)
    jobs = session.prepare(planned)
    context.queue.enter(lease, "running")
    done = {result.name: result for result in stored if result.block is None}
    compared = [step for step in planned if is_compared(jobs[step.name], context.executor)]
    if compared:
        with tracing.span("canary.pairs", {"compatgate.steps": len(compared)}):
            done |= {one.name: one for one in session.run(compared, jobs, stored)}
    alone = [step for step in planned if step not in compared and step.name not in done]
    steps.forecast.plan({step.name: 1 for step in alone})
    for step in alone:
        with tracing.span("canary.step", {"compatgate.step": step.name}):
            done[step.name] = steps.run(step, jobs[step.name]["B"])
    return [done[step.name] for step in planned]


def _make_conditions(
    lease: Lease, context: HostContext, workloads: Sequence[Workload], blocks: Sequence[StepResult]
) -> Conditions:
    references = [one.report for one in blocks if one.block and one.block.arm == "A" and one.report]
    envs = [msgspec.convert(report, Report).env for report in references]
    definition = _define(workloads)
    return Conditions(
        expected=Expectation(
            parse_stack(lease.run.stack) if lease.run.stack else Stack({}),
            resolve_gpu(context.gpu, context.gpus).sku if context.gpu else None,
            parse_version("driver", context.driver) if context.driver else None,
        ),
        gpu_workloads=frozenset(w.name for w in workloads if w.gpus),
        development=context.executor.development,
        now=int(time.time()),
        tested=frozenset(w.name for w in workloads if w.tests_image and lease.run.image),
        reference=tuple(env for env in envs if env),
        bound=Binding(
            suite=definition.digest,
            workloads=definition.workloads,
            host=lease.host,
            executor=context.executor.kind,
            judge=PAIRED_JUDGE if blocks else JUDGE,
        ),
    )


def _define(workloads: Sequence[Workload]) -> SuiteDefinition:
    return define_suite({workload.name: workload.digest for workload in workloads})


def _end_run(lease: Lease, context: HostContext, conclusion: Conclusion) -> None:
    """Clean the host, then end the run: its slots must stay taken while something uses them."""
    context.executor.clean(lease.run.id)
    context.queue.finish(lease, conclusion.outcome, conclusion.reason, conclusion.evidence)


class Heartbeat:
    """Thread that renews a lease until the block ends; ``order`` is what the queue said last."""

    def __init__(self, queue: Queue, lease: Lease, settings: Settings) -> None:
        self.order: Order = "go"
        self._queue = queue
        self._lease = lease
        self._settings = settings
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name=f"lease {lease.run.id}")
        self._renewed = time.monotonic()

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def must_stop(self) -> bool:
        """Return whether to drop the work.

        Drop it after the queue has been silent for as long as a lease holds: another worker may
        have the run by then.
        """
        if self.order == "go" and time.monotonic() - self._renewed > self._settings.lease:
            self.order = "lost"
        return self.order != "go"

    def _beat(self) -> None:
        while not self._ended.wait(self._settings.heartbeat) and not self.must_stop():
            asked = time.monotonic()
            try:
                order = self._queue.renew(self._lease)
            except LeaseLost:
                order = "lost"
            except CompatgateError:
                continue
            self._renewed = asked
            if self.order == "go":
                self.order = order


_ASKED_ONCE = ("register", "lease", "report_host", "renew")
"""Calls of the queue that their callers repeat anyway."""


class RetryingQueue:
    """A `Queue` that survives a restart of the database, so that a run loses no attempt.

    Repeat a call for as long as a lease holds. A call that succeeded without an answer is refused
    the second time (`LeaseLost`, the run has ended) or does the same again.
    """

    def __init__(self, queue: Queue, settings: Settings) -> None:
        self._queue = queue
        self._settings = settings

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call: Callable[..., Any] = getattr(self._queue, name)
        return call if name in _ASKED_ONCE else partial(self._ask, call)

    def _ask(self, call: Callable[..., Any], *arguments: Any) -> Any:
        deadline = time.monotonic() + self._settings.lease
        while True:
            try:
                return call(*arguments)
            except Unavailable:
                if time.monotonic() >= deadline:
                    raise
            time.sleep(self._settings.poll)
