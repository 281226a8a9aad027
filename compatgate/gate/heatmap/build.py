"""The part of the map that is looked at; only what is seen is evaluated."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from datetime import datetime

from msgspec import Struct

from compatgate.core.matrix import ANY_TARGET, Entry, Status
from compatgate.gate.heatmap.axes import ColumnsBy, RowsBy, columns, rows
from compatgate.gate.heatmap.fits import Fits
from compatgate.gate.heatmap.model import WORSE, Column, HeatMap, Pair, Place, Row, Spot
from compatgate.gate.snapshot import Snapshot


class Asked(Struct, frozen=True):
    """Which part, and of what.

    Attributes:
        top: rows above the part; ``left``: columns before it.
        height: rows of the part; ``width``: its columns.
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


def build(snapshot: Snapshot, asked: Asked, fits: Fits, now: datetime, seconds: float) -> HeatMap:
    """A part of the map.

    Args:
        snapshot: the matrix.
        asked: which part.
        fits: what facts say; it remembers.
        now: for ends of life.
        seconds: to evaluate what is not known yet; what is left is pending.
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
    """Each entry of a row in a column, best first."""
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
    """The worst over the places of the column that the entry speaks of; None: of none."""
    if column.unusable:
        if not _concerns(entry, column.key):
            return None
        return Pair(entry, column.key, "unknown", why=column.unusable)
    found = [_at(entry, place, fits, now, deadline) for place in _places(entry, column)]
    return max(found, key=lambda pair: (WORSE[pair.status], pair.open), default=None)


def _places(entry: Entry, column: Column) -> Iterator[Place]:
    if ANY_TARGET in entry.targets:
        named: Iterable[Place] = column.kinds
    else:
        named = (place for name in entry.targets for place in column.of(name))
    for place in named:
        if entry.is_for(place.pool):
            yield place


def _concerns(entry: Entry, target: str) -> bool:
    return target in entry.targets or ANY_TARGET in entry.targets


def _at(entry: Entry, place: Place, fits: Fits, now: datetime, deadline: float) -> Pair:
    target, pool = place.target, place.pool
    if entry.status == "revoked":
        return Pair(entry, target, "revoked", why=entry.reason)
    driver = entry.components.get("driver")
    if driver is not None and not (pool.driver and driver.allows(pool.driver)):
        have = pool.driver.text if pool.driver else "unknown"
        return Pair(
            entry, target, "elsewhere", why=f"it is for driver {driver}; {pool.name} has {have}"
        )
    fit = fits.known(entry, pool)
    if fit is None:
        if time.monotonic() > deadline:
            return Pair(entry, target, entry.status, open=True, why=_PENDING)
        fit = fits.of(entry, pool, now)
    if fit.outcome is None:
        return Pair(entry, target, "unknown", why=fit.why)
    if fit.outcome == "fail":
        return Pair(entry, target, "incompatible", why=fit.why)
    left_open = fit.outcome == "unknown"
    return Pair(entry, target, entry.status, left_open, fit.why if left_open else "")
