"""Gather the inputs of a decision about a wave: approvals, evidence, nodes, rates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace
from sqlalchemy import case, distinct, func, not_, select
from sqlalchemy.orm import Session

from compatgate.core.entry_evidence import index_runs
from compatgate.core.upgrade_state import (
    Comparison,
    Knowledge,
    Need,
    NodeState,
    Upgrade,
    list_needs,
)
from compatgate.errors import CompatgateError
from compatgate.service.changes.upgrades.models import UpgradeRow
from compatgate.service.changes.upgrades.repository import group_keys, make_key, split_key
from compatgate.service.gate.decisions.batches import Decision
from compatgate.service.gate.decisions.service import find_first_since
from compatgate.service.matrix.proposals.agreement import Demand
from compatgate.service.matrix.snapshots.snapshot import Snapshot
from compatgate.service.nodes.health import load_health
from compatgate.service.nodes.reports import is_same_driver
from compatgate.service.nodes.repository import Node
from compatgate.service.nodes.service import STALE_AFTER

BEFORE = timedelta(days=30)
"""Length of the period before the upgrade for its rates."""
_LEAST_DENIED = 3
_HOUR = 3600.0
_MAX_DECISIONS = 20_000


def gather(session: Session, row: UpgradeRow, snapshot: Snapshot, now: datetime) -> Knowledge:
    """Return everything that answers about an upgrade depend on."""
    nodes = _read_nodes(session, row, now)
    healthy, errors = _read_health(session, row, nodes, now)
    rates = (*errors, *_compare_denials(session, row, now))
    needs, problems = _find_needs(row, snapshot, now)
    lacking = ""
    if (document := snapshot.documents.get(row.target)) is not None:
        policy = document.spec.policy
        people = 1 if policy.approvals is UNSET else policy.approvals
        approvers = None if policy.approvers is UNSET else policy.approvers
        lacking = Demand(row.target, people, approvers, proposed=False).describe_lack(row.approvals)
    known = {key: replace(one, healthy=key in healthy) for key, one in nodes.items()}
    return Knowledge(now, (lacking,) if lacking else (), needs, known, rates, problems)


def _find_needs(
    row: UpgradeRow, snapshot: Snapshot, now: datetime
) -> tuple[tuple[Need, ...], tuple[str, ...]]:
    """Return what the matrix and canaries still owe, and why that could not be found out."""
    try:
        target = snapshot.target(row.target)
        found = list_needs(
            target,
            row.pools,
            row.driver,
            entries=snapshot.matrix.entries.of(target.name),
            runs=index_runs(snapshot.matrix.evidence),
            suites=snapshot.matrix.suites,
            accepts=row.accepts,
            now=now,
        )
    except CompatgateError as error:
        return (), (f"{row.target} could not be judged: {error.detail}",)
    gone = row.pools - {pool.name for pool in target.pools}
    problems = (f"{target.name} no longer has the pool {', '.join(sorted(gone))}",) if gone else ()
    return found, problems


def _read_nodes(session: Session, upgrade: Upgrade, now: datetime) -> dict[str, NodeState]:
    keys = [key for wave in upgrade.waves for key in wave.nodes]
    same: dict[str, bool] = {}
    found = {}
    for key, (driver, since, seen_at) in load_node_reports(session, keys).items():
        if driver is not None and driver not in same:
            same[driver] = is_same_driver(driver, upgrade.driver)
        upgraded = driver is not None and same[driver]
        found[key] = NodeState(driver, upgraded, since, now - seen_at > STALE_AFTER)
    return found


def _read_health(
    session: Session, upgrade: Upgrade, nodes: Mapping[str, NodeState], now: datetime
) -> tuple[set[str], list[Comparison]]:
    """Return the changed nodes that report their health, and the rate of fatal Xid errors."""
    began = upgrade.began
    changed = {
        key: nodes[key].since
        for wave in upgrade.waves
        if wave.started
        for key in wave.expected
        if key in nodes and nodes[key].upgraded
    }
    if began is None or not changed:
        return set(), []
    periods, errors = load_health(session, map(split_key, changed), began - BEFORE)
    healthy = {
        key
        for one in periods
        if is_same_driver(one.driver, upgrade.driver)
        and one.until > changed[key := make_key(one.cluster, one.name)]
        and now - one.until <= STALE_AFTER
    }
    return healthy, [_compare_errors(upgrade.driver, changed, periods, errors)]


def _compare_errors(
    driver: str, changed: Mapping[str, datetime], periods: Iterable[Any], errors: Iterable[Any]
) -> Comparison:
    before = after = 0
    hours = {False: 0.0, True: 0.0}
    for one in periods:
        since = changed[make_key(one.cluster, one.name)]
        new = is_same_driver(one.driver, driver)
        inside = one.until - max(one.since, since) if new else min(one.until, since) - one.since
        hours[new] += min(max(inside.total_seconds(), 0.0), one.seconds) / _HOUR
    for seen in errors:
        since = changed[make_key(seen.cluster, seen.name)]
        if not seen.fatal:
            continue
        if is_same_driver(seen.driver, driver):
            after += seen.at >= since
        else:
            before += seen.at < since
    what = "fatal Xid errors of upgraded nodes"
    return Comparison(what, before, hours[False], after, hours[True], "node-hours")


def _compare_denials(session: Session, row: UpgradeRow, now: datetime) -> Iterator[Comparison]:
    """Yield the share of denied stacks since the upgrade began, against the share before.

    Nothing where nobody asked before: no stack that ran there can be denied since.
    """
    began, before = row.began, row.before
    if began is None or began >= now or not (before and before["asked"]):
        return
    since = count_stacks(session, row.target, began)
    yield Comparison(
        f"denied stacks of {row.target}",
        before["denied"], before["asked"], since["denied"], since["asked"], "asked",
        least=_LEAST_DENIED,
    )  # fmt: skip


def count_stacks(session: Session, target: str, since: datetime) -> dict[str, int]:
    """Return how many different stacks were asked about on a target since a moment, and denied.

    A stack that a pipeline asks about a thousand times counts once.
    """
    first = find_first_since(session, since)
    if first is None:
        return {"asked": 0, "denied": 0}
    asked_on = select(Decision.verdict_id, Decision.allowed).where(
        Decision.id >= first, Decision.decided_at >= since, Decision.target == target
    )
    newest = asked_on.order_by(Decision.id.desc()).limit(_MAX_DECISIONS).subquery()
    stopped = case((not_(newest.c.allowed), newest.c.verdict_id), else_=None)
    query = select(func.count(distinct(newest.c.verdict_id)), func.count(distinct(stopped)))
    asked, denied = session.execute(query).one()
    return {"asked": asked, "denied": denied}


def load_node_reports(
    session: Session, keys: Iterable[str]
) -> dict[str, tuple[str | None, datetime, datetime]]:
    """Return driver, since when, and the time of the last report of nodes, by key."""
    found: dict[str, tuple[str | None, datetime, datetime]] = {}
    for cluster, names in group_keys(keys):
        query = select(Node.name, Node.driver, Node.since, Node.seen_at)
        query = query.where(Node.cluster == cluster, Node.name.in_(names))
        for name, driver, since, seen_at in session.execute(query):
            found[make_key(cluster, name)] = (driver, since, seen_at)
    return found
