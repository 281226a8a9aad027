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
"""Executors that run a workload on other machines, and on several at once."""
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
    """A part of a Kubernetes cluster whose nodes are of one kind and form a staging host.

    Attributes:
        kubeconfig: file with credentials; None for ``KUBECONFIG``, else the user's file.
        context: context in that file; None for its current context.
        in_cluster: the worker is a pod of the cluster and has its service account.
        namespace: namespace of every object.
        resource: resource of a GPU or a MIG slice, ``nvidia.com/mig-1g.10gb``.
        node_selector: labels of the nodes, such as those of GPU feature discovery.
        queue: Kueue's local queue.
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
            ``none``, nowhere, which the evidence says.
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
    health: Literal["local", "none"] = "local"
    quiet: tuple[MaintenanceWindow, ...] = ()
    slurm: Slurm | None = None
    kubernetes: Kubernetes | None = None


DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d)")


def in_maintenance(hours: Iterable[MaintenanceWindow], at: datetime) -> bool:
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
        hint = "write HH:MM, such as 22:30"
        raise BadInput(f"{text!r} is not a time", field=f"quiet.{which}", value=text, hint=hint)
    return time(int(match[1]), int(match[2]))


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        hint = "use an IANA name such as Europe/Berlin; UTC needs no time zone data"
        what = f"the time zone {name!r} is not known here"
        raise BadInput(what, field="quiet.timezone", value=name, hint=hint) from None
