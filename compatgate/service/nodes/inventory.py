"""Keep the reported nodes in memory, for placement.

A thread of its own reads what changed, so that no request waits for the database. A server begins
to read before it takes requests; only the first request waits a moment for all nodes.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TypedDict

import msgspec

from compatgate.errors import CompatgateError
from compatgate.kit.database.database import Database
from compatgate.service.cluster.landing import KnownNodes
from compatgate.service.cluster.node_index import KnownNode, NodeIndex, Taint
from compatgate.service.matrix.snapshots.snapshot import Snapshot
from compatgate.service.nodes.fleet import NodeReader
from compatgate.service.nodes.repository import NodeTraits
from compatgate.service.nodes.schemas import MAX_LABELS

LOOK_SECONDS = 5.0
"""Maximum age of the nodes in memory, in seconds; a report to this process counts at once."""
_FIRST_SECONDS = 1.0
_log = logging.getLogger("compatgate.nodes")


class NodeInventory:
    """The reported nodes; safe for any number of threads, and may be made before a fork."""

    def __init__(self, database: Database) -> None:
        self._source = NodeReader(database)
        self._index: NodeIndex | None = None
        self._looked = float("-inf")
        self._failing = False
        self._waited = False
        self._starting = threading.Lock()
        self._reading = threading.Lock()
        self._reader: ThreadPoolExecutor | None = None
        self._look: Future[None] | None = None
        self._known: tuple[Snapshot, NodeIndex, str | None, KnownNodes] | None = None

    def prepare(self) -> None:
        """Begin to read the nodes."""
        self._begin_look()

    def known(self, snapshot: Snapshot, cluster: str | None = None) -> KnownNodes | None:
        """Return the known nodes of one or every cluster by target and pool; None: none."""
        index = self.index()
        if index is None or not len(index):
            return None
        kept = self._known
        if kept is None or kept[0] is not snapshot or kept[1] is not index or kept[2] != cluster:
            specs = {name: one.spec for name, one in snapshot.documents.items()}
            found = KnownNodes(index, snapshot.targets, specs, snapshot.facts.gpus, cluster)
            kept = self._known = (snapshot, index, cluster, found)
        return kept[3]

    @property
    def is_ready(self) -> bool:
        """Return whether `index` answers without waiting."""
        return self._index is not None or self._waited

    def index(self) -> NodeIndex | None:
        """Return the index; None: the nodes could not be read yet."""
        if time.monotonic() - self._looked >= LOOK_SECONDS:
            look = self._begin_look()
            if self._index is None and look is not None and not self._waited:
                with suppress(TimeoutError):
                    look.result(_FIRST_SECONDS)
                self._waited = True
        return self._index

    def follow_change(self) -> None:
        """Read what this process has just stored, where the nodes are in memory already."""
        if self._index is not None:
            self._read_quietly()

    def close(self) -> None:
        """End the thread."""
        if self._reader is not None:
            self._reader.shutdown(wait=False, cancel_futures=True)

    def _begin_look(self) -> Future[None] | None:
        with self._starting:
            if self._look is None or self._look.done():
                if time.monotonic() - self._looked < LOOK_SECONDS:
                    return self._look
                self._reader = self._reader or ThreadPoolExecutor(1, "nodes")
                try:
                    self._look = self._reader.submit(self._read_quietly)
                except RuntimeError:  # this process ends
                    return None
            return self._look

    def _read_quietly(self) -> None:
        """Read what changed; log the first of several errors and go on with what is known."""
        with self._reading:
            try:
                self._read()
                self._failing = False
            except CompatgateError as error:
                if not self._failing:
                    _log.warning("the nodes could not be read: %s", error.detail)
                self._failing = True
            except Exception:
                if not self._failing:
                    _log.exception("reading the nodes failed")
                self._failing = True
            self._looked = time.monotonic()

    def _read(self) -> None:
        index = self._index
        anew = index is None or index.is_wasteful
        if index is None or anew:
            index = NodeIndex()
        for rows, gone in self._source.read(anew=anew):
            index.replace(map(known_node, rows), gone)
        self._index = index


class NoInventory(NodeInventory):
    """The nodes of a gate that has no database: none is known, and none is looked for."""

    @property
    def is_ready(self) -> bool:
        """Return that there is nothing to wait for."""
        return True

    def prepare(self) -> None:
        """Do nothing."""

    def index(self) -> None:
        """Return nothing."""
        return


class _Source(TypedDict, total=False):
    """The part of a stored report that placement reads; the rest is not decoded."""

    resources: dict[str, int]


_decode_labels = msgspec.json.Decoder(dict[str, str]).decode
_decode_sources = msgspec.json.Decoder(dict[str, _Source]).decode
_decode_taints = msgspec.json.Decoder(tuple[Taint, ...]).decode


def known_node(row: NodeTraits) -> KnownNode:
    """Return a stored node as placement sees it; it is on a hot path."""
    handed_out = _decode_sources(row.witnesses).get("kubelet", {}).get("resources", {})
    resources = tuple(name for name, count in handed_out.items() if count)
    labels = _decode_labels(row.labels)
    return KnownNode(
        row.cluster,
        row.name,
        {sys.intern(key): value for key, value in labels.items()},
        row.target or "",
        row.gpus,
        row.driver,
        _decode_taints(row.taints),
        # A device plugin that starts hands out nothing for a moment.
        resources or None,
        len(labels) >= MAX_LABELS,
        row.assigned,
    )
