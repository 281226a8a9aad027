"""Describe staging hosts as ``hosts.toml`` states them, and when they may run canaries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, time
from typing import Annotated, Literal
from zoneinfo import ZoneInfo

from msgspec import Meta, Struct

from compatgate.discovery.registry.image_spec import parse_reference
from compatgate.documents.quantities import DURATION_PATTERN as DURATION
from compatgate.documents.quantities import parse_duration
from compatgate.documents.specs import (
    ENDPOINT_PATTERN,
    LINE_PATTERN,
    NAME_PATTERN,
    SLUG_PATTERN,
    TIME_PATTERN,
)
from compatgate.errors import BadInput

CLUSTERS = ("slurm", "kubernetes")
"""Executors that run a workload on other machines, and on several at once."""
BUILDERS = ("docker",)
"""Executors that run the image under test, the workload's own image, or an image that they build
from its folder. The image is therefore known before the executor is asked.
"""


DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_Time = Annotated[str, Meta(pattern=TIME_PATTERN)]
_Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
PATH_PATTERN = r"^/[A-Za-z0-9._/+@=-]{1,255}$(?!\n)"
"""No comma, colon, percent sign or blank: they have a meaning for Slurm and container tools."""
BUNDLE_PATTERN = r"^/[A-Za-z0-9._/+@={}-]{1,255}$(?!\n)"
WORD_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._,@+-]{0,254}$(?!\n)"
GRES_PATTERN = r"^[a-z][A-Za-z0-9_]{0,63}(:[A-Za-z0-9._-]{1,63})?$(?!\n)"
CONSTRAINT_PATTERN = r"^[A-Za-z0-9\[(][A-Za-z0-9._,:&|*()\[\]!-]{0,254}$(?!\n)"
OPTION_PATTERN = r"^--[a-z][a-z-]{1,63}(=[A-Za-z0-9._,:/@+\[\]-]{1,255})?$(?!\n)"
SBATCH_OPTIONS = (
    "contiguous", "core-spec", "cores-per-socket", "cpu-freq",
    "cpus-per-gpu", "distribution", "exclude", "exclusive", "gpu-bind", "gpu-freq",
    "gres-flags", "hint", "licenses", "mem-bind", "network", "nice", "nodelist",
    "oversubscribe", "prefer", "priority", "reservation", "sockets-per-node", "spread-job",
    "switches", "thread-spec", "threads-per-core", "tmp", "use-min-nodes",
    "wckey",
)  # fmt: skip
"""Options of ``sbatch`` that a site may add: they choose nodes; none of them runs or writes."""
PLACEHOLDERS = ("{image}", "{files}", "{scratch}", "{name}", "{folder}")
_Path = Annotated[str, Meta(pattern=PATH_PATTERN)]
_Word = Annotated[str, Meta(pattern=WORD_PATTERN)]
LineText = Annotated[str, Meta(pattern=LINE_PATTERN)]
_Option = Annotated[str, Meta(pattern=OPTION_PATTERN)]
DNS_LABEL_PATTERN = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$(?!\n)"
DNS_NAME_PATTERN = r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$(?!\n)"
QUALIFIED_PATTERN = (
    r"^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$(?!\n)"
)
RESOURCE_PATTERN = (
    r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$(?!\n)"
)
VALUE_PATTERN = r"^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$(?!\n)"
COUNT_PATTERN = r"^[1-9][0-9]{0,3}$(?!\n)"
NETWORK_PATTERN = (
    r"^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?/)?[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$(?!\n)"
)
_Slug = Annotated[str, Meta(pattern=SLUG_PATTERN)]
_LabelKey = Annotated[str, Meta(pattern=QUALIFIED_PATTERN)]
_LabelValue = Annotated[str, Meta(pattern=VALUE_PATTERN)]
_DnsLabel = Annotated[str, Meta(pattern=DNS_LABEL_PATTERN)]
DnsName = Annotated[str, Meta(pattern=DNS_NAME_PATTERN)]
_Resource = Annotated[str, Meta(pattern=RESOURCE_PATTERN)]
_Duration = Annotated[str, Meta(pattern=DURATION)]
_Count = Annotated[str, Meta(pattern=COUNT_PATTERN)]
_Network = Annotated[str, Meta(pattern=NETWORK_PATTERN)]
VOLCANO = "volcano"


class Tls(Struct, frozen=True, forbid_unknown_fields=True):
    """Files of a TLS client, for an engine on TCP."""

    ca: LineText
    cert: LineText
    key: LineText


class MaintenanceWindow(Struct, frozen=True, forbid_unknown_fields=True):
    """Hours in which a host takes no new run, on days from ``mon`` to ``sun`` (none: every day).

    If ``end`` is earlier than ``start``, the window lasts over midnight; the zone is IANA's.
    """

    start: _Time
    end: _Time
    days: Annotated[tuple[_Day, ...], Meta(max_length=7)] = ()
    timezone: LineText = "UTC"


class Host(Struct, frozen=True, forbid_unknown_fields=True):
    """A staging host, as ``hosts.schema.json`` describes it.

    Without a SKU it has no GPUs. Its ``driver``, if known, is not evidence: a run measures it. Its
    ``slots`` are GPUs; without GPUs, the number of concurrent runs.
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

    A window that lasts over midnight belongs to the day on which it begins. A time zone that this
    machine does not know is refused.
    """
    for window in hours:
        try:
            local = at.astimezone(ZoneInfo(window.timezone))
        except (KeyError, ValueError, OSError):
            hint = "use an IANA name such as Europe/Berlin; UTC needs no time zone data"
            what = f"the time zone {window.timezone!r} is not known here"
            value = window.timezone
            raise BadInput(what, field="quiet.timezone", value=value, hint=hint) from None
        start, end = time.fromisoformat(window.start), time.fromisoformat(window.end)
        present = local.time()
        today, yesterday = (
            not window.days or DAYS[day] in window.days
            for day in (local.weekday(), local.weekday() - 1)
        )
        begun, open_ = present >= start and today, present < end
        if (begun and open_) if start < end else begun or (open_ and yesterday):
            return True
    return False


class Slurm(Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a Slurm cluster whose nodes are of one kind and form a staging host."""

    work: _Path
    partition: _Word | None = None
    account: _Word | None = None
    qos: _Word | None = None
    constraint: Annotated[str, Meta(pattern=CONSTRAINT_PATTERN)] | None = None
    gres: Annotated[str, Meta(pattern=GRES_PATTERN)] | None = None
    extra: Annotated[tuple[_Option, ...], Meta(max_length=32)] = ()
    container: Literal["none", "pyxis", "oci", "wrapper"] = "none"
    wrapper: Annotated[tuple[LineText, ...], Meta(max_length=64)] = ()
    fetch: Annotated[tuple[LineText, ...], Meta(max_length=64)] = ()
    bundle: Annotated[str, Meta(pattern=BUNDLE_PATTERN)] | None = None
    commands: _Path | None = None
    poll: Annotated[float, Meta(ge=0.2, le=300)] = 5.0
    allocation: Literal["step", "run"] = "step"
    allocation_time: Annotated[str, Meta(pattern=DURATION)] = "4h"

    @property
    def allocation_s(self) -> int:
        """Return the seconds that a shared allocation is asked for."""
        return int(parse_duration(self.allocation_time).total_seconds())


Mistake = tuple[tuple[str | int, ...], str, str, str | None]
"""A mistake in a table: its place there, the problem, how to correct it, and the value."""


def find_slurm_mistakes(table: Slurm, gpu: str | None) -> Iterator[Mistake]:
    """Yield the mistakes that a schema cannot express, on a host with or without a GPU."""
    for option in table.extra:
        if option[2:].partition("=")[0] not in SBATCH_OPTIONS:
            hint = f"allowed options: {', '.join(SBATCH_OPTIONS)}"
            yield ("extra",), "is not an allowed option", hint, option
    if gpu and not table.gres:
        what = "is missing, so Slurm would allocate no GPU"
        yield ("gres",), what, 'like "gpu:a100"', None
    if table.gres and not gpu:
        yield ("gres",), "is set but the host has no gpu", "name the GPU of the host", table.gres
    kind = table.container
    if kind == "wrapper" and not any("{image}" in part for part in (*table.wrapper, *table.fetch)):
        hint = f"an argument vector with {', '.join(PLACEHOLDERS)}"
        yield ("wrapper",), "names no {image}", hint, None
    if kind == "oci" and not table.bundle:
        yield ("bundle",), "is missing", 'set a path such as "/shared/bundles/{digest}"', None
    for field, owner in (("wrapper", "wrapper"), ("fetch", "wrapper"), ("bundle", "oci")):
        if getattr(table, field) and kind != owner:
            yield (field,), f'needs container = "{owner}"', "omit this setting", None


class Toleration(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A taint that pods tolerate, as Kubernetes writes it."""

    key: _LabelKey | None = None
    operator: Literal["Equal", "Exists"] | None = None
    value: _LabelValue | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None


class Kubernetes(Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a Kubernetes cluster whose nodes are of one kind and form a staging host."""

    namespace: _DnsLabel
    kubeconfig: LineText | None = None
    context: LineText | None = None
    in_cluster: bool = False
    resource: _Resource = "nvidia.com/gpu"
    node_selector: Annotated[dict[_LabelKey, _LabelValue], Meta(max_length=64)] = {}
    tolerations: Annotated[tuple[Toleration, ...], Meta(max_length=64)] = ()
    queue: _DnsLabel | None = None
    priority_class: DnsName | None = None
    volcano_queue: DnsName | None = None
    scheduler: DnsName | None = None
    claims: Annotated[dict[_Count, DnsName], Meta(max_length=64)] = {}
    devices: Annotated[dict[_Resource, Annotated[int, Meta(ge=1, le=64)]], Meta(max_length=16)] = {}
    networks: Annotated[tuple[_Network, ...], Meta(max_length=16)] = ()
    image_pull_secrets: Annotated[tuple[DnsName, ...], Meta(max_length=16)] = ()
    service_account: DnsName | None = None
    runtime_class: DnsName | None = None
    images: Annotated[dict[_Slug, LineText], Meta(max_length=256)] = {}
    wait: _Duration = "1d"

    @property
    def wait_s(self) -> int:
        """Return the seconds that a job may wait for a node."""
        return int(parse_duration(self.wait).total_seconds())


def find_kubernetes_mistakes(table: Kubernetes) -> Iterator[Mistake]:
    """Yield the mistakes that a schema cannot express."""
    if table.in_cluster:
        for field in ("kubeconfig", "context"):
            if value := getattr(table, field):
                what = "cannot be set together with in_cluster"
                yield (field,), what, f"remove {field} or in_cluster", value
    for number, toleration in enumerate(table.tolerations):
        place = ("tolerations", number)
        if toleration.operator == "Exists" and toleration.value:
            what = "cannot be set with operator Exists"
            yield (*place, "value"), what, "remove one of them", None
        if toleration.key is None and toleration.operator != "Exists":
            hint = 'set a key, or operator = "Exists" alone, which tolerates every taint'
            yield (*place, "key"), "is missing", hint, None
    if table.queue and table.volcano_queue:
        what = "cannot be set together with queue, which is Kueue's"
        yield ("volcano_queue",), what, "remove one of them", table.volcano_queue
    if table.volcano_queue and table.scheduler not in (None, VOLCANO):
        what = f"must be {VOLCANO} with volcano_queue"
        yield ("scheduler",), what, "omit this setting", table.scheduler
    if table.priority_class and not table.queue:
        yield ("priority_class",), "needs a queue of Kueue", "name the local queue, too", None
    if table.claims and table.resource in table.devices:
        what = "the GPUs are claimed, so the resource of a device plugin asks for others"
        yield ("devices", table.resource), what, "remove it", None
    for workload, reference in table.images.items():
        try:
            parse_reference(reference)
        except BadInput as error:
            yield ("images", workload), error.problem, error.hint, reference
