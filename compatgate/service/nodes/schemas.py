"""Define node reports, nodes and drift as REST carries them.

A report has a maximum size, so that labels cannot fill the database.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from compatgate.core.request import DriftKind, DriverState
from compatgate.kit.http.schemas import Filter, ListQuery, Search

MAX_NODES = 500
"""Maximum number of nodes in one report; a larger cluster sends several."""
MAX_LABELS = 256
MAX_XIDS = 256
"""Maximum number of errors of a node in one report."""
CLUSTER = "default"
# The look-ahead stands for the line feed that Python's $ would let pass.
NAME_PATTERN = r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$(?!\n)"
KEY_PATTERN = r"^[A-Za-z0-9]([A-Za-z0-9._/-]{0,315}[A-Za-z0-9])?$(?!\n)"
VALUE_PATTERN = r"^[A-Za-z0-9._-]{0,63}$(?!\n)"
TARGET_PATTERN = r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?$(?!\n)"
TEXT_PATTERN = r"^ *[\x21-\x7e][\x20-\x7e]{0,119}$(?!\n)"
Name = Annotated[str, Meta(pattern=NAME_PATTERN, description="node name as in Kubernetes")]
Key = Annotated[str, Meta(pattern=KEY_PATTERN)]
Value = Annotated[str, Meta(pattern=VALUE_PATTERN)]
Count = Annotated[int, Meta(ge=0, le=65536)]
Line = Annotated[str, Meta(pattern=TEXT_PATTERN)]
Labels = Annotated[dict[Key, Value], Meta(max_length=MAX_LABELS)]
SourceKind = Literal["labels", "kubelet", "driver"]


class TaintReport(Struct, frozen=True, forbid_unknown_fields=True):
    """A taint of a node."""

    key: Key
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
    value: Value = ""


class SeenGpus(Struct, frozen=True, forbid_unknown_fields=True):
    """GPUs of one kind; a MIG profile makes another kind."""

    gpu: Annotated[Line, Meta(description="product, in any spelling, with its MIG profile")]
    count: Annotated[int, Meta(ge=1, le=1024)] = 1


class DriverReport(Struct, frozen=True, forbid_unknown_fields=True):
    """The driver's own report: NVML, `nvidia-smi`, `compatgate probe`."""

    driver: Annotated[Line | None, Meta(description="null: no driver is loaded")] = None
    cuda: Line | None = None
    gpus: Annotated[tuple[SeenGpus, ...], Meta(max_length=64)] = ()
    platform: Annotated[
        Line | None, Meta(description="kind of machine, like `aws/p5`; null: not known")
    ] = None
    node: Annotated[
        dict[Key, Line],
        Meta(
            max_length=64,
            description="reported parts of the node, by the names that pools use; unknown parts"
            " are omitted",
            examples=[{"kernel-modules": "open", "fabric-manager": "580.95.05"}],
        ),
    ] = {}


class NodeReport(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A node; an omitted source keeps its previous report."""

    name: Name
    seen_at: Annotated[
        Annotated[datetime, Meta(tz=True)] | None,
        Meta(description="time of the report; default: now"),
    ] = None
    target: Annotated[
        Annotated[str, Meta(pattern=TARGET_PATTERN)] | None,
        Meta(description="the node's annotation `compatgate.dev/target`; read with `labels`"),
    ] = None
    labels: Annotated[
        Labels | None,
        Meta(description="labels of the node, including those of GPU Feature Discovery"),
    ] = None
    taints: Annotated[
        Annotated[tuple[TaintReport, ...], Meta(max_length=64)] | None,
        Meta(description="taints of the node; read with `labels`; default: as last reported"),
    ] = None
    allocatable: Annotated[
        Annotated[dict[Key, Count], Meta(max_length=64)] | None,
        Meta(description="GPU resources that the kubelet hands out"),
    ] = None
    probe: DriverReport | None = None


class Report(Struct, frozen=True, forbid_unknown_fields=True):
    """Nodes of one cluster."""

    nodes: Annotated[tuple[NodeReport, ...], Meta(min_length=1, max_length=MAX_NODES)]
    cluster: Name = CLUSTER


EXAMPLE: dict[str, Any] = {
    "cluster": "prod-eu",
    "nodes": [
        {
            "name": "gpu-17",
            "labels": {
                "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
                "nvidia.com/gpu.count": "8",
                "nvidia.com/cuda.driver-version.full": "535.183.01",
            },
            "taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule", "value": "present"}],
            "allocatable": {"nvidia.com/gpu": 8},
            "probe": {
                "driver": "550.54.15",
                "gpus": [{"gpu": "NVIDIA A100-SXM4-80GB", "count": 8}],
                "platform": "dgx/a100",
                "node": {"kernel-modules": "proprietary", "fabric-manager": "550.54.15"},
            },
        }
    ],
}


Targets = Annotated[
    list[str], Meta(description="target that the node belongs to, by annotation or label")
]


class GpusBody(Struct, frozen=True, forbid_unknown_fields=True, order=True):
    """GPUs of one SKU; each MIG profile is a separate SKU."""

    gpu: str
    count: int


NodePartsBody = Annotated[
    dict[str, str], Meta(description="reported parts and settings of the node, by name")
]


class WitnessBody(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The report of one source, without missing members."""

    witness: SourceKind
    seen_at: datetime
    driver: str | None = None
    cuda: str | None = None
    gpus: list[GpusBody] = []
    platform: str | None = None
    node: NodePartsBody = {}
    resources: Annotated[
        dict[str, int], Meta(description="GPU resources: allocatable, or expected from labels")
    ] = {}
    remarks: list[str] = []


class DifferenceBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A difference between a node and a target."""

    target: str
    what: DriftKind
    have: Annotated[str | None, Meta(description="null: not known")]
    declared: list[str]
    message: str


class NodeBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A node as last reported, compared with the current matrix."""

    cluster: str
    name: str
    driver: Annotated[
        str | None, Meta(description="driver in effect; null: no source reports a driver")
    ]
    gpus: list[GpusBody]
    platform: Annotated[str | None, Meta(description="kind of machine; null: not known")]
    node: NodePartsBody
    targets: Targets
    driver_state: Annotated[
        DriverState, Meta(description="whether a blessed or deprecated entry admits the driver")
    ]
    driver_why: str
    drift: list[DifferenceBody]
    disagreements: Annotated[
        list[str], Meta(description="contradictions between sources, with the source that decides")
    ]
    notes: list[str]
    witnesses: list[WitnessBody]
    labels: dict[str, str]
    taints: Annotated[list[TaintReport], Meta(description="taints as last reported")]
    stale: Annotated[bool, Meta(description="true: no report for a day")]
    reported_by: str
    first_seen_at: datetime
    seen_at: datetime
    since: Annotated[datetime, Meta(description="time of the last change of driver, GPUs or parts")]


class DriftBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A node that differs from its targets."""

    cluster: str
    name: str
    driver: str | None
    gpus: list[GpusBody]
    since: Annotated[datetime, Meta(description="time of the last change of driver, GPUs or parts")]
    seen_at: datetime
    stale: bool
    differences: list[DifferenceBody]


class NodesReported(Struct, frozen=True, forbid_unknown_fields=True):
    """The current state of the reported nodes."""

    nodes: list[NodeBody]


class XidSeen(Struct, frozen=True, forbid_unknown_fields=True):
    """A GPU error that the kernel logged; the same one may be reported again."""

    xid: Annotated[int, Meta(ge=1, le=9999, description="Xid code")]
    at: Annotated[datetime, Meta(tz=True, description="time in the kernel log")]


class HealthOfNode(Struct, frozen=True, forbid_unknown_fields=True):
    """The GPU errors of a node in a period."""

    name: Name
    since: Annotated[datetime, Meta(tz=True, description="start of the period")]
    until: Annotated[
        Annotated[datetime, Meta(tz=True)] | None,
        Meta(description="end of the period; default: now"),
    ] = None
    driver: Annotated[
        Line | None,
        Meta(
            description="driver that was loaded during the whole period; default: the last"
            " reported driver, and the period starts when this driver was loaded"
        ),
    ] = None
    xids: Annotated[
        tuple[XidSeen, ...],
        Meta(max_length=MAX_XIDS, description="errors in the period; empty: no errors"),
    ] = ()


class HealthReport(Struct, frozen=True, forbid_unknown_fields=True):
    """The health of nodes of one cluster."""

    nodes: Annotated[tuple[HealthOfNode, ...], Meta(min_length=1, max_length=MAX_NODES)]
    cluster: Name = CLUSTER


class StoredHealth(Struct, frozen=True, forbid_unknown_fields=True):
    """The effect of a node's report."""

    name: str
    driver: str
    seconds: Annotated[
        int, Meta(description="number of new seconds; 0: the period was reported before")
    ]
    xids: Annotated[int, Meta(description="number of new errors")]


class HealthStored(Struct, frozen=True, forbid_unknown_fields=True):
    """The effect of a report."""

    nodes: list[StoredHealth]


HEALTH_EXAMPLE: dict[str, Any] = {
    "cluster": "prod-eu",
    "nodes": [
        {
            "name": "gpu-17",
            "since": "2026-11-03T09:30:00Z",
            "until": "2026-11-03T09:40:00Z",
            "driver": "580.95.05",
            "xids": [{"xid": 79, "at": "2026-11-03T09:31:07Z"}],
        }
    ],
}


GpuSpelling = Annotated[
    Filter, Meta(description="GPU product in any spelling, with its MIG profile")
]
StaleFilter = Annotated[bool, Meta(description="true: nodes without a report for a day")]


class NodeFilters(ListQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of the list of nodes."""

    search: Search | None = None
    cluster: Filter | None = None
    target: Filter | None = None
    gpu: GpuSpelling | None = None
    driver: Filter | None = None
    driver_state: DriverState | None = None
    disagrees: Annotated[bool, Meta(description="true: nodes whose sources disagree")] | None = None
    stale: StaleFilter | None = None


class DriftFilters(ListQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of the list of drifted nodes."""

    cluster: Filter | None = None
    target: Filter | None = None
    what: Annotated[DriftKind, Meta(description="property that differs")] | None = None
    gpu: GpuSpelling | None = None
    stale: StaleFilter | None = None
