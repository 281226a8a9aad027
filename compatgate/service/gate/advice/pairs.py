"""Evaluate entries on pools by the vendors' facts, and find the status of an entry on a target.

The outcomes are cached for one catalog and one day.
"""

from __future__ import annotations

from datetime import datetime
from functools import cache
from typing import Any, Literal, get_args

import msgspec
from msgspec import Struct

from compatgate.core.components import sort_components
from compatgate.core.entry_stacks import list_stacks, represent
from compatgate.core.evaluate import evaluate
from compatgate.core.facts import Facts
from compatgate.core.matrix import ANY_TARGET, Entry
from compatgate.core.request import Pool, Target
from compatgate.core.rule import Outcome
from compatgate.core.stack import Stack
from compatgate.core.versions import natural_key
from compatgate.service.matrix.snapshots.snapshot import Snapshot

_MAX_FITS = 200_000
_encode = msgspec.json.Encoder().encode
PoolKind = tuple[Any, ...]
FitKey = tuple[str, int, PoolKind]


class Fit(Struct, frozen=True):
    """The outcome by facts, of the newest stack that the entry allows and that does not fail.

    ``fail``: each known stack that it allows fails; None: the entry allows no known stack.
    """

    outcome: Outcome | None
    why: str = ""


class FitCache:
    """A cache of outcomes for one catalog and one day; any number of threads may use it."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self.digest = facts.digest
        self._known: dict[FitKey, Fit] = {}
        self._judged: dict[tuple[bytes, PoolKind], Fit] = {}
        self._day = ""

    def cached(self, entry: Entry, kind: PoolKind) -> Fit | None:
        """Return the outcome if it is cached."""
        return self._known.get((entry.name, entry.revision, kind))

    def evaluate(self, entry: Entry, pool: Pool, now: datetime) -> Fit:
        """Return the outcome, and cache it."""
        if (day := now.date().isoformat()) != self._day or len(self._known) > _MAX_FITS:
            self._known, self._judged, self._day = {}, {}, day
        key = (entry.name, entry.revision, pool_kind(pool))
        if found := self._known.get(key):
            return found
        represented = represent(entry, self._facts)
        stack = next(iter(represented.stacks), None)
        fit = self._evaluate(stack, pool, now) if stack else Fit(None, "; ".join(represented.open))
        if fit.outcome == "fail":
            others = list_stacks(entry, self._facts)
            fits = (self._evaluate(other, pool, now) for other in others if other != stack)
            fit = next((one for one in fits if one.outcome != "fail"), fit)
        self._known[key] = fit
        return fit

    def _evaluate(self, stack: Stack, pool: Pool, now: datetime) -> Fit:
        """Evaluate a stack on a pool; many entries are represented by the same stack."""
        key = (_encode(stack), pool_kind(pool))
        if (known := self._judged.get(key)) is None:
            where = Target("", (pool,))
            verdict = evaluate(stack, where, facts=self._facts, now=now, with_fixes=False)
            said = verdict.failing[0].message if verdict.failing else ""
            known = self._judged[key] = Fit(verdict.verdict, said)
        return known


@cache
def shared_fit_cache(facts: Facts) -> FitCache:
    """Return the shared cache of a catalog."""
    return FitCache(facts)


def pool_kind(pool: Pool) -> PoolKind:
    """Return all that the vendors' facts may depend on of a pool; hashable."""
    sku = pool.gpu.sku if pool.gpu else ""
    driver = pool.driver.text if pool.driver else ""
    node = tuple(pool.node.items()) if pool.node else ()
    return (sku, driver, pool.os, pool.cpu, pool.platform, pool.sharing, node)


PairStatus = Literal[
    "blessed", "candidate", "deprecated", "elsewhere", "unknown", "revoked", "incompatible"
]
"""From best to worst. ``elsewhere``: the entry is for another driver than the pool's;
``unknown``: the entry cannot be evaluated; ``incompatible``: the vendors' facts fail the entry."""
_SEVERITY: dict[PairStatus, int] = {status: n for n, status in enumerate(get_args(PairStatus))}
_STATUS_ORDER = ("blessed", "candidate", "deprecated", "revoked")


class Pair(Struct, frozen=True):
    """An entry on a target; open: the facts do not decide. ``why`` it has another status."""

    entry: Entry
    target: str
    status: PairStatus
    open: bool = False
    why: str = ""


def format_constraints(entry: Entry) -> str:
    """Return the constraints as text: ``cuda 12.4.* · torch ~=2.4.0``."""
    names = sort_components(entry.components)
    return " · ".join(f"{name} {entry.components[name]}" for name in names)


def list_target_pairs(
    snapshot: Snapshot, target: str, fits: FitCache, now: datetime, most: int
) -> tuple[list[Pair], int]:
    """Return the entries of a target, blessed ones first, and their number.

    At most ``most`` entries are evaluated; the target may be unusable.
    """
    entries = snapshot.matrix.entries.of(target)
    entries.sort(key=lambda entry: (_STATUS_ORDER.index(entry.status), natural_key(entry.name)))
    pairs = (_evaluate_pair(snapshot, entry, target, fits, now) for entry in entries[:most])
    return [pair for pair in pairs if pair], len(entries)


def list_entry_pairs(
    snapshot: Snapshot, entry: Entry, fits: FitCache, now: datetime, most: int
) -> tuple[list[Pair], int]:
    """Return an entry on each of its targets, by name, and the number of its targets.

    Targets without a matching pool are missing.
    """
    named = snapshot.documents if ANY_TARGET in entry.targets else entry.targets
    targets = sorted(named, key=natural_key)
    pairs = (_evaluate_pair(snapshot, entry, name, fits, now) for name in targets[:most])
    return [pair for pair in pairs if pair], len(targets)


def _evaluate_pair(
    snapshot: Snapshot, entry: Entry, name: str, fits: FitCache, now: datetime
) -> Pair | None:
    """Return the worst result on the pools that an entry is for; None: it is for none."""
    target = snapshot.targets.get(name)
    if target is None:
        why = snapshot.unusable.get(name, "the target cannot be used")
        return Pair(entry, name, "unknown", why=why)
    pairs = [_evaluate_pool(entry, name, p, fits, now) for p in target.pools if entry.is_for(p)]
    return max(pairs, key=lambda pair: (_SEVERITY[pair.status], pair.open), default=None)


def allows_driver(entry: Entry, pool: Pool) -> bool:
    """Return whether an entry is for the driver of a pool."""
    driver = entry.components.get("driver")
    return driver is None or (pool.driver is not None and driver.allows(pool.driver))


def _evaluate_pool(entry: Entry, target: str, pool: Pool, fits: FitCache, now: datetime) -> Pair:
    if entry.status == "revoked":
        return Pair(entry, target, "revoked", why=entry.reason)
    if not allows_driver(entry, pool):
        have = pool.driver.text if pool.driver else "unknown"
        why = f"the entry is for driver {entry.components['driver']}; {pool.name} has {have}"
        return Pair(entry, target, "elsewhere", why=why)
    fit = fits.evaluate(entry, pool, now)
    if fit.outcome is None:
        return Pair(entry, target, "unknown", why=fit.why)
    if fit.outcome == "fail":
        return Pair(entry, target, "incompatible", why=fit.why)
    undecided = fit.outcome == "unknown"
    return Pair(entry, target, entry.status, undecided, fit.why if undecided else "")
