"""Define the filters of the audit log, for its route and its page."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from compatgate.kit.http.replies import Filter, ListQuery
from compatgate.kit.http.requests import Since, Until


class AuditFilters(ListQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of the audit log."""

    action: Annotated[Filter, Meta(description="action, or a prefix such as `matrix.`")] | None = (
        None
    )
    actor: Filter | None = None
    since: Since | None = None
    until: Until | None = None
