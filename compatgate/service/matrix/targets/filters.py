"""Define the filters of targets and pools, as REST and pages use them."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from compatgate.kit.http.schemas import Filter, ListQuery, Search


class TargetFilters(ListQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of targets."""

    label: Annotated[Filter, Meta(examples=["tier=prod"])] | None = None
    owner: Filter | None = None
    gpu: Annotated[Filter, Meta(description="GPU of any pool, exactly as written")] | None = None
    driver: Annotated[Filter, Meta(description="driver of any pool, exactly as written")] | None = (
        None
    )
    search: Search | None = None


class PoolFilters(ListQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of pools."""

    target: Filter | None = None
    gpu: Annotated[Filter, Meta(description="GPU, exactly as written")] | None = None
    driver: Annotated[Filter, Meta(description="driver, exactly as written")] | None = None
