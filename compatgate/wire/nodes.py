"""Nodes, what their witnesses say, and drift."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct

from compatgate.core.nodes import DriverState, What

Targets = Annotated[list[str], Meta(description="that the node belongs to, by annotation or label")]


class GpusBody(Struct, frozen=True, forbid_unknown_fields=True):
    """GPUs of one SKU; a MIG profile makes a SKU of its own."""

    gpu: str
    count: int


class WitnessBody(Struct, frozen=True, forbid_unknown_fields=True):
    """What one witness says; what it does not say is left out."""

    witness: Literal["labels", "kubelet", "driver"]
    seen_at: datetime
    driver: str | None = None
    cuda: str | None = None
    gpus: list[GpusBody] = []
    resources: Annotated[
        dict[str, int], Meta(description="GPU resources: handed out, or to be expected by labels")
    ] = {}
    remarks: list[str] = []


class DifferenceBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Where a node is not what a target declares."""

    target: str
    what: What
    have: Annotated[str | None, Meta(description="null: not known")]
    declared: list[str]
    message: str


class NodeBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A node as it was seen last, against the matrix as it is now."""

    cluster: str
    name: str
    driver: Annotated[str | None, Meta(description="that counts; null: no witness tells")]
    gpus: list[GpusBody]
    targets: Targets
    driver_state: Annotated[
        DriverState, Meta(description="whether a blessed or deprecated entry admits the driver")
    ]
    driver_why: str
    drift: list[DifferenceBody]
    disagreements: Annotated[list[str], Meta(description="of witnesses, with what decides")]
    notes: list[str]
    witnesses: list[WitnessBody]
    labels: dict[str, str]
    stale: Annotated[bool, Meta(description="nothing was heard of it for a day")]
    reported_by: str
    first_seen_at: datetime
    seen_at: datetime
    since: Annotated[datetime, Meta(description="when these driver and GPUs were first seen")]


class DriftBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A node that is not what its targets declare."""

    cluster: str
    name: str
    driver: str | None
    gpus: list[GpusBody]
    since: Annotated[datetime, Meta(description="when these driver and GPUs were first seen")]
    seen_at: datetime
    stale: bool
    differences: list[DifferenceBody]


class NodesReported(Struct, frozen=True, forbid_unknown_fields=True):
    """The nodes of a report as they are now."""

    nodes: list[NodeBody]
