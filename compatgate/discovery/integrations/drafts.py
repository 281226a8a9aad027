"""Draft a target from Kubernetes nodes and objects of the GPU Operator, for review and import.

Nodes state the actual stack, the operator the declared one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from compatgate.core.facts import Facts
from compatgate.core.facts.nvidia import Gpus
from compatgate.core.gpus import resolve_gpu
from compatgate.core.versions import parse_version
from compatgate.discovery.integrations.gpu_operator import (
    Body,
    Operator,
    is_operator_object,
    nested_object,
    read_objects,
    read_operator,
    scalar_text,
)
from compatgate.discovery.node_labels import Node, group_nodes
from compatgate.discovery.observations import ObservedPool
from compatgate.documents.specs import API_VERSION, PoolSpec
from compatgate.errors import BadInput

_DRIVER_LABEL = "nvidia.com/cuda.driver-version.full"
_PRODUCT_LABEL = "nvidia.com/gpu.product"


class DraftPool(ObservedPool, frozen=True):
    """A pool with possibly unknown properties.

    Attributes:
        gpu: product in a form that `resolve_gpu` reads; empty: not known.
        why: a property is not known, by its name.
    """

    why: dict[str, str] = {}

    @property
    def missing(self) -> tuple[str, ...]:
        """Return the properties that a target needs and the pool lacks."""
        return tuple(name for name in ("gpu", "driver") if not getattr(self, name))


class Draft(Struct, frozen=True):
    """Drafted pools, with notes for the review."""

    pools: tuple[DraftPool, ...]
    notes: tuple[str, ...] = ()

    def filled(self, table: Gpus, **values: str | None) -> Draft:
        """Add a person's statements: they decide, and each contradiction becomes a note."""
        stated = {name: value for name, value in values.items() if value}
        if "gpu" in stated:
            resolve_gpu(stated["gpu"], table)
        if "driver" in stated:
            parse_version("driver", stated["driver"])
        notes = list(self.notes)
        for name, value in stated.items():
            known = {getattr(pool, name) for pool in self.pools} - {None, "", value}
            if known and name in ("gpu", "driver", "cpu"):
                notes.append(f"{name}: the files say {', '.join(sorted(known))}, {value} is stated")
        pools = tuple(replace(pool, **stated) for pool in self.pools)
        return Draft(pools, tuple(notes))


def draft_pool(pool: ObservedPool, why: dict[str, str] | None = None) -> DraftPool:
    """Draft a pool from observed nodes."""
    return DraftPool(**asdict(pool), why=why or {})


def draft_target(draft: Draft, name: str, table: Gpus) -> dict[str, Any]:
    """Return the ``Target`` document without unknown properties; import refuses such a document."""
    pools = [replace(pool, **_product(pool, table)).to_body() for pool in draft.pools]
    written = [
        {key: pool[key] for key in PoolSpec.__struct_fields__ if key in pool} for pool in pools
    ]
    return {
        "apiVersion": API_VERSION,
        "kind": "Target",
        "metadata": {"name": name},
        "spec": {"pools": written},
    }


def _product(pool: DraftPool, table: Gpus) -> dict[str, Any]:
    """Add the product's name, and the processor of the product where none is known."""
    if not pool.gpu:
        return {}
    try:
        gpu = resolve_gpu(pool.gpu, table)
    except BadInput as error:
        raise error.at(f"pools.{pool.name}") from None
    return {"gpu": gpu.sku, "cpu": pool.cpu or gpu.cpu}


def read_drafts(texts: Iterable[tuple[str, str]], facts: Facts) -> Draft:
    """Read one or several files, each an origin (a file's name) and content, into one draft."""
    operators: list[Body] = []
    nodes: list[Node] = []
    for origin, text in texts:
        for body in read_objects(text, origin):
            if is_operator_object(body):
                operators.append(body)
            elif body.get("kind") == "Node":
                metadata = nested_object(body, "metadata")
                labels = {
                    str(k): scalar_text(v) for k, v in nested_object(metadata, "labels").items()
                }
                nodes.append(Node(scalar_text(metadata.get("name")), labels))
            else:
                kind = scalar_text(body.get("kind")) or "an object without a kind"
                problem = f"is {kind} {scalar_text(body.get('apiVersion'))}".strip()
                hint = "give ClusterPolicy, NVIDIADriver, Node"
                raise BadInput(problem, field=origin, hint=hint)
    operator = read_operator(operators)
    return _draft_nodes(nodes, operator, facts) if nodes else _draft_operator(operator)


def _draft_nodes(nodes: Sequence[Node], operator: Operator, facts: Facts) -> Draft:
    """Draft pools of nodes by their GPUs and the driver that the operator declares for them."""
    notes, why, described = list(operator.notes), dict[str, str](), []
    for node in nodes:
        declared = operator.for_node(node.labels) if operator.drivers else None
        has = node.labels.get(_DRIVER_LABEL)
        if declared is None:
            if operator.drivers and _PRODUCT_LABEL in node.labels:
                notes.append(f"no driver is declared for node {node.name}")
            described.append(node)
            continue
        notes += [declared.note] if declared.note else []
        if declared.version is None:
            why["driver"] = declared.why
            notes.append(declared.why)
            described.append(node)
            continue
        if has and has != declared.version:
            notes.append(
                f"{declared.origin} declares driver {declared.version}, {node.name} has {has}"
            )
        described.append(Node(node.name, {**node.labels, _DRIVER_LABEL: declared.version}))
    grouped = group_nodes(described, facts)
    notes += [*grouped.notes, *(conflict.message for conflict in grouped.conflicts)]
    reasons = why or {"driver": "no label names it"}
    pools = tuple(
        draft_pool(pool, reasons if pool.driver is None else None) for pool in grouped.pools
    )
    return Draft(pools, tuple(dict.fromkeys(notes)))


def _draft_operator(operator: Operator) -> Draft:
    """Draft a pool for each driver without nodes; a selector may name its GPU."""
    pools, notes = [], list(operator.notes)
    for one in operator.drivers:
        product = one.selector.get(_PRODUCT_LABEL)
        why = {} if product else {"gpu": "the objects do not name it; give the nodes as well"}
        why |= {} if one.version else {"driver": one.why}
        notes += [one.note] if one.note else []
        pools.append(DraftPool(one.name.lower(), product or "", one.version, why=why))
    if not pools:
        nothing = "; ".join(notes) or "nothing declares a driver"
        raise BadInput(nothing, hint="give the NVIDIADriver objects, or a ClusterPolicy")
    return Draft(tuple(pools), tuple(dict.fromkeys(notes)))
