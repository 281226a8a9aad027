"""A leased run from beginning to end; whatever happens, the run ends or goes back to the queue."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from compatgate.canary.engine.conclude_run import Conclusion, Conditions, conclude_run
from compatgate.canary.engine.execute import Stopped
from compatgate.canary.engine.heartbeat import Heartbeat
from compatgate.canary.engine.measured import Expected
from compatgate.canary.engine.parts import Bench
from compatgate.canary.engine.patient import PatientQueue
from compatgate.canary.engine.steps import Step, Steps, plan
from compatgate.canary.queue import Lease, LeaseLost, Order, Queue
from compatgate.canary.run import Run, StepResult
from compatgate.canary.workload import Workload
from compatgate.core.gpus import resolve_gpu
from compatgate.core.stack import Stack, parse_stack
from compatgate.core.versions import parse_version
from compatgate.errors import CompatgateError, Infrastructure, Unavailable

_log = logging.getLogger(__name__)


def drive(lease: Lease, bench: Bench, hand_back: Callable[[], bool] = lambda: False) -> bool:
    """Carry a leased run to its end.

    A host or database that fails puts the run back into the queue; any other error ends it, with
    the reason. A lease that was lost is dropped without a trace: the run is another worker's.

    Args:
        lease: of the run.
        bench: of the lease's host.
        hand_back: asked at least every second; once it says so, the run goes back to the queue.

    Returns:
        False where the host, or something that the run needed there, failed.
    """
    failed = False
    bench = replace(bench, queue=PatientQueue(bench.queue, bench.settings))
    try:
        with Heartbeat(bench.queue, lease, bench.settings) as heartbeat:
            try:
                _carry_out(lease, bench, lambda: heartbeat.must_stop() or hand_back())
            except Stopped:
                _dropped(lease, bench, heartbeat.order)
            except Unavailable as error:
                failed = True
                bench.executor.clean(lease.run.id)  # the next attempt may be on another host
                bench.queue.retry(lease, error.detail)
            except CompatgateError as error:
                _end(lease, bench, Conclusion("error", error.detail))
    except LeaseLost:
        _log.warning("lease of run %s lost; another worker has it", lease.run.id)
    except Unavailable as error:
        failed = True
        _log.warning("run %s is left to the next worker: %s", lease.run.id, error.detail)
    except Exception as error:
        _log.exception("a defect ended run %s", lease.run.id)
        _end(lease, bench, Conclusion("error", f"a defect: {type(error).__name__}: {error}"))
    return not failed


def _dropped(lease: Lease, bench: Bench, order: Order) -> None:
    if order == "cancel":
        _end(lease, bench, Conclusion("cancelled", "cancelled"))
    elif order == "go":
        bench.executor.clean(lease.run.id)
        bench.queue.retry(lease, "its worker was stopped")
    else:
        raise LeaseLost


def _carry_out(lease: Lease, bench: Bench, must_stop: Callable[[], bool]) -> None:
    run = lease.run
    if lease.attempt > run.max_attempts:
        _give_up(lease, bench)
        return
    if lease.abandoned or lease.attempt > 1:
        bench.executor.clean(run.id)
    workloads = list(bench.workloads(run.suite))
    results = _run_steps(lease, bench, must_stop, workloads)
    bench.queue.enter(lease, "judging")
    conclusion = conclude_run(run, results, _conditions(lease, bench, workloads), bench.gpus)
    if conclusion.sound:
        by_name = {workload.name: workload for workload in workloads}
        for result in results:
            bench.judge.offer(run.id, by_name[result.workload], result)
    _end(lease, bench, conclusion)


def _give_up(lease: Lease, bench: Bench) -> None:
    """End a run that is out of attempts, even on a host that is gone for good."""
    run = lease.run
    reason = f"gave up after {run.max_attempts} attempts: {run.reason or 'workers went silent'}"
    try:
        bench.executor.clean(run.id)
    except Infrastructure as error:
        reason += f"; what it left on {lease.host} is removed when that answers ({error.detail})"
    bench.queue.finish(lease, "error", reason, None)


def _run_steps(
    lease: Lease, bench: Bench, must_stop: Callable[[], bool], workloads: Sequence[Workload]
) -> list[StepResult]:
    planned = plan(workloads)
    done = {result.name: result for result in bench.queue.results(lease)}
    todo = [step for step in planned if step.name not in done]
    if todo:
        steps = Steps(lease, bench, must_stop)
        bench.queue.enter(lease, "preparing")
        prepared = {step.name: steps.prepare(step) for step in todo}
        bench.queue.enter(lease, "running")
        for step in todo:
            _announce(bench.queue, lease, planned, step)
            done[step.name] = steps.run(step, prepared[step.name])
    return [done[step.name] for step in planned]


def _announce(queue: Queue, lease: Lease, planned: Sequence[Step], step: Step) -> None:
    at = planned.index(step)
    queue.say(lease, f"running {step.name} ({at + 1} of {len(planned)})", at / len(planned))


def _conditions(lease: Lease, bench: Bench, workloads: Sequence[Workload]) -> Conditions:
    return Conditions(
        expected=Expected(
            _under_test(lease.run),
            resolve_gpu(bench.gpu, bench.gpus).sku if bench.gpu else None,
            parse_version("driver", bench.driver) if bench.driver else None,
        ),
        gpu_workloads=frozenset(w.name for w in workloads if w.gpus),
        development=bench.executor.development,
        now=int(time.time()),
    )


def _under_test(run: Run) -> Stack:
    """What was stated; where nothing was, whatever the containers bring is measured."""
    return parse_stack(run.stack) if run.stack else Stack({})


def _end(lease: Lease, bench: Bench, conclusion: Conclusion) -> None:
    """Clean the host, then end the run: its slots must not be free while something holds them."""
    bench.executor.clean(lease.run.id)
    bench.queue.finish(lease, conclusion.outcome, conclusion.reason, conclusion.evidence)
