"""Hand queued runs to workers: the queue of a worker's engine.

Every change of a run's holder is made in the single writer's transaction and adds an audit link
(``run.queued``, ``run.leased``, ..., ``run.passed``); heartbeats and output lock only their own
run. A run that waits for many slots cannot starve.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec
from msgspec.structs import replace
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from compatgate.canary.engine import STANDARD_SETTINGS, Lease, LeaseLost, Order, Settings
from compatgate.canary.hosts import CLUSTERS, Host, is_in_maintenance
from compatgate.canary.judge.paired.blocks import PairsState, summarize_pairs
from compatgate.canary.run import ACTIVE, Outcome, Run, StepResult
from compatgate.core.binding import SuiteDefinition, require_definition
from compatgate.core.facts import Facts
from compatgate.core.facts.nvidia import Gpus
from compatgate.core.gpus import resolve_gpu
from compatgate.core.matrix import Evidence
from compatgate.core.versions import parse_version
from compatgate.errors import BadInput
from compatgate.kit import clock
from compatgate.kit.clock import read_clocks
from compatgate.kit.database.database import Database
from compatgate.service.audit import chain as audit
from compatgate.service.runs.evidence.promotion import store_evidence
from compatgate.service.runs.queue import leases
from compatgate.service.runs.queue import repository as runs
from compatgate.service.runs.queue.leases import Offer, could_take
from compatgate.service.runs.queue.models import RunRow, StepRow

_LONGEST = 2000
MAX_SESSIONS = 30
"""Sessions from which the noise of metrics is learned."""


def note_run(
    session: Session, at: datetime, actor: str, what: str, run_id: str, detail: dict[str, Any]
) -> None:
    """Add an audit link about a run, in a writing session."""
    audit.append(session, at=at, actor=actor, action=f"run.{what}", subject=run_id, detail=detail)


def to_run(row: RunRow) -> Run:
    """Convert a stored run to the engine's form."""
    return msgspec.convert(row, Run, from_attributes=True)


def host_values(worker: str, host: Host, gpus: Gpus) -> dict[str, Any]:
    """Return the stored values of a host; endpoint and credentials are not stored."""
    field = f"hosts.{host.name}"
    if host.slots < 1:
        raise BadInput("a host needs at least one slot", field=f"{field}.slots", value=host.slots)
    try:
        gpu = resolve_gpu(host.gpu, gpus) if host.gpu else None
        driver = parse_version("driver", host.driver) if host.driver else None
    except BadInput as error:
        raise error.at(field) from None
    if gpu is not None and not gpu.product:
        hint = "like A100-SXM4-80GB: evidence is about a product"
        what = f"{host.gpu} is a compute capability, not a product"
        raise BadInput(what, field=f"{field}.gpu", value=host.gpu, hint=hint)
    return {
        "name": host.name,
        "worker": worker,
        "executor": host.executor,
        "gpu": gpu.sku if gpu else None,
        "driver": driver.text if driver else None,
        "slots": host.slots,
        "health": host.health,
        "quiet": msgspec.to_builtins(list(host.quiet)),
    }


def make_offer(stored: Any) -> Offer:
    """Return the capacity of a declared or stored host."""
    host = stored if isinstance(stored, dict) else msgspec.structs.asdict(stored)
    return Offer(
        host["name"],
        host["gpu"],
        runs.driver_key(host["driver"]),
        host["slots"],
        spans=host["executor"] in CLUSTERS,
    )


def choose_run(
    offers: Sequence[Offer],
    taken: Mapping[str, set[int]],
    next_for: Callable[[Sequence[Offer], Sequence[str]], RunRow | None],
) -> tuple[RunRow, str, tuple[int, ...]] | None:
    """Choose the first run, in the queue's order, that a host can run now; with host and slots.

    A run that fits no host now keeps the one that comes nearest for itself: what comes after it
    must not take the slots that it waits for.
    """
    free = {
        offer.host: [slot for slot in range(offer.slots) if slot not in taken[offer.host]]
        for offer in offers
    }
    open_, passed = list(offers), list[str]()
    while open_:
        run = next_for(open_, passed)
        if run is None:
            return None
        able = sorted(
            (offer for offer in open_ if could_take(run, offer)),
            key=lambda offer: (run.gpu is None and offer.gpu is not None, -len(free[offer.host])),
        )
        for offer in able:
            needed = offer.count_needed(run)
            if len(free[offer.host]) >= needed:
                return run, offer.host, tuple(free[offer.host][:needed])
        passed.append(run.id)
        nearest = min(
            able,
            key=lambda offer: offer.count_needed(run) - len(free[offer.host]),
            default=None,
        )
        open_ = [offer for offer in open_ if offer is not nearest]
    return None


def check_clock(whose: str, at: datetime, others: str, now: datetime, holds: timedelta) -> None:
    """Refuse a clock that is off by more than a lease."""
    ahead = at - now
    if abs(ahead) <= holds:
        return
    raise BadInput(
        f"{whose} clock is {abs(ahead).total_seconds():.0f} s"
        f" {'ahead of' if at > now else 'behind'} the {others}: {clock.iso(at)}, and not"
        f" {clock.iso(now)}",
        field="at",
        value=clock.iso(at),
        hint=f"set it right: leases hold for {holds.total_seconds():g} s",
    )


class DatabaseQueue:
    """`compatgate.canary.engine.Queue` on a database; any number of workers share it.

    It calls ``on_change`` after the matrix or the evidence may have changed. Workers that share a
    queue may differ in how long leases hold, and how long runs pause.
    """

    def __init__(
        self,
        database: Database,
        facts: Facts,
        on_change: Callable[[], object] = lambda: None,
        settings: Settings = STANDARD_SETTINGS,
        suites: Collection[str] = (),
    ) -> None:
        self._database = database
        self._facts = facts
        self._on_change = on_change
        self._suites = sorted(suites)
        self._holds = timedelta(seconds=settings.lease)
        self._seen_every = timedelta(seconds=settings.heartbeat)
        self._pauses = [timedelta(seconds=seconds) for seconds in settings.pauses]

    def register(self, worker: str, served: Sequence[Host]) -> None:
        """Register the hosts of a worker and its suites; `lease` repeats it as a heartbeat."""
        now = clock.now()
        declared = [
            {**host_values(worker, host, self._facts.gpus), "suites": self._suites}
            for host in served
        ]
        for host in served:
            is_in_maintenance(host.quiet, now)
        with self._database.reading() as session:
            if leases.are_current(session, declared, now, self._seen_every):
                return
            if not self._database.is_sqlite:
                stored = session.execute(select(func.clock_timestamp())).scalar_one()
                check_clock("this machine's", read_clocks()[0], "database's", stored, self._holds)
        with self._database.writing() as session:
            leases.register_hosts(session, declared, now)

    def lease(self, worker: str, served: Sequence[Host]) -> Lease | None:
        """See `Queue`."""
        if not served:
            return None
        self.register(worker, served)
        now = clock.now()
        names = [host.name for host in served]
        with self._database.reading() as session:
            if not leases.has_work(session, names, now):
                return None
        with self._database.writing() as session:
            if run := leases.abandoned_run(session, names, now):
                slots = leases.slots_of(session, run.id)
                return self._give(session, run, worker, run.on_host or "", slots, now)
            offers = [
                replace(
                    make_offer(host_values(worker, host, self._facts.gpus)),
                    exclusive=host.exclusive and host.executor not in CLUSTERS,
                )
                for host in served
                if not is_in_maintenance(host.quiet, now)
            ]
            chosen = choose_run(
                offers,
                leases.taken_slots(session, [each.host for each in offers]),
                lambda open_, but: leases.next_waiting_run(session, open_, now, but=but),
            )
            if chosen is None:
                return None
            run, name, slots = chosen
            leases.take_slots(session, run.id, name, slots)
            return self._give(session, run, worker, name, slots, now)

    def report_host(self, host: str, away: str) -> None:
        """See `Queue`."""
        with self._database.reading() as session:
            known = leases.load_hosts(session, [host])
        why = _storable_text(away) or None
        if known and known[0].away_why != why:
            since = (known[0].away_since or clock.now()) if why else None
            with self._database.writing() as session:
                leases.mark_host(session, host, why, since)

    def _give(
        self,
        session: Session,
        run: RunRow,
        worker: str,
        host: str,
        slots: tuple[int, ...],
        now: datetime,
    ) -> Lease:
        is_abandoned, attempt = run.state != "queued", run.attempts + 1
        leases.set_run(
            session,
            run.id,
            state="leased",
            attempts=attempt,
            worker=worker,
            on_host=host,
            lease_until=now + self._holds,
            not_before=None,
            doing="",
            progress=None,
            reason="",
            started_at=run.started_at or now,
        )
        detail = {"attempt": attempt, "host": host, "slots": list(slots)}
        if is_abandoned:
            detail["abandoned_by"] = run.worker
        note_run(session, now, worker, "leased", run.id, detail)
        leased = to_run(runs.find_run(session, run.id))
        return Lease(leased, worker, host, slots, attempt, is_abandoned, run.definition)

    def find(self, run_id: str, attempt: int) -> Lease | None:
        """Return the lease of a run; None if its last attempt is another, or it has ended."""
        with self._database.reading() as session:
            run = runs.find_runs(session, [run_id]).get(run_id)
            if run is None or run.attempts != attempt or run.state not in ACTIVE:
                return None
            slots = leases.slots_of(session, run_id)
        found = to_run(run), run.worker or "", run.on_host or ""
        return Lease(*found, slots, attempt, definition=run.definition)

    def renew(self, lease: Lease) -> Order:
        """Renew a lease, see `Queue`; an outdated lease gets ``lost``."""
        until = clock.now() + self._holds
        with self._database.working() as session:
            run = leases.lock_run(session, lease)
            if run is None:
                return "lost"
            leases.update_run(session, lease, lease_until=until)
        return "cancel" if run.cancel_by else "go"

    def enter(self, lease: Lease, state: Literal["preparing", "running", "judging"]) -> None:
        """See `Queue`."""
        now = clock.now()
        with self._mine(lease, writing=True) as (session, _):
            leases.update_run(session, lease, state=state, lease_until=now + self._holds)
            note_run(session, now, lease.worker, state, lease.run.id, {"attempt": lease.attempt})

    def say(
        self, lease: Lease, doing: str, progress: float | None, left_s: float | None = None
    ) -> None:
        """See `Queue`."""
        with self._database.working() as session:
            values = {"doing": _storable_text(doing), "progress": progress, "left_s": left_s}
            if not leases.update_run(session, lease, **values):
                raise LeaseLost(lease.run.id)

    def lengths(self, lease: Lease, steps: Collection[str]) -> Mapping[str, float]:
        """See `Queue`."""
        with self._database.reading() as session:
            return runs.find_lengths(
                session,
                steps=steps,
                suite=lease.run.suite,
                gpu=lease.run.gpu,
                definition=lease.definition,
                host=lease.host,
            )

    def write(self, lease: Lease, step: str, data: bytes) -> None:
        """See `Queue`."""
        if not data:
            return
        with self._mine(lease) as (session, _):
            runs.append_output(session, lease.run.id, lease.attempt, step, data, clock.now())

    def record(self, lease: Lease, result: StepResult) -> None:
        """See `Queue`."""
        body = msgspec.to_builtins(result)
        with self._mine(lease) as (session, _):
            step = StepRow(lease.attempt, result.name, lease.host, body)
            runs.record_step(session, lease.run.id, step)

    def results(self, lease: Lease) -> list[StepResult]:
        """Return the last result of each step on this host; see `Queue`."""
        with self._mine(lease) as (session, _):
            result = runs.list_steps(session, lease.run.id, host=lease.host)
        return [msgspec.convert(step.body, StepResult) for step in result]

    def ended_in_time(self, lease: Lease, step: str, digest: str) -> str:
        """See `Queue`."""
        with self._database.reading() as session:
            return runs.find_step_in_time(session, host=lease.host, step=step, digest=digest)

    def compare(self, lease: Lease, pairs: PairsState) -> None:
        """See `Queue`."""
        with self._database.working() as session:
            if not leases.update_run(session, lease, pairs=msgspec.to_builtins(pairs)):
                raise LeaseLost(lease.run.id)

    def earlier_pairs(self, lease: Lease) -> list[PairsState]:
        """See `Queue`."""
        run = lease.run
        with self._database.reading() as session:
            return runs.list_earlier_pairs(
                session, suite=run.suite, gpu=run.gpu, limit=MAX_SESSIONS
            )

    def finish(
        self, lease: Lease, outcome: Outcome, reason: str, evidence: Evidence | None
    ) -> None:
        """Finish a run, see `Queue`; matrix changes are part of the same transaction."""
        own = (outcome, lease.run.id, lease.run.suite)
        judged = outcome in ("passed", "failed")
        if evidence and not (judged and own == (evidence.outcome, evidence.id, evidence.suite)):
            raise ValueError(
                f"{evidence.id}, {evidence.outcome}, is not evidence of a run that {outcome}"
            )
        now = clock.now()
        with self._mine(lease, writing=True) as (session, run):
            if evidence is not None and (bound := evidence.bound) is not None and bound.suite:
                stated = SuiteDefinition(bound.suite, bound.workloads)
                require_definition(run.suite, run.definition, stated)
            asked = f"cancelled by {run.cancel_by}"
            why = asked if outcome == "cancelled" else _storable_text(reason)
            leases.end_run(session, lease.run.id, outcome, why, now)
            detail: dict[str, Any] = {"attempt": lease.attempt, "reason": why}
            if evidence is not None:
                pairs = runs.find_pairs(session, run.id)
                if pairs is not None and evidence.bound is not None:
                    entry = run.against.entry if run.against else None
                    compared = summarize_pairs(msgspec.convert(pairs, PairsState), entry)
                    evidence = replace(evidence, bound=replace(evidence.bound, compared=compared))
                detail |= store_evidence(session, evidence, self._facts, now)
            note_run(session, now, lease.worker, outcome, lease.run.id, detail)
        if evidence is not None:
            self._on_change()

    def retry(self, lease: Lease, reason: str) -> None:
        """Queue a run again, see `Queue`; end one that was cancelled meanwhile."""
        now = clock.now()
        why = _storable_text(reason)
        with self._mine(lease, writing=True) as (session, run):
            detail: dict[str, Any] = {"attempt": lease.attempt, "reason": why}
            if run.cancel_by:
                state = "cancelled"
                leases.end_run(session, run.id, state, f"cancelled by {run.cancel_by}", now)
            elif lease.attempt >= run.max_attempts:
                state = "inconclusive"
                again = f"once that is fixed: compatgate canary rerun {run.id}"
                ended = f"{why} (attempt {lease.attempt}, the last); {again}"
                leases.end_run(session, run.id, state, ended, now)
            else:
                state = "queued"
                pause = self._pauses[min(lease.attempt, len(self._pauses)) - 1]
                leases.requeue_run(session, run.id, why, now + pause)
                detail["pause_s"] = pause.total_seconds()
            note_run(session, now, lease.worker, state, run.id, detail)

    @contextmanager
    def _mine(self, lease: Lease, *, writing: bool = False) -> Iterator[tuple[Session, RunRow]]:
        """Open a transaction in which the lease is the run's last."""
        opened = self._database.writing() if writing else self._database.working()
        with opened as session:
            run = leases.lock_run(session, lease)
            if run is None:
                raise LeaseLost(lease.run.id)
            yield session, run


def _storable_text(text: str) -> str:
    """Return text that a database can store and a list can show."""
    return "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in text[:_LONGEST])
