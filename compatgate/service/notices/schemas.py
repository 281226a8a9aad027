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
    """An object that an incident concerns."""

    about: Subject
    name: str
    note: Annotated[str, Meta(description="what is wrong with it, in words")]
    owner: str | None
    labels: dict[str, str]
    targets: list[str]
    count: Annotated[int, Meta(description="how much is concerned, for example nodes")]


class IncidentBody(Struct, frozen=True):
    """Something that needs attention, or did."""

    id: int
    kind: IncidentKind
    title: str
    level: IncidentLevel
    state: Annotated[
        IncidentState,
        Meta(description="`resolved`: by a person; `ended`: its condition is gone"),
    ]
    snoozed: bool
    message: str
    count: int
    members: Annotated[list[IncidentMember], Meta(description="in lists, the first three")]
    member_count: int
    owners: list[str]
    episode: Annotated[int, Meta(description="one more each time that it happens again")]
    first_seen: Annotated[datetime, Meta(description="in this episode")]
    last_seen: datetime
    ended_at: datetime | None
    snoozed_until: datetime | None
    snoozed_by: str | None
    resolved_at: datetime | None
    resolved_by: str | None
    comment: Annotated[str | None, Meta(description="on the snooze or the resolution")]


class SnoozeRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A snooze: for a duration or until a time."""

    duration: Annotated[Duration, Meta(description="at most 90d")] | None = None
    until: datetime | None = None
    comment: Annotated[str, Meta(max_length=2000)] = ""


class ResolveRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A resolution."""

    comment: Annotated[_Text, Meta(description="what was done")]


class ReopenRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A snoozed or resolved incident that needs attention after all."""

    comment: Annotated[str, Meta(max_length=2000)] = ""


class ChannelRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A place that notices go to; URL and key are never shown again."""

    kind: ChannelKind
    url: (
        Annotated[
            str,
            Meta(
                max_length=2000,
                description="of the receiver, or `env:COMPATGATE_NOTICE_...`; not for e-mail",
            ),
        ]
        | None
    ) = None
    key: (
        Annotated[
            str,
            Meta(
                max_length=4096,
                description="signs webhooks, at least 16 bytes, or `env:COMPATGATE_NOTICE_...`;"
                " the gate makes one if it is left out",
            ),
        ]
        | None
    ) = None
    to: Annotated[
        list[Annotated[str, Meta(min_length=3, max_length=254)]],
        Meta(max_length=20, description="addresses, for e-mail"),
    ] = []


class ChannelBody(Struct, frozen=True):
    """A channel without its secret."""

    name: str
    kind: ChannelKind
    place: Annotated[str, Meta(description="scheme and host of the URL, or addresses")]
    changed_at: datetime
    changed_by: str


class ChannelMade(Struct, frozen=True):
    """A channel, and its key if the gate made it."""

    channel: ChannelBody
    key: Annotated[str | None, Meta(description="signs webhooks; shown this once")]


class SubscriptionRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Which incidents go to a channel, and how often; what is left out stands for everything."""

    channel: Name
    kinds: Annotated[list[IncidentKind], Meta(max_length=50)] = []
    owners: Annotated[list[_Pattern], Meta(max_length=50, description="of an affected object")] = []
    labels: Annotated[
        dict[LabelKey, str], Meta(description="that an affected object has, all of them")
    ] = {}
    targets: Annotated[
        list[_Pattern], Meta(max_length=50, description="patterns of targets, like `prod-*`")
    ] = []
    level: Annotated[IncidentLevel, Meta(description="least level")] = "info"
    urgency: Urgency = "ticket"
    digest: (
        Annotated[
            Duration,
            Meta(description="least time between two messages; default 1h, of a page none"),
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
    last_at: Annotated[datetime | None, Meta(description="of the last message")]
    changed_at: datetime
    changed_by: str


class NoticeDeliveryBody(Struct, frozen=True):
    """A message to a channel, and what became of it."""

    id: str
    channel: str
    subscription: Annotated[str | None, Meta(description="null: a test")]
    state: DeliveryState
    title: str
    urgency: Urgency
    notices: int
    made_at: datetime
    next_at: Annotated[datetime, Meta(description="of the next attempt, while it waits")]
    attempts: int
    ended_at: datetime | None
    answer: Annotated[str | None, Meta(description="of the receiver, or the error")]


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
