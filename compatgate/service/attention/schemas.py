"""Define incidents and reports as REST carries them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from compatgate.core.compare.differences import Cause
from compatgate.core.incidents import IncidentKind, IncidentLevel, IncidentMember, IncidentState
from compatgate.core.rule import Outcome
from compatgate.documents.specs import Action, Duration, Kind

EventKind = Literal["change", "approval", "facts", "question", "run", "nodes"]


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


class ReportEventBody(Struct, frozen=True, forbid_unknown_fields=True):
    """An event; `ref` names the revision, verdict, run or link of the audit log."""

    at: datetime
    kind: EventKind
    who: str
    what: str
    ref: str
    details: list[str] = []


class ChangedValueBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A value of a document that changed."""

    path: str
    before: Any
    after: Any


class ReportedChangeBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A change of the target, or of an entry or waiver that names it."""

    revision: int
    at: datetime
    author: str
    reason: str
    kind: Kind
    name: str
    action: Action
    fields: list[ChangedValueBody]


class DifferentFindingBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A finding of only one of two answers."""

    rule: str
    cause: Cause
    outcome: str
    message: str


class AskedQuestionBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A recorded answer of the period, and the answer to the same question today.

    `today` is null where the question cannot be re-evaluated; `why` then says why.
    """

    verdict_id: str
    target: str | None
    stack: dict[str, Any]
    image: str | None
    asked_by: list[str]
    sources: list[str]
    decisions: int
    first: datetime
    last: datetime
    matrix_revision: int
    outcome: Outcome
    allowed: bool
    reasons: Annotated[list[str], Meta(description="reasons of the recorded answer")]
    today: Outcome | None
    allowed_today: bool | None
    differs: bool
    new: Annotated[list[DifferentFindingBody], Meta(description="findings only in today's answer")]
    gone: Annotated[
        list[DifferentFindingBody], Meta(description="findings only in the recorded answer")
    ]
    why: str = ""


class ReportCountsBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Numbers of a report; `different`: decisions that would get another answer today."""

    changes: int
    decisions: int
    allowed: int
    denied: int
    undecided: int
    different: int
    runs: int
    node_events: int


class TargetReportBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The events on a target. `left_out` lists parts that exceeded a limit."""

    target: str
    since: datetime
    until: datetime
    made_at: datetime
    summary: str
    counts: ReportCountsBody
    timeline: Annotated[list[ReportEventBody], Meta(description="events, oldest first")]
    asked: Annotated[
        list[AskedQuestionBody], Meta(description="questions, denied first, then most frequent")
    ]
    changes: list[ReportedChangeBody]
    left_out: list[str]
    matrix_revision: int
    facts: str
