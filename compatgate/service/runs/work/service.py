"""Let a worker lease the runs of its host, and write those that it leases.

A token with the scope ``work`` is for the host that has the token's name. Times, the suite's
definition and the run that evidence is about are the gate's, whatever the worker says.
"""

from __future__ import annotations

from datetime import timedelta

import msgspec
from msgspec.structs import asdict, replace

from compatgate.canary.engine import BaselineKey, Lease, Order, Settings
from compatgate.canary.hosts import Host
from compatgate.core.binding import SuiteDefinition, require_definition
from compatgate.core.matrix import Evidence
from compatgate.errors import BadInput, Conflict
from compatgate.kit import clock
from compatgate.kit.principal import AccessRefused, Principal
from compatgate.service.runs.evidence.baselines import BaselineService
from compatgate.service.runs.queue.queue import DatabaseQueue, check_clock
from compatgate.service.runs.queue.service import Runs
from compatgate.service.runs.work.schemas import (
    BaselineOffer,
    EvidenceClaim,
    Heartbeat,
    HostDeclaration,
    RunEnd,
)


class LeaseGone(Conflict):
    """The caller does not have the run: it has ended, or another attempt has begun."""

    slug = "lease-lost"

    def __init__(self, run: str) -> None:
        super().__init__(
            "this worker does not have the run: another has it, or it has ended",
            field="run",
            value=run,
            hint="drop it without a trace",
        )


def require_host(caller: Principal, host: str) -> None:
    """Require the token of a host; admin tokens, and who opens the database, may act for each."""
    if caller.kind == "local" or "admin" in caller.scopes:
        return
    if caller.kind != "token":
        what = "only a token works for a host: it has the host's name"
        raise AccessRefused(what, principal=caller, field="host", value=host)
    if caller.name != host:
        raise AccessRefused(
            f"the token {caller.name} works for the host {caller.name} alone",
            principal=caller,
            field="host",
            value=host,
            hint=f"compatgate token create --name {host} --scope work",
        )


class WorkDesk:
    """The side of the gate that workers see."""

    def __init__(self, runs: Runs, baselines: BaselineService) -> None:
        self._runs = runs
        self._baselines = baselines

    def declare(self, host: Host, declared: HostDeclaration) -> None:
        """Register a host with the suites of its worker."""
        self._open(declared).register(declared.worker, [host])

    def lease(self, host: Host, declared: HostDeclaration) -> Lease | None:
        """Lease the next run of a host; its declaration is its heartbeat."""
        return self._open(declared).lease(declared.worker, [host])

    def _open(self, declared: HostDeclaration) -> DatabaseQueue:
        holds = timedelta(seconds=declared.lease_s)
        check_clock("the worker's", declared.at, "gate's", clock.now(), holds)
        settings = Settings.patient(declared.lease_s, Settings().pauses[0])
        return self._runs.open_queue(settings, declared.suites)

    def find(self, caller: Principal, run: str, attempt: int) -> Lease:
        """Return the lease of a run that the caller's host has."""
        lease = self._runs.queue.find(run, attempt)
        if lease is None:
            raise LeaseGone(run)
        require_host(caller, lease.host)
        return lease

    def beat(self, lease: Lease, beat: Heartbeat) -> Order:
        """Renew a lease, and store what has changed; return the order."""
        queue = self._runs.open_queue(Settings.patient(beat.lease_s, Settings().pauses[0]))
        if beat.state is not None:
            queue.enter(lease, beat.state)
        if beat.doing is not None:
            queue.say(lease, beat.doing, beat.progress, beat.left_s)
        return queue.renew(lease)

    def end(self, lease: Lease, end: RunEnd) -> None:
        """End a run, or hand it back."""
        if end.outcome == "again":
            settings = Settings.patient(Settings().lease, end.pause_s)
            self._runs.open_queue(settings).retry(lease, end.why)
            return
        claim = end.evidence
        if claim is not None and end.outcome not in ("passed", "failed"):
            what = f"a run that ended {end.outcome} is not evidence"
            raise BadInput(what, field="evidence", hint="omit it, or end it passed or failed")
        evidence = None if claim is None else _to_evidence(lease, claim, end.outcome)
        self._runs.queue.finish(lease, end.outcome, end.why, evidence)

    def offer(self, caller: Principal, host: str, offer: BaselineOffer) -> None:
        """Offer values to learn from, of a run that the host has."""
        run = offer.run.partition(":")[0]
        row = self._runs.get(run)
        if row.on_host != host or row.has_ended:
            raise LeaseGone(run)
        require_host(caller, host)
        self._baselines.offer(
            msgspec.convert(offer, BaselineKey, from_attributes=True),
            offer.metrics,
            offer.run,
            offer.found,
        )


def _to_evidence(lease: Lease, claim: EvidenceClaim, outcome: str) -> Evidence:
    """Return evidence about the leased run: a worker says what it measured, and nothing else."""
    run, own, bound = lease.run, lease.definition, claim.bound
    if own is not None:
        if bound is None or not bound.suite:
            what, hint = "says nothing of the suite", "bound.suite and bound.workloads"
            raise BadInput(what, field="evidence.bound", hint=hint)
        require_definition(run.suite, own, SuiteDefinition(bound.suite, bound.workloads))
        bound = replace(bound, suite=own.digest, workloads=own.workloads)
    if run.gpu is not None and claim.sku != run.gpu:
        raise BadInput(f"the run is for {run.gpu}", field="evidence.sku", value=claim.sku)
    bound = replace(bound, host=lease.host) if bound else None
    about = {"id": run.id, "suite": run.suite, "outcome": outcome, "bound": bound}
    finished = int(clock.now().timestamp())
    return Evidence.read(**{**asdict(claim), **about}, finished=finished)
