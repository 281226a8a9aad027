"""One line of the map: an entry wherever it is for, or a target with all entries that name it."""

from __future__ import annotations

from datetime import datetime

from compatgate.core.matrix import ANY_TARGET, Entry
from compatgate.core.order import natural
from compatgate.gate.heatmap.axes import constraints_of, target_column
from compatgate.gate.heatmap.build import pairs_of
from compatgate.gate.heatmap.fits import Fits
from compatgate.gate.heatmap.model import Pair, Row
from compatgate.gate.snapshot import Snapshot

_FIRST = ("blessed", "candidate", "deprecated", "revoked")


def on_target(
    snapshot: Snapshot, target: str, fits: Fits, now: datetime, most: int
) -> tuple[list[Pair], int]:
    """The entries that concern a target, blessed ones first, and how many there are.

    Args:
        snapshot: the matrix.
        target: by name; one that cannot be used has them too.
        fits: what facts say.
        now: for ends of life.
        most: evaluate at most so many.
    """
    entries = snapshot.matrix.entries.of(target)
    entries.sort(key=lambda entry: (_FIRST.index(entry.status), natural(entry.name)))
    column = target_column(snapshot, target)
    found = [pair for entry in entries[:most] for pair in pairs_of(_row(entry), column, fits, now)]
    return found, len(entries)


def of_entry(
    snapshot: Snapshot, entry: Entry, fits: Fits, now: datetime, most: int
) -> tuple[list[Pair], int]:
    """An entry on each of its targets by name, and how many these are.

    A target none of whose pools it is for is left out.
    """
    named = snapshot.documents if ANY_TARGET in entry.targets else entry.targets
    targets = sorted(named, key=natural)
    found = [
        pair
        for name in targets[:most]
        for pair in pairs_of(_row(entry), target_column(snapshot, name), fits, now)
    ]
    return found, len(targets)


def _row(entry: Entry) -> Row:
    return Row(entry.name, entry.name, constraints_of(entry), (entry,))
