"""Describe staging hosts, when they may run canaries, and how they differ.

`compatgate.canary.hosts_file` reads hosts from the worker's ``hosts.toml``. A host takes no new run
during its maintenance windows. `compare_hosts` finds the common value of each measured component,
and the hosts that differ.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, time
from typing import Literal
from zoneinfo import ZoneInfo

from msgspec import Struct

from compatgate.canary.run import Env
from compatgate.core.components import COMPONENTS
from compatgate.core.versions import Version, parse_version
from compatgate.errors import BadInput

CLUSTERS = ("slurm", "kubernetes")
"""Executors that run a workload on other machines, and on several at once."""
VOLCANO = "volcano"
"""Name of Volcano's scheduler."""
BUILDERS = ("docker",)
"""Executors that run the image under test, the workload's own image, or an image that they build
from its folder. The image is therefore known before the executor is asked.
"""


class Tls(Struct, frozen=True):
    """Files of a TLS client, for an engine on TCP."""

    ca: str
    cert: str
    key: str


class MaintenanceWindow(Struct, frozen=True):
    """Hours in which a host takes no new run.

    Attributes:
        days: ``mon`` to ``sun``; () is every day.
        start: ``HH:MM``; if ``end`` is earlier, the window lasts over midnight.
        timezone: IANA name.
    """

    start: str
    end: str
    days: tuple[str, ...] = ()
    timezone: str = "UTC"


class Slurm(Struct, frozen=True):
    """A part of a Slurm cluster whose nodes are of one kind and form a staging host.

    Attributes:
        work: absolute path of a directory that the nodes share; owned by the worker's user.
        partition, account, qos, constraint: as ``sbatch`` takes them.
        gres: name of the host's GPU, ``gpu:a100``; the workload states the number.
        extra: further options of ``sbatch``.
        container: how a node runs an image: not at all, ``srun`` with pyxis, ``srun`` with Slurm's
            OCI support, or the site's command.
        wrapper: argument vector of the site's command; the program's arguments are appended.
        fetch: argument vector that brings the image to the node before the time limit starts.
        bundle: path of an image's unpacked OCI bundle on the nodes.
        commands: folder of ``sbatch`` and the other commands; None if they are on ``PATH``.
        poll: seconds between two questions to the controller about a job.
        allocation: whether each step is a job, or the steps of a run share one, and so its nodes.
        allocation_s: seconds that a shared allocation is asked for.
    """

    work: str
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    gres: str | None = None
    extra: tuple[str, ...] = ()
    container: Literal["none", "pyxis", "oci", "wrapper"] = "none"
    wrapper: tuple[str, ...] = ()
    fetch: tuple[str, ...] = ()
    bundle: str | None = None
    commands: str | None = None
    poll: float = 5.0
    allocation: Literal["step", "run"] = "step"
    allocation_s: int = 4 * 3600


class Toleration(Struct, frozen=True):
    """A taint that pods tolerate, as Kubernetes writes it."""

    key: str | None = None
    operator: Literal["Equal", "Exists"] | None = None
    value: str | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None


class Kubernetes(Struct, frozen=True):
    """A part of a Kubernetes cluster whose nodes are of one kind and form a staging host.

    Attributes:
        kubeconfig: file with credentials; None for ``KUBECONFIG``, else the user's file.
        context: context in that file; None for its current context.
        in_cluster: the worker is a pod of the cluster and has its service account.
        namespace: namespace of every object.
        resource: resource of a GPU or a MIG slice, ``nvidia.com/mig-1g.10gb``.
        node_selector: labels of the nodes, such as those of GPU feature discovery.
        queue: Kueue's local queue; ``priority_class`` is Kueue's WorkloadPriorityClass.
        volcano_queue: queue of Volcano, which then schedules the pods of a job together.
        scheduler: name of another scheduler of the pods.
        claims: number of GPUs to the ResourceClaimTemplate that claims so many; () for the resource
            of a device plugin.
        devices: further resources of a pod with GPUs, such as RDMA devices.
        networks: Multus networks of a pod with GPUs.
        images: workload to the image that was built from its folder.
        wait_s: seconds that a job may wait for a node.
    """

    kubeconfig: str | None = None
    context: str | None = None
    in_cluster: bool = False
    namespace: str = "default"
    resource: str = "nvidia.com/gpu"
    node_selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()
    queue: str | None = None
    priority_class: str | None = None
    volcano_queue: str | None = None
    scheduler: str | None = None
    claims: dict[str, str] = {}
    devices: dict[str, int] = {}
    networks: tuple[str, ...] = ()
    image_pull_secrets: tuple[str, ...] = ()
    service_account: str | None = None
    runtime_class: str | None = None
    images: dict[str, str] = {}
    wait_s: int = 86400


class Host(Struct, frozen=True):
    """A staging host.

    Attributes:
        executor: ``docker``, ``process``, ``slurm`` or ``kubernetes``.
        endpoint: address of the engine, ``unix:///var/run/docker.sock``, ``tcp://host:2376``,
            ``ssh://user@host``; None for the executor's default.
        gpu: SKU as written; None for a host without GPUs.
        driver: driver version of the host, if known; evidence uses the measured version.
        slots: GPUs for runs (a run takes as many as its suite needs, at least one); without GPUs,
            the number of concurrent runs.
        devices: how to request GPUs: Docker's device request, or CDI names.
        build_network: builds of workloads with ``network = true`` may use the network.
        health: where to read GPU health and the kernel log: ``local``, on the worker's machine;
            ``node``, on the nodes, by each job of a ``slurm`` host; ``none``, nowhere, which the
            evidence says.
        slurm, kubernetes: settings of a ``slurm`` or ``kubernetes`` host.
    """

    name: str
    executor: Literal["docker", "process", "slurm", "kubernetes"] = "docker"
    endpoint: str | None = None
    tls: Tls | None = None
    gpu: str | None = None
    driver: str | None = None
    slots: int = 1
    devices: Literal["request", "cdi"] = "request"
    build_network: bool = False
    health: Literal["local", "node", "none"] = "local"
    quiet: tuple[MaintenanceWindow, ...] = ()
    slurm: Slurm | None = None
    kubernetes: Kubernetes | None = None


DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d)")


def is_in_maintenance(hours: Iterable[MaintenanceWindow], at: datetime) -> bool:
    """Return whether a moment lies in a maintenance window.

    A window that lasts over midnight belongs to the day on which it begins.

    Args:
        hours: maintenance windows of a host.
        at: the moment, with a time zone.

    Raises:
        BadInput: a time, a day or a time zone does not exist.
    """
    return any(_covers(quiet, at) for quiet in hours)


def _covers(quiet: MaintenanceWindow, at: datetime) -> bool:
    start, end = _parse_time(quiet.start, "start"), _parse_time(quiet.end, "end")
    for day in quiet.days:
        if day not in DAYS:
            hint = f"one of {', '.join(DAYS)}"
            raise BadInput(f"{day!r} is not a weekday", field="quiet.days", value=day, hint=hint)
    local = at.astimezone(_parse_zone(quiet.timezone))
    present = local.time()
    today, yesterday = DAYS[local.weekday()], DAYS[local.weekday() - 1]
    if start < end:
        return start <= present < end and _is_on(quiet, today)
    return (present >= start and _is_on(quiet, today)) or (
        present < end and _is_on(quiet, yesterday)
    )


def _is_on(quiet: MaintenanceWindow, day: str) -> bool:
    return not quiet.days or day in quiet.days


def _parse_time(text: str, which: str) -> time:
    if not (match := _TIME.fullmatch(text)):
        hint = "write HH:MM, such as 22:30"
        raise BadInput(f"{text!r} is not a time", field=f"quiet.{which}", value=text, hint=hint)
    return time(int(match[1]), int(match[2]))


def _parse_zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        hint = "use an IANA name such as Europe/Berlin; UTC needs no time zone data"
        what = f"the time zone {name!r} is not known here"
        raise BadInput(what, field="quiet.timezone", value=name, hint=hint) from None


GPU, TRANSPORT = "gpu", "transport"
_IMPRECISE_COMPONENTS = ("cuda", "python")
"""Components that some sources state less precisely (the driver API knows 12.4, not the update)."""


class HostStack(Struct, frozen=True):
    """Components measured on one host.

    Attributes:
        values: by component; several where its measurements disagree.
        run: the run that measured them.
    """

    host: str
    values: dict[str, tuple[str, ...]]
    run: str | None = None


class ComponentDrift(Struct, frozen=True):
    """Values of one component on all hosts.

    Attributes:
        majority: value of most hosts; None if two values are equally frequent.
        agree: hosts with that value.
        differ: host to its other value; every host if there is no majority.
        silent: hosts that did not measure the component; neither agreement nor difference.
    """

    component: str
    majority: str | None
    agree: tuple[str, ...]
    differ: dict[str, str]
    silent: tuple[str, ...]


def host_stack(host: str, envs: Iterable[Env], run: str | None = None) -> HostStack:
    """Return the stack of a host from the env lines that were printed there."""
    found: dict[str, dict[str, None]] = {}
    for env in envs:
        for component, version in env.versions.items():
            found.setdefault(component, {})[version] = None
        if env.driver:
            found.setdefault("driver", {})[env.driver] = None
        if env.gpus:
            names = Counter(_gpu_name(device.name, device.mig) for device in env.gpus)
            shown = " + ".join(f"{count} x {name}" for name, count in sorted(names.items()))
            found.setdefault(GPU, {})[shown] = None
        transports = env.other.get("transports")
        if isinstance(transports, dict) and transports:
            found.setdefault(TRANSPORT, {})[", ".join(sorted(map(str, transports)))] = None
    return HostStack(host, {name: tuple(values) for name, values in found.items()}, run)


def compare_hosts(stacks: Sequence[HostStack]) -> list[ComponentDrift]:
    """Compare hosts, component by component.

    Args:
        stacks: one per host; if a host is named twice, the first entry counts.
    """
    hosts = {stack.host: stack for stack in reversed(stacks)}
    names = {name for stack in hosts.values() for name in stack.values}
    order = [GPU, *COMPONENTS, TRANSPORT]
    return [_compare_component(name, hosts) for name in order if name in names]


def _compare_component(name: str, hosts: dict[str, HostStack]) -> ComponentDrift:
    stated = {host: stack.values[name] for host, stack in hosts.items() if name in stack.values}
    keys = _comparison_keys(name, stated)
    counted = Counter(keys.values()).most_common()
    tied = len(counted) > 1 and counted[0][1] == counted[1][1]
    most = None if tied else counted[0][0]
    agree = tuple(sorted(host for host, key in keys.items() if key == most))
    return ComponentDrift(
        component=name,
        majority=_join_values(stated[agree[0]]) if agree else None,
        agree=agree,
        differ={host: _join_values(stated[host]) for host in sorted(keys) if host not in agree},
        silent=tuple(sorted(set(hosts) - set(stated))),
    )


def _comparison_keys(name: str, stated: dict[str, tuple[str, ...]]) -> dict[str, frozenset[object]]:
    """Return keys that are equal if two hosts have equal values, however versions are written."""
    parsed = {host: [_parse_value(name, text) for text in texts] for host, texts in stated.items()}
    versions = [v for values in parsed.values() for v in values if isinstance(v, Version)]
    places = min((len(version.parts) for version in versions), default=0)

    def key(value: Version | str) -> object:
        if isinstance(value, str):
            return value
        return value.at(places) if name in _IMPRECISE_COMPONENTS else value.key

    return {host: frozenset(map(key, values)) for host, values in parsed.items()}


def _parse_value(name: str, text: str) -> Version | str:
    try:
        return parse_version(name, text) if name in COMPONENTS else text
    except BadInput:
        return text


def _join_values(values: Sequence[str]) -> str:
    return " and ".join(values)


def _gpu_name(name: str, mig: str | None) -> str:
    return f"{name} MIG {mig}" if mig and mig not in name else name
