"""Judge entries of the matrix by canary evidence.

Evidence makes a candidate waiting, ready or failed, and can contradict a blessed entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from compatgate.core.matrix import ANY_TARGET, Entry, Evidence
from compatgate.core.request import Pool, Target
from compatgate.core.stack import Stack
from compatgate.core.versions import Version, same_release

State = Literal["waiting", "failed", "ready"]


class NeededRun(Struct, frozen=True):
    """A run that a candidate lacks, or that failed.

    Attributes:
        failed: id of the run that failed; None: none has passed yet, or not recently.
    """

    target: str
    sku: str
    driver: str
    suite: str
    failed: str | None = None


class CandidateProgress(Struct, frozen=True):
    """The progress of a candidate.

    Attributes:
        state: ``ready`` when every suite has passed wherever the entry would hold.
        automatic: every target's policy lets the gate bless it.
        runs: ids of the runs that have passed.
        needs: runs that are missing, or failed.
    """

    state: State
    automatic: bool
    runs: tuple[str, ...] = ()
    needs: tuple[NeededRun, ...] = ()


class Contradiction(Struct, frozen=True):
    """The effect of a failed run on an entry that it measured.

    Attributes:
        targets: targets on which the entry holds and whose policy counts the run.
        revoke: the policy of one of these targets revokes the entry.
    """

    targets: tuple[str, ...]
    revoke: bool


RunIndex = Mapping[tuple[str, str], Sequence[Evidence]]
"""Judged runs by suite and SKU."""


def index_runs(evidence: Iterable[Evidence]) -> RunIndex:
    """Index judged runs by suite and SKU, once for many entries."""
    found: dict[tuple[str, str], list[Evidence]] = {}
    for run in evidence:
        found.setdefault((run.suite, run.sku), []).append(run)
    return found


def find_places(entry: Entry, targets: Iterable[Target]) -> list[tuple[Target, Pool]]:
    """Return where an entry would hold: its targets' pools with the GPU and driver it is for."""
    return [
        (target, pool)
        for target in targets
        if target.name in entry.targets or ANY_TARGET in entry.targets
        for pool in target.pools
        if pool.gpu is not None and pool.driver is not None and _allows_pool(entry, pool)
    ]


def _allows_pool(entry: Entry, pool: Pool) -> bool:
    """Return whether the entry allows the pool's GPU and driver."""
    assert pool.driver is not None  # noqa: S101 - the caller checked
    if not entry.is_for(pool):
        return False
    driver = entry.components.get("driver")
    return driver is None or driver.allows(pool.driver)


def is_run_of_entry(run: Evidence, entry: Entry, pool: Pool) -> bool:
    """Return whether a run measured what an entry constrains, on a pool's SKU and driver."""
    return (
        pool.gpu is not None
        and run.sku == pool.gpu.sku
        and run.driver == pool.driver
        and entry.matches(Stack(run.components), pool)
    )


def judge_candidate(
    entry: Entry, targets: Iterable[Target], evidence: RunIndex, now: float
) -> CandidateProgress:
    """Return the progress of a candidate.

    Each suite of each target's policy, soak included, must have passed recently on each SKU and
    driver where the entry would hold, all with the same measured components. A failure of any
    stack that the entry allows blocks it.

    Args:
        entry: the candidate.
        targets: all targets, or at least the entry's.
        evidence: judged runs.
        now: seconds since the epoch.
    """
    found = find_places(entry, targets)
    runs: dict[str, None] = {}
    needs: list[NeededRun] = []
    for target, pool in found:
        passed, lacking = _judge_place(entry, target, pool, evidence, now)
        runs.update(dict.fromkeys(passed))
        needs += lacking
    state: State = "ready" if found and not needs else "waiting"
    if any(need.failed for need in needs):
        state = "failed"
    automatic = bool(found) and all(t.policy.canary.promote == "automatic" for t, _ in found)
    return CandidateProgress(state, automatic, tuple(runs), tuple(needs))


def _judge_place(
    entry: Entry, target: Target, pool: Pool, evidence: RunIndex, now: float
) -> tuple[list[str], list[NeededRun]]:
    """Return the ids of the runs that passed on one pool, and the runs that it lacks."""
    policy = target.policy.canary
    assert pool.gpu is not None  # noqa: S101 - of a place
    suites = tuple(dict.fromkeys((*policy.suites, *policy.soak)))
    runs = (run for suite in suites for run in evidence.get((suite, pool.gpu.sku), ()))
    stacks: dict[tuple[str, ...], dict[str, Evidence]] = {}
    for run in runs:
        if run.counts_for(policy) and is_run_of_entry(run, entry, pool):
            measured = tuple(
                run.components[name].text for name in entry.components if name != "driver"
            )
            latest = stacks.setdefault(measured, {})
            if run.suite not in latest or run.finished >= latest[run.suite].finished:
                latest[run.suite] = run
    where = (target.name, pool.gpu.sku, pool.driver.text if pool.driver else "")
    failed = [
        NeededRun(*where, suite, run.id)
        for latest in stacks.values()
        for suite, run in latest.items()
        if run.outcome == "failed"
    ]
    if failed:
        return [], failed
    oldest = now - policy.max_age_s
    passed = [
        {suite: run.id for suite, run in latest.items() if run.finished >= oldest}
        for latest in stacks.values()
    ]
    best = max(passed, key=len, default={})
    return list(best.values()), [NeededRun(*where, suite) for suite in suites if suite not in best]


def find_contradiction(
    run: Evidence, entry: Entry, targets: Iterable[Target]
) -> Contradiction | None:
    """Return the effect of a failed run on an entry; None if the run did not measure it."""
    affected = {
        target.name: target.policy.canary
        for target, pool in find_places(entry, targets)
        if run.counts_for(target.policy.canary) and is_run_of_entry(run, entry, pool)
    }
    if run.outcome != "failed" or not affected:
        return None
    revoke = any(
        policy.on_failure == "revoke" and run.suite in (*policy.suites, *policy.soak)
        for policy in affected.values()
    )
    return Contradiction(tuple(affected), revoke)


def disproves(passed: Evidence, failed: Evidence, drivers: Iterable[Version]) -> bool:
    """Return whether a passed run disproves a failed one.

    It must have run the same suite with the same components on the same SKU, and on the same
    driver, unless no pool has that driver any more.

    Args:
        passed: the later run.
        failed: the earlier run.
        drivers: current drivers of the pools of this SKU.
    """
    return (
        (passed.suite, passed.sku) == (failed.suite, failed.sku)
        and (passed.driver == failed.driver or failed.driver not in set(drivers))
        and all(
            (measured := passed.components.get(name)) is not None
            and same_release(name, measured, version)
            for name, version in failed.components.items()
        )
    )
