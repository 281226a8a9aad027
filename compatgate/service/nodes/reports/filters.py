"""Define the filters of nodes and of drift, as the service, REST and pages use them."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from compatgate.core.request import DriftKind, DriverState
from compatgate.kit.http.replies import Filter, ListQuery, Search

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
