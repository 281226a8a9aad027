"""Show which judged runs are pooled with a run ("2 of 5 passed"), and how fresh evidence is.

A run can be discarded: neither its pass nor its failure counts from then on.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Literal

import msgspec
from msgspec import Struct
from sqlalchemy.orm import Session

from compatgate.core.binding import Binding
from compatgate.core.entry_evidence import find_places, is_run_of_entry
from compatgate.core.matrix import Evidence
from compatgate.core.request import Pool, Target
from compatgate.errors import BadInput, Conflict
from compatgate.service.audit import chain as audit
from compatgate.service.matrix.snapshots.snapshot import MAX_POOLED, Snapshot
from compatgate.service.runs.evidence import evidence
from compatgate.service.runs.evidence.evidence import DiscardedRun, EvidenceRow
from compatgate.service.runs.queue import repository as runs

ACTION = "run.discarded"
"""Action of the audit link about a discarded run."""
_LONGEST_REASON = 1000


class PooledRun(Struct, frozen=True):
    """A judged run in a pool; ``discarded`` is who discarded it, when and why."""

    row: EvidenceRow
    discarded: DiscardedRun | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        body = {name: getattr(self.row, name) for name in ("run", "outcome", "finished")}
        return {**body, "discarded": self.discarded and self.discarded.to_json()}


class RunEvidence(Struct, frozen=True):
    """The evidence of one run, and the runs that it is pooled with, which include it, newest first.

    A pool is of one suite, content, SKU and driver. ``changed`` says how the row differs from what
    the audit log says; "" if it does not.
    """

    row: EvidenceRow
    discarded: DiscardedRun | None
    pool: tuple[PooledRun, ...]
    changed: str = ""

    @property
    def binding(self) -> Binding | None:
        """Return what the run is bound to; None: it was judged before this was recorded."""
        return msgspec.convert(self.row.bound, Binding) if self.row.bound is not None else None

    @property
    def counted(self) -> tuple[PooledRun, ...]:
        """Return the pooled runs that nobody discarded."""
        return tuple(one for one in self.pool if one.discarded is None)

    @property
    def passed(self) -> int:
        """Return how many of the counted runs passed."""
        return sum(one.row.outcome == "passed" for one in self.counted)

    @property
    def words(self) -> str:
        """Return ``2 of 5 passed``."""
        return f"{self.passed} of {len(self.counted)} passed"

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            **self.row.to_json(),
            "discarded": self.discarded and self.discarded.to_json(),
            "changed": self.changed,
            "pool": {
                "passed": self.passed,
                "judged": len(self.counted),
                "runs": [one.to_json() for one in self.pool],
            },
        }


def find_run_evidence(session: Session, run_id: str) -> RunEvidence | None:
    """Return the evidence of a run with its pool; None: the run is not evidence."""
    rows = evidence.list_evidence(session, run=run_id, limit=1).items
    if not rows:
        return None
    row = rows[0]
    pooled = [row]
    if row.bound is not None:  # a run without a binding is pooled with none
        same = {"suite": row.suite, "sku": row.sku, "content": row.content}
        pooled += [
            one
            for one in evidence.list_evidence(session, **same).items[:MAX_POOLED]
            if one.seq != row.seq
            and one.bound is not None
            and one.bound.get("suite") == row.bound.get("suite")
            and (one.driver, one.development) == (row.driver, row.development)
            and (row.content is not None or one.components == row.components)
        ]
    gone = evidence.find_discards(session, (one.run for one in pooled))
    pooled.sort(key=lambda one: (one.finished, one.seq), reverse=True)
    pool = tuple(PooledRun(one, gone.get(one.run)) for one in pooled)
    changed = evidence.find_changed(session, [row]).get(run_id, "")
    return RunEvidence(row, gone.get(run_id), pool, changed)


def discard_run(session: Session, run_id: str, *, by: str, reason: str, at: datetime) -> None:
    """Discard a judged run, in a writing session: it counts for nothing from now on.

    Warnings that it opened are closed. An entry that it revoked stays revoked.
    """
    reason = reason.strip()
    if not reason or len(reason) > _LONGEST_REASON or not reason.isprintable():
        hint = f"say in one line of at most {_LONGEST_REASON} characters why it does not count"
        what = "must be one line of text, neither empty nor too long"
        raise BadInput(what, field="reason", hint=hint)
    runs.find_run(session, run_id)
    result = find_run_evidence(session, run_id)
    if result is None:
        what = f"the run {run_id} is not evidence, so it counts for nothing"
        raise Conflict(what, field="run", value=run_id)
    if result.discarded is not None:
        what = f"{result.discarded.discarded_by} has discarded the run {run_id} already"
        raise Conflict(what, field="run", value=run_id)
    made = evidence.add_discard(session, run_id, by=by, reason=reason, at=at)
    opened = evidence.open_warnings(session, suite=result.row.suite, sku=result.row.sku)
    closed = [warning for warning in opened if warning.run == run_id]
    evidence.close_warnings(session, [w.id for w in closed], f"discarded by {by}", at)
    detail = {
        "discard": made.seq,
        "reason": reason,
        "sha256": made.fingerprint,
        **({"closed": sorted({w.entry for w in closed})} if closed else {}),
    }
    audit.append(session, at=at, actor=by, action=ACTION, subject=run_id, detail=detail)


class EntryPool(Struct, frozen=True):
    """The runs of one suite, SKU, driver and GPU content that an entry allows."""

    suite: str
    sku: str
    driver: str
    content: str | None
    blessed: bool
    runs: tuple[Evidence, ...]

    @property
    def words(self) -> str:
        """Return ``2 of 5 passed``."""
        return f"{sum(r.outcome == 'passed' for r in self.runs)} of {len(self.runs)} passed"

    @property
    def failed(self) -> tuple[str, ...]:
        """Return the ids of the runs that failed."""
        return tuple(run.id for run in self.runs if run.outcome == "failed")


def find_entry_pools(snapshot: Snapshot, name: str) -> list[EntryPool]:
    """Return the pools of runs that measured what an entry allows, on pools of its targets."""
    entry = snapshot.entries.get(name)
    if entry is None:
        return []
    places = find_places(entry, snapshot.targets.values())
    pools = {(p.gpu.sku, p.driver): p for _, p in places if p.gpu is not None}
    results: dict[tuple[str, str, str, str], list[Evidence]] = {}
    for run in snapshot.matrix.evidence:
        pool = pools.get((run.sku, run.driver))
        if pool is not None and run.outcome != "inconclusive" and is_run_of_entry(run, entry, pool):
            key = (run.suite, run.sku, run.driver.text, run.content or "")
            results.setdefault(key, []).append(run)
    return [
        EntryPool(
            suite,
            sku,
            driver,
            content or None,
            content in entry.blessed_contents,
            tuple(sorted(pooled, key=lambda run: run.finished, reverse=True)),
        )
        for (suite, sku, driver, content), pooled in sorted(results.items())
    ]


FreshnessState = Literal["passed", "failed", "stale", "missing"]


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
    state: FreshnessState
    why: str = ""
    run: Evidence | None = None
    expires: float | None = None
    counting: int = 0


def assess_freshness(target: Target, judged: Iterable[Evidence], now: float) -> list[Freshness]:
    """Return the freshness for each suite of a target's policy.

    ``judged`` are the newest runs of each kind; ``now`` is in seconds since the epoch.
    """
    policy = target.policy.canary
    suites = tuple(dict.fromkeys((*policy.suites, *policy.soak)))
    skus = {pool.gpu.sku for pool in target.pools if pool.gpu}
    known = [run for run in judged if run.sku in skus and run.counts_for(policy)]
    counting = {
        suite: policy.evidence_suites(suite) if suite in policy.suites else (suite,)
        for suite in suites
    }
    groups: dict[tuple[str, str], list[Pool]] = {}  # the same runs count for a SKU and driver
    for pool in target.pools:
        if pool.gpu and pool.driver:
            groups.setdefault((pool.gpu.sku, pool.driver.text), []).append(pool)
    return [
        _suite_freshness(
            target, suite, pools, [r for r in known if r.suite in counting[suite]], now
        )
        for suite in suites
        for pools in groups.values()
    ]


def _suite_freshness(
    target: Target, suite: str, pools: list[Pool], runs: list[Evidence], now: float
) -> Freshness:
    policy, first = target.policy.canary, pools[0]
    assert first.gpu  # noqa: S101 - `_alike` leaves others out
    assert first.driver  # noqa: S101
    about = [run for run in runs if run.sku == first.gpu.sku]
    own = [run for run in about if run.driver == first.driver]
    newest = max(own or about, key=lambda run: run.finished, default=None)
    state, why = _freshness_state(newest, first, policy.max_age_s, now)
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


def _freshness_state(
    run: Evidence | None, pool: Pool, max_age_s: int, now: float
) -> tuple[FreshnessState, str]:
    if run is None:
        return "missing", "no judged run yet"
    if run.outcome == "failed":
        return "failed", "the newest run failed"
    if run.driver != pool.driver:
        return "stale", f"it was on driver {run.driver}, the pool has {pool.driver}"
    if run.finished + max_age_s < now:
        return "stale", "it is older than the policy allows"
    return "passed", ""
