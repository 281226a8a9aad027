"""Evaluate entries on pools by the vendors' facts, and find the status of an entry on a target.

The outcomes are cached for one catalog and one day.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
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
from compatgate.service.gate.snapshot import Snapshot

_MAX_FITS = 200_000
_encode = msgspec.json.Encoder().encode
PoolKind = tuple[Any, ...]
FitKey = tuple[str, int, PoolKind]


class Fit(Struct, frozen=True):
    """The outcome by facts.

    Attributes:
        outcome: of the newest stack that the entry allows and that does not fail; ``fail``: each
            known stack that it allows fails; None: the entry allows no known stack.
        why: the first finding of that outcome, of the newest stack.
    """

    outcome: Outcome | None
    why: str = ""


class FitCache:
    """A cache of outcomes for one catalog and one day; any number of threads may use it.

    Attributes:
        digest: of the catalog.
    """

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
        stack, why = self._stack(entry)
        fit = self._evaluate(stack, pool, now) if stack else Fit(None, why)
        if fit.outcome == "fail":
            others = list_stacks(entry, self._facts)
            fits = (self._evaluate(other, pool, now) for other in others if other != stack)
            fit = next((one for one in fits if one.outcome != "fail"), fit)
        self._known[key] = fit
        return fit

    def _stack(self, entry: Entry) -> tuple[Stack | None, str]:
        found = represent(entry, self._facts)
        return found.stacks[0] if found.stacks else None, "; ".join(found.open)

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


SpotStatus = Literal[
    "blessed", "candidate", "deprecated", "elsewhere", "unknown", "revoked", "incompatible"
]
"""From best to worst. ``elsewhere``: the entry is for another driver than the pool's;
``unknown``: the entry cannot be evaluated; ``incompatible``: the vendors' facts fail the entry."""
SEVERITY: dict[SpotStatus, int] = {status: n for n, status in enumerate(get_args(SpotStatus))}


class MapPlace(Struct, frozen=True):
    """A pool of a target, and its kind."""

    target: str
    pool: Pool
    kind: PoolKind


def list_places(target: Target, pools: Iterable[Pool]) -> list[MapPlace]:
    """Return pools of a target as places."""
    return [MapPlace(target.name, pool, pool_kind(pool)) for pool in pools]


class MapColumn:
    """A column of the map: a target, or all pools with one GPU or driver.

    Args:
        key: unique among the columns.
        label: heading.
        note: tooltip.
        places: pools of the column.
        unusable: why the target cannot be evaluated; empty: it can.
    """

    def __init__(
        self, key: str, label: str, note: str, places: Iterable[MapPlace], unusable: str = ""
    ) -> None:
        self.key, self.label, self.note, self.unusable = key, label, note, unusable
        self.places = tuple(places)
        self._by_target: dict[str, dict[PoolKind, MapPlace]] = {}
        alike: dict[PoolKind, MapPlace] = {}
        for place in self.places:
            self._by_target.setdefault(place.target, {}).setdefault(place.kind, place)
            alike.setdefault(place.kind, place)
        self.kinds = tuple(alike.values())
        """One place for each kind of pool; equal places have equal results."""

    def of(self, targets: Iterable[str]) -> Iterable[MapPlace]:
        """Return a place of these targets for each kind of pool: the first."""
        alike = [self._by_target[target] for target in targets if target in self._by_target]
        if len(alike) < 2:  # most columns have one of an entry's targets, or none
            return alike[0].values() if alike else ()
        found: dict[PoolKind, MapPlace] = {}
        for places in alike:
            for kind, place in places.items():
                found.setdefault(kind, place)
        return found.values()


class MapRow(Struct, frozen=True):
    """A row of the map: an entry, or all entries with the same constraint on one component."""

    key: str
    label: str
    note: str
    entries: tuple[Entry, ...]


class Pair(Struct, frozen=True):
    """An entry in a column.

    Attributes:
        open: the facts do not decide.
        why: reason, if the status is not that of the entry.
    """

    entry: Entry
    target: str
    status: SpotStatus
    open: bool = False
    why: str = ""


def format_constraints(entry: Entry) -> str:
    """Return the constraints as text: ``cuda 12.4.* · torch ~=2.4.0``."""
    return " · ".join(
        f"{name} {entry.components[name]}" for name in sort_components(entry.components)
    )


def make_target_column(snapshot: Snapshot, name: str) -> MapColumn:
    """Return a target as a column."""
    target = snapshot.targets.get(name)
    if target is None:
        return MapColumn(
            name, name, "", (), snapshot.unusable.get(name, "the target cannot be used")
        )
    places = list_places(target, target.pools)
    skus = dict.fromkeys(pool.gpu.sku for pool in target.pools if pool.gpu)
    drivers = dict.fromkeys(pool.driver.text for pool in target.pools if pool.driver)
    return MapColumn(name, name, f"{', '.join(skus)}, driver {', '.join(drivers)}", places)


def list_pairs(row: MapRow, column: MapColumn, fits: FitCache, now: datetime) -> list[Pair]:
    """Return the pairs of a row and a column, best first."""
    found = [
        pair
        for entry in row.entries
        if (pair := evaluate_pair(entry, column, fits, now, float("inf"))) is not None
    ]
    return sorted(found, key=lambda pair: (SEVERITY[pair.status], pair.entry.name))


PENDING = "not evaluated yet"


def evaluate_pair(
    entry: Entry, column: MapColumn, fits: FitCache, now: datetime, deadline: float
) -> Pair | None:
    """Return the worst result of the entry's places in the column; None: no place."""
    if column.unusable:
        if not _names_target(entry, column.key):
            return None
        return Pair(entry, column.key, "unknown", why=column.unusable)
    places = column.kinds if ANY_TARGET in entry.targets else column.of(entry.targets)
    found = [
        _evaluate_place(entry, place, fits, now, deadline)
        for place in places
        if entry.is_for(place.pool)
    ]
    return max(found, key=lambda pair: (SEVERITY[pair.status], pair.open), default=None)


def _names_target(entry: Entry, target: str) -> bool:
    return target in entry.targets or ANY_TARGET in entry.targets


def _evaluate_place(
    entry: Entry, place: MapPlace, fits: FitCache, now: datetime, deadline: float
) -> Pair:
    target, pool = place.target, place.pool
    if entry.status == "revoked":
        return Pair(entry, target, "revoked", why=entry.reason)
    driver = entry.components.get("driver")
    if driver is not None and not (pool.driver and driver.allows(pool.driver)):
        have = pool.driver.text if pool.driver else "unknown"
        return Pair(
            entry,
            target,
            "elsewhere",
            why=f"the entry is for driver {driver}; {pool.name} has {have}",
        )
    fit = fits.cached(entry, place.kind)
    if fit is None:
        if time.monotonic() > deadline:
            return Pair(entry, target, entry.status, open=True, why=PENDING)
        fit = fits.evaluate(entry, pool, now)
    if fit.outcome is None:
        return Pair(entry, target, "unknown", why=fit.why)
    if fit.outcome == "fail":
        return Pair(entry, target, "incompatible", why=fit.why)
    left_open = fit.outcome == "unknown"
    return Pair(entry, target, entry.status, left_open, fit.why if left_open else "")


_STATUS_ORDER = ("blessed", "candidate", "deprecated", "revoked")


def list_target_pairs(
    snapshot: Snapshot, target: str, fits: FitCache, now: datetime, most: int
) -> tuple[list[Pair], int]:
    """Return the entries of a target, blessed ones first, and their number.

    Args:
        snapshot: with the matrix.
        target: its name; the target may be unusable.
        fits: cache of outcomes.
        now: for ends of life.
        most: most entries to evaluate.
    """
    entries = snapshot.matrix.entries.of(target)
    entries.sort(key=lambda entry: (_STATUS_ORDER.index(entry.status), natural_key(entry.name)))
    column = make_target_column(snapshot, target)
    found = [
        pair
        for entry in entries[:most]
        for pair in list_pairs(_entry_row(entry), column, fits, now)
    ]
    return found, len(entries)


def list_entry_pairs(
    snapshot: Snapshot, entry: Entry, fits: FitCache, now: datetime, most: int
) -> tuple[list[Pair], int]:
    """Return an entry on each of its targets, by name, and the number of its targets.

    Targets without a matching pool are missing.
    """
    named = snapshot.documents if ANY_TARGET in entry.targets else entry.targets
    targets = sorted(named, key=natural_key)
    found = [
        pair
        for name in targets[:most]
        for pair in list_pairs(_entry_row(entry), make_target_column(snapshot, name), fits, now)
    ]
    return found, len(targets)


def _entry_row(entry: Entry) -> MapRow:
    return MapRow(entry.name, entry.name, format_constraints(entry), (entry,))
