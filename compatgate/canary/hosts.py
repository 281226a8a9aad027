"""Describe staging hosts: where canaries may run, and when.

`compatgate.canary.hosts_file` reads them from the worker's ``hosts.toml``. A host takes no new run
during its maintenance windows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, time
from typing import Literal
from zoneinfo import ZoneInfo

from msgspec import Struct

from compatgate.errors import BadInput

CLUSTERS = ("slurm", "kubernetes")
"""Executors whose GPUs are other machines', and which run a workload on several of them at once."""
BUILDERS = ("docker",)
"""Executors that run the image under test, a workload's own, or what they build of its folder: what
there is without an image under test is known before they are asked."""


class Tls(Struct, frozen=True):
    """Files of a TLS client, for an engine on TCP."""

    ca: str
    cert: str
    key: str


class MaintenanceWindow(Struct, frozen=True):
    """When a host takes no new run.

    Attributes:
        days: ``mon`` to ``sun``; () is every day.
        start: ``HH:MM``; with an ``end`` before it, it lasts over midnight.
        timezone: IANA name.
    """

    start: str
    end: str
    days: tuple[str, ...] = ()
    timezone: str = "UTC"


class Slurm(Struct, frozen=True):
    """A part of a Slurm cluster that one kind of node makes a staging host.

    Attributes:
        work: absolute path of a directory that the nodes share, the worker's user's own.
        partition, account, qos, constraint: as ``sbatch`` takes them.
        gres: of the host's GPU, ``gpu:a100``; the number is the workload's.
        extra: further options of ``sbatch``.
        container: how an image is run on a node: not at all, ``srun`` with pyxis, ``srun`` with
            Slurm's own OCI support, or the site's command.
        wrapper: argument vector of the site's command; the program's is appended.
        fetch: argument vector that has the image on the node, before time begins to count.
        bundle: path of an image's unpacked OCI bundle on the nodes.
        commands: folder of ``sbatch`` and its like; None: they are on ``PATH``.
        poll: seconds between two questions to the controller about a job.
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


class Toleration(Struct, frozen=True):
    """A taint that pods tolerate, as Kubernetes writes it."""

    key: str | None = None
    operator: Literal["Equal", "Exists"] | None = None
    value: str | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None


class Kubernetes(Struct, frozen=True):
    """A part of a Kubernetes cluster that one kind of node makes a staging host.

    Attributes:
        kubeconfig: file with credentials; None: ``KUBECONFIG``, else the user's.
        context: of that file; None: its current one.
        in_cluster: the worker is a pod of the cluster and has its service account.
        namespace: where everything is made.
        resource: that gives a GPU or a MIG slice, ``nvidia.com/mig-1g.10gb``.
        node_selector: labels that the nodes have, such as GPU feature discovery's.
        queue: Kueue's local queue.
        images: workload to the image that was built of its folder.
        wait_s: seconds that a job may wait to be placed.
    """

    kubeconfig: str | None = None
    context: str | None = None
    in_cluster: bool = False
    namespace: str = "default"
    resource: str = "nvidia.com/gpu"
    node_selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()
    queue: str | None = None
    image_pull_secrets: tuple[str, ...] = ()
    service_account: str | None = None
    runtime_class: str | None = None
    images: dict[str, str] = {}
    wait_s: int = 86400


class Host(Struct, frozen=True):
    """A staging host.

    Attributes:
        executor: ``docker``, ``process``, ``slurm`` or ``kubernetes``.
        endpoint: of the engine, ``unix:///var/run/docker.sock``, ``tcp://host:2376``,
            ``ssh://user@host``; None: the executor's default.
        gpu: SKU as written, None for a host without GPUs.
        driver: that the host has, where known; what a run measures decides.
        slots: GPUs that runs may take (a run takes as many as its suite needs, at least one);
            without GPUs, how many runs at once.
        devices: how GPUs are asked for: Docker's device request, or CDI names.
        build_network: builds of workloads that say ``network = true`` may use the network.
        health: where GPU health and the kernel log are read: ``local``, on the worker's machine;
            ``none``, nowhere, which the evidence says.
        slurm, kubernetes: of a ``slurm`` or ``kubernetes`` host.
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
    health: Literal["local", "none"] = "local"
    quiet: tuple[MaintenanceWindow, ...] = ()
    slurm: Slurm | None = None
    kubernetes: Kubernetes | None = None


DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d)")


def in_maintenance(hours: Iterable[MaintenanceWindow], at: datetime) -> bool:
    """Return whether a moment lies in any of some quiet hours.

    Hours that last over midnight belong to the day on which they begin.

    Args:
        hours: of a host.
        at: aware.

    Raises:
        BadInput: a time, a day or a time zone that does not exist.
    """
    return any(_covers(quiet, at) for quiet in hours)


def _covers(quiet: MaintenanceWindow, at: datetime) -> bool:
    start, end = _parse_time(quiet.start, "start"), _parse_time(quiet.end, "end")
    for day in quiet.days:
        if day not in DAYS:
            hint = f"one of {', '.join(DAYS)}"
            raise BadInput(f"{day!r} is not a day", field="quiet.days", value=day, hint=hint)
    local = at.astimezone(_zone(quiet.timezone))
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
        hint = "like 22:30"
        raise BadInput(f"{text!r} is not a time", field=f"quiet.{which}", value=text, hint=hint)
    return time(int(match[1]), int(match[2]))


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        hint = "an IANA name like Europe/Berlin; UTC needs no time zone data"
        what = f"the time zone {name!r} is not known here"
        raise BadInput(what, field="quiet.timezone", value=name, hint=hint) from None
