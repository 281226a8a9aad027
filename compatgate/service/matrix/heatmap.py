"""Draw the matrix as a heat map: stacks as rows, pools as columns, and a status for each pair.

Only the cells on the page are evaluated.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Literal, get_args

from msgspec import Struct

from compatgate.core.components import in_order, is_framework, label_of
from compatgate.core.matrix import ANY_TARGET, Entry, Pool, Status, Target
from compatgate.core.versions import natural_key
from compatgate.service.gate.snapshot import Snapshot
from compatgate.service.matrix.fits import Fits

SpotStatus = Literal[
    "blessed", "candidate", "deprecated", "elsewhere", "unknown", "revoked", "incompatible"
]
"""From best to worst. ``elsewhere``: the entry is for another driver than the pool's;
``unknown``: the entry cannot be evaluated; ``incompatible``: the vendors' facts fail the entry."""
WORSE: dict[SpotStatus, int] = {status: n for n, status in enumerate(get_args(SpotStatus))}


class MapPlace(Struct, frozen=True):
    """A pool of a target."""

    target: str
    pool: Pool


class Column:
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
        self._by_target: dict[str, list[MapPlace]] = {}
        alike: dict[tuple[object, ...], MapPlace] = {}
        for place in self.places:
            self._by_target.setdefault(place.target, []).append(place)
            pool = place.pool
            sku, driver = pool.gpu and pool.gpu.sku, pool.driver and pool.driver.text
            alike.setdefault((sku, driver, pool.os, pool.cpu), place)
        self.kinds = tuple(alike.values())
        """One place for each GPU, driver and system; equal places have equal results."""

    def of(self, target: str) -> Sequence[MapPlace]:
        """Return the places of one target."""
        return self._by_target.get(target, ())


class Row(Struct, frozen=True):
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


class Spot(Struct, frozen=True):
    """A cell of the map.

    Attributes:
        status: the best of its entries; None: no entry names these places.
        count: number of entries.
        open: the facts do not decide.
        pending: not evaluated in time.
    """

    status: SpotStatus | None
    count: int = 0
    open: bool = False
    pending: bool = False


class HeatMap(Struct, frozen=True):
    """A section of the map.

    Attributes:
        spots: one sequence per row, with one spot per column.
        rows_total: rows of the whole map.
        columns_total: columns of the whole map.
        pending: some spots are not evaluated yet.
    """

    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    spots: tuple[tuple[Spot, ...], ...]
    rows_total: int
    columns_total: int
    pending: bool


RowsBy = Literal["entry", "driver", "cuda", "cudnn", "framework"]
ColumnsBy = Literal["target", "gpu", "driver"]
ANY = "any"


def rows(
    snapshot: Snapshot, by: RowsBy, search: str = "", status: Status | None = None
) -> list[Row]:
    """Return the rows in natural order of their keys.

    Args:
        snapshot: with the entries.
        by: kind of rows.
        search: words that must all occur in an entry's name, constraints or reason.
        status: of the entries; None: any.
    """
    words = search.casefold().split()
    entries = [
        entry
        for entry in snapshot.entries.values()
        if (status is None or entry.status == status) and _has(entry, words)
    ]
    if by == "entry":
        found = [Row(e.name, e.name, constraints_of(e), (e,)) for e in entries]
    else:
        found = [_group(key, group) for key, group in _grouped(entries, _keys(by))]
    return sorted(found, key=lambda row: natural_key(row.key))


def columns(snapshot: Snapshot, by: ColumnsBy, search: str = "") -> list[Column]:
    """Return the columns in natural order of their keys.

    Args:
        snapshot: with the targets.
        by: kind of columns.
        search: words that must all occur in a target's name, labels, GPUs or drivers.
    """
    words = search.casefold().split()
    names = [name for name in snapshot.documents if _about(snapshot, name, words)]
    if by == "target":
        found = [target_column(snapshot, name) for name in names]
    else:
        found = _place_columns((snapshot.targets[n] for n in names if n in snapshot.targets), by)
    return sorted(found, key=lambda column: natural_key(column.key))


def constraints_of(entry: Entry) -> str:
    """Return the constraints as text: ``cuda 12.4.* · torch ~=2.4.0``."""
    return " · ".join(f"{name} {entry.components[name]}" for name in in_order(entry.components))


def _has(entry: Entry, words: Iterable[str]) -> bool:
    text = f"{entry.name} {constraints_of(entry)} {entry.reason}".casefold()
    return all(word in text for word in words)


def _about(snapshot: Snapshot, name: str, words: Iterable[str]) -> bool:
    spec = snapshot.documents[name]
    labels = " ".join(f"{key}={value}" for key, value in (spec.metadata.labels or {}).items())
    pools = " ".join(f"{pool.gpu} {pool.driver}" for pool in spec.spec.pools)
    text = f"{name} {labels} {pools}".casefold()
    return all(word in text for word in words)


def _keys(by: RowsBy) -> Callable[[Entry], list[str]]:
    def of_framework(entry: Entry) -> list[str]:
        named = [name for name in in_order(entry.components) if is_framework(name)]
        return [f"{label_of(n)} {entry.components[n]}" for n in named] or [ANY]

    def of_component(entry: Entry) -> list[str]:
        constraint = entry.components.get(by)
        return [str(constraint) if constraint else ANY]

    return of_framework if by == "framework" else of_component


def _grouped(
    entries: Iterable[Entry], keys: Callable[[Entry], list[str]]
) -> Iterator[tuple[str, list[Entry]]]:
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        for key in keys(entry):
            groups.setdefault(key, []).append(entry)
    yield from groups.items()


def _group(key: str, entries: list[Entry]) -> Row:
    note = entries[0].name if len(entries) == 1 else f"{len(entries)} entries"
    return Row(key, key, note, tuple(entries))


def target_column(snapshot: Snapshot, name: str) -> Column:
    """Return a target as a column."""
    target = snapshot.targets.get(name)
    if target is None:
        return Column(name, name, "", (), snapshot.unusable.get(name, "the target cannot be used"))
    places = tuple(MapPlace(name, pool) for pool in target.pools)
    skus = dict.fromkeys(pool.gpu.sku for pool in target.pools if pool.gpu)
    drivers = dict.fromkeys(pool.driver.text for pool in target.pools if pool.driver)
    return Column(name, name, f"{', '.join(skus)}, driver {', '.join(drivers)}", places)


def _place_columns(targets: Iterable[Target], by: ColumnsBy) -> list[Column]:
    groups: dict[str, list[MapPlace]] = {}
    for target in targets:
        for pool in target.pools:
            if by == "gpu":
                key = pool.gpu.sku if pool.gpu else ANY
            else:
                key = pool.driver.text if pool.driver else ANY
            groups.setdefault(key, []).append(MapPlace(target.name, pool))
    return [
        Column(key, key, ", ".join(dict.fromkeys(p.target for p in places)), tuple(places))
        for key, places in groups.items()
    ]


class MapSection(Struct, frozen=True):
    """A section of the map to draw.

    Attributes:
        rows: kind of rows.
        columns: kind of columns.
        search: words in entries.
        places: words in targets.
        status: of the entries; None: any.
        top: number of rows above the section.
        left: number of columns before the section.
        height: number of rows.
        width: number of columns.
    """

    rows: RowsBy = "entry"
    columns: ColumnsBy = "target"
    search: str = ""
    places: str = ""
    status: Status | None = None
    top: int = 0
    left: int = 0
    height: int = 60
    width: int = 30


def build(
    snapshot: Snapshot, asked: MapSection, fits: Fits, now: datetime, seconds: float
) -> HeatMap:
    """Return a section of the map.

    Args:
        snapshot: with the matrix.
        asked: the section.
        fits: cache of outcomes.
        now: for ends of life.
        seconds: time to evaluate new pairs; the rest stays pending.
    """
    all_rows = rows(snapshot, asked.rows, asked.search, asked.status)
    all_columns = columns(snapshot, asked.columns, asked.places)
    down = tuple(all_rows[asked.top : asked.top + asked.height])
    across = tuple(all_columns[asked.left : asked.left + asked.width])
    deadline = time.monotonic() + seconds
    spots = tuple(
        tuple(_spot(row, column, fits, now, deadline) for column in across) for row in down
    )
    pending = any(spot.pending for line in spots for spot in line)
    return HeatMap(down, across, spots, len(all_rows), len(all_columns), pending)


def pairs_of(row: Row, column: Column, fits: Fits, now: datetime) -> list[Pair]:
    """Return the pairs of a row and a column, best first."""
    found = [
        pair
        for entry in row.entries
        if (pair := _pair(entry, column, fits, now, float("inf"))) is not None
    ]
    return sorted(found, key=lambda pair: (WORSE[pair.status], pair.entry.name))


def _spot(row: Row, column: Column, fits: Fits, now: datetime, deadline: float) -> Spot:
    found: list[Pair] = []
    pending = False
    for entry in row.entries:
        pair = _pair(entry, column, fits, now, deadline)
        if pair is not None:
            found.append(pair)
            pending = pending or pair.why == _PENDING
    if not found:
        return Spot(None)
    best = min(found, key=lambda pair: WORSE[pair.status])
    return Spot(best.status, len(found), best.open, pending)


_PENDING = "not evaluated yet"


def _pair(entry: Entry, column: Column, fits: Fits, now: datetime, deadline: float) -> Pair | None:
    """Return the worst result of the entry's places in the column; None: no place."""
    if column.unusable:
        if not _concerns(entry, column.key):
            return None
        return Pair(entry, column.key, "unknown", why=column.unusable)
    found = [_at(entry, place, fits, now, deadline) for place in _places(entry, column)]
    return max(found, key=lambda pair: (WORSE[pair.status], pair.open), default=None)


def _places(entry: Entry, column: Column) -> Iterator[MapPlace]:
    if ANY_TARGET in entry.targets:
        named: Iterable[MapPlace] = column.kinds
    else:
        named = (place for name in entry.targets for place in column.of(name))
    for place in named:
        if entry.is_for(place.pool):
            yield place


def _concerns(entry: Entry, target: str) -> bool:
    return target in entry.targets or ANY_TARGET in entry.targets


def _at(entry: Entry, place: MapPlace, fits: Fits, now: datetime, deadline: float) -> Pair:
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
    fit = fits.cached(entry, pool)
    if fit is None:
        if time.monotonic() > deadline:
            return Pair(entry, target, entry.status, open=True, why=_PENDING)
        fit = fits.evaluate(entry, pool, now)
    if fit.outcome is None:
        return Pair(entry, target, "unknown", why=fit.why)
    if fit.outcome == "fail":
        return Pair(entry, target, "incompatible", why=fit.why)
    left_open = fit.outcome == "unknown"
    return Pair(entry, target, entry.status, left_open, fit.why if left_open else "")


_FIRST = ("blessed", "candidate", "deprecated", "revoked")


def on_target(
    snapshot: Snapshot, target: str, fits: Fits, now: datetime, most: int
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
    entries.sort(key=lambda entry: (_FIRST.index(entry.status), natural_key(entry.name)))
    column = target_column(snapshot, target)
    found = [pair for entry in entries[:most] for pair in pairs_of(_row(entry), column, fits, now)]
    return found, len(entries)


def of_entry(
    snapshot: Snapshot, entry: Entry, fits: Fits, now: datetime, most: int
) -> tuple[list[Pair], int]:
    """Return an entry on each of its targets, by name, and the number of its targets.

    Targets without a matching pool are missing.
    """
    named = snapshot.documents if ANY_TARGET in entry.targets else entry.targets
    targets = sorted(named, key=natural_key)
    found = [
        pair
        for name in targets[:most]
        for pair in pairs_of(_row(entry), target_column(snapshot, name), fits, now)
    ]
    return found, len(targets)


def _row(entry: Entry) -> Row:
    return Row(entry.name, entry.name, constraints_of(entry), (entry,))
