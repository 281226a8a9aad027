"""From what a user asks for to runs: one for each SKU and driver of a target."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from compatgate.canary.hosts import CLUSTERS
from compatgate.canary.workloads import Library
from compatgate.core.stack import parse_stack
from compatgate.core.target import Pool
from compatgate.discovery.image.reference import parse_reference
from compatgate.documents.names import did_you_mean
from compatgate.errors import BadInput, NotFound
from compatgate.gate.runs.declared import offer
from compatgate.gate.snapshot import Snapshot
from compatgate.store.leases import driver_key, fits
from compatgate.store.run_rows import HostRow, RunRow

PRIORITIES = 1000
MAX_ATTEMPTS = 3
_LONGEST_STACK = 64


class Submission(Struct, frozen=True, forbid_unknown_fields=True):
    """What a user asks for.

    Attributes:
        target: to run for; may be left out where a host is named.
        pool: of the target; None: each SKU and driver that it has.
        stack: under test, in the form of a gate request.
        image: under test.
        entry: of the matrix, that the runs are about.
        host: to run on; None: any that fits.
        priority: higher goes first; 0 is ordinary.
    """

    suite: str
    target: str | None = None
    pool: str | None = None
    stack: dict[str, Any] | None = None
    image: str | None = None
    entry: str | None = None
    host: str | None = None
    priority: int = 0


def plan(
    asked: Submission,
    catalogue: Library,
    snapshot: Snapshot,
    hosts: Sequence[HostRow],
    *,
    by: str,
    at: datetime,
    purpose: str = "request",
) -> list[RunRow]:
    """The runs that a submission means, each of which some host could run.

    Raises:
        BadInput: names the field; or no host that is registered could ever run it.
        NotFound: there is no such suite, target, pool, entry or host.
    """
    gpus, nodes = catalogue.gpus_of(asked.suite), catalogue.nodes_of(asked.suite)
    stack = _stack(asked)
    if not -PRIORITIES <= asked.priority <= PRIORITIES:
        hint = f"from {-PRIORITIES} to {PRIORITIES}; 0 is ordinary"
        raise BadInput("out of range", field="priority", value=asked.priority, hint=hint)
    if asked.entry is not None and asked.entry not in snapshot.entries:
        hint = did_you_mean(asked.entry, snapshot.entries)
        what = f"there is no entry {asked.entry!r}"
        raise NotFound(what, field="entry", value=asked.entry, hint=hint)
    named = _host(asked, hosts)
    made = [
        RunRow(
            seq=0,
            id=f"run_{secrets.token_hex(8)}",
            suite=asked.suite,
            state="queued",
            stack=stack,
            target=asked.target,
            pool=place.pool,
            entry=asked.entry,
            image=asked.image,
            gpu=place.gpu if gpus else None,
            driver=place.driver if gpus else None,
            gpus=max(1, gpus),
            nodes=nodes,
            host=asked.host,
            priority=asked.priority,
            purpose=purpose,
            attempts=0,
            max_attempts=MAX_ATTEMPTS,
            doing="",
            progress=None,
            reason="",
            asked_by=by,
            worker=None,
            on_host=None,
            not_before=None,
            lease_until=None,
            cancel_by=None,
            created_at=at,
            started_at=None,
            finished_at=None,
        )
        for place in _places(asked, snapshot, named, needs_gpu=bool(gpus))
    ]
    return [_on_some_host(run, hosts) for run in made]


class _Place(Struct, frozen=True):
    pool: str | None
    gpu: str | None
    driver: str | None


def _places(
    asked: Submission, snapshot: Snapshot, named: HostRow | None, *, needs_gpu: bool
) -> list[_Place]:
    if asked.target is None:
        if asked.pool is not None:
            raise BadInput("a pool belongs to a target", field="pool", hint="name the target")
        if named is None:
            hint = "a target that is stored, or the host to run on"
            raise BadInput("neither target nor host is named", field="target", hint=hint)
        return [_Place(None, named.gpu, None)]
    pools = list(snapshot.target(asked.target).pools)
    if asked.pool is not None:
        names = [pool.name for pool in pools]
        pools = [pool for pool in pools if pool.name == asked.pool]
        if not pools:
            what = f"the target {asked.target!r} has no pool {asked.pool!r}"
            hint = did_you_mean(asked.pool, names)
            raise NotFound(what, field="pool", value=asked.pool, hint=hint)
    if not needs_gpu:
        return [_Place(asked.pool, None, None)]
    if named is not None and asked.pool is None:
        pools = [pool for pool in pools if pool.gpu and pool.gpu.sku == named.gpu] or pools
    distinct: dict[tuple[str | None, str | None], Pool] = {}
    for pool in pools:
        key = (pool.gpu.sku if pool.gpu else None, driver_key(_driver(pool)))
        distinct.setdefault(key, pool)
    return [_Place(pool.name, gpu, _driver(pool)) for (gpu, _), pool in distinct.items()]


def _driver(pool: Pool) -> str | None:
    return pool.driver.text if pool.driver else None


def _stack(asked: Submission) -> dict[str, Any]:
    if asked.image is not None:
        try:
            parse_reference(asked.image)
        except BadInput as error:
            error.field = "image"
            raise
    if asked.stack is None:
        return {}
    if len(asked.stack) > _LONGEST_STACK:
        raise BadInput("states too much", field="stack", hint=f"at most {_LONGEST_STACK} parts")
    try:
        return parse_stack(asked.stack, image=asked.image).to_json()
    except BadInput as error:
        raise error.at("stack") from None


def _host(asked: Submission, hosts: Sequence[HostRow]) -> HostRow | None:
    if asked.host is None:
        return None
    found = {host.name: host for host in hosts}
    if asked.host not in found:
        what = f"no worker has registered the host {asked.host!r}"
        hint = did_you_mean(asked.host, found) if found else _NO_HOSTS
        raise NotFound(what, field="host", value=asked.host, hint=hint)
    return found[asked.host]


_NO_HOSTS = "no worker has registered any; run: compatgate worker --hosts FILE"


def _on_some_host(run: RunRow, hosts: Sequence[HostRow]) -> RunRow:
    """The run, if a host could run it; a driver may still come, and until then the run says so."""
    if any(fits(run, offer(host)) for host in hosts):
        return run
    able = [host for host in hosts if fits(replace(run, driver=None), offer(host))]
    if able:
        have = ", ".join(f"{host.name} has {host.driver}" for host in able[:8])
        return replace(run, reason=f"waits for a host with driver {run.driver} ({have})")
    wants = [f"{run.nodes} nodes at once"] if run.nodes > 1 else []
    wants += [run.gpu or "no GPU"]
    wants += [f"{run.gpus} slots"] if run.gpus > 1 else []
    wants += [f"the host {run.host}"] if run.host else []
    have = "; ".join(_shown(host) for host in hosts[:8])
    raise BadInput(
        f"no staging host could ever run it: it needs {', '.join(wants)}",
        field="host" if run.host else "target",
        value=run.host or run.target,
        hint=f"there are {have}{_more(run, hosts)}" if hosts else _NO_HOSTS,
    )


def _more(run: RunRow, hosts: Sequence[HostRow]) -> str:
    """What kind of host is missing, where all are single machines."""
    if run.nodes == 1 or any(offer(host).spans for host in hosts):
        return ""
    return f"; several nodes at once take a {' or '.join(CLUSTERS)} host"


def _shown(host: HostRow) -> str:
    driver = f", driver {host.driver}" if host.driver else ""
    slots = f", {host.slots} slots" if host.slots > 1 else ""
    return f"{host.name} ({host.gpu or 'no GPU'}{driver}{slots}, {host.executor})"
