"""List what an upgrade needs of the matrix and of canaries, pool by pool.

It is the part of a plan that must hold at each wave, cheap enough to be asked at each poll: entries
in use allow the new driver, and their suites have passed on it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime

from msgspec.structs import replace

from compatgate.core.binding import SuiteDefinition
from compatgate.core.entry_evidence import RunIndex, judge_candidate
from compatgate.core.matrix import STATUSES_IN_USE, Entry
from compatgate.core.pooled_runs import pool_runs
from compatgate.core.request import Pool, Target
from compatgate.core.upgrade_state import Need
from compatgate.core.versions import Version, parse_version


def list_needs(
    target: Target,
    pools: Collection[str],
    driver: str,
    *,
    entries: Iterable[Entry],
    runs: RunIndex,
    suites: Mapping[str, SuiteDefinition],
    accepts: Collection[str] = (),
    now: datetime,
) -> tuple[Need, ...]:
    """Return what is missing, or failed, before pools of a target may take a driver."""
    version = parse_version("driver", driver)
    in_use = [one for one in entries if one.status in STATUSES_IN_USE and one.name not in accepts]
    found: dict[tuple[str, str | None, bool], Need] = {}
    for pool in target.pools:
        if pool.name not in pools:
            continue
        after = replace(target, pools=(replace(pool, driver=version),))
        for need in _list_of_pool(after, pool, version, in_use, runs, suites, now):
            key = (need.text, need.failed, need.required)
            known = found.get(key)
            names = (*known.pools, pool.name) if known else (pool.name,)
            found[key] = replace(need, pools=tuple(dict.fromkeys(names)))
    return tuple(found.values())


def _list_of_pool(
    after: Target,
    before: Pool,
    driver: Version,
    in_use: Iterable[Entry],
    runs: RunIndex,
    suites: Mapping[str, SuiteDefinition],
    now: datetime,
) -> Iterator[Need]:
    """Yield the needs of one pool; ``after`` has this pool alone, with the new driver."""
    if before.gpu is None:
        yield Need(f"pool {before.name}: its GPU is not known", (before.name,), kind="pool")
        return
    here = [entry for entry in in_use if entry.is_for(before)]
    going = [entry for entry in here if _allows(entry, driver)]
    for entry in here:
        if entry in going or not (before.driver is None or _allows(entry, before.driver)):
            continue
        # A successor blesses the same components on the new driver.
        if not any(_rest(entry) == _rest(other) for other in going):
            constraint = entry.components["driver"].text
            text = f"entry {entry.name} allows driver {constraint}, not {driver.text}: edit it"
            yield Need(text, (before.name,), after.policy.require_entry, kind="entry")
    if not going:
        yield from _list_suites(after, before, driver, runs, suites, now)
    for entry in going:
        named = replace(entry, targets=(after.name,))
        for need in judge_candidate(named, [after], runs, now.timestamp(), suites).needs:
            what = f"run {need.failed} of suite" if need.failed else "suite"
            verb = "failed" if need.failed else "has not passed"
            text = f"{what} {need.suite} {verb} for {entry.name} on {need.sku}, {driver.text}"
            yield Need(text, (before.name,), after.policy.canary.require, need.failed)


def _allows(entry: Entry, driver: Version) -> bool:
    constraint = entry.components.get("driver")
    return constraint is None or constraint.allows(driver)


def _rest(entry: Entry) -> dict[str, str]:
    return {name: one.text for name, one in entry.components.items() if name != "driver"}


def _list_suites(
    after: Target,
    pool: Pool,
    driver: Version,
    runs: RunIndex,
    suites: Mapping[str, SuiteDefinition],
    now: datetime,
) -> Iterator[Need]:
    """Yield the suites of the policy that no stack has passed: nothing is blessed there."""
    policy = after.policy.canary
    if not policy.require or pool.gpu is None:
        return
    for suite in dict.fromkeys((*policy.suites, *policy.soak)):
        judged = [
            run
            for run in runs.get((suite, pool.gpu.sku), ())
            if run.driver == driver and run.counts_for(policy)
        ]
        pooled = pool_runs(
            judged,
            driver=driver,
            definition=suites.get(suite),
            max_age_s=policy.max_age_s,
            now=now.timestamp(),
        )
        if pooled is None or pooled.state != "passed":
            failed = pooled.failed[0].id if pooled and pooled.failed else None
            what = f"run {failed} of suite {suite} failed" if failed else f"suite {suite} is needed"
            text = f"{what} on {pool.gpu.sku}, driver {driver.text}"
            yield Need(text, (pool.name,), required=True, failed=failed)
