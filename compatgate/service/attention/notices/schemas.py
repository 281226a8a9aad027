"""Define incidents as REST carries them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

from compatgate.core.incidents import IncidentKind, IncidentLevel, IncidentMember, IncidentState
from compatgate.documents.specs import Duration


class IncidentBody(Struct, frozen=True):
    """A condition that needs or needed attention."""

    id: int
    kind: IncidentKind
    title: str
    level: IncidentLevel
    state: Annotated[IncidentState, Meta(description="`ended`: the condition no longer holds")]
    snoozed: bool
    message: str
    count: int
    members: Annotated[
        list[IncidentMember], Meta(description="affected objects; a list shows the first three")
    ]
    member_count: int
    owners: list[str]
    episode: Annotated[
        int, Meta(description="number of occurrences: 1, then one more for each recurrence")
    ]
    first_seen: Annotated[datetime, Meta(description="start of this occurrence")]
    last_seen: datetime
    ended_at: datetime | None
    snoozed_until: datetime | None
    snoozed_by: str | None
    comment: Annotated[str | None, Meta(description="comment on the snooze")]


class SnoozeRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A snooze: for a duration or until a time."""

    duration: Annotated[Duration, Meta(description="duration, at most 90d")] | None = None
    until: datetime | None = None
    comment: Annotated[str, Meta(max_length=2000)] = ""


class ReopenRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A request to reopen a snoozed incident."""

    comment: Annotated[str, Meta(max_length=2000)] = ""
