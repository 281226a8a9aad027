"""Define reports about a target and a period as REST carries them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from compatgate.core.compare.differences import Cause
from compatgate.core.rule import Outcome
from compatgate.documents.specs import Action, Kind

EventKind = Literal["change", "approval", "facts", "question", "run", "nodes"]


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
