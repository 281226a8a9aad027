"""Define incidents and notices as REST carries them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from compatgate.core.incidents import IncidentKind, IncidentLevel, IncidentState, Subject
from compatgate.documents.specs import Duration, LabelKey, Name

ChannelKind = Literal["webhook", "email", "slack", "teams"]
Urgency = Literal["page", "ticket"]
DeliveryState = Literal["waiting", "sent", "failed"]
_Text = Annotated[str, Meta(min_length=1, max_length=2000)]
_Pattern = Annotated[str, Meta(min_length=1, max_length=200)]


class IncidentMember(Struct, frozen=True):
    """An object that an incident affects."""

    about: Subject
    name: str
    note: Annotated[str, Meta(description="problem, in words")]
    owner: str | None
    labels: dict[str, str]
    targets: list[str]
    count: Annotated[int, Meta(description="number of affected items, for example nodes")]


class IncidentBody(Struct, frozen=True):
    """A condition that needs or needed attention."""

    id: int
    kind: IncidentKind
    title: str
    level: IncidentLevel
    state: Annotated[
        IncidentState,
        Meta(description="`resolved`: by a person; `ended`: the condition no longer holds"),
    ]
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
    resolved_at: datetime | None
    resolved_by: str | None
    comment: Annotated[str | None, Meta(description="comment on the snooze or the resolution")]


class SnoozeRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A snooze: for a duration or until a time."""

    duration: Annotated[Duration, Meta(description="duration, at most 90d")] | None = None
    until: datetime | None = None
    comment: Annotated[str, Meta(max_length=2000)] = ""


class ResolveRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A resolution."""

    comment: Annotated[_Text, Meta(description="resolution, for example the fix")]


class ReopenRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A request to reopen a snoozed or resolved incident."""

    comment: Annotated[str, Meta(max_length=2000)] = ""


class ChannelRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A channel for notices; URL and key are never shown again."""

    kind: ChannelKind
    url: (
        Annotated[
            str,
            Meta(
                max_length=2000,
                description="URL of the receiver, or `env:COMPATGATE_NOTICE_...`; not for e-mail",
            ),
        ]
        | None
    ) = None
    key: (
        Annotated[
            str,
            Meta(
                max_length=4096,
                description="key that signs webhooks, at least 16 bytes, or"
                " `env:COMPATGATE_NOTICE_...`; default: the gate creates a key",
            ),
        ]
        | None
    ) = None
    to: Annotated[
        list[Annotated[str, Meta(min_length=3, max_length=254)]],
        Meta(max_length=20, description="e-mail addresses; only for e-mail channels"),
    ] = []


class ChannelBody(Struct, frozen=True):
    """A channel without its secret."""

    name: str
    kind: ChannelKind
    place: Annotated[str, Meta(description="scheme and host of the URL, or the e-mail addresses")]
    changed_at: datetime
    changed_by: str


class ChannelMade(Struct, frozen=True):
    """A channel, with its key if the gate created the key."""

    channel: ChannelBody
    key: Annotated[
        str | None,
        Meta(description="new key that signs webhooks, shown only once; null: the gate made none"),
    ]


class SubscriptionRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Incidents that a channel receives, and how often; an omitted filter matches everything."""

    channel: Name
    kinds: Annotated[list[IncidentKind], Meta(max_length=50)] = []
    owners: Annotated[
        list[_Pattern], Meta(max_length=50, description="patterns of owners of affected objects")
    ] = []
    labels: Annotated[
        dict[LabelKey, str], Meta(description="labels; an affected object must have all of them")
    ] = {}
    targets: Annotated[
        list[_Pattern], Meta(max_length=50, description="patterns of target names, like `prod-*`")
    ] = []
    level: Annotated[IncidentLevel, Meta(description="minimum level")] = "info"
    urgency: Urgency = "ticket"
    digest: (
        Annotated[
            Duration,
            Meta(description="minimum time between two messages; default: 1h, none for pages"),
        ]
        | None
    ) = None


class SubscriptionBody(Struct, frozen=True):
    """A subscription."""

    name: str
    channel: str
    kinds: list[IncidentKind]
    owners: list[str]
    labels: dict[str, str]
    targets: list[str]
    level: IncidentLevel
    urgency: Urgency
    digest_s: int
    last_at: Annotated[datetime | None, Meta(description="time of the last message")]
    changed_at: datetime
    changed_by: str


class NoticeDeliveryBody(Struct, frozen=True):
    """A message to a channel with its delivery state."""

    id: str
    channel: str
    subscription: Annotated[str | None, Meta(description="null: a test")]
    state: DeliveryState
    title: str
    urgency: Urgency
    notices: int
    made_at: datetime
    next_at: Annotated[
        datetime, Meta(description="time of the next attempt, while the message waits")
    ]
    attempts: int
    ended_at: datetime | None
    answer: Annotated[str | None, Meta(description="answer of the receiver, or the error")]


CHANNEL: dict[str, Any] = {
    "kind": "webhook",
    "url": "https://hooks.example.com/compatgate",
    "key": "env:COMPATGATE_NOTICE_KEY",
}
MAIL: dict[str, Any] = {"kind": "email", "to": ["gpu-oncall@example.com"]}
SUBSCRIPTION: dict[str, Any] = {
    "channel": "oncall",
    "kinds": ["drift", "entry-revoked"],
    "owners": ["team-infra"],
    "targets": ["prod-*"],
    "level": "warn",
    "urgency": "page",
    "digest": "15m",
}
