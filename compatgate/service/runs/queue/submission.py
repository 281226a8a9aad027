"""Plan runs that some host can run to their end: for a request, or to verify blessed stacks."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import product
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy.orm import Session

from compatgate.canary.forecast import Forecast, expect_pairs, limit_run, plan_processes
from compatgate.canary.hosts import BUILDERS, CLUSTERS
from compatgate.canary.run import EntryVerification
from compatgate.canary.workload import Workload
from compatgate.canary.workloads import Library
from compatgate.canary.workloads.contents import has_own_image
from compatgate.core.binding import define_suite
from compatgate.core.facts import Facts
from compatgate.core.gpu_needs import find_unmet
from compatgate.core.gpus import resolve_gpu
from compatgate.core.matrix import Entry, Evidence
from compatgate.core.needs import Needs
from compatgate.core.request import Pool
from compatgate.core.stack import Stack, parse_stack
from compatgate.discovery.registry.image_spec import parse_reference
from compatgate.documents.quantities import describe_seconds
from compatgate.documents.sources import suggest_name
from compatgate.errors import BadInput, NotFound
from compatgate.service.matrix.snapshots.snapshot import Snapshot, find_pool
from compatgate.service.runs.queue.leases import could_take
from compatgate.service.runs.queue.models import HostRow, RunRow, new_run
from compatgate.service.runs.queue.queue import MAX_SESSIONS, make_offer
from compatgate.service.runs.queue.repository import (
    driver_key,
    find_lengths,
    list_earlier_pairs,
)
from compatgate.service.runs.queue.schemas import RunRequest

NO_HOSTS_HINT = "no worker has registered any; run: compatgate worker --hosts FILE"
PRIORITIES = 1000
PRIORITY_HINT = f"from {-PRIORITIES} to {PRIORITIES}; 0 is ordinary"
MAX_ATTEMPTS = 3
_NAMED = 8
_LONGEST_STACK = 64
_STATED = ("suite", "target", "entry", "image", "host", "priority")
"""What a run has of its request as it is."""
_encode_key = msgspec.json.Encoder(order="deterministic").encode


class Destination(Struct, frozen=True):
    """The requirements of a run on its host; None: no requirement."""

    pool: str | None
    gpu: str | None
    driver: str | None


def find_destinations(
    target: str | None,
    pool: str | None,
    host: str | None,
    snapshot: Snapshot,
    hosts: Sequence[HostRow],
    *,
    needs_gpu: bool,
) -> list[Destination]:
    """Return the destinations of a submission, on all pools and any host unless it names them."""
    named = next((one for one in hosts if one.name == host), None)
    if host is not None and named is None:
        hint = suggest_name(host, [one.name for one in hosts]) if hosts else NO_HOSTS_HINT
        what = f"no worker has registered the host {host!r}"
        raise NotFound(what, field="host", value=host, hint=hint)
    if target is None:
        if pool is not None:
            raise BadInput("a pool needs a target", field="pool", hint="name the target")
        if named is None:
            hint = "a target that is stored, or the host to run on"
            raise BadInput("name a target or a host", field="target", hint=hint)
        return [Destination(None, named.gpu if needs_gpu else None, None)]
    pools = find_pools(target, pool, snapshot)
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


def find_pools(target: str, name: str | None, snapshot: Snapshot) -> list[Pool]:
    """Return the pools of a target, or the named one."""
    pools = list(snapshot.target(target).pools)
    return pools if name is None else [find_pool(target, pools, name)]


def check_run(run: RunRow, hosts: Sequence[HostRow], imageless: Sequence[str]) -> RunRow:
    """Return the run if a host could run it; a missing driver is noted in the run."""
    able = [host for host in hosts if could_take(replace(run, driver=None), make_offer(host))]
    if not able:
        raise _no_host(run, hosts)
    if imageless and run.image is None and all(host.executor in BUILDERS for host in able):
        several = len(imageless) > 1
        names = ", ".join(imageless[:_NAMED]) + (", ..." if len(imageless) > _NAMED else "")
        where = ", ".join(host.name for host in able[:_NAMED])
        raise BadInput(
            f"no image for the workload{'s' if several else ''} {names} on {where}: "
            f"{'they run' if several else 'it runs'} in the image under test",
            field="image",
            hint="name the image under test",
        )
    if any(could_take(run, make_offer(host)) for host in able):
        return run
    have = ", ".join(f"{host.name} has {host.driver}" for host in able[:_NAMED])
    return replace(run, reason=f"waits for a host with driver {run.driver} ({have})")


def _no_host(run: RunRow, hosts: Sequence[HostRow]) -> BadInput:
    wants = [f"{run.nodes} nodes at once"] if run.nodes > 1 else []
    wants += [run.gpu or "no GPU"]
    wants += [f"{run.gpus} slots"] if run.gpus > 1 else []
    wants += [f"the host {run.host}"] if run.host else []
    have = []
    for host in hosts[:_NAMED]:
        driver = f", driver {host.driver}" if host.driver else ""
        slots = f", {host.slots} slots" if host.slots > 1 else ""
        have.append(f"{host.name} ({host.gpu or 'no GPU'}{driver}{slots}, {host.executor})")
    hint = f"known hosts: {'; '.join(have)}" if hosts else NO_HOSTS_HINT
    if hosts and run.nodes > 1 and not any(make_offer(host).spans for host in hosts):
        hint += f"; several nodes at once take a {' or '.join(CLUSTERS)} host"
    return BadInput(
        f"no staging host can run it: it needs {', '.join(wants)}",
        field="host" if run.host else "target",
        value=run.host or run.target,
        hint=hint,
    )


def plan_runs(
    asked: RunRequest,
    catalogue: Library,
    snapshot: Snapshot,
    hosts: Sequence[HostRow],
    facts: Facts,
    *,
    by: str,
    at: datetime,
    purpose: str = "request",
) -> list[RunRow]:
    """Plan the runs of a submission, each of which a host could run."""
    gpus, nodes = catalogue.gpus_of(asked.suite), catalogue.nodes_of(asked.suite)
    workloads = catalogue.of_suite(asked.suite)
    imageless = [one.name for one in workloads if not has_own_image(one)]
    stack = _read_stack(asked)
    if not -PRIORITIES <= asked.priority <= PRIORITIES:
        what = "out of range"
        raise BadInput(what, field="priority", value=asked.priority, hint=PRIORITY_HINT)
    needs = {f"workload {one.name}": one.needs for one in workloads}
    if asked.entry is not None:
        needs[f"entry {asked.entry}"] = snapshot.entry(asked.entry).needs
    if asked.stack:
        needs["the stack"] = parse_stack(asked.stack).needs
    where = asked.target, asked.pool, asked.host
    result = find_destinations(*where, snapshot, hosts, needs_gpu=bool(gpus))
    _refuse_unfit(result, {who: stated for who, stated in needs.items() if stated}, facts)
    stated = {name: getattr(asked, name) for name in _STATED}
    made = [
        new_run(
            **stated,
            id=f"run_{secrets.token_hex(8)}",
            state="queued",
            stack=stack,
            pool=place.pool,
            gpu=place.gpu,
            driver=place.driver,
            gpus=max(1, gpus),
            nodes=nodes,
            purpose=purpose,
            max_attempts=MAX_ATTEMPTS,
            asked_by=by,
            created_at=at,
            explained=asked.explained or "",
            measures=any(one.metrics for one in workloads),
            definition=define_suite({one.name: one.digest for one in workloads}),
        )
        for place in result
    ]
    return [check_run(run, hosts, imageless) for run in made]


def expect_run(session: Session, run: RunRow, workloads: Sequence[Workload]) -> RunRow:
    """Return the run with how long it is expected to take, from the lengths of earlier runs."""
    pairs = 0
    if run.against and run.against.image:
        earlier = list_earlier_pairs(session, suite=run.suite, gpu=run.gpu, limit=MAX_SESSIONS)
        pairs = expect_pairs(workloads, earlier)
    planned = plan_processes((w for w in workloads if not has_own_image(w)), pairs)
    planned |= plan_processes((w for w in workloads if has_own_image(w)), 0)
    known = find_lengths(
        session,
        steps=planned,
        suite=run.suite,
        gpu=run.gpu,
        definition=run.definition,
        host=run.host,
    )
    left = Forecast(planned, known).left_s()
    if left is None:
        most = describe_seconds(limit_run(workloads, planned))
        doing = f"takes at most {most}; no earlier run shows how long"
    else:
        doing = f"expected to take about {describe_seconds(left)}"
        doing += f", with {pairs} pair{'s' * (pairs > 1)}" if pairs else ""
    return replace(run, doing=doing, left_s=left)


def _refuse_unfit(places: Sequence[Destination], stated: Mapping[str, Needs], facts: Facts) -> None:
    """Refuse a submission whose run would go where a GPU cannot do what is needed.

    A GPU of which that is not known is tried.
    """
    reasons: dict[Destination, str] = {}
    for place in places:
        gpu = resolve_gpu(place.gpu, facts.gpus) if place.gpu and stated else None
        lacks = (
            f"{who} cannot run there: {unmet.message}"
            for who, needs in stated.items()
            if gpu
            for unmet in find_unmet(needs, gpu, facts)
            if unmet.excludes
        )
        reasons[place] = next(lacks, "")
    refused = [(place, why) for place, why in reasons.items() if why]
    if not refused:
        return
    place, why = refused[0]
    fitting = [one.pool for one, reason in reasons.items() if one.pool and not reason]
    hint = f"name a pool that can: {', '.join(fitting)}" if fitting else ""
    field = "pool" if place.pool else "host"
    raise BadInput(why, field=field, value=place.pool or place.gpu, hint=hint)


def _read_stack(asked: RunRequest) -> dict[str, Any]:
    if asked.image is not None:
        try:
            parse_reference(asked.image)
        except BadInput as error:
            error.field = "image"
            raise
    if asked.stack is None:
        return {}
    if len(asked.stack) > _LONGEST_STACK:
        hint = f"at most {_LONGEST_STACK} components"
        raise BadInput("has too many components", field="stack", hint=hint)
    try:
        return parse_stack(asked.stack, image=asked.image).to_json()
    except BadInput as error:
        raise error.at("stack") from None


def verification_key(run: RunRow) -> bytes:
    """Return the key that a run shares with its verifications."""
    return _encode_key([run.suite, run.target, run.pool, run.stack, run.image])


def blessed_evidence(snapshot: Snapshot) -> Iterator[tuple[Entry, Evidence]]:
    """Yield each blessed entry with its latest passed run of each suite and SKU.

    Only targets whose policy asks for evidence count. An entry without a passed run has nothing to
    repeat; CG811 reports it.
    """
    seen: set[tuple[str, str]] = set()
    passed: dict[tuple[str, str], list[Evidence]] = {}
    for run in snapshot.matrix.evidence:
        if run.outcome == "passed":
            passed.setdefault((run.suite, run.sku), []).append(run)
    for target in snapshot.targets.values():
        policy = target.policy.canary
        if not policy.require:
            continue
        blessed = [e for e in snapshot.matrix.entries.of(target.name) if e.status == "blessed"]
        for pool, entry, suite in product(target.pools, blessed, policy.suites):
            runs = passed.get((suite, pool.gpu.sku), ()) if pool.gpu else ()
            allowed = [
                run
                for run in runs
                if run.counts_for(policy) and entry.matches(Stack(run.components), pool)
            ]
            latest = max(allowed, key=lambda run: run.finished, default=None)
            if latest and (entry.name, latest.id) not in seen:
                seen.add((entry.name, latest.id))
                yield entry, latest


def verification_candidates(
    found: Iterable[tuple[Entry, Evidence]], runs: Mapping[str, RunRow], tried: Iterable[RunRow]
) -> list[EntryVerification]:
    """Return the candidates for `select_due`; ``tried`` are verifications so far, in any order."""
    last: dict[bytes, tuple[int, bool]] = {}
    for run in tried:
        key = verification_key(run)
        at, underway = last.get(key, (0, False))
        last[key] = max(at, int(run.created_at.timestamp())), underway or not run.has_ended
    made = []
    for entry, evidence in found:
        if measured := runs.get(evidence.id):
            about = (evidence.id, entry.name, evidence.suite, evidence.sku, evidence.finished)
            latest = last.get(verification_key(measured), (None, False))
            made.append(EntryVerification(*about, *latest))
    return made
