"""Whether any staging host could take a run, and run it to its end."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from compatgate.canary.hosts import BUILDERS, CLUSTERS
from compatgate.errors import BadInput
from compatgate.gate.runs.declared import offer
from compatgate.store.leases import fits
from compatgate.store.run_rows import HostRow, RunRow

NO_HOSTS = "no worker has registered any; run: compatgate worker --hosts FILE"
_NAMED = 8


def checked(run: RunRow, hosts: Sequence[HostRow], imageless: Sequence[str]) -> RunRow:
    """The run, if a host could run it; a driver may still come, and until then the run says so.

    Args:
        run: to be queued.
        hosts: that workers have registered.
        imageless: workloads of its suite that bring no image of their own.

    Raises:
        BadInput: no host could ever take it, or none has an image for all of its workloads.
    """
    able = [host for host in hosts if fits(replace(run, driver=None), offer(host))]
    if not able:
        raise _nowhere(run, hosts)
    if imageless and run.image is None and all(host.executor in BUILDERS for host in able):
        raise _no_image(imageless, able)
    if any(fits(run, offer(host)) for host in able):
        return run
    have = ", ".join(f"{host.name} has {host.driver}" for host in able[:_NAMED])
    return replace(run, reason=f"waits for a host with driver {run.driver} ({have})")


def _no_image(workloads: Sequence[str], hosts: Sequence[HostRow]) -> BadInput:
    """What executors that know other images, or need none, say when they come to it."""
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
        f"no staging host could ever run it: it needs {', '.join(wants)}",
        field="host" if run.host else "target",
        value=run.host or run.target,
        hint=f"there are {have}{_more(run, hosts)}" if hosts else NO_HOSTS,
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
