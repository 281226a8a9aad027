"""Define the filters of upgrades and freezes, as REST and pages use them."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from compatgate.core.upgrade_state import State
from compatgate.kit.http.replies import Filter, ListQuery


class UpgradeFilters(ListQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of upgrades."""

    state: State | None = None
    target: Filter | None = None


class FreezeFilters(ListQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of freezes."""

    target: (
        Annotated[Filter, Meta(description="list freezes that hold waves of this target")] | None
    ) = None
    ended: Annotated[bool, Meta(description="include ended freezes")] = False
