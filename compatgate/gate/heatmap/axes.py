"""What goes down and what goes across."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal

from compatgate.core.components import in_order, is_framework, label_of
from compatgate.core.matrix import Entry, Status
from compatgate.core.order import natural
from compatgate.core.target import Target
from compatgate.gate.heatmap.model import Column, Place, Row
from compatgate.gate.snapshot import Snapshot

RowsBy = Literal["entry", "driver", "cuda", "cudnn", "framework"]
ColumnsBy = Literal["target", "gpu", "driver"]
ANY = "any"


def rows(
    snapshot: Snapshot, by: RowsBy, search: str = "", status: Status | None = None
) -> list[Row]:
    """Rows in the order of their names, versions as numbers.

    Args:
        snapshot: whose entries.
        by: what a row is.
        search: words that must all be in an entry's name, constraints or reason.
        status: only entries that have it.
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
    return sorted(found, key=lambda row: natural(row.key))


def columns(snapshot: Snapshot, by: ColumnsBy, search: str = "") -> list[Column]:
    """Columns in the order of their names.

    Args:
        snapshot: whose targets.
        by: what a column is.
        search: words that must all be in a target's name, labels, GPUs or drivers.
    """
    words = search.casefold().split()
    names = [name for name in snapshot.documents if _about(snapshot, name, words)]
    if by == "target":
        found = [target_column(snapshot, name) for name in names]
    else:
        found = _place_columns((snapshot.targets[n] for n in names if n in snapshot.targets), by)
    return sorted(found, key=lambda column: natural(column.key))


def constraints_of(entry: Entry) -> str:
    """``cuda 12.4.* · torch ~=2.4.0``."""
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
    """A target as a column."""
    target = snapshot.targets.get(name)
    if target is None:
        return Column(name, name, "", (), snapshot.unusable.get(name, "it cannot be used"))
    places = tuple(Place(name, pool) for pool in target.pools)
    skus = dict.fromkeys(pool.gpu.sku for pool in target.pools if pool.gpu)
    drivers = dict.fromkeys(pool.driver.text for pool in target.pools if pool.driver)
    return Column(name, name, f"{', '.join(skus)}, driver {', '.join(drivers)}", places)


def _place_columns(targets: Iterable[Target], by: ColumnsBy) -> list[Column]:
    groups: dict[str, list[Place]] = {}
    for target in targets:
        for pool in target.pools:
            if by == "gpu":
                key = pool.gpu.sku if pool.gpu else ANY
            else:
                key = pool.driver.text if pool.driver else ANY
            groups.setdefault(key, []).append(Place(target.name, pool))
    return [
        Column(key, key, ", ".join(dict.fromkeys(p.target for p in places)), tuple(places))
        for key, places in groups.items()
    ]
