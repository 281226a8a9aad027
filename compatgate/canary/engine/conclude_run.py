"""What became of a run, from its steps; and whether it is evidence. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from compatgate.canary.engine.measured import Expected, Measured, Mismatch, compare, measure
from compatgate.canary.report import Report
from compatgate.canary.run import Outcome, Run, StepResult
from compatgate.core.facts import Gpus
from compatgate.core.matrix import Evidence

_WORST_FIRST: tuple[Outcome, ...] = ("cancelled", "failed", "timeout", "error", "inconclusive")
"""A failure speaks even where another step says nothing: the stack is known to break."""


class Conclusion(Struct, frozen=True):
    """How a run ends.

    Attributes:
        evidence: None where the run says nothing about a GPU.
        sound: what was measured is the stack under test on its host, so that baselines may be
            learnt from it.
    """

    outcome: Outcome
    reason: str
    evidence: Evidence | None = None
    sound: bool = False


class Conditions(Struct, frozen=True):
    """What a run's evidence depends on besides its steps.

    Attributes:
        gpu_workloads: names of the workloads that need a GPU; only these speak of one.
        development: the executor is not one for production.
        now: seconds since the epoch.
    """

    expected: Expected
    gpu_workloads: frozenset[str]
    development: bool
    now: int


def conclude_run(
    run: Run, steps: Sequence[StepResult], conditions: Conditions, gpus: Gpus
) -> Conclusion:
    """Say what a run has shown.

    A passed run is passed only if what its containers measured is the stack under test, on the SKU
    and driver of its host; otherwise it is inconclusive, and no evidence. A failed run is evidence
    against what was measured, and where a crash came before anything was measured, against what
    was to be tested: that a stack does not even start must not leave an older pass standing.
    """
    outcome, reason = _outcome(steps)
    reports = [step.report for step in steps if step.report is not None]
    envs = [env for report in reports if (env := msgspec.convert(report, Report).env)]
    expected = conditions.expected
    on_gpu = any(step.workload in conditions.gpu_workloads for step in steps)
    try:
        measured = measure(envs, gpus)
        if envs or outcome == "passed":
            compare(measured, expected if on_gpu else Expected(expected.stack))
    except Mismatch as mismatch:
        if outcome == "passed":
            return Conclusion("inconclusive", str(mismatch))
        return Conclusion(outcome, f"{reason}; no evidence, as {mismatch}")
    whole = Conclusion(outcome, reason, sound=bool(envs))
    if outcome not in ("passed", "failed"):
        return whole
    if not on_gpu or expected.sku is None:
        no_gpu = "passed; without a GPU it is no evidence about one"
        return msgspec.structs.replace(whole, reason=reason or no_gpu)
    return _with_evidence(run, whole, measured, conditions)


def _outcome(steps: Sequence[StepResult]) -> tuple[Outcome, str]:
    if not steps:
        return "inconclusive", "nothing ran"
    for outcome in _WORST_FIRST:
        found = [step for step in steps if step.outcome == outcome]
        if found:
            also = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
            return outcome, f"{found[0].name}: {found[0].reason or outcome}{also}"
    return "passed", ""


def _with_evidence(
    run: Run, conclusion: Conclusion, measured: Measured, conditions: Conditions
) -> Conclusion:
    expected = conditions.expected
    driver = measured.driver or (expected.driver if conclusion.outcome == "failed" else None)
    if driver is None:
        if conclusion.outcome == "failed":
            return conclusion
        return Conclusion("inconclusive", "no workload measured the driver")
    assert expected.sku is not None  # noqa: S101 - the caller checked
    evidence = Evidence(
        id=run.id,
        suite=run.suite,
        sku=expected.sku,
        driver=driver,
        components=dict(measured.components or expected.stack.components),
        outcome="passed" if conclusion.outcome == "passed" else "failed",
        finished=conditions.now,
        development=conditions.development,
    )
    return msgspec.structs.replace(conclusion, evidence=evidence)
