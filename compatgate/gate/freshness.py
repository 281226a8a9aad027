"""How fresh the evidence is that a target asks for, suite by suite on each of its SKUs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from msgspec import Struct

from compatgate.core.matrix import Evidence
from compatgate.core.target import Pool, Target

State = Literal["passed", "failed", "stale", "missing"]


class Freshness(Struct, frozen=True):
    """The newest judged run of a suite on a SKU and driver, whatever the stack.

    Attributes:
        required: the policy asks for it before a stack is allowed; else only before it is blessed.
        state: ``stale``: it passed, but too long ago or on another driver.
        run: None: there is none that the policy takes for evidence.
        expires: seconds since the epoch until which it counts; None: it does not.
        counting: runs that passed and still count, each of another stack.
    """

    suite: str
    sku: str
    driver: str
    pools: tuple[str, ...]
    required: bool
    state: State
    why: str = ""
    run: Evidence | None = None
    expires: float | None = None
    counting: int = 0


def freshness(target: Target, evidence: Iterable[Evidence], now: float) -> list[Freshness]:
    """What is known for each suite that a target's policy names.

    Args:
        target: resolved.
        evidence: judged runs, the newest of each kind.
        now: seconds since the epoch.
    """
    policy = target.policy.canary
    suites = tuple(dict.fromkeys((*policy.suites, *policy.soak)))
    skus = {pool.gpu.sku for pool in target.pools if pool.gpu}
    known = [
        run
        for run in evidence
        if run.suite in suites and run.sku in skus and run.counts_for(policy)
    ]
    return [
        _one(target, suite, pools, [r for r in known if r.suite == suite], now)
        for suite in suites
        for pools in _alike(target.pools)
    ]


def _alike(pools: Iterable[Pool]) -> Iterator[list[Pool]]:
    """Pools that the same runs speak of: of one SKU and driver."""
    groups: dict[tuple[str, str], list[Pool]] = {}
    for pool in pools:
        if pool.gpu and pool.driver:
            groups.setdefault((pool.gpu.sku, pool.driver.text), []).append(pool)
    yield from groups.values()


def _one(
    target: Target, suite: str, pools: list[Pool], runs: list[Evidence], now: float
) -> Freshness:
    policy, first = target.policy.canary, pools[0]
    assert first.gpu  # noqa: S101 - `_alike` leaves others out
    assert first.driver  # noqa: S101
    about = [run for run in runs if run.sku == first.gpu.sku]
    own = [run for run in about if run.driver == first.driver]
    newest = max(own or about, key=lambda run: run.finished, default=None)
    state, why = _state(newest, first, policy.max_age_s, now)
    counting = [r for r in own if r.outcome == "passed" and r.finished + policy.max_age_s >= now]
    return Freshness(
        suite,
        first.gpu.sku,
        first.driver.text,
        tuple(pool.name for pool in pools),
        policy.require and suite in policy.suites,
        state,
        why,
        newest,
        newest.finished + policy.max_age_s if newest and state == "passed" else None,
        len(counting),
    )


def _state(run: Evidence | None, pool: Pool, max_age_s: int, now: float) -> tuple[State, str]:
    if run is None:
        return "missing", "no run was judged yet"
    if run.outcome == "failed":
        return "failed", "the newest run failed"
    if run.driver != pool.driver:
        return "stale", f"it was on driver {run.driver}, the pool has {pool.driver}"
    if run.finished + max_age_s < now:
        return "stale", "it is older than the policy allows"
    return "passed", ""
