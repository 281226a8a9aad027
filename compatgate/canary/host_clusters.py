"""Read the tables of hosts.toml about clusters: ``[host.slurm]`` and ``[host.kubernetes]``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from compatgate.canary.hosts import (
    VOLCANO,
    Kubernetes,
    Slurm,
    Toleration,
)
from compatgate.discovery.registry.image_spec import parse_reference
from compatgate.documents.quantities import DURATION_PATTERN as DURATION
from compatgate.documents.quantities import parse_duration
from compatgate.documents.specs import (
    LINE_PATTERN,
    SLUG_PATTERN,
)
from compatgate.errors import BadInput

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


class SlurmTable(Struct, frozen=True, forbid_unknown_fields=True):
    """``[host.slurm]``."""

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


def slurm_settings(table: SlurmTable) -> Slurm:
    """Convert the table to settings."""
    fields = msgspec.structs.asdict(table)
    held = parse_duration(fields.pop("allocation_time"))
    return Slurm(**fields, allocation_s=int(held.total_seconds()))


class SlurmMistake(Struct, frozen=True):
    """Mistake in ``[host.slurm]``: the field, the problem and how to correct it."""

    field: str
    problem: str
    hint: str
    value: str | None = None


def find_slurm_mistakes(table: SlurmTable, gpu: str | None) -> Iterator[SlurmMistake]:
    """Yield the mistakes that a schema cannot express.

    Args:
        table: as written.
        gpu: GPU of the host.
    """
    for option in table.extra:
        if option[2:].partition("=")[0] not in SBATCH_OPTIONS:
            yield SlurmMistake("extra", "is not an allowed option",
                          f"allowed options: {', '.join(SBATCH_OPTIONS)}", option)  # fmt: skip
    if gpu and not table.gres:
        yield SlurmMistake("gres", "is missing, so Slurm would allocate no GPU", 'like "gpu:a100"')
    if table.gres and not gpu:
        yield SlurmMistake(
            "gres", "is set but the host has no gpu", "name the GPU of the host", table.gres
        )
    yield from _find_container_mistakes(table)


def _find_container_mistakes(table: SlurmTable) -> Iterator[SlurmMistake]:
    kind = table.container
    if kind == "wrapper" and not any("{image}" in part for part in (*table.wrapper, *table.fetch)):
        yield SlurmMistake("wrapper", "names no {image}",
                      f"an argument vector with {', '.join(PLACEHOLDERS)}")  # fmt: skip
    if kind == "oci" and not table.bundle:
        yield SlurmMistake("bundle", "is missing", 'set a path such as "/shared/bundles/{digest}"')
    for field, owner in (("wrapper", "wrapper"), ("fetch", "wrapper"), ("bundle", "oci")):
        if getattr(table, field) and kind != owner:
            yield SlurmMistake(field, f'needs container = "{owner}"', "omit this setting")


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


class TolerationTable(Struct, frozen=True, forbid_unknown_fields=True):
    """``[[host.kubernetes.tolerations]]``."""

    key: _LabelKey | None = None
    operator: Literal["Equal", "Exists"] | None = None
    value: _LabelValue | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None


class KubernetesTable(Struct, frozen=True, forbid_unknown_fields=True):
    """``[host.kubernetes]``; the path is relative to the file."""

    namespace: _DnsLabel
    kubeconfig: LineText | None = None
    context: LineText | None = None
    in_cluster: bool = False
    resource: _Resource = "nvidia.com/gpu"
    node_selector: Annotated[dict[_LabelKey, _LabelValue], Meta(max_length=64)] = {}
    tolerations: Annotated[tuple[TolerationTable, ...], Meta(max_length=64)] = ()
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


class KubernetesMistake(Struct, frozen=True):
    """Mistake in ``[host.kubernetes]``: the place, the problem and how to correct it."""

    place: tuple[str | int, ...]
    problem: str
    hint: str
    value: str | None = None


def kubernetes_settings(table: KubernetesTable, folder: Path) -> Kubernetes:
    """Convert the table to settings."""
    fields = msgspec.structs.asdict(table)
    wait = parse_duration(fields.pop("wait"))
    fields["tolerations"] = tuple(
        Toleration(**msgspec.structs.asdict(each)) for each in table.tolerations
    )
    if table.kubeconfig:
        fields["kubeconfig"] = str(folder / Path(table.kubeconfig).expanduser())
    return Kubernetes(**fields, wait_s=int(wait.total_seconds()))


def find_kubernetes_mistakes(table: KubernetesTable) -> Iterator[KubernetesMistake]:
    """Yield the mistakes that a schema cannot express."""
    if table.in_cluster:
        for field in ("kubeconfig", "context"):
            if value := getattr(table, field):
                what = "cannot be set together with in_cluster"
                yield KubernetesMistake((field,), what, f"remove {field} or in_cluster", value)
    for number, toleration in enumerate(table.tolerations):
        yield from _find_toleration_mistakes(toleration, ("tolerations", number))
    if table.queue and table.volcano_queue:
        what = "cannot be set together with queue, which is Kueue's"
        yield KubernetesMistake(("volcano_queue",), what, "remove one of them", table.volcano_queue)
    if table.volcano_queue and table.scheduler not in (None, VOLCANO):
        what = f"must be {VOLCANO} with volcano_queue"
        yield KubernetesMistake(("scheduler",), what, "omit this setting", table.scheduler)
    if table.priority_class and not table.queue:
        hint = "name the local queue, too"
        yield KubernetesMistake(("priority_class",), "needs a queue of Kueue", hint)
    if table.claims and table.resource in table.devices:
        what = "the GPUs are claimed, so the resource of a device plugin asks for others"
        yield KubernetesMistake(("devices", table.resource), what, "remove it")
    for workload, reference in table.images.items():
        try:
            parse_reference(reference)
        except BadInput as error:
            yield KubernetesMistake(("images", workload), error.problem, error.hint, reference)


def _find_toleration_mistakes(
    toleration: TolerationTable, place: tuple[str | int, ...]
) -> Iterator[KubernetesMistake]:
    if toleration.operator == "Exists" and toleration.value:
        yield KubernetesMistake(
            (*place, "value"), "cannot be set with operator Exists", "remove one of them"
        )
    if toleration.key is None and toleration.operator != "Exists":
        hint = 'set a key, or operator = "Exists" alone, which tolerates every taint'
        yield KubernetesMistake((*place, "key"), "is missing", hint)
