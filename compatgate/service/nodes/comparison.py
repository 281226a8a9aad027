"""Compare a node with the matrix: its targets, its differences, its driver's state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.facts.nvidia import Gpu
from compatgate.core.gpus import covers_gpu, resolve_gpu
from compatgate.core.matrix import Entry
from compatgate.core.node import NODE_COMPONENTS, fits_declared
from compatgate.core.request import DriftKind, DriverState, Pool, Target, drift_title
from compatgate.core.versions import Version, parse_version
from compatgate.errors import BadInput
from compatgate.kit import clock
from compatgate.service.admission.matching import TARGET, match_targets
from compatgate.service.gate.snapshot import Snapshot
from compatgate.service.nodes.reports import NOTHING_SEEN, SeenNode, read_seen_node
from compatgate.service.nodes.repository import NodeRow, NodeTraits

_ADMITTING_STATES = ("blessed", "deprecated")
_NAMED = 5


class Difference(Struct, frozen=True):
    """A difference between a node and its target.

    Attributes:
        have: reported value; None: not known.
        declared: values of the target's pools, as written.
    """

    target: str
    what: DriftKind
    have: str | None
    declared: tuple[str, ...]
    message: str


class NodeComparison(Struct, frozen=True):
    """The comparison of a node with the matrix.

    Attributes:
        targets: that its nodes belong to.
        driver: whether an entry admits its driver.
        why: of ``driver``, one sentence.
        differences: from the targets' pools.
        notes: further remarks for the operator of the node.
    """

    targets: tuple[str, ...]
    driver: DriverState
    why: str
    differences: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = ()


class NodeProfile(Struct, frozen=True):
    """All of a node that its comparison depends on; hashable.

    Attributes:
        named: target that the node's report names; empty: none.
        assigned: target that somebody with the scope ``bless`` named; empty: none.
        labels: values of the labels that targets select by; None: it has no such label.
    """

    driver: str | None
    gpus: tuple[str, ...]
    named: str
    assigned: str
    labels: tuple[str | None, ...]
    seen: SeenNode

    @classmethod
    def read(cls, row: NodeTraits, keys: Sequence[str]) -> NodeProfile:
        """Return the profile of a stored node; it is on a hot path.

        Args:
            row: the node.
            keys: of the labels that targets select by.
        """
        named = (row.target or "").strip()
        labels: Mapping[str, str] = {}
        if keys or (not row.target and TARGET in row.labels):
            labels = _decode_labels(row.labels)
            named = _name_target(row.target, labels)
        values = tuple(labels.get(key) for key in keys)
        seen = read_seen_node(row.witnesses)
        return cls(row.driver, row.gpus, named, row.assigned or "", values, seen)


_decode_labels = msgspec.json.Decoder(dict[str, str]).decode


def _name_target(stated: str | None, labels: Mapping[str, str]) -> str:
    return (stated or labels.get(TARGET, "")).strip()


class MatrixComparer:
    """The comparison of nodes with one snapshot; equal nodes are compared once.

    Attributes:
        keys: of the labels that targets select nodes by.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        # A match's namespaces are about workloads; a node is in none.
        self._targets = {
            name: replace(one.spec, match=replace(one.spec.match, namespaces=()))
            for name, one in snapshot.documents.items()
            if one.spec.match.node_labels
        }
        keys = {key for one in self._targets.values() for key in one.match.node_labels}
        self.keys = tuple(sorted(keys))
        self._matched = lru_cache(maxsize=4096)(self._match)
        self._stood = lru_cache(maxsize=4096)(self._standing)
        self._admitting: dict[str, tuple[Entry, ...]] = {}

    def standing(
        self,
        driver: str | None,
        gpus: Sequence[str],
        labels: Mapping[str, str],
        stated: tuple[str | None, str | None],
        seen: SeenNode = NOTHING_SEEN,
    ) -> NodeComparison:
        """Compare a node.

        Args:
            driver: that counts.
            gpus: SKUs that count.
            labels: of the node.
            stated: target that its report names, and the one that it is assigned to.
            seen: its platform and parts that count.
        """
        values = tuple(labels.get(key) for key in self.keys)
        named, assigned = _name_target(stated[0], labels), stated[1] or ""
        return self._stood(driver, tuple(gpus), named, assigned, values, seen)

    def compare(self, profile: NodeProfile) -> NodeComparison:
        """Compare nodes of one profile."""
        of = profile
        return self._standing(of.driver, of.gpus, of.named, of.assigned, of.labels, of.seen)

    def _standing(
        self,
        driver: str | None,
        gpus: tuple[str, ...],
        named: str,
        assigned: str,
        values: tuple[str | None, ...],
        seen: SeenNode,
    ) -> NodeComparison:
        targets = self._matched(named, assigned, values)
        unknown = [name for name in targets if name not in self.snapshot.documents]
        if unknown:
            why = f"the node names the target {unknown[0]!r}, which does not exist"
            return NodeComparison((), "unknown", why, notes=(why,))
        others = [name for name in targets if named and name not in (named, assigned)]
        usable = [self.snapshot.targets[n] for n in targets if n in self.snapshot.targets]
        version = driver_version(driver)
        kinds = [find_gpu(gpu, self.snapshot) for gpu in gpus]
        differences: list[Difference] = []
        notes: list[str] = []
        for target in usable:
            differences += self._differences(target, driver, version, gpus, kinds)
            pools = self._pools_of(target, version, kinds)
            differences += _node_differences(target, pools, seen)
            notes += _note_unseen(target, pools, seen)
        state, why = self._driver_state(targets, driver, version, gpus, kinds)
        if others:
            notes.append(
                f"the report names {named}, its labels lead to {_names(others)}: both count until a"
                " token with the scope bless reports it"
            )
        notes += [f"the target {n!r} cannot be used: {w}" for n, w in self._unusable(targets)]
        return NodeComparison(targets, state, why, tuple(differences), tuple(notes))

    def _match(self, named: str, assigned: str, values: tuple[str | None, ...]) -> tuple[str, ...]:
        """Return the targets of a node; a report adds one, and takes none away."""
        added = {named} - {""}
        if assigned:
            return tuple(sorted({assigned, *added}))
        labels = {k: v for k, v in zip(self.keys, values, strict=True) if v is not None}
        found = match_targets("", {"nodeSelector": labels}, self._targets).targets
        return tuple(sorted({*found, *added}))

    def _unusable(self, targets: Iterable[str]) -> list[tuple[str, str]]:
        return [(n, self.snapshot.unusable[n]) for n in targets if n in self.snapshot.unusable]

    def _driver_state(
        self,
        targets: Sequence[str],
        driver: str | None,
        version: Version | None,
        gpus: Sequence[str],
        kinds: Sequence[Gpu | None],
    ) -> tuple[DriverState, str]:
        """Return the driver's state; not blessed: no entry of any of its targets admits it."""
        if not targets:
            return "unknown", "no target's nodeLabels match, and no annotation names a target"
        if driver is None:
            return "unknown", "no source reports its driver"
        if version is None:
            return "unknown", f"{driver!r} is not a driver version"
        entries = {entry.name: entry for name in targets for entry in self._entries(name)}
        if not entries:
            return "unknown", f"{_names(targets)} has no blessed entry"
        if any(entry.gpus for entry in entries.values()) and (not gpus or None in kinds):
            return "unknown", "entries are for certain GPUs, and this node's GPUs are not all known"
        about = [e for e in entries.values() if not e.gpus or any(e.names(k) for k in kinds)]
        if not about:
            return "not-blessed", f"no blessed entry of {_names(targets)} is for its GPUs"
        admitting = [entry.name for entry in about if _admits(entry, version)]
        if admitting:
            return "blessed", f"{_names(admitting)} of {_names(targets)} admits {driver}"
        return "not-blessed", f"no blessed or deprecated entry of {_names(targets)} admits {driver}"

    def _differences(
        self,
        target: Target,
        driver: str | None,
        version: Version | None,
        gpus: Sequence[str],
        kinds: Sequence[Gpu | None],
    ) -> Iterable[Difference]:
        """Yield differences, GPUs first, because they decide which pool declares the driver."""
        declared = tuple(dict.fromkeys(pool.gpu.sku for pool in target.pools if pool.gpu))
        its_pools: list[Pool] = []
        if not gpus:
            yield _difference(target, "gpu", None, declared)
        for text, kind in zip(gpus, kinds, strict=True):
            pools = pools_with_gpu(target, kind, self.snapshot)
            its_pools += pools
            if not pools:
                yield _difference(target, "gpu", text, declared)
        pools = its_pools or list(target.pools)
        drivers = tuple(dict.fromkeys(str(pool.driver) for pool in pools if pool.driver))
        if version is None or not any(pool.driver == version for pool in pools):
            yield _difference(target, "driver", driver, drivers)

    def _pools_of(
        self, target: Target, version: Version | None, kinds: Sequence[Gpu | None]
    ) -> list[Pool]:
        """Return the pools that declare the node's parts: with its GPUs, and if any, its driver."""
        having = [pool for kind in kinds for pool in pools_with_gpu(target, kind, self.snapshot)]
        return [pool for pool in having if pool.driver == version] or having

    def _entries(self, target: str) -> tuple[Entry, ...]:
        if target not in self._admitting:
            found = self.snapshot.matrix.entries.of(target)
            kept = (entry for entry in found if entry.status in _ADMITTING_STATES)
            self._admitting[target] = tuple(sorted(kept, key=lambda entry: entry.name))
        return self._admitting[target]


def pools_with_gpu(target: Target, kind: Gpu | None, snapshot: Snapshot) -> list[Pool]:
    """Return the pools of a target that declare a GPU, its family or its capability."""
    table = snapshot.facts.gpus
    return [p for p in target.pools if p.gpu and kind and covers_gpu(p.gpu, kind, table)]


def driver_version(driver: str | None) -> Version | None:
    """Return a driver's version; None: unknown or malformed."""
    try:
        return parse_version("driver", driver) if driver else None
    except BadInput:
        return None


def find_gpu(gpu: str, snapshot: Snapshot) -> Gpu | None:
    """Find a GPU by any spelling; None: the facts do not know it."""
    try:
        return resolve_gpu(gpu, snapshot.facts.gpus)
    except BadInput:
        return None


def _admits(entry: Entry, driver: Version) -> bool:
    """Return whether an entry admits a driver; without a driver it admits every one."""
    constraint = entry.components.get("driver")
    return constraint is None or constraint.allows(driver)


def _difference(
    target: Target, what: DriftKind, have: str | None, declared: tuple[str, ...]
) -> Difference:
    name = drift_title(what)
    wanted = _names(declared) or "none"
    has = f"has {name} {have}" if have else f"does not report its {name}"
    return Difference(
        target.name, what, have, declared, f"it {has}, {target.name} declares {wanted}"
    )


def _node_differences(
    target: Target, pools: Sequence[Pool], seen: SeenNode
) -> Iterator[Difference]:
    """Yield what was seen and fits no pool; a pool that states nothing of a part fits all."""
    platforms = [pool.platform for pool in pools]
    stated = tuple(dict.fromkeys(one for one in platforms if one))
    if seen.platform and stated and None not in platforms and seen.platform not in stated:
        yield _difference(target, "platform", seen.platform, stated)
    for name, value in seen.node:
        values = [pool.node.get(name) for pool in pools]
        declared = tuple(dict.fromkeys(one for one in values if one is not None))
        fits = any(fits_declared(name, one, value) for one in declared)
        if declared and None not in values and not fits:
            yield _difference(target, cast(DriftKind, name), value, declared)


def _note_unseen(target: Target, pools: Sequence[Pool], seen: SeenNode) -> Iterator[str]:
    """Yield a note on the parts that the pools declare and no source reports."""
    reported = {name for name, _ in seen.node} | ({"platform"} if seen.platform else set())
    declared = {name for pool in pools for name in pool.node}
    declared |= {"platform" for pool in pools if pool.platform}
    missing = [name for name in ("platform", *NODE_COMPONENTS) if name in declared - reported]
    if missing:
        yield f"{target.name} declares {', '.join(missing)}, which no source reports"


def _names(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")


class NodeView(Struct, frozen=True):
    """A node as shown to users.

    Attributes:
        row: what was reported.
        standing: against the matrix as it is now.
        stale: no report for a day.
        seen: its platform and parts that count.
    """

    row: NodeRow
    standing: NodeComparison
    stale: bool
    seen: SeenNode = NOTHING_SEEN

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        row, standing = self.row, self.standing
        times = ("first_seen_at", "seen_at", "since")
        return {
            "cluster": row.cluster,
            "name": row.name,
            "driver": row.driver,
            "gpus": row.gpus,
            "platform": self.seen.platform,
            "node": dict(self.seen.node),
            "targets": list(standing.targets),
            "driver_state": standing.driver,
            "driver_why": standing.why,
            "drift": [msgspec.to_builtins(d) for d in standing.differences],
            "disagreements": row.disagreements,
            "notes": list(standing.notes),
            "witnesses": list(row.witnesses.values()),
            "labels": row.labels,
            "taints": row.taints,
            "stale": self.stale,
            "reported_by": row.reported_by,
            **{name: clock.iso(getattr(row, name)) for name in times},
        }

    def to_drift(self) -> dict[str, Any]:
        """Return the differences as plain data."""
        body = self.to_json()
        shown = ("cluster", "name", "driver", "gpus", "since", "seen_at", "stale")
        return {**{key: body[key] for key in shown}, "differences": body["drift"]}
