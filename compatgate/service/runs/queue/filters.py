"""Define the filters of lists, as REST, pages and queries use them."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from compatgate.canary.run import Purpose, State
from compatgate.kit.http.schemas import Filter, ListQuery, Since, Until

StateFilter = State | Literal["active", "ended"]


class RunFilters(ListQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of the list of runs."""

    state: (
        Annotated[StateFilter, Meta(description="state of the run; also `active` or `ended`")]
        | None
    ) = None
    target: Filter | None = None
    suite: Filter | None = None
    entry: Filter | None = None
    host: Annotated[Filter, Meta(description="host of the current or last attempt")] | None = None
    asked_by: Filter | None = None
    purpose: Purpose | None = None
    since: Since | None = None
    until: Until | None = None


class EvidenceFilters(ListQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of the list of evidence."""

    suite: Filter | None = None
    sku: Filter | None = None
    run: Annotated[Filter, Meta(description="id of the run")] | None = None
    outcome: Literal["passed", "failed"] | None = None
    content: Annotated[Filter, Meta(description="digest of the GPU content")] | None = None
    since: Since | None = None
    until: Until | None = None


class HostFilters(ListQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of the list of hosts."""

    gpu: Annotated[Filter, Meta(description="SKU")] | None = None
