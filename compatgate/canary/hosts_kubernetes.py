"""``[host.kubernetes]`` of a ``hosts.toml``: its shape, and what a schema cannot say of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from compatgate.canary.hosts import Kubernetes, Toleration
from compatgate.discovery.image.reference import parse_reference
from compatgate.documents.durations import PATTERN as DURATION
from compatgate.documents.durations import parse_duration
from compatgate.documents.specs import LINE_PATTERN, SLUG_PATTERN
from compatgate.errors import BadInput

DNS_LABEL_PATTERN = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$(?!\n)"
DNS_NAME_PATTERN = r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$(?!\n)"
QUALIFIED_PATTERN = (
    r"^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$(?!\n)"
)
RESOURCE_PATTERN = (
    r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$(?!\n)"
)
VALUE_PATTERN = r"^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$(?!\n)"

_Line = Annotated[str, Meta(pattern=LINE_PATTERN)]
_Slug = Annotated[str, Meta(pattern=SLUG_PATTERN)]
_Key = Annotated[str, Meta(pattern=QUALIFIED_PATTERN)]
_Value = Annotated[str, Meta(pattern=VALUE_PATTERN)]
_Label = Annotated[str, Meta(pattern=DNS_LABEL_PATTERN)]
_Name = Annotated[str, Meta(pattern=DNS_NAME_PATTERN)]
_Resource = Annotated[str, Meta(pattern=RESOURCE_PATTERN)]
_Duration = Annotated[str, Meta(pattern=DURATION)]


class TolerationTable(Struct, frozen=True, forbid_unknown_fields=True):
    """``[[host.kubernetes.tolerations]]``."""

    key: _Key | None = None
    operator: Literal["Equal", "Exists"] | None = None
    value: _Value | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None


class KubernetesTable(Struct, frozen=True, forbid_unknown_fields=True):
    """``[host.kubernetes]``; the path is relative to the file."""

    namespace: _Label
    kubeconfig: _Line | None = None
    context: _Line | None = None
    in_cluster: bool = False
    resource: _Resource = "nvidia.com/gpu"
    node_selector: Annotated[dict[_Key, _Value], Meta(max_length=64)] = {}
    tolerations: Annotated[tuple[TolerationTable, ...], Meta(max_length=64)] = ()
    queue: _Label | None = None
    image_pull_secrets: Annotated[tuple[_Name, ...], Meta(max_length=16)] = ()
    service_account: _Name | None = None
    runtime_class: _Name | None = None
    images: Annotated[dict[_Slug, _Line], Meta(max_length=256)] = {}
    wait: _Duration = "1d"


class Mistake(Struct, frozen=True):
    """Place in ``[host.kubernetes]``, what is wrong with it, what would be right."""

    place: tuple[str | int, ...]
    problem: str
    hint: str
    value: str | None = None


def settings_of(table: KubernetesTable, folder: Path) -> Kubernetes:
    """The table as settings."""
    fields = msgspec.structs.asdict(table)
    wait = parse_duration(fields.pop("wait"))
    fields["tolerations"] = tuple(
        Toleration(**msgspec.structs.asdict(each)) for each in table.tolerations
    )
    if table.kubeconfig:
        fields["kubeconfig"] = str(folder / Path(table.kubeconfig).expanduser())
    return Kubernetes(**fields, wait_s=int(wait.total_seconds()))


def mistakes(table: KubernetesTable) -> Iterator[Mistake]:
    """What does not go together."""
    if table.in_cluster:
        for field in ("kubeconfig", "context"):
            if value := getattr(table, field):
                what = "a worker in the cluster has its service account"
                yield Mistake((field,), what, f"leave {field} out, or in_cluster", value)
    for number, toleration in enumerate(table.tolerations):
        yield from _about(toleration, ("tolerations", number))
    for workload, reference in table.images.items():
        try:
            parse_reference(reference)
        except BadInput as error:
            yield Mistake(("images", workload), error.problem, error.hint, reference)


def _about(toleration: TolerationTable, place: tuple[str | int, ...]) -> Iterator[Mistake]:
    if toleration.operator == "Exists" and toleration.value:
        yield Mistake((*place, "value"), "is not compared with Exists", "leave one of them out")
    if toleration.key is None and toleration.operator != "Exists":
        hint = 'a key, or operator = "Exists" alone, which tolerates every taint'
        yield Mistake((*place, "key"), "is missing", hint)
