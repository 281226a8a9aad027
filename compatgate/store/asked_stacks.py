"""What targets were asked about lately, verdict by verdict; what is read is bounded."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from compatgate.store.decision_days import first_since
from compatgate.store.models import Decision, Verdict

MOST_VERDICTS = 5000
"""Different verdicts that are read, those given last."""
_AT_ONCE = 500


class AskedStack(Struct, frozen=True):
    """A verdict and the decisions that gave it.

    Attributes:
        body: the verdict as it was first given.
        count: decisions that gave it.
    """

    verdict_id: str
    target: str
    body: dict[str, Any]
    count: int
    first: datetime
    last: datetime


class AskedStacks(Struct, frozen=True):
    """Verdicts that targets were given.

    Attributes:
        found: the one given last first.
        decisions: how many decisions these are.
        complete: all since the moment were read; else only the newest.
    """

    found: tuple[AskedStack, ...] = ()
    decisions: int = 0
    complete: bool = True


def asked_stacks(
    session: Session, targets: Sequence[str], since: datetime, *, most: int
) -> AskedStacks:
    """Return what some targets were asked about.

    Args:
        session: to read from.
        targets: by name.
        since: not before this.
        most: look at so many decisions, the newest.
    """
    first = first_since(session, since)
    if first is None or not targets:
        return AskedStacks()
    wanted = select(Decision.verdict_id, Decision.target, Decision.decided_at).where(
        Decision.id >= first, Decision.decided_at >= since, Decision.target.in_(targets)
    )
    newest = wanted.order_by(Decision.id.desc()).limit(most).subquery()
    key = (newest.c.verdict_id, newest.c.target)
    last = func.max(newest.c.decided_at)
    query = select(*key, func.count(), func.min(newest.c.decided_at), last).group_by(*key)
    rows = session.execute(query.order_by(last.desc()).limit(MOST_VERDICTS + 1)).all()
    decisions = sum(row[2] for row in rows)
    kept = rows[:MOST_VERDICTS]
    bodies = _bodies(session, [row[0] for row in kept])
    found = tuple(AskedStack(row[0], row[1], bodies[row[0]], *row[2:]) for row in kept)
    return AskedStacks(found, decisions, decisions < most and len(rows) == len(kept))


def _bodies(session: Session, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for start in range(0, len(ids), _AT_ONCE):
        some = ids[start : start + _AT_ONCE]
        rows = session.execute(select(Verdict.id, Verdict.body).where(Verdict.id.in_(some)))
        found.update((row[0], msgspec.json.decode(row[1])) for row in rows)
    return found
