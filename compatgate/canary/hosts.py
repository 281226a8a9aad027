"""Describe staging hosts as ``hosts.toml`` states them, and when they may run canaries.

`compatgate.canary.hosts_file` reads the file. A host takes no new run during its maintenance
windows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, time
from typing import Annotated, Literal
from zoneinfo import ZoneInfo

from msgspec import Meta, Struct

from compatgate.canary.host_clusters import Kubernetes, LineText, Slurm
from compatgate.documents.specs import ENDPOINT_PATTERN, NAME_PATTERN, TIME_PATTERN
from compatgate.errors import BadInput

CLUSTERS = ("slurm", "kubernetes")
"""Executors that run a workload on other machines, and on several at once."""
BUILDERS = ("docker",)
"""Executors that run the image under test, the workload's own image, or an image that they build
from its folder. The image is therefore known before the executor is asked.
"""


DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d)")
_Time = Annotated[str, Meta(pattern=TIME_PATTERN)]
_Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]


class Tls(Struct, frozen=True, forbid_unknown_fields=True):
    """Files of a TLS client, for an engine on TCP."""

    ca: LineText
    cert: LineText
    key: LineText


class MaintenanceWindow(Struct, frozen=True, forbid_unknown_fields=True):
    """Hours in which a host takes no new run.

    Attributes:
        days: ``mon`` to ``sun``; () is every day.
        start: ``HH:MM``; if ``end`` is earlier, the window lasts over midnight.
        timezone: IANA name.
    """

    start: _Time
    end: _Time
    days: Annotated[tuple[_Day, ...], Meta(max_length=7)] = ()
    timezone: LineText = "UTC"


class Host(Struct, frozen=True, forbid_unknown_fields=True):
    """A staging host.

    Attributes:
        executor: ``docker``, ``process``, ``slurm`` or ``kubernetes``.
        endpoint: address of the engine, ``unix:///var/run/docker.sock``, ``tcp://host:2376``,
            ``ssh://user@host``; None for the executor's default.
        gpu: SKU as written; None for a host without GPUs.
        driver: driver version of the host, if known; evidence uses the measured version.
        slots: GPUs for runs (a run takes as many as its suite needs, at least one); without GPUs,
            the number of concurrent runs.
        exclusive: a run that measures has the host to itself; false: it shares processors, bus and
            power with runs in other slots. Of no effect on a ``slurm`` or ``kubernetes`` host,
            whose slots are jobs.
        devices: how to request GPUs: Docker's device request, or CDI names.
        build_network: builds of workloads with ``network = true`` may use the network.
        health: where to read GPU health and the kernel log: ``local``, on the worker's machine;
            ``node``, on the nodes, by each job of a ``slurm`` host; ``none``, nowhere, which the
            evidence says.
        slurm, kubernetes: settings of a ``slurm`` or ``kubernetes`` host.
    """

    name: Annotated[str, Meta(pattern=NAME_PATTERN)]
    executor: Literal["docker", "process", "slurm", "kubernetes"] = "docker"
    endpoint: Annotated[str, Meta(pattern=ENDPOINT_PATTERN)] | None = None
    tls: Tls | None = None
    gpu: LineText | None = None
    driver: LineText | None = None
    slots: Annotated[int, Meta(ge=1, le=1024)] = 1
    exclusive: bool = True
    devices: Literal["request", "cdi"] = "request"
    build_network: bool = False
    health: Literal["local", "node", "none"] = "local"
    quiet: Annotated[tuple[MaintenanceWindow, ...], Meta(max_length=64)] = ()
    slurm: Slurm | None = None
    kubernetes: Kubernetes | None = None


def is_in_maintenance(hours: Iterable[MaintenanceWindow], at: datetime) -> bool:
    """Return whether a moment lies in a maintenance window.

    A window that lasts over midnight belongs to the day on which it begins. A time, a day or a time
    zone that does not exist is refused.
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
