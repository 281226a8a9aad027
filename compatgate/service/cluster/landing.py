"""Find the pools whose known nodes a pod may land on.

A node belongs to the targets whose ``nodeLabels`` it has; one that states more displaces others,
except those that are stricter. A target that the report of a node names is added: a report takes no
target away, unless somebody with the scope ``bless`` assigned the node. Where targets share nodes,
those for the namespace of the pod count; nodes of other targets alone are judged by these targets:
the nodes decide, and no namespace keeps a pod from them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache, reduce
from itertools import groupby
from operator import or_
from typing import Any

from msgspec import Struct

from compatgate.core.facts.nvidia import Gpus
from compatgate.core.gpus import covers_gpu, find_gpu, split_profile
from compatgate.core.request import Target
from compatgate.core.versions import Version, parse_version
from compatgate.documents.specs import TargetSpec
from compatgate.documents.weakening import is_stricter
from compatgate.errors import BadInput
from compatgate.kit.kubernetes import read_labels, read_text
from compatgate.service.cluster.matching import is_in_namespace
from compatgate.service.cluster.node_index import Fact, NodeIndex, Nodes
from compatgate.service.cluster.scheduling import HOSTNAME, landing_nodes

WHOLE, SLICE = "nvidia.com/gpu", "nvidia.com/mig-"
SHARED = ".shared"
DEVICE_CLASS = "deviceclass.resource.kubernetes.io/"
"""Begins the resource that stands for a device class (KEP-5004)."""
WHOLE_CLASSES, SLICE_CLASS = ("gpu.nvidia.com", "vfio.gpu.nvidia.com"), "mig.nvidia.com"
"""Device classes of whole GPUs and of slices: NVIDIA/k8s-dra-driver-gpu, Helm chart."""
_MATCHES_KEPT = 64


class KnownPool(Struct, frozen=True):
    """A pool with known nodes, cut into slices of a profile (None: whole GPUs).

    The pod may reach some of them; ``gives_whole``: ``nvidia.com/gpu`` is its product on some of
    those.
    """

    name: str
    cut: str | None
    is_reached: bool
    gives_whole: bool

    def gives(self, resource: str | None) -> bool:
        """Return whether a request may be met on its nodes that the pod may land on."""
        if resource == WHOLE:
            return self.gives_whole
        return self.is_reached and (resource is None or may_be(resource, self.cut))


class TargetNodes(Struct, frozen=True):
    """The known nodes of a target; without pools, the pools of its nodes are not told."""

    target: str
    pools: tuple[KnownPool, ...]
    reached: bool


class Landing(Struct, frozen=True):
    """The nodes that a pod may land on, as far as nodes are known.

    Attributes:
        is_certain: the pod names nodes one by one, and somebody with the scope ``bless`` reported
            each of them: no target but theirs can be meant.
        displaced: the pod names nodes one by one, and they have the labels of these targets, each
            displaced by another one.
    """

    targets: tuple[TargetNodes, ...] = ()
    is_certain: bool = False
    displaced: tuple[str, ...] = ()

    @property
    def reached(self) -> tuple[str, ...]:
        """Return the targets on whose nodes the pod may land."""
        return tuple(one.target for one in self.targets if one.reached)

    def of(self, target: str) -> TargetNodes | None:
        """Return the nodes of a target; None: none is known."""
        return next((one for one in self.targets if one.target == target), None)


NOWHERE_KNOWN = Landing()


def may_be(resource: str, cut: str | None) -> bool:
    """Return whether a resource other than ``nvidia.com/gpu`` may be a product."""
    if resource.startswith(SLICE):
        wanted = resource.removeprefix(SLICE)
        return cut == (mig_profile(wanted) or wanted)
    if resource.startswith(DEVICE_CLASS):
        name = resource.removeprefix(DEVICE_CLASS)
        return (cut is None or name not in WHOLE_CLASSES) and (
            cut is not None or name != SLICE_CLASS
        )
    return True


@lru_cache(maxsize=4096)
def mig_profile(text: str) -> str | None:
    """Return the MIG profile in the name of a GPU or a resource; None: it is a whole GPU."""
    profile, _ = split_profile(text.lower())
    return profile.text if profile else None


class _OwnNodes(Struct, frozen=True):
    """The nodes with a target's labels, its own, and those on which it counts as a report says."""

    target: str
    labelled: Nodes
    own: Nodes
    nodes: Nodes


class KnownNodes:
    """The known nodes, by target and pool of one matrix; safe for any number of threads."""

    def __init__(
        self,
        index: NodeIndex,
        targets: Mapping[str, Target],
        specs: Mapping[str, TargetSpec],
        gpus: Gpus,
        cluster: str | None = None,
    ) -> None:
        self._index = index
        self._targets = targets
        self._specs = specs
        self._gpus = gpus
        self._cluster = cluster
        self._version = -1
        self._forget()

    def landing(
        self,
        namespace: str,
        spec: Mapping[str, Any],
        requested: Collection[str],
        bound: Collection[str],
        tolerated: Collection[str] | None = None,
    ) -> Landing:
        """Return the targets and pools whose known nodes let a pod in.

        ``tolerated``: resources whose taints do not keep it away; None: those requested.
        """
        if not len(self._index):
            return NOWHERE_KNOWN
        if self._version != self._index.version:
            self._forget()
        nodes = landing_nodes(self._index, spec, requested if tolerated is None else tolerated)
        for resource in requested:
            nodes &= self._offering(resource)
        near = (
            name
            for name, one in self._specs.items()
            if not one.match.namespaces or is_in_namespace(one.match, namespace)
        )
        here, others = self._owners(frozenset(near))
        by_name = read_text(spec.get("nodeName")) or HOSTNAME in read_labels(
            spec.get("nodeSelector")
        )
        named = bool(by_name and nodes)
        owners = [one for one in here if one.nodes & nodes or (one.target in bound and not named)]
        if self._is_one_cluster or named or not bound:
            owners += [one for one in others if one.nodes & nodes]
        found = (self._of(one.target, one.nodes, nodes) for one in owners)
        return Landing(
            tuple(one for one in found if one.pools or one.reached),
            named and not nodes & ~self._index.with_any("assigned"),
            tuple(o.target for o in here if not nodes & (~o.labelled | o.nodes)) if named else (),
        )

    @property
    def _is_one_cluster(self) -> bool:
        return self._cluster is not None or len(self._index.clusters) < 2

    def _forget(self) -> None:
        self._version = self._index.version
        self._owners = lru_cache(maxsize=_MATCHES_KEPT)(self._find_owners)
        self._pools = lru_cache(maxsize=None)(self._find_pools)
        # Where all GPUs are cut, ``nvidia.com/gpu`` is a slice.
        whole = (sku for sku in self._index.fact_values("gpu") if mig_profile(sku) is None)
        self._only_slices = self._index.with_any("gpu") & ~self._with_facts("gpu", whole)

    def _of(self, name: str, own: Nodes, nodes: Nodes) -> TargetNodes:
        known = []
        for pool, cut, having in self._pools(name):
            if own & having:
                reached = nodes & own & having
                whole = reached if cut is None else reached & self._only_slices
                known.append(KnownPool(pool, cut, bool(reached), bool(whole)))
        return TargetNodes(name, tuple(known), bool(own & nodes))

    def _offering(self, resource: str) -> Nodes:
        """Return the nodes that hand out a resource, or may.

        Which nodes publish devices of a class is not reported. A resource that no node is known to
        hand out may be one that their reports leave out, unless it is NVIDIA's.
        """
        index = self._index
        handing = index.with_fact("resource", resource)
        ours = resource.removesuffix(SHARED) == WHOLE or resource.startswith(SLICE)
        if resource.startswith(DEVICE_CLASS) or not (handing or ours):
            return index.alive
        return handing | index.alive & ~index.with_any("resource")

    def _find_owners(self, here: frozenset[str]) -> tuple[list[_OwnNodes], list[_OwnNodes]]:
        """Return the nodes of each target: of those for a namespace, and of the others."""
        index = self._index
        every = index.alive
        if self._cluster:
            every &= index.with_fact("cluster", self._cluster)
        near = list(self._rank(here, every, ()))
        above = [(self._specs[one.target], one.own) for one in near if one.own]
        far = list(self._rank(self._specs.keys() - here, every, above))
        return near, far

    def _rank(
        self, names: Collection[str], every: Nodes, above: Iterable[tuple[TargetSpec, Nodes]]
    ) -> Iterator[_OwnNodes]:
        """Yield the nodes of targets that have some, those of a target that states most first."""
        index = self._index
        assigned = index.with_any("assigned") & ~index.with_fact("assigned", "")
        taken = list(above)
        ranked = sorted(names, key=lambda name: (-len(self._specs[name].match.node_labels), name))
        for _, group in groupby(ranked, lambda name: len(self._specs[name].match.node_labels)):
            equals: list[tuple[TargetSpec, Nodes]] = []
            for name in group:
                spec = self._specs[name]
                labelled = own = self._labelled(name) & every & ~assigned
                for other, nodes in taken:
                    if own & nodes and _displaces(other, spec):
                        own &= ~nodes
                if own:
                    equals.append((spec, own))
                own |= index.with_fact("assigned", name) & every
                counting = own | index.with_fact("target", name) & every
                if labelled or counting:
                    yield _OwnNodes(name, labelled, own, counting)
            taken += equals

    def _labelled(self, target: str) -> Nodes:
        index, labels = self._index, self._specs[target].match.node_labels
        nodes = index.alive if labels else 0
        for key, value in labels.items():
            nodes &= index.labelled(key, value)
        return nodes

    def _find_pools(self, name: str) -> tuple[tuple[str, str | None, Nodes], ...]:
        """Return the nodes of each pool of a target, by GPU and driver.

        Where no pool with the GPU of a node declares its driver, the node is in each of them.
        """
        target = self._targets.get(name)
        if target is None:
            return ()
        skus = [(sku, find_gpu(sku, self._gpus)) for sku in self._index.fact_values("gpu")]
        drivers = [(text, driver_version(text)) for text in self._index.fact_values("driver")]
        having: dict[str, Nodes] = {}
        exact: dict[str, Nodes] = {}
        for pool in target.pools:
            same = [
                sku
                for sku, seen in skus
                if pool.gpu and seen and covers_gpu(pool.gpu, seen, self._gpus)
            ]
            declared = [text for text, version in drivers if version and version == pool.driver]
            having[pool.name] = self._with_facts("gpu", same)
            exact[pool.name] = having[pool.name] & self._with_facts("driver", declared)
        found = []
        for pool in target.pools:
            settled = 0
            for other in target.pools:
                if other.gpu == pool.gpu:
                    settled |= exact[other.name]
            nodes = exact[pool.name] | having[pool.name] & ~settled
            cut = mig_profile(pool.gpu.sku) if pool.gpu else None
            found.append((pool.name, cut, nodes))
        return tuple(found)

    def _with_facts(self, fact: Fact, values: Iterable[str]) -> Nodes:
        return reduce(or_, (self._index.with_fact(fact, value) for value in values), 0)


def _displaces(target: TargetSpec, other: TargetSpec) -> bool:
    """Return whether a target that comes before another takes the nodes of both.

    It does unless the other one is stricter. Where each node of the other has its labels, too, the
    matrix says that they share these nodes, and no report decides about it.
    """
    shared = target.match.node_labels.items() <= other.match.node_labels.items()
    return shared or not is_stricter(other.policy, target.policy)


def driver_version(driver: str | None) -> Version | None:
    """Return a driver's version; None: unknown or malformed."""
    try:
        return parse_version("driver", driver) if driver else None
    except BadInput:
        return None
