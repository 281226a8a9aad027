"""Define the filters of baselines, as REST and pages use them."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from compatgate.kit.http.schemas import Filter, ListQuery
from compatgate.service.runs.baselines.schemas import BaselineState


class BaselineFilters(ListQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of the list of baselines."""

    workload: Annotated[Filter, Meta(description="workload with its digest, as listed")] | None = (
        None
    )
    sku: Filter | None = None
    family: Filter | None = None
    metric: Filter | None = None
    state: BaselineState | None = None
