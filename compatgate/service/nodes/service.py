"""Store node reports, remove nodes, and show nodes compared with the current matrix."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from compatgate.core.facts import Facts
from compatgate.errors import Conflict, NotFound
from compatgate.kit import clock
from compatgate.kit.database.database import Database
from compatgate.kit.database.tables import (
    Page,
    check_limit,
    decode_cursor,
    encode_cursor,
    in_parts,
)
from compatgate.kit.principal import AccessRefused, Authorship, Principal
from compatgate.service.audit import chain as audit
from compatgate.service.matrix.snapshots.reader import Snapshots
from compatgate.service.nodes import repository as nodes
from compatgate.service.nodes.comparison import MatrixComparer, NodeComparison, NodeView
from compatgate.service.nodes.fleet import (
    ComparedNodes,
    DriftGroup,
    Fleet,
    drift_groups,
)
from compatgate.service.nodes.inventory import NodeInventory
from compatgate.service.nodes.merging import (
    audit_details,
    mark_changes,
    merge_nodes,
    reported_nodes,
)
from compatgate.service.nodes.reports import is_same_driver, seen_node, sku_of
from compatgate.service.nodes.repository import Node, NodeKey, NodeRow
from compatgate.service.nodes.schemas import DriftFilters, NodeFilters, Report

STALE_AFTER = timedelta(days=1)
"""Time without a report after which a node is stale."""
_BATCH = 500
_MAX_NAMES = 5_000
"""Most names that a query lists."""


class Nodes:
    """The nodes of a database, compared with the matrix."""

    def __init__(self, database: Database, facts: Facts, snapshots: Snapshots) -> None:
        self._database = database
        self._facts = facts
        self._snapshots = snapshots
        self._kept: MatrixComparer | None = None
        self._fleet = Fleet(database)
        self._grouped: tuple[Any, Sequence[DriftGroup]] | None = None
        self.inventory = NodeInventory(database)

    def show(self, name: str, cluster: str | None = None) -> NodeView:
        """Return a node."""
        with self._database.reading() as session:
            return self._view(pick_node(session, name, cluster), clock.now())

    def clusters_of(self, name: str) -> tuple[str, ...]:
        """Return the clusters that have a node of this name."""
        with self._database.reading() as session:
            return tuple(row.cluster for row in nodes.find_by_name(session, name))

    def each(self, *, gpu: str | None = None) -> Iterator[NodeView]:
        """Yield every node, or those with a GPU, for counters."""
        now, cursor = clock.now(), None
        sku = sku_of(gpu, self._facts) if gpu else None
        while True:
            with self._database.reading() as session:
                part = nodes.list_nodes(session, sku=sku, cursor=cursor, limit=_BATCH)
            matrix = self._matrix()
            yield from (_view(row, now, matrix) for row in part.items)
            cursor = part.next
            if cursor is None:
                return

    def keys_of(self, target: str) -> Sequence[NodeKey]:
        """Return cluster and name of the nodes that belong to a target, in order."""
        with self._fleet.compared(self._matrix()) as fleet:
            parts = [part.nodes for part in fleet if target in part.standing.targets]
            return sorted(key for nodes_of_part in parts for key in nodes_of_part)

    def of_target(self, target: str) -> Iterator[NodeView]:
        """Yield the nodes that belong to a target, by cluster and name."""
        keys, now, matrix = self.keys_of(target), clock.now(), self._matrix()
        for some in in_parts(keys):
            with self._database.reading() as session:
                rows = nodes.load_nodes_of(session, some)
            views = (_view(rows[key], now, matrix) for key in sorted(rows))
            yield from (view for view in views if target in view.standing.targets)

    def list(self, **filters: Any) -> Page[NodeView]:
        """Return nodes by cluster and name; test them one by one: matrix states are no columns."""
        asked, now = NodeFilters(**filters), clock.now()
        limit, cursor, matrix = asked.limit, asked.cursor, self._matrix()
        stored = self._stored_filters(asked, now)
        views: list[NodeView] = []
        with self._database.reading() as session:
            while True:
                size = max(limit, _BATCH) if views or cursor else limit
                part = nodes.list_nodes(session, **stored, cursor=cursor, limit=size)
                for number, row in enumerate(part.items):
                    view = _view(row, now, matrix)
                    if not _fits(asked, row.driver, view.standing):
                        continue
                    views.append(view)
                    if len(views) == limit:
                        last = number == len(part.items) - 1 and part.next is None
                        end = None if last else encode_cursor([row.cluster, row.name])
                        return Page(tuple(views), end)
                if part.next is None:
                    return Page(tuple(views))
                cursor = part.next

    def _stored_filters(self, asked: NodeFilters, now: datetime) -> dict[str, Any]:
        """Return the conditions for the database; names of all fitting nodes, if they are few.

        Too many for a query are found soon by reading nodes in order.
        """
        stored: dict[str, Any] = {
            "search": asked.search,
            "cluster": asked.cluster,
            "disagrees": asked.disagrees,
            "sku": sku_of(asked.gpu, self._facts) if asked.gpu else None,
        }
        if asked.stale is not None:
            stored["seen_before" if asked.stale else "seen_after"] = now - STALE_AFTER
        if (asked.target, asked.driver, asked.driver_state) == (None, None, None):
            return stored
        names: set[str] = set()
        with self._fleet.compared(self._matrix()) as fleet:
            for part in fleet:
                if _fits(asked, part.driver, part.standing):
                    names.update(name for _, name in part.nodes)
                if len(names) > _MAX_NAMES:
                    return stored
        return {**stored, "names": names}

    def drift(self, **filters: Any) -> Page[NodeView]:
        """Return nodes that differ from their targets, by cluster and name."""
        asked = DriftFilters(**filters)
        check_limit(asked.limit)
        after = decode_cursor(asked.cursor, (Node.cluster, Node.name)) if asked.cursor else None
        with self._narrowed(asked) as (fleet, matrix):
            drifted = (
                key
                for part in fleet
                if _differs(part.standing, asked)
                for key in part.nodes
                if after is None or key > after
            )
            # In the order of this program, not of the database.
            keys = heapq.nsmallest(asked.limit + 1, drifted)
            listed, now = keys[: asked.limit], clock.now()
            with self._database.reading() as session:
                rows = nodes.load_nodes_of(session, listed)
            views = (_view(rows[key], now, matrix) for key in listed if key in rows)
            following = encode_cursor([*listed[-1]]) if len(keys) > asked.limit else None
            return Page(tuple(one for one in views if _differs(one.standing, asked)), following)

    def group_drift(self, **filters: Any) -> Sequence[DriftGroup]:
        """Return the groups of drifted nodes; kept until a node or the matrix changes."""
        asked = DriftFilters(**filters)
        with self._narrowed(asked) as (fleet, matrix):
            minute = clock.now().replace(second=0, microsecond=0)  # in which a node may grow stale
            key = (matrix, self._fleet.changes, asked, minute)
            if self._grouped is None or self._grouped[0] != key:
                drifted = [one for part in fleet if part.standing.differences for one in part.nodes]
                old = self._unseen(drifted if len(drifted) <= _MAX_NAMES else None)
                about: dict[str, Any] = {"target": asked.target, "what": asked.what}
                self._grouped = key, drift_groups(fleet, matrix.snapshot, stale=old, **about)
            return self._grouped[1]

    @contextmanager
    def _narrowed(
        self, asked: DriftFilters
    ) -> Iterator[tuple[Sequence[ComparedNodes], MatrixComparer]]:
        sku = sku_of(asked.gpu, self._facts) if asked.gpu else None
        matrix = self._matrix()
        with self._fleet.compared(matrix) as fleet:
            old = self._unseen() if asked.stale is not None else ()
            narrow: dict[str, Any] = {"cluster": asked.cluster, "sku": sku, "stale": asked.stale}
            yield [part.narrow(**narrow, stale_nodes=old) for part in fleet], matrix

    def _unseen(self, among: Sequence[NodeKey] | None = None) -> Collection[NodeKey]:
        """Return the nodes whose last report is old, of some or of all."""
        with self._database.reading() as session:
            return nodes.list_unseen_keys(session, clock.now() - STALE_AFTER, among)

    def report(
        self, report: Report, *, by: str, principal: Principal | None = None, dry_run: bool = False
    ) -> Sequence[NodeView]:
        """Store a report, by name of the reporter; a repeated report changes only the time.

        A target that it names is added to those that the labels of the node lead to. From somebody
        with the scope ``bless`` it replaces them, and only with it another cluster begins to
        report. Without a principal the program itself reports.
        """
        now = clock.now()
        seen = reported_nodes(report, now, self._facts)
        blesses = principal is not None and principal.may("bless")
        with self._database.reading() if dry_run else self._database.writing() as session:
            if principal is not None and not blesses:
                _refuse_new_cluster(session, report.cluster, principal)
            known = nodes.load_nodes(session, report.cluster, seen)
            rows = merge_nodes(report, seen, known, by, assigns=blesses)
            if not dry_run:
                rows = mark_changes(rows, known, now)
                nodes.save_nodes(session, rows, known)
                if detail := audit_details(rows, known):
                    audit.append(session, by, "nodes.report", report.cluster, detail, now)
        if not dry_run:
            self.inventory.follow_change()
        return [self._view(row, now) for row in rows]

    def remove(self, name: str, by: Authorship, cluster: str | None = None) -> NodeView:
        """Remove a node; it returns with its next report. An assigned one needs ``bless``."""
        by.check()
        now = clock.now()
        with self._database.writing() as session:
            row = pick_node(session, name, cluster)
            if row.assigned and by.principal is not None:
                by.principal.require("bless")
            session.execute(delete(Node).where(Node.cluster == row.cluster, Node.name == row.name))
            detail = {"driver": row.driver, "gpus": row.gpus, "reason": by.reason}
            subject = f"{row.cluster}/{row.name}"
            audit.append(session, by.author, "node.remove", subject, detail, now)
        self.inventory.follow_change()
        return self._view(row, now)

    def _view(self, row: NodeRow, now: datetime) -> NodeView:
        return _view(row, now, self._matrix())

    def _matrix(self) -> MatrixComparer:
        snapshot = self._snapshots.current()
        kept = self._kept
        if kept is None or kept.snapshot is not snapshot:
            kept = self._kept = MatrixComparer(snapshot)
        return kept


def _view(row: NodeRow, now: datetime, matrix: MatrixComparer) -> NodeView:
    skus = [kind["gpu"] for kind in row.gpus]
    seen = seen_node(row.witnesses)
    standing = matrix.standing(row.driver, skus, row.labels, (row.target, row.assigned), seen)
    return NodeView(row, standing, now - row.seen_at > STALE_AFTER, seen)


def _fits(asked: NodeFilters, driver: str | None, standing: NodeComparison) -> bool:
    return (
        (asked.target is None or asked.target in standing.targets)
        and (asked.driver is None or is_same_driver(driver or "", asked.driver))
        and asked.driver_state in (None, standing.driver)
    )


def _differs(standing: NodeComparison, asked: DriftFilters) -> bool:
    return any(
        asked.target in (None, one.target) and asked.what in (None, one.what)
        for one in standing.differences
    )


def pick_node(session: Session, name: str, cluster: str | None) -> NodeRow:
    """Return the node of a name; refuse a name that several clusters have."""
    rows = [row for row in nodes.find_by_name(session, name) if cluster in (None, row.cluster)]
    if not rows:
        hint = "report nodes with: compatgate k8s nodes --report"
        raise NotFound(f"node {name!r} does not exist", field="name", value=name, hint=hint)
    if len(rows) > 1:
        hint = f"of {', '.join(row.cluster for row in rows[:5])}"
        raise Conflict(f"{len(rows)} clusters have a node {name!r}", field="cluster", hint=hint)
    return rows[0]


def _refuse_new_cluster(session: Session, cluster: str, principal: Principal) -> None:
    """Refuse the first report of another cluster: with several, fewer targets count for a pod."""
    known = set(session.execute(select(Node.cluster).distinct()).scalars())
    if not known or cluster in known:
        return
    what = f"cluster {cluster!r} is new, and the token {principal.name} lacks the scope bless"
    hint = f"one of {', '.join(sorted(known)[:5])}; or report it once with the scope bless"
    raise AccessRefused(what, principal=principal, field="cluster", value=cluster, hint=hint)
