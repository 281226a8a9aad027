"""Define the filters of proposals, as REST and pages use them."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from compatgate.kit.http.replies import Filter, ListQuery
from compatgate.service.matrix.proposals.schemas import State


class ProposalFilters(ListQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of proposals."""

    state: State | None = None
    target: Annotated[Filter, Meta(description="target that the proposal affects")] | None = None
    author: Filter | None = None


class ApprovalFilters(ListQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of approvals."""

    waiting: Annotated[bool, Meta(description="only changes that can still be approved")] | None = (
        None
    )
