"""Define the backtest of a change as REST carries it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

from compatgate.core.compare.backtest import BacktestCounts, BacktestGroup
from compatgate.documents.specs import Change as DocumentChange

DAYS = 30
"""Days of decisions that a question considers, unless it says otherwise."""
MAX_DAYS = 366


class BacktestBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The difference that a change makes to recorded questions."""

    summary: str
    counts: BacktestCounts
    groups: Annotated[list[BacktestGroup], Meta(description="groups, worst first")]
    changes: Annotated[list[DocumentChange], Meta(description="tested changes")]
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
