"""Keep the reported nodes in memory, grouped by what drift depends on, and group those that drift.

Nodes of a large fleet have few different drivers, GPUs and parts. Those that are equal are compared
once; a question reads from the database only what changed since the question before. Equal moments
of change are counted in the database: a fleet that was reported at once costs a few rows, however
large it is.
"""

from __future__ import annotations

import heapq
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from compatgate.core.request import DriftKind, drift_title
from compatgate.kit import clock
from compatgate.kit.database.database import Database
from compatgate.service.matrix.snapshots.snapshot import Snapshot
from compatgate.service.nodes import repository as nodes
from compatgate.service.nodes.comparison import MatrixComparer, NodeComparison, NodeProfile
from compatgate.service.nodes.details import single_pool
from compatgate.service.nodes.repository import Node, NodeKey, NodeTraits

DISORDER = timedelta(minutes=5)
"""Clocks of gates may differ by so much, and a report may be stored so late."""
_MAX_MOMENTS = 1_000
"""So many moments are asked for one by one; of more, every node since then is read."""
_NEVER = datetime.min
_BATCH = 1_000
NAMED = 8
"""Maximum number of named nodes of a group."""
_Key = tuple[str, DriftKind, str | None, tuple[str, ...], str | None]


class FoundChanges(Struct, frozen=True):
    """The stored nodes that are new or changed, and those that are gone."""

    changed: list[NodeKey]
    gone: set[NodeKey]


class NodeChanges:
    """The time of each known node's last change; its user reads what `find` names, and says so."""

    def __init__(self) -> None:
        self._moments: dict[NodeKey, datetime | None] = {}
        self._known: Counter[datetime] = Counter()
        self._latest: datetime | None = None
        self._looked: datetime | None = None

    def find(self, session: Session) -> FoundChanges:
        """Return what changed; call `looked` after what was found has been read."""
        # Neither the clock of this gate alone nor that of another, if it is wrong, hides a change.
        since: datetime | None = None
        if self._looked is not None and self._latest is not None:
            since = min(self._looked, self._latest) - DISORDER
        at = Node.changed_at
        counts = select(at, func.count()).where(at.is_not(None) if since is None else at >= since)
        stored = session.execute(counts.group_by(at)).all()
        other = [moment for moment, count in stored if moment and self._known[moment] != count]
        few = other if len(other) <= _MAX_MOMENTS else None
        moments = nodes.list_changes(session, few, since)
        changed = {key for key, at in moments.items() if self._moments.get(key, _NEVER) != at}
        gone: set[NodeKey] = set()
        if session.execute(select(func.count()).select_from(Node)).scalar_one() != len(
            self._moments.keys() | changed
        ):
            keys = {(row.cluster, row.name) for row in session.execute(select(*nodes.KEY_COLUMNS))}
            gone, changed = self._moments.keys() - keys, changed | (keys - self._moments.keys())
        return FoundChanges(sorted(changed), gone)

    def note(self, moments: Iterable[tuple[NodeKey, datetime | None]]) -> None:
        """Note nodes as they were read."""
        for key, at in moments:
            self._forget_moment(key)
            self._moments[key] = at
            if at is not None:
                self._known[at] += 1
                self._latest = max(at, self._latest or at)

    def drop(self, keys: Iterable[NodeKey]) -> None:
        """Forget nodes that are gone."""
        for key in keys:
            self._forget_moment(key)
            self._moments.pop(key, None)

    def looked(self, began: datetime) -> None:
        """Note that everything stored before a reading began, by this gate's clock, is known."""
        self._looked = began

    def _forget_moment(self, key: NodeKey) -> None:
        at = self._moments.get(key)
        if at is not None:
            self._known[at] -= 1
            if not self._known[at]:
                del self._known[at]


class NodeReader:
    """Reads the stored nodes of a database: first all of them, later what changed."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._changes = NodeChanges()

    def read(self, *, anew: bool) -> Iterator[tuple[Sequence[NodeTraits], Collection[NodeKey]]]:
        """Yield nodes that are new or changed, with those that are gone; ``anew``: every node."""
        changes, began = NodeChanges() if anew else self._changes, clock.now()
        after: NodeKey | None = None
        while True:
            gone: Collection[NodeKey] = ()
            with self._database.reading() as session:
                if anew:
                    rows = nodes.list_traits(session, after, _BATCH)
                else:
                    found = changes.find(session)
                    rows, gone = nodes.load_traits(session, found.changed), found.gone
            if rows or gone:
                yield rows, gone
            changes.note(((row.cluster, row.name), row.changed_at) for row in rows)
            changes.drop(gone)
            if not anew or not rows:
                break
            after = (rows[-1].cluster, rows[-1].name)
        changes.looked(began)  # last: a failed reading is repeated
        self._changes = changes


class ComparedNodes(Struct, frozen=True):
    """Equal nodes with the driver and SKUs that count; ``nodes``: since when each is so."""

    driver: str | None
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
        """Return those nodes that filters keep, given every node whose last report is old."""
        if sku is not None and sku not in self.gpus:
            return replace(self, nodes={})
        if cluster is None and stale is None:
            return self
        kept = {
            key: since
            for key, since in self.nodes.items()
            if cluster in (None, key[0]) and stale in (None, key in stale_nodes)
        }
        return replace(self, nodes=kept)


class Fleet:
    """The reported nodes by profile; safe for any number of threads."""

    def __init__(self, database: Database) -> None:
        self._reader = NodeReader(database)
        self._lock = threading.Lock()
        self._keys: tuple[str, ...] | None = None
        self._profiles: dict[NodeKey, NodeProfile] = {}
        self._groups: dict[NodeProfile, dict[NodeKey, datetime]] = {}
        self._matrix: MatrixComparer | None = None
        self._standings: dict[NodeProfile, NodeComparison] = {}
        self.changes = 0
        """Number of times that changed nodes were read."""

    @contextmanager
    def compared(self, matrix: MatrixComparer) -> Iterator[list[ComparedNodes]]:
        """Give every node as it is stored now, equal ones together; others wait meanwhile."""
        with self._lock:
            self._sync(matrix.keys)
            if self._matrix is not matrix:
                self._matrix, self._standings = matrix, {}
            for profile in self._groups.keys() - self._standings.keys():
                self._standings[profile] = matrix.compare(profile)
            yield [
                ComparedNodes(profile.driver, profile.gpus, self._standings[profile], members)
                for profile, members in self._groups.items()
            ]

    def _sync(self, keys: tuple[str, ...]) -> None:
        """Read what changed; everything where other labels decide about targets than before."""
        anew = self._keys != keys
        if anew:
            self._keys, self._profiles, self._groups = None, {}, {}
        for rows, gone in self._reader.read(anew=anew):
            self.changes += 1
            for row in rows:
                key = (row.cluster, row.name)
                profile = NodeProfile.read(row, keys)
                self._leave_group(key)
                self._groups.setdefault(profile, {})[key] = row.since
                self._profiles[key] = profile
            for key in gone:
                self._leave_group(key)
                self._profiles.pop(key, None)
        self._keys = keys

    def _leave_group(self, key: NodeKey) -> None:
        """Take a node out of its group; a group without nodes goes, too."""
        profile = self._profiles.get(key)
        if profile is None:
            return
        members = self._groups[profile]
        members.pop(key, None)
        if not members:
            del self._groups[profile]
            self._standings.pop(profile, None)


class DriftGroup(Struct, frozen=True):
    """Nodes of a target that differ from it in the same way; some of them are named.

    ``pool``: whose GPUs they have, where the target has others. ``stale``: how many have an old
    report. The first is so ``since`` then, the ``newest`` became so last.
    """

    target: str
    what: DriftKind
    have: str | None
    declared: tuple[str, ...]
    pool: str | None
    nodes: int
    of: int
    stale: int
    since: datetime
    newest: datetime
    named: tuple[tuple[str, str], ...]

    @property
    def message(self) -> str:
        """Return a sentence: ``3 of 512 nodes of prod report driver 550.54.15 instead of ...``."""
        return self._describe(f" of {self.target}")

    @property
    def brief(self) -> str:
        """Return the sentence without the target, for places that show the target."""
        return self._describe("")

    def _describe(self, where: str) -> str:
        many = self.nodes != 1
        noun, name = "node" if self.of == 1 else "nodes", drift_title(self.what)
        wanted = ", ".join(self.declared) or f"no {name} at all"
        start = f"{self.nodes:,} of {self.of:,} {noun}{where}"
        if self.have is None:
            verb = "do not report their" if many else "does not report its"
            return f"{start} {verb} {name}; the target declares {wanted}"
        return f"{start} {'report' if many else 'reports'} {name} {self.have} instead of {wanted}"


def drift_groups(
    fleet: Iterable[ComparedNodes],
    snapshot: Snapshot,
    *,
    stale: Collection[NodeKey] = (),
    target: str | None = None,
    what: DriftKind | None = None,
) -> list[DriftGroup]:
    """Group nodes by target and difference, the most nodes first; a node is in one part."""
    totals: dict[str, int] = {}
    groups: dict[_Key, dict[NodeKey, datetime]] = {}
    for part in fleet:
        if not part.nodes:
            continue
        for name in part.standing.targets:
            totals[name] = totals.get(name, 0) + len(part.nodes)
        for one in part.standing.differences:
            if target in (None, one.target) and what in (None, one.what):
                pool = single_pool(one.target, part.gpus, snapshot) if one.what != "gpu" else None
                key = (one.target, one.what, one.have, tuple(one.declared), pool)
                groups.setdefault(key, {}).update(part.nodes)
    drifted = [
        DriftGroup(
            *key,
            nodes=len(nodes),
            of=totals[key[0]],
            stale=len(nodes.keys() & stale),
            since=min(nodes.values()),
            newest=max(nodes.values()),
            named=tuple(heapq.nsmallest(NAMED, nodes)),
        )
        for key, nodes in groups.items()
    ]
    return sorted(drifted, key=lambda one: (-one.nodes, one.target, one.what, one.have or ""))
