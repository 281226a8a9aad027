"""Remove old logs, large reports, and hosts that are gone.

The row of a run always stays. Its log may be removed once the run has ended; a note replaces it.
The reports of its steps may be removed if no evidence, warning or baseline depends on the run.
The newest report of each host stays, because drift is computed from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct
from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.orm import Session

from compatgate.canary.run import ENDED
from compatgate.kit import clock
from compatgate.kit.database.database import Database
from compatgate.service.audit import chain as audit
from compatgate.service.runs.evidence.baselines import BaselineRow
from compatgate.service.runs.evidence.evidence import EntryWarning, EvidenceRecord
from compatgate.service.runs.queue.models import Host, PrunedLog, Run, RunOutput, RunStep, Slot
from compatgate.service.runs.queue.repository import NO_STEP

PRUNED_MEMBER = "pruned_at"
"""Member of a pruned step result: the time of removal."""
_REPORTS = ("report", "judgement", "health")
_RUNS_PER_TRANSACTION = 50
"""Runs per transaction; short transactions let other writers in."""
_encode = msgspec.json.Encoder(order="deterministic").encode
_Find = Callable[[Session, datetime], dict[str, int]]
_Drop = Callable[[Session, datetime, Mapping[str, int]], int]


def logs_before(session: Session, before: datetime) -> dict[str, int]:
    """Return log sizes in bytes by run, of runs that ended before a time; oldest first."""
    size = func.sum(func.length(RunOutput.data))
    query = select(Run.id, size).join(RunOutput, RunOutput.run == Run.id)
    query = query.where(*_ended_before(before), RunOutput.step != NO_STEP)
    query = query.group_by(Run.seq, Run.id).order_by(Run.seq)
    return {run: int(size or 0) for run, size in session.execute(query)}


def reports_before(session: Session, before: datetime) -> dict[str, int]:
    """Return report sizes in bytes by run, of old runs that nothing depends on."""
    ended = select(func.max(Run.seq)).where(Run.state.in_(ENDED), Run.on_host.is_not(None))
    newest = ended.group_by(Run.on_host)
    closed = select(EntryWarning.closed_by).where(EntryWarning.closed_by.is_not(None))
    size = func.sum(func.length(RunStep.body))
    query = select(Run.id, size).join(RunStep, RunStep.run == Run.id)
    query = query.where(
        *_ended_before(before),
        Run.seq.not_in(newest),
        Run.id.not_in(select(EvidenceRecord.run)),
        Run.id.not_in(select(EntryWarning.run)),
        Run.id.not_in(closed),
        RunStep.body.not_like(f'%"{PRUNED_MEMBER}":%'),
    )
    learnt = {
        str(one["run"]).partition(":")[0]
        for body in session.execute(select(BaselineRow.body)).scalars()
        for name in ("runs", "discarded")
        for one in body.get(name, ())
    }
    rows = session.execute(query.group_by(Run.seq, Run.id).order_by(Run.seq))
    return {run: int(size or 0) for run, size in rows if run not in learnt}


def hosts_before(session: Session, before: datetime) -> dict[str, datetime]:
    """Return the hosts that no worker served since a time, with their last seen times.

    Hosts of running runs, and hosts that a waiting run names, are skipped.
    """
    waited = select(Run.host).where(Run.host.is_not(None), Run.state.not_in(ENDED))
    idle = (Host.name.not_in(select(Slot.host)), Host.name.not_in(waited))
    query = select(Host.name, Host.seen_at).where(Host.seen_at < before, *idle)
    return {found.name: found.seen_at for found in session.execute(query.order_by(Host.name))}


def _ended_before(before: datetime) -> tuple[Any, ...]:
    return (Run.state.in_(ENDED), Run.finished_at < before)


class PruneAges(Struct, frozen=True):
    """The minimum age of removed rows, since the end of the run or the last service; None: keep."""

    logs: timedelta | None = None
    reports: timedelta | None = None
    hosts: timedelta | None = None


class PrunedRuns(Struct, frozen=True):
    """The removed data of old runs; in a dry run, the data to remove, of which a little stays."""

    before: datetime
    runs: int
    bytes: int


class PrunedHosts(Struct, frozen=True):
    """The removed hosts with their last seen times; in a dry run, the hosts to remove."""

    before: datetime
    hosts: dict[str, datetime]


class PruneReport(Struct, frozen=True):
    """The result of pruning, by kind; None: not requested."""

    dry_run: bool
    logs: PrunedRuns | None = None
    reports: PrunedRuns | None = None
    hosts: PrunedHosts | None = None

    @property
    def nothing(self) -> bool:
        """Return whether nothing was removed."""
        runs = any(part and part.runs for part in (self.logs, self.reports))
        return not (runs or (self.hosts and self.hosts.hosts))

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        body: dict[str, Any] = msgspec.to_builtins(self)
        return body


def prune_database(
    database: Database, ages: PruneAges, *, by: str, dry_run: bool = False
) -> PruneReport:
    """Remove old rows in short transactions, each with its link in the audit chain.

    Evidence, decisions, verdicts, the audit chain, the matrix, baselines and runs themselves are
    never touched. An interrupted call has removed a part, which the chain records.
    """
    removing = _Pruner(database, by, clock.now(), dry_run=dry_run)
    return PruneReport(
        dry_run,
        removing.of_runs(ages.logs, logs_before, removing.logs),
        removing.of_runs(ages.reports, reports_before, removing.reports),
        removing.of_hosts(ages.hosts),
    )


class _Pruner:
    def __init__(self, database: Database, by: str, now: datetime, *, dry_run: bool) -> None:
        self._database = database
        self._by = by
        self._now = now
        self._dry_run = dry_run

    def of_runs(self, age: timedelta | None, find: _Find, drop: _Drop) -> PrunedRuns | None:
        if age is None:
            return None
        before = self._now - age
        with self._database.reading() as session:
            sizes = find(session, before)
        if self._dry_run:
            return PrunedRuns(before, len(sizes), sum(sizes.values()))
        freed = 0
        runs = list(sizes)
        for start in range(0, len(runs), _RUNS_PER_TRANSACTION):
            some = runs[start : start + _RUNS_PER_TRANSACTION]
            with self._database.writing() as session:
                freed += drop(session, before, {run: sizes[run] for run in some})
        return PrunedRuns(before, len(sizes), freed)

    def logs(self, session: Session, before: datetime, sizes: Mapping[str, int]) -> int:
        """Remove the logs of finished runs; a note replaces each."""
        size, runs = sum(sizes.values()), list(sizes)
        link = self._note(session, "logs", before, {"runs": runs, "bytes": size})
        session.execute(delete(RunOutput).where(RunOutput.run.in_(runs)))
        text = _encode(PrunedLog(self._now, self._by, link))
        note = {"attempt": 0, "step": NO_STEP, "at": self._now, "data": text}
        session.execute(insert(RunOutput), [{**note, "run": run} for run in runs])
        return size

    def reports(self, session: Session, before: datetime, sizes: Mapping[str, int]) -> int:
        """Remove reports and judgements; outcomes, reasons, exit statuses and images stay."""
        saved = 0
        key = (RunStep.run, RunStep.attempt, RunStep.name)
        query = select(*key, RunStep.body).where(RunStep.run.in_(list(sizes)))
        for run, attempt, name, body in session.execute(query).all():
            result: dict[str, Any] = msgspec.json.decode(body)
            if PRUNED_MEMBER in result:
                continue
            result |= {part: None for part in _REPORTS if part in result}
            text = _encode({**result, PRUNED_MEMBER: self._now}).decode()
            saved += len(body.encode()) - len(text.encode())
            mine = (RunStep.run == run, RunStep.attempt == attempt, RunStep.name == name)
            session.execute(update(RunStep).where(*mine).values(body=text))
        size = max(saved, 0)
        self._note(session, "reports", before, {"runs": list(sizes), "bytes": size})
        return size

    def of_hosts(self, age: timedelta | None) -> PrunedHosts | None:
        if age is None:
            return None
        before = self._now - age
        if self._dry_run:
            with self._database.reading() as session:
                return PrunedHosts(before, hosts_before(session, before))
        with self._database.writing() as session:
            found = hosts_before(session, before)
            if found:
                session.execute(delete(Host).where(Host.name.in_(found)))
                self._note(session, "hosts", before, {"hosts": list(found)})
        return PrunedHosts(before, found)

    def _note(self, session: Session, what: str, before: datetime, detail: dict[str, Any]) -> int:
        return audit.append(
            session,
            at=clock.now(),
            actor=self._by,
            action=f"prune.{what}",
            subject=f"older than {clock.iso(before)}",
            detail=detail,
        )
