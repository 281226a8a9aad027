"""Plan runs for a request: one for each SKU and driver of a target, or one for a host.

A request that no staging host could run to its end is refused.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from compatgate.canary.hosts import BUILDERS, CLUSTERS
from compatgate.canary.workloads import Library
from compatgate.canary.workloads.dockerfile import brings_image
from compatgate.core.matrix import Pool
from compatgate.core.stack import parse_stack
from compatgate.discovery.registry.reference import parse_reference
from compatgate.documents.sources import did_you_mean
from compatgate.errors import BadInput, NotFound
from compatgate.service.gate.snapshot import Snapshot
from compatgate.service.runs.leases import driver_key, fits
from compatgate.service.runs.models import HostRow, RunRow
from compatgate.service.runs.queue import offer_of


class Destination(Struct, frozen=True):
    """The requirements of a run on its host; None: no requirement."""

    pool: str | None
    gpu: str | None
    driver: str | None


def destinations(
    target: str | None,
    pool: str | None,
    host: str | None,
    snapshot: Snapshot,
    hosts: Sequence[HostRow],
    *,
    needs_gpu: bool,
) -> list[Destination]:
    """Return the destinations of a submission.

    Args:
        target: whose pools, or one of them, runs are for.
        pool: of the target; None: all.
        host: to run on; None: any.
        snapshot: has the targets.
        hosts: that workers have registered.
        needs_gpu: whether a workload takes one; else one place will do.

    Raises:
        BadInput: it names neither target nor host, or a pool of no target.
        NotFound: there is no such target, pool or host.
    """
    named = _host(host, hosts)
    if target is None:
        if pool is not None:
            raise BadInput("a pool belongs to a target", field="pool", hint="name the target")
        if named is None:
            hint = "a target that is stored, or the host to run on"
            raise BadInput("neither target nor host is named", field="target", hint=hint)
        return [Destination(None, named.gpu if needs_gpu else None, None)]
    pools = _pools(target, pool, snapshot)
    if not needs_gpu:
        return [Destination(pool, None, None)]
    if named is not None and pool is None:
        pools = [one for one in pools if one.gpu and one.gpu.sku == named.gpu] or pools
    distinct: dict[tuple[str | None, str | None], Destination] = {}
    for one in pools:
        gpu = one.gpu.sku if one.gpu else None
        driver = one.driver.text if one.driver else None
        distinct.setdefault((gpu, driver_key(driver)), Destination(one.name, gpu, driver))
    return list(distinct.values())


def _host(name: str | None, hosts: Sequence[HostRow]) -> HostRow | None:
    if name is None:
        return None
    found = {host.name: host for host in hosts}
    if name not in found:
        hint = did_you_mean(name, found) if found else NO_HOSTS
        what = f"no worker has registered the host {name!r}"
        raise NotFound(what, field="host", value=name, hint=hint)
    return found[name]


def _pools(target: str, name: str | None, snapshot: Snapshot) -> list[Pool]:
    pools = list(snapshot.target(target).pools)
    if name is None:
        return pools
    found = [pool for pool in pools if pool.name == name]
    if not found:
        hint = did_you_mean(name, [pool.name for pool in pools])
        what = f"the target {target!r} has no pool {name!r}"
        raise NotFound(what, field="pool", value=name, hint=hint)
    return found


NO_HOSTS = "no worker has registered any; run: compatgate worker --hosts FILE"
_NAMED = 8


def checked(run: RunRow, hosts: Sequence[HostRow], imageless: Sequence[str]) -> RunRow:
    """Return the run if a host could run it; a missing driver is noted in the run.

    Args:
        run: to be queued.
        hosts: that workers have registered.
        imageless: workloads of its suite that bring no image of their own.

    Raises:
        BadInput: no host could take the run, or no host has an image for all its workloads.
    """
    able = [host for host in hosts if fits(replace(run, driver=None), offer_of(host))]
    if not able:
        raise _nowhere(run, hosts)
    if imageless and run.image is None and all(host.executor in BUILDERS for host in able):
        raise _no_image(imageless, able)
    if any(fits(run, offer_of(host)) for host in able):
        return run
    have = ", ".join(f"{host.name} has {host.driver}" for host in able[:_NAMED])
    return replace(run, reason=f"waits for a host with driver {run.driver} ({have})")


def _no_image(workloads: Sequence[str], hosts: Sequence[HostRow]) -> BadInput:
    """Return the error for workloads that have no image on any suitable host."""
    several = len(workloads) > 1
    shown = ", ".join(workloads[:_NAMED]) + (", ..." if len(workloads) > _NAMED else "")
    where = ", ".join(host.name for host in hosts[:_NAMED])
    return BadInput(
        f"the workload{'s' if several else ''} {shown} would have no image to run in on {where}: "
        f"{'they run' if several else 'it runs'} in the image under test, and none is named",
        field="image",
        hint="name the image under test",
    )


def _nowhere(run: RunRow, hosts: Sequence[HostRow]) -> BadInput:
    wants = [f"{run.nodes} nodes at once"] if run.nodes > 1 else []
    wants += [run.gpu or "no GPU"]
    wants += [f"{run.gpus} slots"] if run.gpus > 1 else []
    wants += [f"the host {run.host}"] if run.host else []
    have = "; ".join(_shown(host) for host in hosts[:_NAMED])
    return BadInput(
        f"no staging host could ever run it; it needs {', '.join(wants)}",
        field="host" if run.host else "target",
        value=run.host or run.target,
        hint=f"there are {have}{_more(run, hosts)}" if hosts else NO_HOSTS,
    )


def _more(run: RunRow, hosts: Sequence[HostRow]) -> str:
    """Return the hint to add a cluster host for runs on several nodes, or empty text."""
    if run.nodes == 1 or any(offer_of(host).spans for host in hosts):
        return ""
    return f"; several nodes at once take a {' or '.join(CLUSTERS)} host"


def _shown(host: HostRow) -> str:
    driver = f", driver {host.driver}" if host.driver else ""
    slots = f", {host.slots} slots" if host.slots > 1 else ""
    return f"{host.name} ({host.gpu or 'no GPU'}{driver}{slots}, {host.executor})"


PRIORITIES = 1000
MAX_ATTEMPTS = 3
_LONGEST_STACK = 64


class Submission(Struct, frozen=True, forbid_unknown_fields=True):
    """A user's request for runs.

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


class Needs(Struct, frozen=True):
    """The requirements of a suite on one run.

    Attributes:
        gpus: on all its nodes.
        imageless: workloads that bring no image of their own.
    """

    gpus: int
    nodes: int
    imageless: tuple[str, ...]


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
    """Plan the runs of a submission, each of which a host could run.

    Raises:
        BadInput: names the field; or no host that is registered could ever run it.
        NotFound: there is no such suite, target, pool, entry or host.
    """
    needs = _needs(asked.suite, catalogue)
    stack = _stack(asked)
    _check(asked, snapshot)
    where = asked.target, asked.pool, asked.host
    found = destinations(*where, snapshot, hosts, needs_gpu=bool(needs.gpus))
    made = [_queued(asked, needs, stack, place, by, at, purpose) for place in found]
    return [checked(run, hosts, needs.imageless) for run in made]


def _needs(suite: str, catalogue: Library) -> Needs:
    imageless = [w.name for w in catalogue.of_suite(suite) if not brings_image(w)]
    return Needs(catalogue.gpus_of(suite), catalogue.nodes_of(suite), tuple(imageless))


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


def _check(asked: Submission, snapshot: Snapshot) -> None:
    if not -PRIORITIES <= asked.priority <= PRIORITIES:
        hint = f"from {-PRIORITIES} to {PRIORITIES}; 0 is ordinary"
        raise BadInput("out of range", field="priority", value=asked.priority, hint=hint)
    if asked.entry is not None and asked.entry not in snapshot.entries:
        hint = did_you_mean(asked.entry, snapshot.entries)
        what = f"there is no entry {asked.entry!r}"
        raise NotFound(what, field="entry", value=asked.entry, hint=hint)


def _queued(
    asked: Submission,
    needs: Needs,
    stack: dict[str, Any],
    place: Destination,
    by: str,
    at: datetime,
    purpose: str,
) -> RunRow:
    """Return a run that waits for its first attempt; the database numbers it."""
    return RunRow(
        seq=0,
        id=f"run_{secrets.token_hex(8)}",
        suite=asked.suite,
        state="queued",
        stack=stack,
        target=asked.target,
        pool=place.pool,
        entry=asked.entry,
        image=asked.image,
        gpu=place.gpu,
        driver=place.driver,
        gpus=max(1, needs.gpus),
        nodes=needs.nodes,
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
