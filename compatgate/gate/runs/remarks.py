"""What runs say of entries, shown beside them: open warnings, and how far a candidate is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

from compatgate.core.matrix import ANY_TARGET
from compatgate.core.promotion import Index, Standing, index, standing
from compatgate.gate.snapshot import Snapshot
from compatgate.store import warnings
from compatgate.store.clock import now
from compatgate.store.database import Database
from compatgate.store.run_rows import WarningRow


class Remarks(Struct, frozen=True):
    """What is to be said of one entry.

    Attributes:
        warnings: open ones, oldest first.
        promotion: of a candidate.
    """

    warnings: tuple[WarningRow, ...] = ()
    promotion: Standing | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain data, as members of an entry; what there is nothing to say of is left out."""
        body: dict[str, Any] = {}
        if self.warnings:
            body["warnings"] = [warning.to_json() for warning in self.warnings]
        if self.promotion:
            body["promotion"] = msgspec.to_builtins(self.promotion)
        return body

    def lines(self) -> list[str]:
        """The same, for people."""
        found = [f"warning since {w.opened_at:%Y-%m-%d}: {w.message}" for w in self.warnings]
        if (about := self.promotion) is None:
            return found
        if about.state == "ready":
            return [*found, f"ready for approval: {', '.join(about.runs)} passed"]
        for need in about.needs:
            where = f"suite {need.suite} for {need.target} on {need.sku}, driver {need.driver}"
            lack = f"run {need.failed} failed: " if need.failed else "not passed yet: "
            found.append(f"{lack}{where}")
        return found or ["not promoted: no pool of its targets has a GPU and driver that it is for"]


def remarks(database: Database, snapshot: Snapshot, names: Iterable[str]) -> dict[str, Remarks]:
    """What is to be said of some entries, by name."""
    wanted = list(names)
    said: dict[str, list[WarningRow]] = {}
    with database.reading() as session:
        for warning in warnings.opened(session, entries=wanted):
            said.setdefault(warning.entry, []).append(warning)
    runs = index(snapshot.matrix.evidence)
    return {
        name: Remarks(tuple(said.get(name, ())), _standing(snapshot, name, runs)) for name in wanted
    }


def _standing(snapshot: Snapshot, name: str, runs: Index) -> Standing | None:
    entry = snapshot.entries.get(name)
    if entry is None or entry.status != "candidate":
        return None
    if ANY_TARGET in entry.targets:
        targets = list(snapshot.targets.values())
    else:
        targets = [snapshot.targets[t] for t in entry.targets if t in snapshot.targets]
    return standing(entry, targets, runs, now().timestamp())
