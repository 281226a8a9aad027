"""Find the targets that a container is judged on: its pod's, narrowed by request and annotation.

The author of a pod controls its annotations, so an annotation only narrows: a target that
namespace, node selector, affinity and request do not leave is a contradiction, CG831.

Whole GPUs and MIG slices are told apart. Sources: NVIDIA/k8s-device-plugin README, "MIG
strategy": ``mixed`` has a resource for each profile (``nvidia.com/mig-1g.10gb``), ``single``
hands out slices as ``nvidia.com/gpu``, on nodes whose GPUs are all cut alike. GPU Feature
Discovery labels those with the slice (``nvidia.com/gpu.product``:
``NVIDIA-A100-SXM4-40GB-MIG-1g.5gb``), every other node with the whole product.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from compatgate.core.matrix import Waiver
from compatgate.core.rule import Finding, Rule
from compatgate.core.rules.caveats import (
    no_node_for_pod,
    no_pool_for_request,
    target_contradicted,
    waived,
)
from compatgate.core.stack import Stack
from compatgate.documents.specs import TargetSpec
from compatgate.documents.weakening import is_stricter
from compatgate.service.cluster.landing import (
    NOWHERE_KNOWN,
    WHOLE,
    KnownNodes,
    Landing,
    may_be,
    mig_profile,
)
from compatgate.service.cluster.matching import TARGET, MatchedTarget, Term

PRODUCT, STRATEGY = "nvidia.com/gpu.product", "nvidia.com/mig.strategy"
_PROFILES_NAMED = 3
_MAX_ALTERNATIVES = 64
"""Maximum number of node selections of a pod."""


class NodeSelection(Struct, frozen=True):
    """The GPUs of nodes, as far as labels tell.

    ``products``: profiles that they may be labelled with, None for a whole product; None: any.
    ``single``: slices may be handed out as ``nvidia.com/gpu`` there.
    """

    products: frozenset[str | None] | None
    single: bool

    def give(self, cut: str | None, resource: str | None, *, only_slices: bool) -> bool:
        """Tell whether a request may be met there with a whole GPU or slice."""
        products = self.products
        # A whole product may be cut into slices.
        if products is not None and cut not in products and (cut is None or None not in products):
            return False
        if resource == WHOLE:
            stands_for = cut is None or self.single if products is None else cut in products
            return only_slices or stands_for
        return resource is None or may_be(resource, cut)

    def of(self, target: TargetSpec) -> NodeSelection:
        """Return the selection of a target; its nodes have the labels that it states."""
        own = target.match.node_labels
        products = frozenset((mig_profile(own[PRODUCT]),)) if PRODUCT in own else self.products
        return NodeSelection(
            products, own[STRATEGY] == "single" if STRATEGY in own else self.single
        )


def node_selection_of(terms: Iterable[Term]) -> tuple[NodeSelection, ...]:
    """Return the nodes that a pod may land on, for each alternative that differs."""
    found: dict[NodeSelection, None] = {}
    for term in terms:
        products = frozenset(map(mig_profile, term.allowed.get(PRODUCT, ())))
        single = "single" in term.allowed.get(STRATEGY, ())
        found[NodeSelection(products or None, single)] = None
        if len(found) > _MAX_ALTERNATIVES:
            return (NodeSelection(None, True),)
    return tuple(found)


def pools_for(
    target: TargetSpec, resource: str | None, nodes: Iterable[NodeSelection]
) -> tuple[str, ...]:
    """Return the pools of a target that a container may get a GPU of, by name.

    ``resource``: that is requested; None: what it gets is not told by a resource.
    """
    cuts = [(pool.name, mig_profile(pool.gpu)) for pool in target.pools]
    only_slices = all(cut for _, cut in cuts)
    own = {each.of(target): None for each in nodes}
    return tuple(
        name
        for name, cut in cuts
        if any(each.give(cut, resource, only_slices=only_slices) for each in own)
    )


def describe_products(target: TargetSpec) -> str:
    """Return the products of a target as text: ``whole GPUs, 1g.10gb``."""
    cuts = dict.fromkeys(mig_profile(pool.gpu) for pool in target.pools)
    return ", ".join(cut or "whole GPUs" for cut in sorted(cuts, key=lambda cut: cut or ""))


def slice_products(terms: Iterable[Term]) -> str:
    """Name the products of slices that a pod selects nodes by; empty: it names none."""
    named = sorted({v for term in terms for v in term.allowed.get(PRODUCT, ()) if mig_profile(v)})
    return ", ".join(named[:_PROFILES_NAMED]) + (", ..." if len(named) > _PROFILES_NAMED else "")


_TARGETS_NAMED = 5
Outcome = Literal["fail", "warn"]
PlacedBy = Literal["inventory", "match", "annotation"]
"""The source of a placement: known nodes, the ``match`` of targets, or the pod's annotation."""


class PlacementMatrix(Struct, frozen=True):
    """The parts of the matrix that decide where workloads run; ``today``: ISO date."""

    targets: Mapping[str, TargetSpec]
    waivers: Mapping[str, Waiver]
    today: str
    nodes: KnownNodes | None = None


class Placement(Struct, frozen=True):
    """A target that a container is judged on, or a finding against running there.

    Without a finding the gate is asked. ``pools``: of the target, that the request leads to; empty:
    all.
    """

    target: str | None
    pools: tuple[str, ...] = ()
    possible: bool = False
    finding: Finding | None = None
    by: PlacedBy = "match"


class ContainerWorkload(Struct, frozen=True):
    """The properties of a container that decide where it is judged.

    ``resources`` is empty where no resource tells what it gets. A template (not ``is_pod``) may get
    more tolerations before it is a pod.
    """

    named: str
    bound: MatchedTarget
    nodes: tuple[NodeSelection, ...]
    slices: str
    resources: tuple[str, ...] = ()
    image: str = ""
    landing: Landing = NOWHERE_KNOWN
    is_pod: bool = True

    @property
    def targets(self) -> tuple[str, ...]:
        """Return the targets that match, and those whose known nodes the pod may land on."""
        reached, matched = self.landing.reached, set(self.bound.targets)
        if self.landing.is_certain and reached:
            matched.clear()
        return tuple(sorted((matched - {*self.landing.displaced}).union(reached)))


def place_workload(asks: ContainerWorkload, known: PlacementMatrix) -> Iterator[Placement]:
    """Return the targets that a container is judged on, with findings about the placement."""
    named = asks.named
    if named and named not in known.targets:
        yield Placement(named)  # the gate refuses the name, and says which one is near
        return
    targets = asks.targets
    usable = _usable(targets, asks, known)
    left = (
        usable
        or targets
        or tuple(n for n in asks.bound.open if not _pools_on(n, asks, known).is_kept_out)
    )
    if not named:
        for name in usable or targets:
            yield from _place_on(name, asks, known)
        if not targets:
            yield Placement(None)
    elif named in left:
        chooses = len(left) > 1 or not targets
        yield from _place_on(named, asks, known, "annotation" if chooses else None)
        own = known.targets[named].policy  # an annotation never chooses a more lenient policy
        others = usable if named in usable else ()
        for name in others:
            if name != named and is_stricter(known.targets[name].policy, own):
                yield from _place_on(name, asks, known)
    else:
        yield from _deny_targets(asks, usable or targets, known)


def other_targets(asks: ContainerWorkload, known: PlacementMatrix) -> tuple[str, ...]:
    """Return the targets that a pod may land on although it names another one."""
    usable = _usable(asks.targets, asks, known)
    return tuple(n for n in usable if n != asks.named) if asks.named in usable else ()


def _usable(
    targets: tuple[str, ...], asks: ContainerWorkload, known: PlacementMatrix
) -> tuple[str, ...]:
    """Return the targets that have pools for all that the container requests."""
    return tuple(name for name in targets if not _pools_on(name, asks, known).lacking)


class _PoolChoice(Struct, frozen=True):
    """The pools for a container, or what it lacks; kept out: no known node of a pool lets it in."""

    pools: frozenset[str]
    lacking: str = ""
    is_kept_out: bool = False
    by: PlacedBy = "match"


def _pools_on(name: str, asks: ContainerWorkload, known: PlacementMatrix) -> _PoolChoice:
    """Return the pools of a target; where nodes of a pool are known, these decide about it."""
    spec, nodes = known.targets[name], asks.landing.of(name)
    counted = {pool.name: pool for pool in nodes.pools} if nodes else {}
    by: PlacedBy = "inventory" if counted else "match"
    matched = name in asks.bound.targets or name not in asks.landing.reached
    found: set[str] = set()
    for resource in asks.resources or (None,):
        declared = pools_for(spec, resource, asks.nodes)
        hit = {pool.name for pool in counted.values() if pool.gives(resource)}
        if matched:
            hit |= {pool for pool in declared if pool not in counted}
        if not hit:
            return _PoolChoice(frozenset(), resource or "a GPU", bool(declared), by)
        found |= hit
    return _PoolChoice(frozenset(found), by=by)


def _place_on(
    name: str, asks: ContainerWorkload, known: PlacementMatrix, by: PlacedBy | None = None
) -> Iterator[Placement]:
    spec = known.targets[name]
    choice = _pools_on(name, asks, known)
    by = by or choice.by
    if not choice.lacking:
        pools = tuple(pool.name for pool in spec.pools if pool.name in choice.pools)
        some = pools if len(pools) < len(spec.pools) else ()
        possible = asks.bound.how == "possible" and not asks.named and choice.by == "match"
        yield Placement(name, some, possible, by=by)
        return
    rule = no_node_for_pod if choice.is_kept_out else no_pool_for_request
    waiver = _waiver(rule, name, asks, known)
    if waiver:
        finding = _waived_finding(rule, waiver)
    else:
        lack = _no_node if choice.is_kept_out else _no_pool
        finding = lack(name, choice.lacking, asks, spec)
    yield Placement(name, finding=finding, by=by)
    # whatever it could get there: what is let in is judged all the same
    yield Placement(name, by=by)


def _deny_targets(
    asks: ContainerWorkload, leads: Sequence[str], known: PlacementMatrix
) -> Iterator[Placement]:
    """Deny for each target that the placement leads to; where all waive it, the annotation counts.

    The waivers are those of these targets: the asker must not choose whose waiver applies.
    """
    where: Sequence[str | None] = leads or (None,)
    waivers = {name: _waiver(target_contradicted, name, asks, known) for name in where}
    for name, waiver in waivers.items():
        if waiver is None:
            by = _pools_on(name, asks, known).by if name else "match"
            yield Placement(name, finding=_contradiction(asks.named, leads, by), by=by)
    used = [waiver for waiver in waivers.values() if waiver]
    if len(used) == len(waivers):
        yield Placement(where[0], finding=_waived_finding(target_contradicted, used[0]))
        yield from _place_on(asks.named, asks, known, "annotation")


def _waiver(
    rule: Rule, target: str | None, asks: ContainerWorkload, known: PlacementMatrix
) -> Waiver | None:
    """Return a waiver of a rule. One for certain components covers nothing: no stack is known."""
    stack = Stack({}, image=asks.image or None)
    for waiver in known.waivers.values():
        if rule.id in waiver.rules and waiver.covers(target or "", stack, known.today):
            return waiver
    return None


def _contradiction(named: str, leads: Sequence[str], by: PlacedBy) -> Finding:
    shown = ", ".join(leads[:_TARGETS_NAMED]) + (", ..." if len(leads) > _TARGETS_NAMED else "")
    what = f"the annotation {TARGET} names {named}"
    if leads and by == "inventory":
        why = f"the nodes that the pod may land on are those of {shown}"
        need = f"one of {shown}"
    elif leads:
        why = f"namespace, node selector and request lead to {shown}"
        need = f"one of {shown}"
    else:
        why = f"namespace and node selector do not fit the match of {named}"
        need = f"what {named} states in match"
    mend = f"fix: remove the annotation, or select the nodes of {named}"
    return _finding(target_contradicted, "fail", f"{what}, but {why}; {mend}", named, need)


def _no_pool(name: str, resource: str, asks: ContainerWorkload, spec: TargetSpec) -> Finding:
    outcome: Outcome = "fail" if spec.policy.mode == "enforce" else "warn"
    products = describe_products(spec)
    where = f" on nodes of {asks.slices}" if asks.slices else ""
    message = f"{resource}{where} is in no pool of {name}, which has {products}"
    message += "; fix: request what it has, or add the pool to the target"
    return _finding(no_pool_for_request, outcome, message, resource, products)


def _no_node(name: str, resource: str, asks: ContainerWorkload, spec: TargetSpec) -> Finding:
    denies = spec.policy.mode == "enforce" and asks.is_pod
    what = f"no known node of {name} accepts the pod with {resource}"
    mend = "fix: select existing nodes, tolerate their taints, or report new nodes"
    return _finding(
        no_node_for_pod, "fail" if denies else "warn", f"{what}; {mend}", resource, None
    )


def _waived_finding(rule: Rule, waiver: Waiver) -> Finding:
    until = f"until {waiver.expires} ({waiver.owner}: {waiver.reason})"
    message = f"{rule.id} {rule.name} is waived by {waiver.name} {until}"
    return _finding(waived, "warn", message, waiver.name, None)


def _finding(rule: Rule, outcome: Outcome, message: str, have: str, need: str | None) -> Finding:
    return rule.finding(outcome, (), "target", have, need, message)
