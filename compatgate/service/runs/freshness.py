"""Tell how fresh a target's evidence is, and which blessed stacks to verify again. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec
from msgspec import Struct

from compatgate.canary.schedule import EntryVerification
from compatgate.core.matrix import Entry, Evidence, Pool, Target
from compatgate.core.stack import Stack
from compatgate.service.gate.snapshot import Snapshot
from compatgate.service.runs.models import RunRow

State = Literal["passed", "failed", "stale", "missing"]


class Freshness(Struct, frozen=True):
    """The newest judged run of a suite on a SKU and driver, whatever the stack.

    Attributes:
        required: the policy needs it to allow a stack; else only to bless one.
        state: ``stale``: it passed, but too long ago or on another driver.
        run: None: no run counts as evidence for the policy.
        expires: end of its validity, in seconds since the epoch; None: not valid.
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
    """Return the freshness for each suite of a target's policy.

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
    """Group pools by SKU and driver, because the same runs count for them."""
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
        return "missing", "no judged run yet"
    if run.outcome == "failed":
        return "failed", "the newest run failed"
    if run.driver != pool.driver:
        return "stale", f"it was on driver {run.driver}, the pool has {pool.driver}"
    if run.finished + max_age_s < now:
        return "stale", "it is older than the policy allows"
    return "passed", ""


_key = msgspec.json.Encoder(order="deterministic").encode


class LastVerification(Struct, frozen=True):
    """The last verification of runs with the same key.

    Attributes:
        at: seconds since the epoch.
        underway: the verification has not ended.
    """

    at: int
    underway: bool


def last_verifications(runs: Sequence[RunRow]) -> dict[bytes, LastVerification]:
    """Return the last verification of each key, from verification runs in any order."""
    found: dict[bytes, LastVerification] = {}
    for run in runs:
        like = like_of(run)
        before = found.get(like)
        at = int(run.created_at.timestamp())
        underway = not run.has_ended or (before is not None and before.underway)
        found[like] = LastVerification(max(at, before.at) if before else at, underway)
    return found


def like_of(run: RunRow) -> bytes:
    """Return the key that a run shares with its verifications."""
    return _key([run.suite, run.target, run.pool, run.stack, run.image])


def blessed(snapshot: Snapshot) -> Iterator[tuple[Entry, Evidence]]:
    """Yield each blessed entry with its latest passed run of each suite and SKU.

    Only targets whose policy asks for evidence count. An entry without a passed run has nothing to
    repeat; CG811 reports it.
    """
    seen: set[tuple[str, str]] = set()
    passed: dict[tuple[str, str], list[Evidence]] = {}
    for run in snapshot.matrix.evidence:
        if run.outcome == "passed":
            passed.setdefault((run.suite, run.sku), []).append(run)
    for target in snapshot.targets.values():
        if not target.policy.canary.require:
            continue
        for pool in target.pools:
            for entry in snapshot.matrix.entries.of(target.name):
                if entry.status != "blessed":
                    continue
                for run in _rests_on(entry, target, pool, passed):
                    if (entry.name, run.id) not in seen:
                        seen.add((entry.name, run.id))
                        yield entry, run


def passed_runs(
    found: Sequence[tuple[Entry, Evidence]],
    runs: Mapping[str, RunRow],
    again: Mapping[bytes, LastVerification],
) -> list[EntryVerification]:
    """Return the candidates for `compatgate.canary.schedule.select_due`.

    Args:
        found: entries with their evidence, from `blessed`.
        runs: the runs of the evidence, by id.
        again: last verifications, from `last_verifications`.
    """
    made = []
    for entry, evidence in found:
        run = runs.get(evidence.id)
        if run is None:
            continue
        last = again.get(like_of(run))
        made.append(
            EntryVerification(
                run=evidence.id,
                entry=entry.name,
                suite=evidence.suite,
                sku=evidence.sku,
                finished=evidence.finished,
                tried=last.at if last else None,
                underway=bool(last and last.underway),
            )
        )
    return made


def _rests_on(
    entry: Entry, target: Target, pool: Pool, passed: Mapping[tuple[str, str], list[Evidence]]
) -> Iterator[Evidence]:
    if pool.gpu is None:
        return
    policy = target.policy.canary
    for suite in policy.suites:
        runs = [run for run in passed.get((suite, pool.gpu.sku), ()) if run.counts_for(policy)]
        about = [run for run in runs if entry.matches(Stack(run.components), pool)]
        if about:
            yield max(about, key=lambda run: run.finished)
