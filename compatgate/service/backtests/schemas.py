"""Define backtests as REST carries them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

from compatgate.core.backtest import BacktestCause, Effect, QuestionOrigin
from compatgate.core.rule import Outcome
from compatgate.service.matrix.schemas import ENTRY, ChangeBody, DocumentName

DAYS = 30
"""Default period of a backtest."""
MAX_DAYS = 366
DECISIONS = 100_000
"""Default number of decisions that a backtest reads, the newest."""
QUESTIONS = 5_000
"""Default number of different questions that a backtest decides, the latest."""
MAX_QUESTIONS = 20_000
SHOWN = 20
"""Default number of questions that are listed of each group."""
MAX_SHOWN = 1_000
MAX_DELETED = 10_000
MAX_TEXT = 64 * 1024 * 1024


class BacktestRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A change to backtest: documents to store, documents to delete, or both."""

    documents: Annotated[
        list[dict[str, Any]],
        Meta(description="documents to create or change, in the format of matrix files"),
    ] = []
    yaml: Annotated[
        str, Meta(max_length=MAX_TEXT, description="documents to create or change, as YAML")
    ] = ""
    delete: Annotated[list[DocumentName], Meta(max_length=MAX_DELETED)] = []
    file: Annotated[
        str, Meta(min_length=1, max_length=200, description="file name to show in errors")
    ] = "request"
    days: Annotated[int, Meta(ge=1, le=MAX_DAYS, description="number of days of decisions")] = DAYS
    decisions: Annotated[
        int,
        Meta(ge=1, le=DECISIONS, description="maximum number of decisions to read, newest first"),
    ] = DECISIONS
    questions: Annotated[
        int,
        Meta(
            ge=1,
            le=MAX_QUESTIONS,
            description="maximum number of questions to decide, latest first",
        ),
    ] = QUESTIONS
    shown: Annotated[
        int, Meta(ge=0, le=MAX_SHOWN, description="number of questions to list in each group")
    ] = SHOWN


class QuestionChangeBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A question whose answer differs; `before` and `after` null: there is no answer."""

    target: str
    stack: dict[str, Any]
    image: str | None
    pools: Annotated[list[str], Meta(description="pools that the question names; empty: all")]
    origin: Annotated[
        QuestionOrigin, Meta(description="source of the question: the decision log or a canary run")
    ]
    verdict_id: Annotated[str, Meta(description="id of the newest verdict or of the run")]
    decisions: int
    asked_by: list[str]
    first: datetime
    last: datetime
    before: Outcome | None
    after: Outcome | None
    message: str
    nodes: Annotated[int, Meta(description="declared nodes of the deciding pools")]


class BacktestGroupBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Questions whose answer differs for one reason; `examples` lists the most asked."""

    effect: Effect
    cause: Annotated[
        BacktestCause,
        Meta(
            description="the vendors' `facts`, the `matrix`, missing `evidence`, the `policy`"
            " (same findings), or the `target` (it or its pool is gone)"
        ),
    ]
    rule: str | None
    name: Annotated[str, Meta(description="name of the deciding rule; empty: no rule decides")]
    message: Annotated[str, Meta(description="message for the most frequent question")]
    questions: int
    decisions: int
    nodes: Annotated[int, Meta(description="declared nodes; each pool counts once")]
    targets: list[str]
    asked_by: list[str]
    last: datetime
    examples: list[QuestionChangeBody]


class EffectCountBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The number of questions with one effect, of their decisions, and of nodes."""

    questions: int = 0
    decisions: int = 0
    nodes: int = 0


class BacktestCountsBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Numbers by effect.

    `newly_unknown` was allowed and is stopped because something is not known; `changed`: another
    verdict that the policy treats as before.
    """

    newly_denied: EffectCountBody
    newly_unknown: EffectCountBody
    newly_allowed: EffectCountBody
    changed: EffectCountBody


class BacktestBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The difference that a change makes to recorded questions."""

    summary: str
    counts: BacktestCountsBody
    groups: Annotated[list[BacktestGroupBody], Meta(description="groups, worst first")]
    changes: Annotated[list[ChangeBody], Meta(description="tested changes")]
    days: int
    since: datetime
    questions: Annotated[
        int,
        Meta(description="number of different questions, each decided with and without the change"),
    ]
    decisions: Annotated[int, Meta(description="number of recorded decisions of these questions")]
    complete: Annotated[bool, Meta(description="true: every question of the period was decided")]
    remarks: Annotated[list[str], Meta(description="omissions, in words")]
    matrix_revision: int
    facts: str


BACKTEST_EXAMPLES: dict[str, Any] = {
    "entry": {
        "documents": [
            {
                "apiVersion": "compatgate.dev/v1",
                "kind": "Entry",
                **{name: ENTRY[name] for name in ("metadata", "spec")},
            }
        ],
        "days": 7,
    }
}
