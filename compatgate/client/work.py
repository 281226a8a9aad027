"""Work for a gate over REST: the queue and the baselines of a worker that has no database."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

import msgspec

from compatgate.canary.engine import BaselineKey, Lease, LeaseLost, Order, Settings
from compatgate.canary.hosts import Host
from compatgate.canary.judge.paired.blocks import PairsState
from compatgate.canary.judge.result import Samples
from compatgate.canary.run import Outcome, Run, StepResult
from compatgate.canary.workload import MetricSpec
from compatgate.client.clients import Client
from compatgate.core.matrix import Evidence
from compatgate.errors import BadInput, Conflict
from compatgate.kit.clock import iso, read_clocks

P = ParamSpec("P")
R = TypeVar("R")
_LONGEST = 8000
_DECLARED = ("executor", "gpu", "driver", "slots", "exclusive", "health", "quiet")


class GateQueue:
    """`Queue` and `Baselines` of the engine for one host, asked of the gate.

    Args:
        client: with the token of the host.
        settings: how long leases hold, and how long runs pause.
        suites: names of the suites that this worker has.
    """

    def __init__(
        self, client: Client, host: str, settings: Settings, suites: Collection[str] = ()
    ) -> None:
        self._client = client
        self._host = host
        self._settings = settings
        self._suites = sorted(suites)

    def _declare(self, worker: str, served: Sequence[Host]) -> dict[str, Any]:
        """Return the declaration of the host; endpoints and credentials stay here."""
        host = msgspec.to_builtins(served[0])
        return {
            **{name: host[name] for name in _DECLARED},
            "worker": worker,
            "at": iso(read_clocks()[0]),
            "suites": self._suites,
            "lease_s": self._settings.lease,
        }

    def register(self, worker: str, served: Sequence[Host]) -> None:
        """See `Queue`."""
        self._client.declare_host(self._host, self._declare(worker, served))

    def lease(self, worker: str, hosts: Sequence[Host]) -> Lease | None:
        """See `Queue`."""
        if not hosts:
            return None
        found = self._client.lease_run(self._host, self._declare(worker, hosts)).lease
        if found is None:
            return None
        run = msgspec.convert(found.run, Run, from_attributes=True)
        slots = tuple(found.slots)
        held = (run, worker, self._host, slots, found.attempt, found.abandoned)
        return Lease(*held, found.definition)

    def report_host(self, host: str, away: str) -> None:
        """See `Queue`."""
        self._client.report_host(host, away=away)

    def away(self, worker: str, served: Sequence[Host]) -> list[str]:
        """Return the host with why it is away, if it does not answer."""
        host = self._client.declare_host(self._host, self._declare(worker, served))
        return [f"{host.name} is {host.away}"] if host.away else []

    def renew(self, lease: Lease) -> Order:
        """See `Queue`."""
        return self._beat(lease)

    def enter(self, lease: Lease, state: Literal["preparing", "running", "judging"]) -> None:
        """See `Queue`."""
        self._beat(lease, state=state)

    def say(
        self, lease: Lease, doing: str, progress: float | None, left_s: float | None = None
    ) -> None:
        """See `Queue`."""
        self._beat(lease, doing=doing, progress=progress, left_s=left_s)

    def _beat(self, lease: Lease, **changed: Any) -> Order:
        hold = self._settings.lease
        return self._of(lease, self._client.renew_lease, lease_s=hold, **changed).order

    def _of(
        self,
        lease: Lease,
        operation: Callable[Concatenate[str, int, P], R],
        *args: P.args,
        **named: P.kwargs,
    ) -> R:
        """Ask about the run of a lease; raise `LeaseLost` if the gate says that another has it."""
        try:
            return operation(lease.run.id, lease.attempt, *args, **named)
        except Conflict:
            raise LeaseLost(lease.run.id) from None

    def lengths(self, lease: Lease, steps: Collection[str]) -> Mapping[str, float]:
        """See `Queue`."""
        return self._of(lease, self._client.show_past, steps=",".join(steps)).lengths

    def ended_in_time(self, lease: Lease, step: str, digest: str) -> str:
        """See `Queue`."""
        return self._of(lease, self._client.show_past, hung=step, digest=digest).in_time

    def write(self, lease: Lease, step: str, data: bytes) -> None:
        """See `Queue`."""
        if data:
            self._of(lease, self._client.write_output, step, data)

    def record(self, lease: Lease, result: StepResult) -> None:
        """See `Queue`."""
        self._of(lease, self._client.record_step, msgspec.to_builtins(result))

    def results(self, lease: Lease) -> list[StepResult]:
        """See `Queue`."""
        found = self._of(lease, self._client.list_recorded_steps).steps
        return [msgspec.convert(step, StepResult) for step in found]

    def compare(self, lease: Lease, pairs: PairsState) -> None:
        """See `Queue`."""
        self._of(lease, self._client.store_pairs, [msgspec.to_builtins(pairs)])

    def earlier_pairs(self, lease: Lease) -> list[PairsState]:
        """See `Queue`."""
        found = self._of(lease, self._client.list_earlier_pairs).pairs
        return [msgspec.convert(body, PairsState) for body in found]

    def finish(
        self, lease: Lease, outcome: Outcome, reason: str, evidence: Evidence | None
    ) -> None:
        """See `Queue`."""
        claim = None
        if evidence is not None:
            claim = {
                "sku": evidence.sku,
                "driver": evidence.driver.text,
                "components": {name: one.text for name, one in evidence.components.items()},
                "development": evidence.development,
                "bound": evidence.bound.to_json() if evidence.bound else None,
            }
        self._of(lease, self._client.end_run, outcome, reason[:_LONGEST], evidence=claim)

    def retry(self, lease: Lease, reason: str) -> None:
        """See `Queue`."""
        pause = self._settings.pauses[0]
        self._of(lease, self._client.end_run, "again", reason[:_LONGEST], pause_s=pause)

    def approved(self, ground: BaselineKey) -> Mapping[str, Samples]:
        """See `Baselines`."""
        key = msgspec.structs.asdict(ground)
        return self._client.list_approved_baselines(self._host, **key).baselines

    def offer(
        self,
        ground: BaselineKey,
        metrics: Mapping[str, MetricSpec],
        run: str,
        found: Sequence[Samples],
    ) -> None:
        """See `Baselines`."""
        body = {"run": run, "metrics": metrics, "found": found, **msgspec.structs.asdict(ground)}
        self._client.offer_baselines(self._host, msgspec.to_builtins(body))

    def ended(self, runs: Collection[str]) -> set[str]:
        """Return the known runs of some ids that have ended."""
        return set(self._client.find_ended_runs(self._host, sorted(runs)).runs) if runs else set()

    def verify_due(self, worker: str, every_s: int) -> Sequence[str]:
        """Have the runs queued that blessed entries depend on, where they are due; their ids."""
        return self._client.queue_verifications(self._host, worker, every_s).runs


def find_host(client: Client, hosts: Sequence[Host]) -> Host:
    """Return the host of a worker's token, which has its name."""
    caller = client.show_caller()
    hint = f"compatgate token create --name {hosts[0].name} --scope work"
    if caller.kind != "token":
        raise BadInput("a worker needs the token of its host", field="--token", hint=hint)
    for host in hosts:
        if host.name == caller.name:
            return host
    known = ", ".join(host.name for host in hosts)
    what = f"the token is for the host {caller.name}, and the file has {known}"
    raise BadInput(what, field="--hosts", value=caller.name, hint=hint)
