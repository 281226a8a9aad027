"""CG811 to CG813: what canary runs on staging GPUs have shown."""

from __future__ import annotations

from datetime import UTC, datetime

from compatgate.core.case import Case
from compatgate.core.matrix import Evidence
from compatgate.core.parts import VERSIONS
from compatgate.core.rules.base import NOT_APPLICABLE, PASS, Answer, Problem, rule


@rule("CG811", "canary-missing", cause="evidence", reads=VERSIONS)
def canary_missing(case: Case) -> Answer:
    """The policy asks for canary evidence, and a suite has no judged run for this stack and SKU.

    Evidence counts for the versions measured inside the container, on the same GPU SKU (a MIG slice
    is a SKU of its own). A run that was inconclusive is no evidence, nor is one outside a container
    (the process executor, for development) where the policy does not say
    ``canary.acceptDevelopment: true``.

    Fix: run the suite on staging.

    Source: canary runs; the verdict names those it rests on.
    """
    if not _asked(case):
        return NOT_APPLICABLE
    missing = [suite for suite in case.policy.canary.suites if not _judged(case, suite)]
    if not missing:
        return PASS
    return [
        Problem(
            "fail",
            "canary",
            f"no canary run of suite {suite} is known for this stack on {case.gpu_name}"
            f"{_but_for_development(case, suite)}",
            need=f"a passed run of suite {suite} on staging",
        )
        for suite in missing
    ]


@rule("CG812", "canary-stale", cause="evidence", reads=VERSIONS)
def canary_stale(case: Case) -> Answer:
    """The latest passed run is older than the policy's ``maxAge``, or was on another driver.

    A driver change on the target makes older evidence stale: compatible is not identical.

    Fix: run the suite again on staging, with the pool's driver.

    Source: canary runs; the verdict names those it rests on.
    """
    if not _asked(case):
        return NOT_APPLICABLE
    problems = []
    for suite in case.policy.canary.suites:
        latest = _latest(case, suite)
        if latest is None or latest.outcome != "passed":
            continue
        expires = latest.finished + case.policy.canary.max_age_s
        if latest.driver != case.driver:
            why = f"was on driver {latest.driver}, the pool has {case.driver}"
        elif expires < case.now:
            why = f"of {_day(latest.finished)} is older than the policy allows"
        else:
            case.holds_until(_moment(expires))
            continue
        need = f"a passed run of suite {suite} on driver {case.driver}"
        message = f"run {latest.id} of suite {suite} {why}"
        problems.append(Problem("fail", "canary", message, have=latest.id, need=need))
    return problems or PASS


@rule("CG813", "canary-failed", cause="evidence", reads=VERSIONS)
def canary_failed(case: Case) -> Answer:
    """The latest judged run of a suite failed for this stack on this SKU.

    A run on another driver still speaks: it failed with this stack on this GPU.

    Fix: see the run for what failed, mend it, run the suite again.

    Source: canary runs; the verdict names those it rests on.
    """
    if not _asked(case):
        return NOT_APPLICABLE
    problems = [
        Problem(
            "fail",
            "canary",
            f"run {latest.id} of suite {suite} failed on {_day(latest.finished)}",
            have=latest.id,
            need=f"a passed run of suite {suite}",
        )
        for suite in case.policy.canary.suites
        if (latest := _latest(case, suite)) and latest.outcome == "failed"
    ]
    return problems or PASS


def _asked(case: Case) -> bool:
    """Whether evidence is asked for; of an unknown GPU or driver CG901 speaks."""
    return case.policy.canary.require and case.pool.gpu is not None and case.driver is not None


def evidence_for(case: Case) -> list[str]:
    """Ids of the runs that the case rests on."""
    latest = [_latest(case, suite) for suite in case.policy.canary.suites]
    return [run.id for run in latest if run]


def _judged(case: Case, suite: str) -> list[Evidence]:
    runs = case.matrix.runs(suite, case.stack, case.pool)
    return [run for run in runs if run.counts_for(case.policy.canary)]


def _but_for_development(case: Case, suite: str) -> str:
    runs = case.matrix.runs(suite, case.stack, case.pool)
    return f" ({runs[-1].id} ran outside a container, for development)" if runs else ""


def _latest(case: Case, suite: str) -> Evidence | None:
    """The latest run on the pool's own driver, else the latest on any."""
    runs = _judged(case, suite)
    own = [run for run in runs if run.driver == case.driver]
    return max(own or runs, key=lambda run: run.finished, default=None)


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()
