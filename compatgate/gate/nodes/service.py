"""Reports of nodes are kept, and nodes are forgotten; both are in the audit log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from compatgate.core.facts import Facts
from compatgate.gate.matrix import By
from compatgate.gate.nodes.lately import Lately
from compatgate.gate.nodes.looking import NodeViews, one_of
from compatgate.gate.nodes.merge import Seen, merged, seen_in, told
from compatgate.gate.nodes.view import NodeView
from compatgate.gate.snapshots import Snapshots
from compatgate.store import audit, clock, nodes
from compatgate.store.database import Database
from compatgate.store.nodes import NodeRow
from compatgate.wire.node_reports import Report


class Nodes(NodeViews):
    """The nodes that one database knows."""

    def __init__(self, database: Database, facts: Facts, snapshots: Snapshots) -> None:
        super().__init__(database, facts, snapshots)
        self.lately = Lately(self.each, snapshots)

    def report(self, report: Report, *, by: str, dry_run: bool = False) -> list[NodeView]:
        """Keep what was seen; the same report again changes nothing but the time.

        Args:
            report: nodes of one cluster.
            by: who reports.
            dry_run: only say what would be shown then.

        Raises:
            BadInput: a node is named twice, or was seen in the future; names the field.
        """
        now = clock.now()
        seen = seen_in(report, now, self._facts)
        if dry_run:
            with self._database.reading() as session:
                rows: Sequence[NodeRow] = merged(
                    report, seen, nodes.load(session, report.cluster, seen), by
                )
        else:
            rows = self._keep(report, seen, by, now)
        return [self._view(row, now) for row in rows]

    def remove(self, name: str, by: By, cluster: str | None = None) -> NodeView:
        """Forget a node; one that is reported again comes back.

        Raises:
            NotFound: there is none of that name.
            Conflict: several clusters have one.
        """
        by.check()
        now = clock.now()
        with self._database.writing() as session:
            row = one_of(session, name, cluster)
            nodes.remove(session, row.cluster, row.name)
            detail = {"driver": row.driver, "gpus": row.gpus, "reason": by.reason}
            subject = f"{row.cluster}/{row.name}"
            audit.append(
                session, at=now, actor=by.author, action="node.remove", subject=subject,
                detail=detail,
            )  # fmt: skip
        self.lately.forget()
        return self._view(row, now)

    def _keep(
        self, report: Report, seen: Mapping[str, Seen], by: str, now: datetime
    ) -> Sequence[NodeRow]:
        with self._database.writing() as session:
            known = nodes.load(session, report.cluster, seen)
            rows = merged(report, seen, known, by)
            nodes.save(session, rows, known)
            if detail := told(rows, known):
                audit.append(
                    session, at=now, actor=by, action="nodes.report", subject=report.cluster,
                    detail=detail,
                )  # fmt: skip
        self.lately.forget()
        return rows
