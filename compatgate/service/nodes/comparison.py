"""Compare a node with the matrix: its targets, its differences, its driver's state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.facts.nvidia import Gpu
from compatgate.core.gpus import covers_gpu, find_gpu
from compatgate.core.matrix import Entry
from compatgate.core.node import NODE_COMPONENTS, fits_declared
from compatgate.core.request import DriftKind, DriverState, Pool, Target, drift_title
from compatgate.core.versions import Version
from compatgate.service.cluster.landing import driver_version
from compatgate.service.cluster.matching import TARGET, match_targets, terms_of
from compatgate.service.matrix.snapshots.snapshot import Snapshot
from compatgate.service.nodes.reports import NOTHING_SEEN, SeenNode, read_seen_node
from compatgate.service.nodes.repository import NodeRow, NodeTraits
from compatgate.service.nodes.schemas import DifferenceBody, DriftBody, NodeBody

_ADMITTING_STATES = ("blessed", "deprecated")
_NAMED = 5


class NodeComparison(Struct, frozen=True):
    """The comparison of a node with the matrix; ``why`` explains the driver's state."""

    targets: tuple[str, ...]
    driver: DriverState
    why: str
    differences: tuple[DifferenceBody, ...] = ()
    notes: tuple[str, ...] = ()


class NodeProfile(Struct, frozen=True):
    """All of a node that its comparison depends on; hashable.

    ``named`` by its report, ``assigned`` by somebody with the scope ``bless``. ``labels``: values
    of those that targets select by; None: it has no such label.
    """

    driver: str | None
    gpus: tuple[str, ...]
    named: str
    assigned: str
    labels: tuple[str | None, ...]
    seen: SeenNode

    @classmethod
    def read(cls, row: NodeTraits, keys: Sequence[str]) -> NodeProfile:
        """Return the profile of a stored node, with the labels of some keys; a hot path."""
        labels: Mapping[str, str] = {}
        if keys or (not row.target and TARGET in row.labels):
            labels = _decode_labels(row.labels)
        named = (row.target or labels.get(TARGET, "")).strip()
        values = tuple(labels.get(key) for key in keys)
        seen = read_seen_node(row.witnesses)
        return cls(row.driver, row.gpus, named, row.assigned or "", values, seen)


_decode_labels = msgspec.json.Decoder(dict[str, str]).decode


class MatrixComparer:
    """The comparison of nodes with one snapshot; equal nodes are compared once.

    ``keys``: of the labels that targets select nodes by.
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
        self._compared = lru_cache(maxsize=4096)(self.compare)
        self._admitting: dict[str, tuple[Entry, ...]] = {}

    def standing(
        self,
        driver: str | None,
        gpus: Sequence[str],
        labels: Mapping[str, str],
        stated: tuple[str | None, str | None],
        seen: SeenNode = NOTHING_SEEN,
    ) -> NodeComparison:
        """Compare a node; ``stated``: the target that it names, and the one it is assigned to."""
        named = (stated[0] or labels.get(TARGET, "")).strip()
        values = tuple(labels.get(key) for key in self.keys)
        profile = NodeProfile(driver, tuple(gpus), named, stated[1] or "", values, seen)
        return self._compared(profile)

    def compare(self, of: NodeProfile) -> NodeComparison:
        """Compare nodes of one profile."""
        targets = self._matched(of.named, of.assigned, of.labels)
        unknown = [name for name in targets if name not in self.snapshot.documents]
        if unknown:
            why = f"the node names the target {unknown[0]!r}, which does not exist"
            return NodeComparison((), "unknown", why, notes=(why,))
        version = driver_version(of.driver)
        kinds = [find_gpu(gpu, self.snapshot.facts.gpus) for gpu in of.gpus]
        differences: list[DifferenceBody] = []
        notes: list[str] = []
        for target in (self.snapshot.targets[n] for n in targets if n in self.snapshot.targets):
            differences += self._differences(target, of, version, kinds)
            having = [p for kind in kinds for p in pools_with_gpu(target, kind, self.snapshot)]
            # The pools that declare the node's parts have its GPUs, and if any has, its driver.
            pools = [pool for pool in having if pool.driver == version] or having
            differences += _node_differences(target, pools, of.seen)
            reported = {name for name, _ in of.seen.node}
            reported |= {"platform"} if of.seen.platform else set()
            declared = {name for pool in pools for name in pool.node}
            declared |= {"platform" for pool in pools if pool.platform}
            missing = [n for n in ("platform", *NODE_COMPONENTS) if n in declared - reported]
            if missing:
                notes.append(
                    f"{target.name} declares {', '.join(missing)}, which no source reports"
                )
        state, why = self._driver_state(targets, of, version, kinds)
        if of.named and (others := [n for n in targets if n not in (of.named, of.assigned)]):
            notes.append(
                f"the report names {of.named}, its labels lead to {_names(others)}: both count"
                " until a token with the scope bless reports it"
            )
        unusable = self.snapshot.unusable
        notes += [
            f"the target {name!r} cannot be used: {unusable[name]}"
            for name in targets
            if name in unusable
        ]
        return NodeComparison(targets, state, why, tuple(differences), tuple(notes))

    def _match(self, named: str, assigned: str, values: tuple[str | None, ...]) -> tuple[str, ...]:
        """Return the targets of a node; a report adds one, and takes none away."""
        added = {named} - {""}
        if assigned:
            return tuple(sorted({assigned, *added}))
        labels = {k: v for k, v in zip(self.keys, values, strict=True) if v is not None}
        terms = list(terms_of({"nodeSelector": labels}))
        found = match_targets("", terms, self._targets).targets
        return tuple(sorted({*found, *added}))

    def _driver_state(
        self,
        targets: Sequence[str],
        of: NodeProfile,
        version: Version | None,
        kinds: Sequence[Gpu | None],
    ) -> tuple[DriverState, str]:
        """Return the driver's state; not blessed: no entry of any of its targets admits it."""
        if not targets:
            return "unknown", "no target's nodeLabels match, and no annotation names a target"
        if of.driver is None:
            return "unknown", "no source reports its driver"
        if version is None:
            return "unknown", f"{of.driver!r} is not a driver version"
        entries = {entry.name: entry for name in targets for entry in self._entries(name)}
        if not entries:
            return "unknown", f"{_names(targets)} has no blessed entry"
        if any(one.gpus for one in entries.values()) and (not of.gpus or None in kinds):
            return "unknown", "entries are for certain GPUs, and this node's GPUs are not all known"
        about = [e for e in entries.values() if not e.gpus or any(e.names(k) for k in kinds)]
        if not about:
            return "not-blessed", f"no blessed entry of {_names(targets)} is for its GPUs"
        constraints = [(entry.name, entry.components.get("driver")) for entry in about]
        admitting = [name for name, one in constraints if one is None or one.allows(version)]
        where = f"{_names(targets)} admits {of.driver}"
        if admitting:
            return "blessed", f"{_names(admitting)} of {where}"
        return "not-blessed", f"no blessed or deprecated entry of {where}"

    def _differences(
        self, target: Target, of: NodeProfile, version: Version | None, kinds: Sequence[Gpu | None]
    ) -> Iterable[DifferenceBody]:
        """Yield differences, GPUs first, because they decide which pool declares the driver."""
        declared = tuple(dict.fromkeys(pool.gpu.sku for pool in target.pools if pool.gpu))
        having: list[Pool] = []
        if not of.gpus:
            yield _difference(target, "gpu", None, declared)
        for text, kind in zip(of.gpus, kinds, strict=True):
            pools = pools_with_gpu(target, kind, self.snapshot)
            having += pools
            if not pools:
                yield _difference(target, "gpu", text, declared)
        pools = having or list(target.pools)
        drivers = tuple(dict.fromkeys(str(pool.driver) for pool in pools if pool.driver))
        if version is None or not any(pool.driver == version for pool in pools):
            yield _difference(target, "driver", of.driver, drivers)

    def _entries(self, target: str) -> tuple[Entry, ...]:
        if target not in self._admitting:
            entries = self.snapshot.matrix.entries.of(target)
            admitting = (entry for entry in entries if entry.status in _ADMITTING_STATES)
            self._admitting[target] = tuple(sorted(admitting, key=lambda entry: entry.name))
        return self._admitting[target]


def pools_with_gpu(target: Target, kind: Gpu | None, snapshot: Snapshot) -> list[Pool]:
    """Return the pools of a target that declare a GPU, its family or its capability."""
    table = snapshot.facts.gpus
    return [p for p in target.pools if p.gpu and kind and covers_gpu(p.gpu, kind, table)]


def _difference(
    target: Target, what: DriftKind, have: str | None, declared: tuple[str, ...]
) -> DifferenceBody:
    name = drift_title(what)
    wanted = _names(declared) or "none"
    has = f"has {name} {have}" if have else f"does not report its {name}"
    return DifferenceBody(
        target.name, what, have, [*declared], f"it {has}, {target.name} declares {wanted}"
    )


def _node_differences(
    target: Target, pools: Sequence[Pool], seen: SeenNode
) -> Iterator[DifferenceBody]:
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


def _names(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")


class NodeView(Struct, frozen=True):
    """A stored node, compared with the matrix as it is now; stale: no report for a day."""

    row: NodeRow
    standing: NodeComparison
    stale: bool
    seen: SeenNode = NOTHING_SEEN

    def to_body(self) -> NodeBody:
        """Return the node as REST carries it."""
        row, standing = self.row, self.standing
        values = {
            name: getattr(row, name) for name in NodeBody.__struct_fields__ if hasattr(row, name)
        }
        values |= {
            "platform": self.seen.platform,
            "node": dict(self.seen.node),
            "targets": standing.targets,
            "driver_state": standing.driver,
            "driver_why": standing.why,
            "drift": standing.differences,
            "notes": standing.notes,
            "witnesses": [*row.witnesses.values()],
            "stale": self.stale,
        }
        return msgspec.convert(values, NodeBody)

    def to_drift(self) -> DriftBody:
        """Return the differences as REST carries them."""
        names = ("cluster", "name", "driver", "gpus", "since", "seen_at")
        values: dict[str, object] = {name: getattr(self.row, name) for name in names}
        values |= {"stale": self.stale, "differences": self.standing.differences}
        return msgspec.convert(values, DriftBody)
