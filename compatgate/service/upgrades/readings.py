"""Read the decisions and node reports that answers about upgrades depend on."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from sqlalchemy import case, distinct, func, not_, select
from sqlalchemy.orm import Session

from compatgate.service.gate.decision_counts import find_first_since
from compatgate.service.gate.repository import Decision
from compatgate.service.nodes.repository import Node
from compatgate.service.upgrades.repository import (
    group_by_cluster,
    make_key,
    split_key,
    split_names,
)

_MAX_DECISIONS = 20_000


def count_stacks(session: Session, target: str, since: datetime) -> dict[str, int]:
    """Return how many different stacks were asked about on a target since a moment, and denied.

    A stack that a pipeline asks about a thousand times counts once.
    """
    first = find_first_since(session, since)
    if first is None:
        return {"asked": 0, "denied": 0}
    newest = (
        select(Decision.verdict_id, Decision.allowed)
        .where(Decision.id >= first, Decision.decided_at >= since, Decision.target == target)
        .order_by(Decision.id.desc())
        .limit(_MAX_DECISIONS)
        .subquery()
    )
    stopped = case((not_(newest.c.allowed), newest.c.verdict_id), else_=None)
    query = select(func.count(distinct(newest.c.verdict_id)), func.count(distinct(stopped)))
    asked, denied = session.execute(query).one()
    return {"asked": asked, "denied": denied}


def load_node_reports(
    session: Session, keys: Iterable[str]
) -> dict[str, tuple[str | None, datetime, datetime]]:
    """Return driver, since when, and the time of the last report of nodes, by key."""
    found: dict[str, tuple[str | None, datetime, datetime]] = {}
    for cluster, names in group_by_cluster(map(split_key, keys)).items():
        for part in split_names(names):
            query = select(Node.name, Node.driver, Node.since, Node.seen_at)
            query = query.where(Node.cluster == cluster, Node.name.in_(part))
            for name, driver, since, seen_at in session.execute(query):
                found[make_key(cluster, name)] = (driver, since, seen_at)
    return found
