"""Judge entries of the matrix by canary evidence.

Evidence makes a candidate waiting, ready or failed, and can contradict a blessed entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from compatgate.core.binding import SuiteDefinition
from compatgate.core.matrix import ANY_TARGET, Entry, Evidence
from compatgate.core.pooled_runs import RunPool, pool_runs
from compatgate.core.request import Pool, Target
from compatgate.core.stack import Stack
from compatgate.core.versions import Version, same_release

State = Literal["waiting", "failed", "ready"]


class Need(Struct, frozen=True, forbid_unknown_fields=True):
    """A run that a candidate lacks, or that failed.

    Attributes:
        failed: id of the run that failed; None: none has passed yet, or not recently.
    """

    target: str
    sku: str
    driver: str
    suite: str
    failed: str | None = None


class Promotion(Struct, frozen=True, forbid_unknown_fields=True):
    """The progress of a candidate.

    Attributes:
        state: ``ready`` when every suite has passed wherever the entry would hold.
        automatic: every target's policy lets the gate bless it.
        contents: GPU contents of these runs, as far as they are known.
    """

    state: State
    automatic: bool
    runs: tuple[str, ...] = ()
    needs: tuple[Need, ...] = ()
    contents: tuple[str, ...] = ()


class Contradiction(Struct, frozen=True):
    """The effect of a failed run on an entry that it measured."""

    targets: tuple[str, ...]  # targets on which the entry holds and whose policy counts the run
    # the policy of one of these targets revokes the entry, and the run tested a content that
    # blessed it, or none is recorded
    revoke: bool


_NO_SUITES: Mapping[str, SuiteDefinition] = {}
RunIndex = Mapping[tuple[str, str], Sequence[Evidence]]  # judged runs by suite and SKU


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
        if pool.gpu is not None and pool.driver is not None and entry.is_for(pool)
        if (driver := entry.components.get("driver")) is None or driver.allows(pool.driver)
    ]


def is_run_of_entry(run: Evidence, entry: Entry, pool: Pool) -> bool:
    """Return whether a run measured what an entry constrains, on a pool's SKU and driver."""
    return (
        pool.gpu is not None
        and run.sku == pool.gpu.sku
        and run.driver == pool.driver
        and entry.matches(Stack(run.components), pool)
    )


def judge_candidate(
    entry: Entry,
    targets: Iterable[Target],
    evidence: RunIndex,
    now: float,
    suites: Mapping[str, SuiteDefinition] = _NO_SUITES,
) -> Promotion:
    """Return the progress of a candidate.

    Each suite of each target's policy, soak included, must have passed recently on each SKU and
    driver where the entry would hold, all with the same measured components and the same GPU
    content. A failure of any stack that the entry allows blocks it, unless another content with the
    same components has passed: then only images of the failed content are bad. ``suites`` are their
    definitions now: runs with another one are stale.
    """
    found = find_places(entry, targets)
    runs: dict[str, None] = {}
    contents: dict[str, None] = {}
    needs: list[Need] = []
    for target, pool in found:
        passed, lacking = _judge_place(entry, target, pool, evidence, now, suites)
        runs.update((run.id, None) for run in passed)
        contents.update((run.content, None) for run in passed if run.content)
        needs += lacking
    state: State = "ready" if found and not needs else "waiting"
    if any(need.failed for need in needs):
        state = "failed"
    automatic = bool(found) and all(t.policy.canary.promote == "automatic" for t, _ in found)
    return Promotion(state, automatic, tuple(runs), tuple(needs), tuple(contents))


_Measured = tuple[str, ...]
_Pools = dict[str, RunPool]  # the pooled runs of each suite


def _judge_place(
    entry: Entry,
    target: Target,
    pool: Pool,
    evidence: RunIndex,
    now: float,
    definitions: Mapping[str, SuiteDefinition],
) -> tuple[list[Evidence], list[Need]]:
    """Return the runs that passed on one pool of nodes, and the runs that it lacks."""
    policy = target.policy.canary
    assert pool.gpu is not None  # noqa: S101 - of a place
    suites = tuple(dict.fromkeys((*policy.suites, *policy.soak)))
    known = (run for suite in suites for run in evidence.get((suite, pool.gpu.sku), ()))
    about = [run for run in known if run.counts_for(policy) and is_run_of_entry(run, entry, pool)]
    where = (target.name, pool.gpu.sku, pool.driver.text if pool.driver else "")
    if not about:
        return [], [Need(*where, suite) for suite in suites]
    groups: dict[_Measured, dict[str | None, _Pools]] = {}
    found: dict[tuple[_Measured, str | None, str], list[Evidence]] = {}
    for run in about:
        measured = tuple(run.components[name].text for name in entry.components if name != "driver")
        found.setdefault((measured, run.content, run.suite), []).append(run)
    for (measured, content, suite), runs in found.items():
        pooled = pool_runs(
            runs,
            driver=pool.driver,
            definition=definitions.get(suite),
            max_age_s=policy.max_age_s,
            now=now,
        )
        if pooled is not None:
            groups.setdefault(measured, {}).setdefault(content, {})[suite] = pooled
    failed = [
        Need(*where, suite, pooled.failed[0].id)
        for contents in groups.values()
        for suite, pooled in _find_failures(contents, suites)
    ]
    if failed:
        return [], failed
    passed = [
        {suite: one.newest for suite, one in pools.items() if one.state == "passed"}
        for contents in groups.values()
        for pools in contents.values()
    ]
    best = max(passed, key=len, default={})
    return list(best.values()), [Need(*where, suite) for suite in suites if suite not in best]


def _find_failures(
    contents: Mapping[str | None, _Pools], suites: Sequence[str]
) -> Iterator[tuple[str, RunPool]]:
    """Yield the failed pools that block an entry, among runs that measured the same components."""
    one_passed = any(
        content is not None and [p.state for p in pools.values()].count("passed") == len(suites)
        for content, pools in contents.items()
    )
    for content, pools in contents.items():
        for suite, pooled in pools.items():
            if pooled.state == "failed" and not (one_passed and content is not None):
                yield suite, pooled


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
    revoke = (not entry.blessed_contents or run.content in entry.blessed_contents) and any(
        policy.on_failure == "revoke" and run.suite in (*policy.suites, *policy.soak)
        for policy in affected.values()
    )
    return Contradiction(tuple(affected), revoke)


def disproves(
    passed: Evidence, failed: Evidence, drivers: Iterable[Version], max_age_s: float
) -> bool:
    """Return whether a passed run disproves a failed one.

    It must have run the same suite with the same components and GPU content on the same SKU. A
    rerun adds to the pool of runs and takes no failure back: a failure ends when no pool of nodes
    has its driver any more, when the suite has changed since, or when it no longer counts. The
    failure of a run without a binding, from before bindings were recorded, ends at the next pass. A
    failure counts for ``max_age_s`` seconds.
    """
    same = (
        (passed.suite, passed.sku) == (failed.suite, failed.sku)
        and all(
            (measured := passed.components.get(name)) is not None
            and same_release(name, measured, version)
            for name, version in failed.components.items()
        )
        and (failed.content is None or passed.content == failed.content)
    )
    if not same or (passed.driver != failed.driver and failed.driver in set(drivers)):
        return False
    return (
        failed.bound is None
        or passed.driver != failed.driver
        or (passed.bound is not None and passed.bound.suite != failed.bound.suite)
        or failed.finished + max_age_s < passed.finished
    )
