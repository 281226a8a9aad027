"""What was denied most often lately; what is counted is bounded."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from compatgate.store.decision_days import MOST, first_since
from compatgate.store.models import Decision


class DeniedRow(Struct, frozen=True):
    """A verdict that denied.

    Attributes:
        count: how often it was given.
        image: one of those that were asked about.
    """

    verdict_id: str
    target: str | None
    outcome: str
    count: int
    last: datetime
    image: str | None


def most_denied(session: Session, since: datetime, *, limit: int) -> list[DeniedRow]:
    """Verdicts that were given most often among those that did not allow.

    Args:
        session: to read from.
        since: not before this; of more than `MOST` decisions, the newest.
        limit: at most so many rows.
    """
    first = first_since(session, since)
    if first is None:
        return []
    columns = (
        Decision.verdict_id,
        Decision.target,
        Decision.outcome,
        Decision.decided_at,
        Decision.image,
    )
    denied = select(*columns).where(Decision.id >= first, Decision.decided_at >= since)
    denied = denied.where(Decision.allowed.is_(False))
    newest = denied.order_by(Decision.id.desc()).limit(MOST).subquery()
    count = func.count().label("count")
    key = (newest.c.verdict_id, newest.c.target, newest.c.outcome)
    last = func.max(newest.c.decided_at).label("last")
    query = select(*key, count, last, func.max(newest.c.image).label("image")).group_by(*key)
    rows = session.execute(query.order_by(count.desc(), newest.c.verdict_id).limit(limit))
    return [DeniedRow(*row) for row in rows]
