"""CG801 to CG803, CG811 to CG813: check what this organisation has blessed and measured.

Entries of the matrix bless a stack; canary runs on staging GPUs are the evidence for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from compatgate.core import changes
from compatgate.core.binding import ASSURANCES
from compatgate.core.components import sort_components
from compatgate.core.matrix import Entry, Evidence
from compatgate.core.rule import NOT_APPLICABLE, PASS, VERSIONS, Problem, RuleAnswer, rule
from compatgate.core.rule_context import RuleContext

_MAX_NAMED = 3
"""GPUs of an entry that a message names."""


@rule("CG801", "not-blessed", cause="matrix", reads=VERSIONS)
def not_blessed(context: RuleContext) -> RuleAnswer:
    """The target's policy asks for a blessed matrix entry, and none matches.

    An entry matches when every component that it constrains is in the stack (or is the pool's
    driver) and meets the constraint, and the pool's GPU is one of its ``gpus``, if it names any: a
    MIG slice is another product than the whole GPU. The most specific match speaks; a candidate is
    not yet blessed.

    Under ``entries: strict`` an entry blesses a stack only if it names every GPU package of it,
    frameworks included; the message says which it leaves out. A revoked entry counts in any case.

    Fix: the nearest blessed entry, or propose one; name the packages in the entry, or waive the
    rule for them.

    Source: the matrix, at the revision that the verdict names.
    """
    if not context.policy.require_entry:
        return NOT_APPLICABLE
    best = context.deciding
    if best:  # revoked and deprecated speak for themselves
        unnamed = [] if best.status == "revoked" else context.unnamed(best)
        return (_report_unnamed(context, best, unnamed),) if unnamed else PASS
    where = f"{context.target.name or 'this target'}"
    if context.entries:
        best = context.entries[0]
        message = f"entry {best.name} matches but is a candidate: not yet blessed for {where}"
        return (
            Problem(
                "fail",
                "entry",
                message,
                have=best.name,
                need="status blessed",
                candidates=lambda: changes.nearest_entry(context),
            ),
        )
    nearest = None if context.brief else context.nearest
    message = f"no entry of the matrix matches this stack on {where}"
    if nearest:
        missing = sort_components(nearest.differences(context.stack, context.pool))
        difference = _describe_difference(context, nearest, missing)
        message += f"; the nearest is {nearest.name}, which {difference}"
    suites = ", ".join(context.policy.canary.suites)
    message += f"; to bless it as it is, propose an entry and run suite {suites} on staging"
    return (
        Problem(
            "fail",
            "entry",
            message,
            need=_describe_entry(nearest) if nearest else "a blessed entry",
            candidates=lambda: changes.nearest_entry(context),
        ),
    )


def _report_unnamed(context: RuleContext, entry: Entry, names: Sequence[str]) -> Problem:
    """Report an entry that matches and does not name every GPU package of the stack."""
    missing = sort_components(names)
    listed = ", ".join(missing)
    stated = ", ".join(f'{name}: "=={context.stack.versions[name].text}"' for name in missing)
    return Problem(
        "fail",
        "entry",
        f"entry {entry.name} matches, but does not name {listed}; the policy says entries: strict:"
        f" add {stated} to the components of the entry, or waive CG801 for them",
        have=entry.name,
        need=f"an entry that names {listed}",
        candidates=lambda: changes.nearest_entry(context),
    )


@rule("CG802", "revoked", cause="matrix", reads=VERSIONS)
def revoked(context: RuleContext) -> RuleAnswer:
    """The best matching entry was revoked: this combination is known to be bad here.

    Fix: the entry's replacement, or the nearest blessed entry.

    Source: the matrix, at the revision that the verdict names.
    """
    best = context.deciding
    if best is None:
        return NOT_APPLICABLE
    if best.status != "revoked":
        return PASS
    return (_status_problem(context, best, "fail"),)


@rule("CG803", "deprecated", cause="matrix", reads=VERSIONS)
def deprecated(context: RuleContext) -> RuleAnswer:
    """The best matching entry is deprecated (a warning).

    Fix: the entry's replacement.

    Source: the matrix, at the revision that the verdict names.
    """
    best = context.deciding
    if best is None:
        return NOT_APPLICABLE
    if best.status != "deprecated":
        return PASS
    return (_status_problem(context, best, "warn"),)


def _status_problem(context: RuleContext, entry: Entry, outcome: str) -> Problem:
    reason = f": {entry.reason}" if entry.reason else ""
    instead = f"; use {entry.replacement} instead" if entry.replacement else ""
    return Problem(
        outcome,  # type: ignore[arg-type]
        "entry",
        f"entry {entry.name} is {entry.status}{reason}{instead}",
        have=entry.name,
        need=entry.replacement or "a blessed entry",
        candidates=lambda: changes.nearest_entry(context, replacing=entry),
    )


def _describe_difference(context: RuleContext, entry: Entry, names: Sequence[str]) -> str:
    """Say in what an entry differs, and what it asks for that the stack does not state."""
    unsaid = [name for name in names if name != "driver" and context.stack.get(name) is None]
    other = [name for name in names if name not in unsaid]
    parts = []
    if not entry.is_for(context.pool):
        gpus = ", ".join(entry.gpus[:_MAX_NAMED]) + (
            ", ..." if len(entry.gpus) > _MAX_NAMED else ""
        )
        parts.append(
            f"is for {gpus}, not for {context.pool.gpu.sku if context.pool.gpu else 'this GPU'}"
        )
    if other:
        parts.append(f"differs in {', '.join(other)}")
    if left_out := context.unnamed(entry):
        parts.append(f"does not name {', '.join(sort_components(left_out))}")
    if unsaid:
        parts.append(f"asks for {', '.join(unsaid)}, which the stack does not state")
    return " and ".join(parts)


def _describe_entry(entry: Entry) -> str:
    return ", ".join(
        f"{name} {entry.components[name]}" for name in sort_components(entry.components)
    )


@rule("CG811", "canary-missing", cause="evidence", reads=VERSIONS)
def canary_missing(context: RuleContext) -> RuleAnswer:
    """The policy asks for canary evidence, and a suite has no judged run for this stack and SKU.

    Evidence counts for the versions measured inside the container, on the same GPU SKU (a MIG slice
    is a SKU of its own). A run of a framework counts for stacks with this framework only. A run
    that was inconclusive is no evidence, nor is one outside a container (the process executor, for
    development) where the policy does not say ``canary.acceptDevelopment: true``. A result that was
    imported from another tool counts where ``canary.imported`` names its source for the suite. With
    ``canary.assurance`` a passed run counts only if as much stands behind it: ``challenged`` (its
    lines are signed) or ``witnessed`` (the worker also saw its processes, libraries and GPU).

    Fix: run the suite on staging.

    Source: canary runs; the verdict names those it rests on.
    """
    if not _requires_evidence(context):
        return NOT_APPLICABLE
    missing = [suite for suite in context.policy.canary.suites if not _judged_runs(context, suite)]
    if not missing:
        return PASS
    return [
        Problem(
            "fail",
            "canary",
            f"no canary run of suite {suite} is known for this stack on {context.gpu_name}"
            f"{_mention_refused_run(context, suite)}",
            need=f"a passed run of suite {suite} on staging",
        )
        for suite in missing
    ]


@rule("CG812", "canary-stale", cause="evidence", reads=VERSIONS)
def canary_stale(context: RuleContext) -> RuleAnswer:
    """The latest passed run is older than the policy's ``maxAge``, or was on another driver.

    A driver change on the target makes older evidence stale: compatible is not identical.

    Fix: run the suite again on staging, with the pool's driver.

    Source: canary runs; the verdict names those it rests on.
    """
    if not _requires_evidence(context):
        return NOT_APPLICABLE
    problems = []
    for suite in context.policy.canary.suites:
        latest = _latest_run(context, suite)
        if latest is None or latest.outcome != "passed":
            continue
        expires = latest.finished + context.policy.canary.max_age_s
        if latest.driver != context.driver:
            why = f"was on driver {latest.driver}, the pool has {context.driver}"
        elif expires < context.now:
            why = f"of {_format_day(latest.finished)} is older than the policy allows"
        else:
            context.holds_until(_format_moment(expires))
            continue
        need = f"a passed run of suite {suite} on driver {context.driver}"
        message = f"run {latest.id} of suite {latest.suite} {why}"
        problems.append(Problem("fail", "canary", message, have=latest.id, need=need))
    return problems or PASS


@rule("CG813", "canary-failed", cause="evidence", reads=VERSIONS)
def canary_failed(context: RuleContext) -> RuleAnswer:
    """The latest judged run of a suite failed for this stack on this SKU.

    A run on another driver still speaks: it failed with this stack on this GPU.

    Fix: see the run for what failed, mend it, run the suite again.

    Source: canary runs; the verdict names those it rests on.
    """
    if not _requires_evidence(context):
        return NOT_APPLICABLE
    problems = [
        Problem(
            "fail",
            "canary",
            f"run {latest.id} of suite {latest.suite} failed on {_format_day(latest.finished)}",
            have=latest.id,
            need=f"a passed run of suite {suite}",
        )
        for suite in context.policy.canary.suites
        if (latest := _latest_run(context, suite)) and latest.outcome == "failed"
    ]
    return problems or PASS


def _requires_evidence(context: RuleContext) -> bool:
    """Return whether evidence is required; CG901 reports an unknown GPU or driver."""
    return (
        context.policy.canary.require
        and context.pool.gpu is not None
        and context.driver is not None
    )


def evidence_for(context: RuleContext) -> list[str]:
    """Return the ids of the runs that the answer rests on."""
    latest = [_latest_run(context, suite) for suite in context.policy.canary.suites]
    return [run.id for run in latest if run]


def _judged_runs(context: RuleContext, suite: str) -> list[Evidence]:
    policy = context.policy.canary
    return [
        run
        for name in policy.evidence_suites(suite)
        for run in context.matrix.runs(name, context.stack, context.pool)
        if run.counts_for(policy)
    ]


def _mention_refused_run(context: RuleContext, suite: str) -> str:
    """Return why the latest run of a suite does not count; "" without a run."""
    runs = context.matrix.runs(suite, context.stack, context.pool)
    if not runs:
        return ""
    run, policy = runs[-1], context.policy.canary
    if run.development and not policy.accept_development:
        return f" ({run.id} ran outside a container, for development)"
    have = ASSURANCES[run.assurance]
    return f" ({run.id} is {have}, and the policy asks for {policy.assurance} runs)"


def _latest_run(context: RuleContext, suite: str) -> Evidence | None:
    """Return the latest run on the pool's own driver, else the latest on any driver."""
    runs = _judged_runs(context, suite)
    own = [run for run in runs if run.driver == context.driver]
    return max(own or runs, key=lambda run: run.finished, default=None)


def _format_moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _format_day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()
