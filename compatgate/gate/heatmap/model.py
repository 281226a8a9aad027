"""What a map of the matrix is made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, get_args

from msgspec import Struct

from compatgate.core.matrix import Entry
from compatgate.core.target import Pool

SpotStatus = Literal[
    "blessed", "candidate", "deprecated", "elsewhere", "unknown", "revoked", "incompatible"
]
"""From best to worst. ``elsewhere``: the entry is for another driver than is there;
``incompatible``: the vendors' facts say that it cannot work; ``unknown``: nothing is known to."""
WORSE: dict[SpotStatus, int] = {status: n for n, status in enumerate(get_args(SpotStatus))}


class Place(Struct, frozen=True):
    """A pool of a target."""

    target: str
    pool: Pool


class Column:
    """Places across: a target, or all pools of one GPU or driver.

    Args:
        key: unique among the columns.
        label: shown.
        note: about it.
        places: that it stands for.
        unusable: why nothing can be said of it; empty where something can.
    """

    def __init__(
        self, key: str, label: str, note: str, places: Iterable[Place], unusable: str = ""
    ) -> None:
        self.key, self.label, self.note, self.unusable = key, label, note, unusable
        self.places = tuple(places)
        self._by_target: dict[str, list[Place]] = {}
        alike: dict[tuple[object, ...], Place] = {}
        for place in self.places:
            self._by_target.setdefault(place.target, []).append(place)
            pool = place.pool
            sku, driver = pool.gpu and pool.gpu.sku, pool.driver and pool.driver.text
            alike.setdefault((sku, driver, pool.os, pool.cpu), place)
        self.kinds = tuple(alike.values())
        """One place of each GPU, driver and system: what is said of it holds for all of them."""

    def of(self, target: str) -> Sequence[Place]:
        """The places of one target."""
        return self._by_target.get(target, ())


class Row(Struct, frozen=True):
    """Stacks down: an entry, or all entries that say the same of one component."""

    key: str
    label: str
    note: str
    entries: tuple[Entry, ...]


class Pair(Struct, frozen=True):
    """An entry in a column.

    Attributes:
        open: what facts leave open: they neither hold nor fail.
        why: in words, where the status is not the entry's own.
    """

    entry: Entry
    target: str
    status: SpotStatus
    open: bool = False
    why: str = ""


class Spot(Struct, frozen=True):
    """Where a row and a column meet.

    Attributes:
        status: the best of its entries; None: no entry speaks of these places.
        count: entries that do.
        pending: it was not evaluated within the time that was allowed.
    """

    status: SpotStatus | None
    count: int = 0
    open: bool = False
    pending: bool = False


class HeatMap(Struct, frozen=True):
    """A part of the map.

    Attributes:
        spots: one sequence for each of ``rows``, as long as ``columns``.
        rows_total: rows that there are; ``columns_total`` likewise.
        pending: some spots are not evaluated yet.
    """

    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    spots: tuple[tuple[Spot, ...], ...]
    rows_total: int
    columns_total: int
    pending: bool
