"""Where a submission is to run: one place for each SKU and driver of a target, or a host."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from compatgate.core.target import Pool
from compatgate.documents.names import did_you_mean
from compatgate.errors import BadInput, NotFound
from compatgate.gate.runs.able import NO_HOSTS
from compatgate.gate.snapshot import Snapshot
from compatgate.store.leases import driver_key
from compatgate.store.run_rows import HostRow


class Place(Struct, frozen=True):
    """What a run wants of its host; None: nothing."""

    pool: str | None
    gpu: str | None
    driver: str | None


def places(
    target: str | None,
    pool: str | None,
    host: str | None,
    snapshot: Snapshot,
    hosts: Sequence[HostRow],
    *,
    needs_gpu: bool,
) -> list[Place]:
    """The places that a submission names.

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
        return [Place(None, named.gpu if needs_gpu else None, None)]
    pools = _pools(target, pool, snapshot)
    if not needs_gpu:
        return [Place(pool, None, None)]
    if named is not None and pool is None:
        pools = [one for one in pools if one.gpu and one.gpu.sku == named.gpu] or pools
    distinct: dict[tuple[str | None, str | None], Place] = {}
    for one in pools:
        gpu = one.gpu.sku if one.gpu else None
        driver = one.driver.text if one.driver else None
        distinct.setdefault((gpu, driver_key(driver)), Place(one.name, gpu, driver))
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
