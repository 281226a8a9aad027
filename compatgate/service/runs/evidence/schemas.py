"""Define baselines as REST carries them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from compatgate.kit.http.schemas import Filter, ListQuery

BaselineState = Literal["proposed", "approved", "replaced", "refused"]


class BaselineBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A version of a metric's expected distribution."""

    id: int
    workload: Annotated[str, Meta(description="workload with its content digest")]
    sku: str
    family: Annotated[str, Meta(description="stack family")]
    metric: str
    unit: str
    version: int
    state: BaselineState
    learnt_from: Annotated[int, Meta(description="number of runs")]
    values: int
    proposed_at: datetime
    proposed_by: str
    decided_at: datetime | None
    decided_by: str | None


class NearestBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The approved baseline of the most similar stack family; for comparison only."""

    id: int
    family: str
    median: float
    change: Annotated[
        float | None,
        Meta(
            description="relative change from the nearest baseline's median to this median; 0.05"
            " is 5 % more"
        ),
    ]


class BaselineDetailBody(BaselineBody, frozen=True, forbid_unknown_fields=True):
    """A version with its distribution and the runs that it was learned from."""

    better: Literal["lower", "higher", "either"]
    tolerance: float
    runs: Annotated[
        list[dict[str, Any]], Meta(description="runs; with `sample` for values from a sample")
    ]
    discarded: list[dict[str, Any]]
    distribution: dict[str, Any]
    source: Annotated[str, Meta(description="origin of an import; empty: runs of this gate")]
    explained: Annotated[
        str, Meta(description="why a person accepts improbably good values; empty: ordinary values")
    ] = ""
    nearest: Annotated[
        NearestBody | None,
        Meta(description="nearest approved baseline; set only if the stack family has none"),
    ] = None


class BaselineFilters(ListQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of the list of baselines."""

    workload: Annotated[Filter, Meta(description="workload with its digest, as listed")] | None = (
        None
    )
    sku: Filter | None = None
    family: Filter | None = None
    metric: Filter | None = None
    state: BaselineState | None = None
