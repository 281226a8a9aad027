"""Store node reports, remove nodes, and show nodes compared with the current matrix."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy.orm import Session

from compatgate.core.facts import Facts
from compatgate.core.request import DriftKind, DriverState
from compatgate.errors import Conflict, NotFound
from compatgate.kit import clock
from compatgate.kit.database.database import Database
from compatgate.kit.database.tables import (
    DEFAULT_LIMIT,
    Page,
    check_limit,
    decode_cursor,
    encode_cursor,
)
from compatgate.service.audit import repository as audit
from compatgate.service.gate.snapshot_reader import Snapshots
from compatgate.service.matrix.service import Authorship
from compatgate.service.nodes import repository as nodes
from compatgate.service.nodes.comparison import MatrixComparer, NodeComparison, NodeView
from compatgate.service.nodes.drift import DriftGroup, RecentDrift, drift_groups
from compatgate.service.nodes.fleet import ComparedNodes, Fleet
from compatgate.service.nodes.inventory import NodeInventory
from compatgate.service.nodes.merging import (
    audit_details,
    mark_changes,
    merge_nodes,
    reported_nodes,
)
from compatgate.service.nodes.reports import is_same_driver, seen_node, sku_of
from compatgate.service.nodes.repository import Node, NodeKey, NodeRow
from compatgate.service.nodes.schemas import Report
from compatgate.service.tokens.principal import AccessRefused, Principal

STALE_AFTER = timedelta(days=1)
"""Time without a report after which a node is stale."""
_BATCH = 500
_MAX_NAMES = 5_000
"""Most names that a query lists."""
_NodeFilter = Callable[[NodeView], bool]
_StandingFilter = Callable[[NodeComparison], bool]


class NodeViews:
    """The nodes of a database, compared with the matrix."""

    def __init__(self, database: Database, facts: Facts, snapshots: Snapshots) -> None:
        self._database = database
        self._facts = facts
        self._snapshots = snapshots
        self._kept: MatrixComparer | None = None
        self._fleet = Fleet(database)

    def show(self, name: str, cluster: str | None = None) -> NodeView:
        """Return a node.

        Raises:
            NotFound: there is none of that name.
            Conflict: several clusters have one.
        """
        with self._database.reading() as session:
            return self._view(pick_node(session, name, cluster), clock.now())

    def clusters_of(self, name: str) -> tuple[str, ...]:
        """Return the clusters that have a node of this name."""
        with self._database.reading() as session:
            return tuple(row.cluster for row in nodes.find_by_name(session, name))

    def each(
        self, *, cluster: str | None = None, gpu: str | None = None, stale: bool | None = None
    ) -> Iterator[NodeView]:
        """Yield every node, for counters; filters as `list`."""
        now, cursor = clock.now(), None
        filters = {"cluster": cluster, **self._sku(gpu), **_seen_filter(stale, now)}
        while True:
            with self._database.reading() as session:
                part = nodes.list_nodes(session, **filters, cursor=cursor, limit=_BATCH)
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
        for first in range(0, len(keys), _BATCH):
            with self._database.reading() as session:
                rows = nodes.load_nodes_of(session, keys[first : first + _BATCH])
            views = (_view(rows[key], now, matrix) for key in sorted(rows))
            yield from (view for view in views if target in view.standing.targets)

    def list(
        self,
        *,
        search: str | None = None,
        cluster: str | None = None,
        target: str | None = None,
        gpu: str | None = None,
        driver: str | None = None,
        driver_state: DriverState | None = None,
        disagrees: bool | None = None,
        stale: bool | None = None,
        cursor: str | None = None,
        limit: int = DEFAULT_LIMIT,
    ) -> Page[NodeView]:
        """Return nodes by cluster and name.

        Args:
            search: part of their names, in any case.
            cluster: that they are in.
            target: that they belong to.
            gpu: that they have, in any spelling.
            driver: that counts, equal as a version.
            driver_state: whether an entry admits it.
            disagrees: whether their witnesses do.
            stale: their last report is old.
            cursor: of the page.
            limit: at most so many.
        """

        def wanted(view: NodeView) -> bool:
            return (
                (target is None or target in view.standing.targets)
                and (driver is None or is_same_driver(view.row.driver or "", driver))
                and (driver_state is None or view.standing.driver == driver_state)
            )

        stored = {"search": search, "cluster": cluster, "disagrees": disagrees, **self._sku(gpu)}
        if target is not None or driver is not None or driver_state is not None:
            stored["names"] = self._few_names(target, driver, driver_state)
        return self._list(wanted, stored, stale, cursor, limit)

    def _few_names(
        self, target: str | None, driver: str | None, state: DriverState | None
    ) -> set[str] | None:
        """Return the names of all nodes of a target, driver and its state; None: too many.

        Too many for a query are found soon by reading nodes in order.
        """
        names: set[str] = set()
        with self._fleet.compared(self._matrix()) as fleet:
            for part in fleet:
                if (
                    (target is None or target in part.standing.targets)
                    and (driver is None or is_same_driver(part.driver or "", driver))
                    and state in (None, part.standing.driver)
                ):
                    names.update(name for _, name in part.nodes)
                if len(names) > _MAX_NAMES:
                    return None
        return names

    def drift(
        self,
        *,
        cluster: str | None = None,
        target: str | None = None,
        what: str | None = None,
        gpu: str | None = None,
        stale: bool | None = None,
        cursor: str | None = None,
        limit: int = DEFAULT_LIMIT,
    ) -> Page[NodeView]:
        """Return nodes that differ from their targets; filters as `list`.

        Args:
            cluster: as `list`.
            target: that they differ from.
            what: ``driver``, ``gpu``, ``platform`` or a part of the node: that differs.
            gpu: as `list`.
            stale: as `list`.
            cursor: of the page.
            limit: at most so many.
        """
        check_limit(limit)
        after = decode_cursor(cursor, (Node.cluster, Node.name)) if cursor is not None else None
        wanted = _difference_filter(target, what)
        with self._narrowed(cluster, gpu, stale) as (fleet, matrix):
            return self._drift_page(fleet, matrix, wanted, after, limit)

    def drift_together(
        self,
        *,
        cluster: str | None = None,
        target: str | None = None,
        what: DriftKind | None = None,
        gpu: str | None = None,
        stale: bool | None = None,
        limit: int = DEFAULT_LIMIT,
    ) -> tuple[Sequence[DriftGroup], Page[NodeView]]:
        """Return the first page of `drift` and the groups of all drifted nodes, in one pass.

        Arguments are those of `drift`.
        """
        check_limit(limit)
        wanted = _difference_filter(target, what)
        with self._narrowed(cluster, gpu, stale) as (fleet, matrix):
            old = self._unseen_among(fleet)
            groups = drift_groups(fleet, matrix.snapshot, stale=old, target=target, what=what)
            return groups, self._drift_page(fleet, matrix, wanted, None, limit)

    def group_drift(self) -> Sequence[DriftGroup]:
        """Return the groups of all drifted nodes."""
        with self._narrowed(None, None, None) as (fleet, matrix):
            return drift_groups(fleet, matrix.snapshot, stale=self._unseen_among(fleet))

    @contextmanager
    def _narrowed(
        self, cluster: str | None, gpu: str | None, stale: bool | None
    ) -> Iterator[tuple[Sequence[ComparedNodes], MatrixComparer]]:
        """Give the nodes that filters keep, equal ones together."""
        sku = sku_of(gpu, self._facts) if gpu else None
        matrix = self._matrix()
        with self._fleet.compared(matrix) as fleet:
            old = self._unseen() if stale is not None else ()
            yield (
                [
                    part.narrow(cluster=cluster, sku=sku, stale=stale, stale_nodes=old)
                    for part in fleet
                ],
                matrix,
            )

    def _unseen_among(self, fleet: Sequence[ComparedNodes]) -> Collection[NodeKey]:
        """Return the drifted nodes whose last report is old; of many drifted ones all that are."""
        drifted = [key for part in fleet if part.standing.differences for key in part.nodes]
        return self._unseen(drifted if len(drifted) <= _MAX_NAMES else None)

    def _unseen(self, among: Sequence[NodeKey] | None = None) -> Collection[NodeKey]:
        """Return the nodes whose last report is old."""
        with self._database.reading() as session:
            return nodes.list_unseen_keys(session, clock.now() - STALE_AFTER, among)

    def _drift_page(
        self,
        fleet: Sequence[ComparedNodes],
        matrix: MatrixComparer,
        wanted: _StandingFilter,
        after: tuple[str, ...] | None,
        limit: int,
    ) -> Page[NodeView]:
        """Return a page of drifted nodes, in the order of this program, not of the database."""
        drifted = (
            key
            for part in fleet
            if wanted(part.standing)
            for key in part.nodes
            if after is None or key > after
        )
        keys = heapq.nsmallest(limit + 1, drifted)
        shown, now = keys[:limit], clock.now()
        with self._database.reading() as session:
            rows = nodes.load_nodes_of(session, shown)
        views = [_view(rows[key], now, matrix) for key in shown if key in rows]
        found = tuple(view for view in views if wanted(view.standing))
        return Page(found, encode_cursor(list(shown[-1])) if len(keys) > limit else None)

    def _sku(self, gpu: str | None) -> dict[str, Any]:
        return {"sku": sku_of(gpu, self._facts) if gpu else None}

    def _list(
        self,
        wanted: _NodeFilter,
        stored: Mapping[str, Any],
        stale: bool | None,
        cursor: str | None,
        limit: int,
    ) -> Page[NodeView]:
        """Return a page; test nodes one by one, because matrix states are not columns."""
        now = clock.now()
        filters = {**stored, **_seen_filter(stale, now)}
        found: list[NodeView] = []
        matrix = self._matrix()
        with self._database.reading() as session:
            while True:
                size = max(limit, _BATCH) if found or cursor else limit
                part = nodes.list_nodes(session, **filters, cursor=cursor, limit=size)
                for number, row in enumerate(part.items):
                    view = _view(row, now, matrix)
                    if not wanted(view):
                        continue
                    found.append(view)
                    if len(found) == limit:
                        last = number == len(part.items) - 1 and part.next is None
                        end = None if last else encode_cursor([row.cluster, row.name])
                        return Page(tuple(found), end)
                if part.next is None:
                    return Page(tuple(found))
                cursor = part.next

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


def _difference_filter(target: str | None, what: str | None) -> _StandingFilter:
    def wanted(standing: NodeComparison) -> bool:
        return any(
            (target is None or found.target == target) and (what is None or found.what == what)
            for found in standing.differences
        )

    return wanted


def _seen_filter(stale: bool | None, now: datetime) -> dict[str, Any]:
    return {} if stale is None else {"seen_before" if stale else "seen_after": now - STALE_AFTER}


def pick_node(session: Session, name: str, cluster: str | None) -> NodeRow:
    """Return the node of a name.

    Raises:
        NotFound: there is none.
        Conflict: several clusters have one.
    """
    found = [row for row in nodes.find_by_name(session, name) if cluster in (None, row.cluster)]
    if not found:
        hint = "report nodes with: compatgate k8s nodes --report"
        raise NotFound(f"node {name!r} does not exist", field="name", value=name, hint=hint)
    if len(found) > 1:
        hint = f"of {', '.join(row.cluster for row in found[:5])}"
        raise Conflict(f"{len(found)} clusters have a node {name!r}", field="cluster", hint=hint)
    return found[0]


class Nodes(NodeViews):
    """The nodes of a database."""

    def __init__(self, database: Database, facts: Facts, snapshots: Snapshots) -> None:
        super().__init__(database, facts, snapshots)
        self.lately = RecentDrift(self.group_drift, snapshots)
        self.inventory = NodeInventory(database)

    def report(
        self,
        report: Report,
        *,
        by: str,
        principal: Principal | None = None,
        dry_run: bool = False,
    ) -> list[NodeView]:
        """Store a report; a repeated report changes only the time.

        A target that it names is added to those that the labels of the node lead to. From somebody
        with the scope ``bless`` it replaces them.

        Args:
            report: nodes of one cluster.
            by: who reports.
            principal: of the request; None: the program itself.
            dry_run: return the result without storing it.

        Raises:
            AccessRefused: the first report of another cluster, without the scope ``bless``.
            BadInput: a node is named twice, was seen in the future, or states a part that no node
                has; names the field.
        """
        now = clock.now()
        seen = reported_nodes(report, now, self._facts)
        blesses = principal is not None and principal.may("bless")
        with self._database.reading() if dry_run else self._database.writing() as session:
            if principal is not None and not blesses:
                _refuse_new_cluster(session, report.cluster, principal)
            known = nodes.load_nodes(session, report.cluster, seen)
            rows: Sequence[NodeRow] = merge_nodes(report, seen, known, by, assigns=blesses)
            if not dry_run:
                rows = mark_changes(rows, known, now)
                _keep(session, report.cluster, rows, known, by, now)
        if not dry_run:
            self.lately.forget()
            self.inventory.follow_change()
        return [self._view(row, now) for row in rows]

    def remove(self, name: str, by: Authorship, cluster: str | None = None) -> NodeView:
        """Remove a node; it returns with its next report.

        Raises:
            NotFound: there is none of that name.
            Conflict: several clusters have one.
            AccessRefused: it is assigned to a target, and the caller lacks the scope ``bless``.
        """
        by.check()
        now = clock.now()
        with self._database.writing() as session:
            row = pick_node(session, name, cluster)
            if row.assigned and by.principal is not None:
                by.principal.require("bless")
            nodes.remove_node(session, row.cluster, row.name)
            detail = {"driver": row.driver, "gpus": row.gpus, "reason": by.reason}
            subject = f"{row.cluster}/{row.name}"
            audit.append(
                session, at=now, actor=by.author, action="node.remove", subject=subject,
                detail=detail,
            )  # fmt: skip
        self.lately.forget()
        self.inventory.follow_change()
        return self._view(row, now)


def _refuse_new_cluster(session: Session, cluster: str, principal: Principal) -> None:
    """Refuse the first report of another cluster: with several, fewer targets count for a pod."""
    known = nodes.list_clusters(session)
    if not known or cluster in known:
        return
    raise AccessRefused(
        f"cluster {cluster!r} is new, and the token {principal.name} lacks the scope bless",
        principal=principal,
        field="cluster",
        value=cluster,
        hint=f"one of {', '.join(sorted(known)[:5])}; or report it once with the scope bless",
    )


def _keep(
    session: Session,
    cluster: str,
    rows: Sequence[NodeRow],
    known: Mapping[str, NodeRow],
    by: str,
    now: datetime,
) -> None:
    """Store the nodes of a report, and audit what changed."""
    nodes.save_nodes(session, rows, known)
    if detail := audit_details(list(rows), known):
        audit.append(
            session, at=now, actor=by, action="nodes.report", subject=cluster, detail=detail
        )
