"""The queue of runs on a database: what a worker's engine talks to.

Whatever changes who has a run happens in the one writer's transaction and leaves an audit link;
heartbeats and output lock nothing but their own run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec
from sqlalchemy.orm import Session

from compatgate.canary.engine.settings import STANDARD, Settings
from compatgate.canary.hosts import Host
from compatgate.canary.queue import Lease, LeaseLost, Order
from compatgate.canary.quiet import is_quiet
from compatgate.canary.run import Outcome, StepResult
from compatgate.core.facts import Facts
from compatgate.core.matrix import Evidence
from compatgate.gate.runs.audit import note
from compatgate.gate.runs.declared import declare, offer
from compatgate.gate.runs.evidence import keep
from compatgate.gate.runs.schedule import choose
from compatgate.gate.runs.shape import to_run
from compatgate.store import clock, hosts, leases, runs
from compatgate.store.database import Database
from compatgate.store.leases import Held
from compatgate.store.run_rows import RunRow, StepRow

_LONGEST = 2000


class DatabaseQueue:
    """`compatgate.canary.queue.Queue` on a database; any number of workers share it.

    Args:
        database: with the schema.
        facts: to resolve the hosts' GPUs with.
        on_change: called after the matrix or the evidence may have changed.
        settings: how long leases hold, and how long runs pause; workers that share a queue may
            differ.
    """

    def __init__(
        self,
        database: Database,
        facts: Facts,
        on_change: Callable[[], object] = lambda: None,
        settings: Settings = STANDARD,
    ) -> None:
        self._database = database
        self._facts = facts
        self._on_change = on_change
        self._holds = timedelta(seconds=settings.lease)
        self._seen_every = timedelta(seconds=settings.heartbeat)
        self._pauses = [timedelta(seconds=seconds) for seconds in settings.pauses]

    def register(self, worker: str, served: Sequence[Host]) -> None:
        """Make known which hosts a worker serves; `lease` repeats it as a sign of life.

        Raises:
            BadInput: a host whose GPU, driver, slots or quiet hours cannot be.
        """
        now = clock.now()
        declared = declare(worker, served, self._facts.gpus)
        for host in served:
            is_quiet(host.quiet, now)
        with self._database.reading() as session:
            if hosts.is_current(session, declared, now, self._seen_every):
                return
        with self._database.writing() as session:
            hosts.register(session, declared, now)

    def lease(self, worker: str, served: Sequence[Host]) -> Lease | None:
        """See `Queue`."""
        if not served:
            return None
        self.register(worker, served)
        now = clock.now()
        names = [host.name for host in served]
        with self._database.reading() as session:
            if not leases.has_any(session, names, now):
                return None
        with self._database.writing() as session:
            if run := leases.abandoned(session, names, now):
                slots = hosts.slots_of(session, run.id)
                return self._give(session, run, worker, run.on_host or "", slots, now)
            return self._next(session, worker, served, now)

    def _next(
        self, session: Session, worker: str, served: Sequence[Host], now: datetime
    ) -> Lease | None:
        awake = [host for host in served if not is_quiet(host.quiet, now)]
        offers = [offer(each) for each in declare(worker, awake, self._facts.gpus)]
        taken = hosts.taken(session, [each.host for each in offers])
        chosen = choose(
            offers, taken, lambda open_, but: leases.waiting(session, open_, now, but=but)
        )
        if chosen is None:
            return None
        hosts.take(session, chosen.run.id, chosen.host, chosen.slots)
        return self._give(session, chosen.run, worker, chosen.host, chosen.slots, now)

    def _give(
        self,
        session: Session,
        run: RunRow,
        worker: str,
        host: str,
        slots: tuple[int, ...],
        now: datetime,
    ) -> Lease:
        is_abandoned = run.state != "queued"
        attempt = leases.give(session, run, worker, host, at=now, until=now + self._holds)
        detail = {"attempt": attempt, "host": host, "slots": list(slots)}
        if is_abandoned:
            detail["abandoned_by"] = run.worker
        note(session, now, worker, "leased", run.id, detail)
        given = to_run(runs.find(session, run.id))
        return Lease(given, worker, host, slots, attempt, is_abandoned)

    def renew(self, lease: Lease) -> Order:
        """See `Queue`; an outdated lease is told ``lost``."""
        until = clock.now() + self._holds
        with self._database.working() as session:
            run = leases.hold(session, _held(lease))
            if run is None:
                return "lost"
            leases.change(session, _held(lease), lease_until=until)
        return "cancel" if run.cancel_by else "go"

    def enter(self, lease: Lease, state: Literal["preparing", "running", "judging"]) -> None:
        """See `Queue`."""
        now = clock.now()
        with self._mine(lease, writing=True) as (session, _):
            leases.change(session, _held(lease), state=state, lease_until=now + self._holds)
            note(session, now, lease.worker, state, lease.run.id, {"attempt": lease.attempt})

    def say(self, lease: Lease, doing: str, progress: float | None) -> None:
        """See `Queue`."""
        with self._database.working() as session:
            told = {"doing": _text(doing), "progress": progress}
            if not leases.change(session, _held(lease), **told):
                raise LeaseLost(lease.run.id)

    def write(self, lease: Lease, step: str, data: bytes) -> None:
        """See `Queue`."""
        if not data:
            return
        with self._mine(lease) as (session, _):
            runs.write(session, lease.run.id, lease.attempt, step, data, clock.now())

    def record(self, lease: Lease, result: StepResult) -> None:
        """See `Queue`."""
        body = msgspec.to_builtins(result)
        with self._mine(lease) as (session, _):
            step = StepRow(lease.attempt, result.name, lease.host, body)
            runs.record_step(session, lease.run.id, step)

    def results(self, lease: Lease) -> list[StepResult]:
        """See `Queue`: the last result of each step, of those that ran on this host."""
        with self._mine(lease) as (session, _):
            found = runs.steps(session, lease.run.id, host=lease.host)
        return [msgspec.convert(step.body, StepResult) for step in found]

    def finish(
        self, lease: Lease, outcome: Outcome, reason: str, evidence: Evidence | None
    ) -> None:
        """See `Queue`; what the evidence means for the matrix is part of the same transaction."""
        _check_evidence(lease, outcome, evidence)
        now = clock.now()
        with self._mine(lease, writing=True) as (session, run):
            why = f"cancelled by {run.cancel_by}" if outcome == "cancelled" else _text(reason)
            leases.end(session, lease.run.id, outcome, why, now)
            detail: dict[str, Any] = {"attempt": lease.attempt, "reason": why}
            if evidence is not None:
                detail |= keep(session, evidence, self._facts, now)
            note(session, now, lease.worker, outcome, lease.run.id, detail)
        if evidence is not None:
            self._on_change()

    def retry(self, lease: Lease, reason: str) -> None:
        """See `Queue`; a run whose end was asked for meanwhile is not queued again."""
        now = clock.now()
        why = _text(reason)
        with self._mine(lease, writing=True) as (session, run):
            detail: dict[str, Any] = {"attempt": lease.attempt, "reason": why}
            if run.cancel_by:
                state = "cancelled"
                leases.end(session, run.id, state, f"cancelled by {run.cancel_by}", now)
            elif lease.attempt >= run.max_attempts:
                state = "error"
                leases.end(
                    session, run.id, state, f"{why} (attempt {lease.attempt}, the last)", now
                )
            else:
                state = "queued"
                pause = self._pauses[min(lease.attempt, len(self._pauses)) - 1]
                leases.requeue(session, run.id, why, now + pause)
                detail["pause_s"] = pause.total_seconds()
            note(session, now, lease.worker, state, run.id, detail)

    @contextmanager
    def _mine(self, lease: Lease, *, writing: bool = False) -> Iterator[tuple[Session, RunRow]]:
        """A transaction in which the lease is known to be the run's last.

        Raises:
            LeaseLost: it is not; nothing was changed.
        """
        opened = self._database.writing() if writing else self._database.working()
        with opened as session:
            run = leases.hold(session, _held(lease))
            if run is None:
                raise LeaseLost(lease.run.id)
            yield session, run


def _held(lease: Lease) -> Held:
    return Held(lease.run.id, lease.attempt, lease.worker)


def _text(text: str) -> str:
    """What a database can keep, and people can read in a list."""
    return "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in text[:_LONGEST])


def _check_evidence(lease: Lease, outcome: Outcome, evidence: Evidence | None) -> None:
    """A mistake of the program, not of a user: such evidence must never be stored."""
    if evidence is None:
        return
    if outcome not in ("passed", "failed") or evidence.outcome != outcome:
        raise ValueError(f"a run that {outcome} is no evidence of one that {evidence.outcome}")
    if evidence.id != lease.run.id or evidence.suite != lease.run.suite:
        raise ValueError(f"evidence of another run: {evidence.id}, {evidence.suite}")
