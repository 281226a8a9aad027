"""Keep the reported nodes in memory, grouped by what drift depends on.

Nodes of a large fleet have few different drivers, GPUs and parts. Those that are equal are compared
once; a question reads from the database only what changed since the question before.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta

from msgspec import Struct
from sqlalchemy.orm import Session

from compatgate.kit.database.database import Database
from compatgate.service.nodes import repository as nodes
from compatgate.service.nodes.comparison import MatrixComparer, NodeComparison, NodeProfile
from compatgate.service.nodes.reports import seen_node
from compatgate.service.nodes.repository import NodeKey, NodeRow

DISORDER = timedelta(minutes=5)
"""Clocks of gates may differ by so much, and a report may be stored so late."""
_BATCH = 500


class ComparedNodes(Struct, frozen=True):
    """Equal nodes, compared with the matrix.

    Attributes:
        gpus: SKUs that count.
        nodes: since when each is as it is.
    """

    gpus: tuple[str, ...]
    standing: NodeComparison
    nodes: Mapping[NodeKey, datetime]

    def narrow(
        self,
        *,
        cluster: str | None,
        sku: str | None,
        stale: bool | None,
        stale_nodes: Collection[NodeKey],
    ) -> ComparedNodes:
        """Return those nodes that filters keep.

        Args:
            cluster: that they are in; None: any.
            sku: that they have; None: any.
            stale: whether their last report is old; None: either.
            stale_nodes: every node whose last report is old.
        """
        if sku is not None and sku not in self.gpus:
            return ComparedNodes(self.gpus, self.standing, {})
        if cluster is None and stale is None:
            return self
        kept = {
            key: since
            for key, since in self.nodes.items()
            if cluster in (None, key[0]) and stale in (None, key in stale_nodes)
        }
        return ComparedNodes(self.gpus, self.standing, kept)


class _Place(Struct, frozen=True):
    """Where a node is kept, and when the gate stored it so."""

    profile: NodeProfile
    changed_at: datetime | None


class Fleet:
    """The reported nodes by profile; safe for any number of threads."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._keys: tuple[str, ...] | None = None
        self._places: dict[NodeKey, _Place] = {}
        self._groups: dict[NodeProfile, dict[NodeKey, datetime]] = {}
        self._latest: datetime | None = None
        self._matrix: MatrixComparer | None = None
        self._standings: dict[NodeProfile, NodeComparison] = {}

    @contextmanager
    def compared(self, matrix: MatrixComparer) -> Iterator[list[ComparedNodes]]:
        """Give every node as it is stored now, equal ones together; others wait meanwhile.

        Args:
            matrix: to compare with.

        Raises:
            Unavailable: the database does not answer.
        """
        with self._lock:
            self._sync(matrix.keys)
            if self._matrix is not matrix:
                self._matrix, self._standings = matrix, {}
            yield [
                ComparedNodes(profile.gpus, self._compare(profile), members)
                for profile, members in self._groups.items()
            ]

    def _compare(self, profile: NodeProfile) -> NodeComparison:
        found = self._standings.get(profile)
        if found is None and self._matrix is not None:
            found = self._standings[profile] = self._matrix.compare(profile)
        assert found is not None  # noqa: S101 - `compared` sets the matrix
        return found

    def _sync(self, keys: tuple[str, ...]) -> None:
        """Read what changed; everything where other labels decide about targets than before."""
        with self._database.reading() as session:
            if self._keys != keys:
                self._read_all(session, keys)
                return
            since = self._latest - DISORDER if self._latest else None
            moments = nodes.changes_since(session, since)
            changed = [key for key, at in moments.items() if self._is_new(key, at)]
            self._replace(nodes.load_nodes_of(session, changed).values(), keys)
            if nodes.count_nodes(session) != len(self._places):
                for key in self._places.keys() - nodes.node_keys(session):
                    self._drop(key)
                    del self._places[key]
            self._note_latest(moments.values())  # last: a failed reading is repeated

    def _is_new(self, key: NodeKey, at: datetime | None) -> bool:
        known = self._places.get(key)
        return known is None or known.changed_at != at

    def _read_all(self, session: Session, keys: tuple[str, ...]) -> None:
        self._keys, self._places, self._groups, self._latest = None, {}, {}, None
        cursor = None
        while True:
            part = nodes.list_nodes(session, cursor=cursor, limit=_BATCH)
            self._replace(part.items, keys)
            self._note_latest(row.changed_at for row in part.items)
            cursor = part.next
            if cursor is None:
                break
        self._keys = keys

    def _replace(self, rows: Iterable[NodeRow], keys: tuple[str, ...]) -> None:
        for row in rows:
            key = (row.cluster, row.name)
            self._drop(key)
            profile = NodeProfile.read(row, seen_node(row.witnesses), keys)
            self._groups.setdefault(profile, {})[key] = row.since
            self._places[key] = _Place(profile, row.changed_at)

    def _note_latest(self, moments: Iterable[datetime | None]) -> None:
        known = [at for at in (self._latest, *moments) if at is not None]
        self._latest = max(known, default=None)

    def _drop(self, key: NodeKey) -> None:
        """Take a node out of its group; a group without nodes goes, too."""
        known = self._places.get(key)
        if known is None:
            return
        members = self._groups[known.profile]
        del members[key]
        if not members:
            del self._groups[known.profile]
            self._standings.pop(known.profile, None)
