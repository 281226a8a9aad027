"""Which pools of a target a request leads to: whole GPUs and MIG slices are told apart.

Sources: NVIDIA/k8s-device-plugin README, "MIG strategy": ``mixed`` has a resource for each profile
(``nvidia.com/mig-1g.10gb``), ``single`` hands out slices as ``nvidia.com/gpu``, on nodes whose GPUs
are all cut alike. GPU Feature Discovery labels those with the slice (``nvidia.com/gpu.product``:
``NVIDIA-A100-SXM4-40GB-MIG-1g.5gb``), every other node with the whole product.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from msgspec import Struct

from compatgate.core.mig import cut_profile
from compatgate.documents.specs import TargetSpec
from compatgate.gate.admission.bound import Term

PRODUCT, STRATEGY = "nvidia.com/gpu.product", "nvidia.com/mig.strategy"
_WHOLE, _SLICE = "nvidia.com/gpu", "nvidia.com/mig-"
_SHOWN = 3
_MOST_ALTERNATIVES = 64
"""Of a pod's node selection, that are told apart."""


class Nodes(Struct, frozen=True):
    """What is known of nodes by their labels.

    Attributes:
        products: profiles of the products that they may be labelled with, None for a whole one;
            None: any.
        single: slices may be handed out as ``nvidia.com/gpu`` there.
    """

    products: frozenset[str | None] | None
    single: bool

    def give(self, cut: str | None, resource: str | None, *, only_slices: bool) -> bool:
        """Tell whether a request may be met there with a whole GPU or slice.

        Args:
            cut: profile of the slice; None: a whole GPU.
            resource: that is requested; None: what it gets is not told by a resource.
            only_slices: the target has no whole GPU, so that its slices are what it hands out.
        """
        if not self._may_have(cut):
            return False
        if resource == _WHOLE:
            return only_slices or self._hand_out_whole(cut)
        if resource is not None and resource.startswith(_SLICE):
            wanted = resource.removeprefix(_SLICE)
            return cut == (profile_of(wanted) or wanted)
        return True

    def _may_have(self, cut: str | None) -> bool:
        """Nodes with the label of a slice have that alone; the whole product's may be cut."""
        if self.products is None or cut in self.products:
            return True
        return cut is not None and None in self.products

    def _hand_out_whole(self, cut: str | None) -> bool:
        """Tell whether ``nvidia.com/gpu`` is this there."""
        if self.products is not None:
            return cut in self.products
        return cut is None or self.single

    def of(self, target: TargetSpec) -> Nodes:
        """Return those of a target; the labels that it states are its nodes' own."""
        own = target.match.node_labels
        products = frozenset((profile_of(own[PRODUCT]),)) if PRODUCT in own else self.products
        return Nodes(products, own[STRATEGY] == "single" if STRATEGY in own else self.single)


def nodes_of(terms: Iterable[Term]) -> tuple[Nodes, ...]:
    """Return the nodes that a pod may land on, for each alternative that differs."""
    found: dict[Nodes, None] = {}
    for term in terms:
        products = frozenset(map(profile_of, term.allowed.get(PRODUCT, ())))
        single = "single" in term.allowed.get(STRATEGY, ())
        found[Nodes(products or None, single)] = None
        if len(found) > _MOST_ALTERNATIVES:
            return (Nodes(None, True),)
    return tuple(found)


def pools_for(target: TargetSpec, resource: str | None, nodes: Iterable[Nodes]) -> tuple[str, ...]:
    """Return the pools of a target that a container may get a GPU of, by name.

    Args:
        target: that the pod may come to run on.
        resource: that is requested; None: what it gets is not told by a resource.
        nodes: that the pod may land on, of whatever target.
    """
    cuts = [(pool.name, profile_of(pool.gpu)) for pool in target.pools]
    only_slices = all(cut for _, cut in cuts)
    own = {each.of(target): None for each in nodes}
    return tuple(
        name
        for name, cut in cuts
        if any(each.give(cut, resource, only_slices=only_slices) for each in own)
    )


def products_of(target: TargetSpec) -> str:
    """Name what a target has: ``whole GPUs, 1g.10gb``."""
    cuts = dict.fromkeys(profile_of(pool.gpu) for pool in target.pools)
    return ", ".join(cut or "whole GPUs" for cut in sorted(cuts, key=lambda cut: cut or ""))


def named_slices(terms: Iterable[Term]) -> str:
    """Name the products of slices that a pod selects nodes by; empty: it names none."""
    named = sorted({v for term in terms for v in term.allowed.get(PRODUCT, ()) if profile_of(v)})
    return ", ".join(named[:_SHOWN]) + (", ..." if len(named) > _SHOWN else "")


@lru_cache(maxsize=4096)
def profile_of(text: str) -> str | None:
    """Return the MIG profile in the name of a GPU or a resource; None: it is a whole GPU."""
    profile, _ = cut_profile(text.lower())
    return profile.text if profile else None
