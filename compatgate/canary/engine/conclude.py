"""Conclude a step from its report, and a run from its steps. Pure."""

from __future__ import annotations

import signal
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from compatgate.canary.run import Env, Outcome, Report, Run, StepResult, find_weakest
from compatgate.canary.workload import Workload
from compatgate.core.binding import Binding, find_digest
from compatgate.core.components import OF_BUILDS, resolve_component, sort_components
from compatgate.core.facts.nvidia import Gpus
from compatgate.core.gpus import resolve_gpu
from compatgate.core.matrix import Evidence
from compatgate.core.stack import Stack
from compatgate.core.versions import Version, parse_version, same_release
from compatgate.errors import BadInput

if TYPE_CHECKING:
    from compatgate.canary.executors.host_watch import HostObservation

NO_GPU = 77
"""Exit status of a program that needs a GPU and found none; test runners use it for a skip."""
NOTHING_TO_TEST = 78
"""Exit status of a program whose image lacks what it tests: never a pass, never a failure."""
_SIGNAL = 128
"""Exit statuses above this value stand for a signal."""


class ExecutionEnd(Struct, frozen=True):
    """End of an execution: ``how``, by itself or why it was stopped, and its exit status if so.

    A status above 128 is a signal, as in shells.
    """

    how: Literal["exited", "timeout", "memory"]
    exit_code: int | None = None
    answered: bool = True


_NEEDS = {
    "sick": "a GPU without errors",
    "shared": "the GPU without neighbours",
    "suspect": "the GPU without its events",
    "unknown": "a host watch that sees the GPU",
}
"""State of a host to what a run needs in its place."""
_LASTING = "unknown"
"""The state of a host that another attempt meets again."""


class StepVerdict(Struct, frozen=True):
    """Outcome of a step, with a one-line reason; ``attributable`` as in `StepResult`.

    ``passing``: the host's state is the reason, and another attempt may not meet it.
    """

    outcome: Outcome
    reason: str = ""
    attributable: bool = False
    passing: bool = False


def conclude_step(
    workload: Workload, ended: ExecutionEnd, report: Report, *, gpu_seen: bool = False
) -> StepVerdict:
    """Decide whether an execution may be judged.

    What the program does or leaves out is the candidate's fault: a crash, a failed check, a result
    that ``workload.toml`` promises and the program did not report. A hang, a GPU that was not
    found, an unknown environment and lost output may be the host's fault, so they are inconclusive
    until something shows that the host is not the cause: ``gpu_seen``, the host's own probe.
    """
    checked = _judge_checks(report)
    return (
        _judge_witness(report)
        or _judge_tool(ended, report, checked)
        or _judge_exit(workload, ended, gpu_seen=gpu_seen)
        or _judge_damage(workload, report)
        or checked
        or _judge_missing_results(workload, ended, report, gpu_seen=gpu_seen)
        or StepVerdict("passed")
    )


def judge_host(verdict: StepVerdict, observed: HostObservation) -> StepVerdict:
    """Return an inconclusive verdict if a sick or shared GPU makes the result meaningless."""
    if not observed.spoils(passed=verdict.outcome == "passed"):
        return verdict
    why = f"the host was {observed.state}: {observed.reason}"
    reason = f"{why} (the workload {verdict.reason or verdict.outcome})"
    reason += f"; needs {_NEEDS.get(observed.state, 'a healthy host')}"
    return StepVerdict("inconclusive", reason, passing=observed.state != _LASTING)


def _judge_witness(report: Report) -> StepVerdict | None:
    witness = report.witness
    if witness and witness.other_image:
        advice = "make the host's command start the image that it is given"
        return StepVerdict("inconclusive", f"{witness.other_image}; {advice}")
    if witness and witness.contradictions:
        also = _count_others(witness.contradictions)
        return StepVerdict(
            "failed", f"the report is contradicted: {witness.contradictions[0]}{also}"
        )
    return None


def _judge_tool(
    ended: ExecutionEnd, report: Report, checked: StepVerdict | None
) -> StepVerdict | None:
    """Return the verdict on a tool that cannot run here, or that checks the host and found a fault.

    Its exit status only repeats what it found: ``dcgmi diag`` ends with 226, or with 205 if the GPU
    should be taken out of service.
    """
    if ended.how != "exited":
        return None
    crashed = ended.exit_code is None or ended.exit_code > _SIGNAL
    if report.own_fault and not crashed and checked is None:
        advice = "build it with a CUDA version that this driver supports"
        return StepVerdict("inconclusive", f"the tool, not the stack: {report.own_fault}; {advice}")
    return checked if all(check.host for check in report.checks) else None


def _count_others(found: Sequence[object]) -> str:
    """Return how many there are beside the first, such as `` (and 2 more)``."""
    return f" (and {len(found) - 1} more)" if len(found) > 1 else ""


def _judge_exit(workload: Workload, ended: ExecutionEnd, *, gpu_seen: bool) -> StepVerdict | None:
    if ended.how == "timeout":
        reason = f"was stopped after {workload.timeout_s} s"
        if not ended.answered:
            return StepVerdict("inconclusive", f"{reason}; the host did not answer meanwhile")
        return StepVerdict("inconclusive", reason, attributable=True)
    if ended.how == "memory":
        return StepVerdict(
            "failed", f"was killed for using more than {workload.limits.memory} bytes"
        )
    code = ended.exit_code
    if code in (0, NOTHING_TO_TEST):
        return None
    if code == NO_GPU and workload.gpus:
        return _blame_for_gpu("found no GPU", gpu_seen=gpu_seen)
    if code is None:
        return StepVerdict("inconclusive", "ended without an exit status")
    try:
        name = f" ({signal.Signals(code - _SIGNAL).name})"
    except ValueError:
        name = ""
    return StepVerdict("failed", f"ended with status {code}{name}")


def _blame_for_gpu(reason: str, *, gpu_seen: bool) -> StepVerdict:
    if gpu_seen:
        return StepVerdict("failed", f"{reason}, and the host's driver shows it", attributable=True)
    return StepVerdict("inconclusive", reason, attributable=True)


def _judge_damage(workload: Workload, report: Report) -> StepVerdict | None:
    if report.problems:
        own = workload.adapter == "jsonl"
        what = "broke the line protocol" if own else "printed unreadable output"
        reason = f"{what}: {report.problems[0]}"
        return StepVerdict("inconclusive", reason, attributable=True)
    if report.truncated:
        reason = f"printed {report.dropped_bytes} bytes more than the output limit"
        return StepVerdict("inconclusive", reason, attributable=True)
    return None


def _judge_checks(report: Report) -> StepVerdict | None:
    failed = [check for check in report.checks if not check.ok]
    if not failed:
        return None
    # What fails in the stack counts, even on a host that is sick as well.
    first = min(failed, key=lambda check: check.host)
    message = f": {first.message}" if first.message else ""
    reason = f"check {first.name} failed{message}{_count_others(failed)}"
    if first.host:
        return StepVerdict("inconclusive", f"the host, not the stack: {reason}", passing=True)
    return StepVerdict("failed", reason)


def _judge_missing_results(
    workload: Workload, ended: ExecutionEnd, report: Report, *, gpu_seen: bool
) -> StepVerdict | None:
    checked = {check.name for check in report.checks}
    measured = {metric.name for metric in report.metrics if metric.values}
    outcome: Outcome = "inconclusive" if ended.exit_code == NOTHING_TO_TEST else "failed"
    for kind, promised, answered in (
        ("check", workload.checks, checked),
        ("metric", workload.metrics, measured),
    ):
        if absent := [name for name in promised if name not in answered]:
            reason = f"did not report {kind} {', '.join(absent)}"
            return StepVerdict(outcome, reason, attributable=True)
    if not measured and all(check.skipped for check in report.checks):
        return StepVerdict("inconclusive", "reported no metric and no check")
    if report.env is None:
        reason = "printed no env line, so loaded components are unknown"
        return StepVerdict("inconclusive", reason, attributable=True)
    if workload.gpus and not report.env.gpus:
        return _blame_for_gpu("its env line names no GPU", gpu_seen=gpu_seen)
    proofs = report.witness.proofs if report.witness else workload.proofs
    if absent := [by for by in workload.proofs if by not in proofs]:
        reason = f"did not answer the worker's challenge by {', '.join(absent)}"
        return StepVerdict("inconclusive", reason)
    if ended.exit_code == NOTHING_TO_TEST:
        return StepVerdict("inconclusive", "had nothing to test")
    return None


class Expectation(Struct, frozen=True):
    """Environment that a run must show; ``sku`` includes the MIG profile."""

    stack: Stack
    sku: str | None = None
    driver: Version | None = None


class Measurement(Struct, frozen=True):
    """Environment that all env lines of a run agree on."""

    components: dict[str, Version]
    sku: str | None
    driver: Version | None


class Mismatch(Exception):
    """Measurements that cannot be evidence; the message says which values differ."""


def measure(envs: Iterable[Env], gpus: Gpus) -> Measurement:
    """Combine the env lines of a run's steps."""
    components: dict[str, Version] = {}
    skus: set[str] = set()
    drivers: set[Version] = set()
    for env in envs:
        for name, text in env.versions.items():
            component, version = _read_version(name, text)
            known = components.setdefault(component, version)
            if not same_release(component, known, version):
                raise Mismatch(f"steps measured {component} {known} and {version}")
        if env.driver:
            drivers.add(_read_version("driver", env.driver)[1])
        for device in env.gpus:
            try:
                skus.add(resolve_gpu(device.full_name, gpus).sku)
            except BadInput as error:
                what = f"the env line names the GPU {device.full_name!r}: {error.detail}"
                raise Mismatch(what) from None
    for what, result in (("drivers", drivers), ("GPUs", skus)):
        if len(result) > 1:
            raise Mismatch(f"steps saw different {what}: {', '.join(sorted(map(str, result)))}")
    components.pop("driver", None)
    return Measurement(components, next(iter(skus), None), next(iter(drivers), None))


def compare(measured: Measurement, expected: Expectation) -> None:
    """Check that the measured environment is the one under test."""
    for name in sort_components(expected.stack.components.keys() - OF_BUILDS):
        stated = expected.stack.components[name]
        result = measured.components.get(name)
        if result is None:
            raise Mismatch(f"{name} {stated} is under test, and no workload measured {name}")
        if not same_release(name, result, stated):
            raise Mismatch(f"{name} {stated} is under test, but {result} was loaded")
    if expected.sku is not None and measured.sku != expected.sku:
        seen = measured.sku or "no GPU"
        raise Mismatch(f"the host is declared with {expected.sku}, but the workloads saw {seen}")
    if expected.driver and measured.driver and measured.driver != expected.driver:
        raise Mismatch(
            f"the host has driver {expected.driver}, but the workloads measured {measured.driver}"
        )


def _read_version(name: str, text: str) -> tuple[str, Version]:
    try:
        component = resolve_component(name).component.name
        return component, parse_version(component, text)
    except BadInput as error:
        raise Mismatch(f"the env line says {name} {text!r}: {error.detail}") from None


_OUTCOME_ORDER: tuple[Outcome, ...] = ("cancelled", "failed", "timeout", "error", "inconclusive")
"""A failure wins over an inconclusive step: the stack is known to break."""


class Conclusion(Struct, frozen=True):
    """Outcome of a run, with its evidence; None if it says nothing about a GPU.

    It is ``sound`` if the measured environment is the stack under test on its host, and nothing
    contradicts a step, so baselines may learn from the run.
    """

    outcome: Outcome
    reason: str
    evidence: Evidence | None = None
    sound: bool = False


class Conditions(Struct, frozen=True):
    """Conditions of a run's evidence, apart from its steps, ``now`` in seconds since the epoch.

    Only workloads that need a GPU count for one. Those ``tested`` run in the image under test.
    ``reference`` are env lines of the reference's blocks on the host, in the order of pairs.
    """

    expected: Expectation
    gpu_workloads: frozenset[str]
    development: bool
    now: int
    tested: frozenset[str] = frozenset()
    reference: tuple[Env, ...] = ()
    bound: Binding = Binding()


def conclude_run(
    run: Run, steps: Sequence[StepResult], conditions: Conditions, gpus: Gpus
) -> Conclusion:
    """Decide what a run has shown.

    A run passes only if its containers measured the stack under test, on the SKU and driver of its
    host; otherwise it is inconclusive, and no evidence. A failed run is evidence against the
    measured environment. What a step that ended before its env line did not measure is taken from
    the request, GPU and driver also from the reference: a stack that does not even start must not
    leave an older pass standing.
    """
    outcome, reason = _worst_outcome(steps)
    reports = [msgspec.convert(step.report, Report) if step.report else Report() for step in steps]
    envs = [report.env for report in reports if report.env]
    expected = conditions.expected
    on_gpu = any(step.workload in conditions.gpu_workloads for step in steps)
    each = list(zip(steps, reports, strict=True))
    try:
        measured = measure(envs, gpus)
        if outcome == "failed":
            silent = any(step.outcome == "failed" and not report.env for step, report in each)
            measured = _complete(measured, conditions, gpus, silent=silent)
        image = find_tested_image(steps, conditions.tested)
        if envs or outcome == "passed":
            compare(measured, expected if on_gpu else Expectation(expected.stack))
    except Mismatch as mismatch:
        if outcome == "passed":
            return Conclusion("inconclusive", str(mismatch))
        return Conclusion(outcome, f"{reason}; no evidence: {mismatch}")
    contradicted = any(r.witness.contradictions for r in reports if r.witness)
    whole = Conclusion(outcome, reason, sound=bool(envs) and not contradicted)
    if outcome not in ("passed", "failed"):
        return whole
    if not on_gpu or expected.sku is None:
        no_gpu = "passed; not evidence about a GPU, because none was used"
        return replace(whole, reason=reason or no_gpu)
    witness = find_weakest(r.witness for s, r in each if s.workload in conditions.gpu_workloads)
    devices = [device for env in envs for device in env.gpus]
    capabilities = {resolve_gpu(device.full_name, gpus).capability for device in devices}
    bound = replace(
        conditions.bound,
        image=find_digest(image),
        arch="+".join(sorted(f"sm_{major}{minor}" for major, minor in capabilities)),
        gpus=tuple(sorted({device.uuid for device in devices if device.uuid})),
        mig=tuple(sorted({device.mig for device in devices if device.mig})),
        assurance=witness.assurance if witness else "",
    )
    return _add_evidence(run, whole, measured, conditions, bound)


def _complete(
    measured: Measurement, conditions: Conditions, gpus: Gpus, *, silent: bool
) -> Measurement:
    seen = measure((replace(env, versions={}) for env in conditions.reference), gpus)
    sku, driver = measured.sku or seen.sku, measured.driver or seen.driver
    if not silent:
        return replace(measured, sku=sku, driver=driver)
    expected = conditions.expected
    stated = {n: v for n, v in expected.stack.components.items() if n not in OF_BUILDS}
    return Measurement(stated | measured.components, sku or expected.sku, driver)


def find_tested_image(steps: Iterable[StepResult], tested: Collection[str]) -> str | None:
    """Return the image under test as its steps ran it; None: no step ran it by a digest."""
    ran = {step.image for step in steps if step.workload in tested and find_digest(step.image)}
    digests = {find_digest(image): image for image in sorted(filter(None, ran))}
    if len(digests) > 1:
        raise Mismatch(f"steps ran different images: {', '.join(sorted(filter(None, digests)))}")
    return next(iter(digests.values()), None)


def _worst_outcome(steps: Sequence[StepResult]) -> tuple[Outcome, str]:
    if not steps:
        return "inconclusive", "nothing ran"
    for outcome in _OUTCOME_ORDER:
        results = [step for step in steps if step.outcome == outcome]
        if results:
            reason = f"{results[0].name}: {results[0].reason or outcome}{_count_others(results)}"
            return outcome, reason
    return "passed", ""


def _add_evidence(
    run: Run, conclusion: Conclusion, measured: Measurement, conditions: Conditions, bound: Binding
) -> Conclusion:
    expected = conditions.expected
    driver = measured.driver or (expected.driver if conclusion.outcome == "failed" else None)
    if driver is None:
        if conclusion.outcome == "failed":
            why = "no evidence: the driver is not known; state it in hosts.toml"
            return replace(conclusion, reason=f"{conclusion.reason}; {why}")
        return Conclusion("inconclusive", "no workload reported the driver")
    assert expected.sku is not None  # noqa: S101 - the caller checked
    evidence = Evidence(
        id=run.id,
        suite=run.suite,
        sku=expected.sku,
        driver=driver,
        components=dict(measured.components),
        outcome="passed" if conclusion.outcome == "passed" else "failed",
        finished=conditions.now,
        development=conditions.development,
        bound=bound,
    )
    return replace(conclusion, evidence=evidence)
