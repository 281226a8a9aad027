"""Define the filters of entries and revisions, as REST and pages use them."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from compatgate.core.matrix import EntryStatus
from compatgate.documents.specs import Kind
from compatgate.kit.http.replies import Filter, ListQuery, Search
from compatgate.kit.http.requests import Since, Until


class EntryFilters(ListQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of entries."""

    target: Filter | None = None
    status: EntryStatus | None = None
    component: Annotated[Filter, Meta(description="component that the entry constrains")] | None = (
        None
    )
    label: Annotated[Filter, Meta(examples=["team=ml"])] | None = None
    owner: Filter | None = None
    search: Search | None = None


class RevisionFilters(ListQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of revisions."""

    author: Filter | None = None
    kind: Annotated[Kind, Meta(description="kind of a changed document")] | None = None
    name: Annotated[Filter, Meta(description="name of a changed document")] | None = None
    since: Since | None = None
    until: Until | None = None
