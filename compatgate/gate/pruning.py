"""Removing what nobody looks at any more: old logs, bulky reports, hosts that are gone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct
from sqlalchemy.orm import Session

from compatgate.store import audit, clock, prune
from compatgate.store.database import Database
from compatgate.store.run_rows import PrunedLog

_AT_ONCE = 50
"""Runs of one transaction, so that nobody waits long for the writer's turn."""


class Ages(Struct, frozen=True):
    """How old something must be to be removed; None: it is left alone.

    Attributes:
        logs: since the run ended.
        reports: since the run ended.
        hosts: since a worker last served it.
    """

    logs: timedelta | None = None
    reports: timedelta | None = None
    hosts: timedelta | None = None


class OfRuns(Struct, frozen=True):
    """What was, or would be, removed of runs that ended before a moment.

    Attributes:
        bytes: as stored; of a dry run on reports, all that the steps have, of which a little stays.
    """

    before: datetime
    runs: int
    bytes: int


class OfHosts(Struct, frozen=True):
    """Hosts that were, or would be, forgotten; each with when it was last seen."""

    before: datetime
    hosts: dict[str, datetime]


class Pruned(Struct, frozen=True):
    """What was, or would be, removed; None: it was not asked for."""

    dry_run: bool
    logs: OfRuns | None = None
    reports: OfRuns | None = None
    hosts: OfHosts | None = None

    @property
    def nothing(self) -> bool:
        """Whether there was nothing to remove."""
        runs = any(part and part.runs for part in (self.logs, self.reports))
        return not (runs or (self.hosts and self.hosts.hosts))

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        body: dict[str, Any] = msgspec.to_builtins(self)
        return body


def prune_database(database: Database, ages: Ages, *, by: str, dry_run: bool = False) -> Pruned:
    """Remove what is older, in short transactions, each with its link in the audit chain.

    Evidence, decisions, verdicts, the audit chain, the matrix, baselines and runs themselves are
    never touched. Interrupted, it has removed a part, and says so in the chain.

    Args:
        database: with the schema.
        ages: what is old.
        by: who asks, for the audit log.
        dry_run: change nothing, and say what would be removed.

    Raises:
        Unavailable: the database does not answer.
    """
    removing = _Removing(database, by, clock.now(), dry_run=dry_run)
    return Pruned(
        dry_run,
        removing.of_runs(ages.logs, prune.logs_before, removing.logs),
        removing.of_runs(ages.reports, prune.reports_before, removing.reports),
        removing.of_hosts(ages.hosts),
    )


_Find = Callable[[Session, datetime], dict[str, int]]
_Drop = Callable[[Session, datetime, Mapping[str, int]], int]


class _Removing:
    def __init__(self, database: Database, by: str, now: datetime, *, dry_run: bool) -> None:
        self._database = database
        self._by = by
        self._now = now
        self._dry_run = dry_run

    def of_runs(self, age: timedelta | None, find: _Find, drop: _Drop) -> OfRuns | None:
        if age is None:
            return None
        before = self._now - age
        with self._database.reading() as session:
            sizes = find(session, before)
        if self._dry_run:
            return OfRuns(before, len(sizes), sum(sizes.values()))
        freed = 0
        for some in _parts(list(sizes)):
            with self._database.writing() as session:
                freed += drop(session, before, {run: sizes[run] for run in some})
        return OfRuns(before, len(sizes), freed)

    def logs(self, session: Session, before: datetime, sizes: Mapping[str, int]) -> int:
        size = sum(sizes.values())
        link = self._note(session, "logs", before, {"runs": list(sizes), "bytes": size})
        prune.drop_logs(session, list(sizes), PrunedLog(self._now, self._by, link))
        return size

    def reports(self, session: Session, before: datetime, sizes: Mapping[str, int]) -> int:
        size = prune.drop_reports(session, list(sizes), self._now)
        self._note(session, "reports", before, {"runs": list(sizes), "bytes": size})
        return size

    def of_hosts(self, age: timedelta | None) -> OfHosts | None:
        if age is None:
            return None
        before = self._now - age
        if self._dry_run:
            with self._database.reading() as session:
                return OfHosts(before, prune.hosts_before(session, before))
        with self._database.writing() as session:
            found = prune.hosts_before(session, before)
            if found:
                prune.drop_hosts(session, list(found))
                self._note(session, "hosts", before, {"hosts": list(found)})
        return OfHosts(before, found)

    def _note(self, session: Session, what: str, before: datetime, detail: dict[str, Any]) -> int:
        return audit.append(
            session,
            at=clock.now(),
            actor=self._by,
            action=f"prune.{what}",
            subject=f"older than {clock.iso(before)}",
            detail=detail,
        )


def _parts(runs: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(runs), _AT_ONCE):
        yield runs[start : start + _AT_ONCE]
