"""Draft a target from other projects' files, for review and import.

Nodes state the actual stack, the operator the declared one. An AICR recipe describes a cluster
before its deployment.

Sources: NVIDIA/aicr ``examples/recipes`` and ``recipes/components/gpu-operator/values.yaml``;
``criteria.accelerator`` is a token of ``pkg/recipe`` (``h100``, ``gb200``, ``any``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.facts import Facts
from compatgate.core.facts.nvidia import Gpus
from compatgate.core.gpus import resolve_gpu
from compatgate.core.versions import parse_version
from compatgate.discovery.integrations.aicr import (
    Snapshot,
    is_aicr_object,
    read_measurements,
    read_snapshot,
)
from compatgate.discovery.integrations.gpu_operator import (
    Body,
    DeclaredDriver,
    Operator,
    is_operator_object,
    list_objects,
    nested_object,
    read_driver_settings,
    read_objects,
    read_operator,
    scalar_text,
)
from compatgate.discovery.node_labels import Node, group_nodes
from compatgate.discovery.nvidia_smi.report import find_disagreements, group_pools
from compatgate.discovery.observations import ObservedPool
from compatgate.documents.specs import API_VERSION
from compatgate.errors import BadInput

_DRIVER_LABEL = "nvidia.com/cuda.driver-version.full"
_PRODUCT_LABEL = "nvidia.com/gpu.product"
_KNOWN_KINDS = "AICR snapshots and recipes, ClusterPolicy, NVIDIADriver, Node"


def read_drafts(texts: Iterable[tuple[str, str]], facts: Facts) -> Draft:
    """Read one or several files into one draft.

    Args:
        texts: origin (a file's name) and content of each.
        facts: facts that resolve GPUs.

    Raises:
        BadInput: a text is of no known kind, or the kinds do not combine.
    """
    snapshots: list[Snapshot] = []
    recipes: list[Body] = []
    operators: list[Body] = []
    nodes: list[Node] = []
    for origin, text in texts:
        for body in read_objects(text, origin):
            if is_aicr_object(body, "Snapshot"):
                snapshots.append(read_snapshot(body))
            elif is_aicr_object(body, "Recipe"):
                recipes.append(body)
            elif is_operator_object(body):
                operators.append(body)
            elif body.get("kind") == "Node":
                nodes.append(_node(body))
            else:
                kind = scalar_text(body.get("kind")) or "an object without a kind"
                group = scalar_text(body.get("apiVersion"))
                raise BadInput(
                    f"is {kind} {group}".strip(), field=origin, hint=f"give {_KNOWN_KINDS}"
                )
    if recipes and (snapshots or operators or nodes or len(recipes) > 1):
        raise BadInput(
            "a recipe cannot be combined with other files",
            hint="give the recipe alone, or the snapshots and objects",
        )
    if recipes:
        return read_recipe(recipes[0])
    nodes += [node for snapshot in snapshots for node in snapshot.nodes]
    operator = read_operator(operators) if operators else _snapshots_operator(snapshots)
    if nodes:
        return _add_notes(_draft_nodes(nodes, operator, facts), snapshots)
    if snapshots:
        return _join_drafts([_draft_snapshot(one, operator, facts) for one in snapshots])
    return _draft_operator(operator)


def read_snapshot_pools(text: str, facts: Facts, *, origin: str) -> Draft | None:
    """Return the pools of an AICR snapshot's node; None where the text is no snapshot.

    Raises:
        BadInput: the text is neither YAML nor JSON.
    """
    bodies = read_objects(text, origin)
    if len(bodies) != 1 or not is_aicr_object(bodies[0], "Snapshot"):
        return None
    draft = _draft_snapshot(read_snapshot(bodies[0]), Operator(), facts)
    return Draft(tuple(pool for pool in draft.pools if pool.gpu), draft.notes)


def _node(body: Body) -> Node:
    metadata = nested_object(body, "metadata")
    labels = {
        str(key): scalar_text(value) for key, value in nested_object(metadata, "labels").items()
    }
    return Node(scalar_text(metadata.get("name")), labels)


def _snapshots_operator(snapshots: Sequence[Snapshot]) -> Operator:
    """Return the driver in the ClusterPolicy of the snapshots' cluster."""
    found = [read_driver_settings(one.policy, "ClusterPolicy", "cluster-policy")
             for one in snapshots if one.policy]  # fmt: skip
    return Operator(tuple(found[:1]))


def _draft_snapshot(snapshot: Snapshot, operator: Operator, facts: Facts) -> Draft:
    """Draft the node of a snapshot; its loaded driver decides."""
    notes = list(snapshot.notes)
    if snapshot.report is None:
        why = {"driver": snapshot.why, **({} if snapshot.sku else {"gpu": snapshot.why})}
        pool = DraftPool(snapshot.sku or "node", snapshot.sku or None, why=why)
        return Draft((pool,), tuple(notes))
    found = group_pools(snapshot.report, facts.gpus)
    notes += [*found.notes, *(one.message for one in find_disagreements(snapshot.report, facts))]
    declared = operator.for_node({}) if operator.drivers else None
    if declared and declared.version and declared.version != snapshot.report.driver:
        notes.append(
            _describe_difference(declared, snapshot.node or "the node", snapshot.report.driver)
        )
    pools = tuple(draft_pool(replace(pool, devices=1)) for pool in found.pools)
    if snapshot.report.driver is None:
        pools = tuple(replace(p, why={"driver": "nvidia-smi named no driver"}) for p in pools)
    return Draft(pools, (*operator.notes, *notes))


def _draft_nodes(nodes: Sequence[Node], operator: Operator, facts: Facts) -> Draft:
    """Draft pools of nodes by their GPUs and the driver that the operator declares for them."""
    notes, why, meant = list(operator.notes), dict[str, str](), []
    for node in nodes:
        declared = operator.for_node(node.labels) if operator.drivers else None
        has = node.labels.get(_DRIVER_LABEL)
        if declared is None:
            if operator.drivers and _PRODUCT_LABEL in node.labels:
                notes.append(f"no driver is declared for node {node.name}")
            meant.append(node)
            continue
        notes += [declared.note] if declared.note else []
        if declared.version is None:
            why["driver"] = declared.why
            notes.append(declared.why)
            meant.append(node)
            continue
        if has and has != declared.version:
            notes.append(_describe_difference(declared, node.name, has))
        meant.append(Node(node.name, {**node.labels, _DRIVER_LABEL: declared.version}))
    found = group_nodes(meant, facts)
    notes += [*found.notes, *(conflict.message for conflict in found.conflicts)]
    pools = tuple(_draft_labelled_pool(pool, why) for pool in found.pools)
    return Draft(pools, tuple(dict.fromkeys(notes)))


def _draft_labelled_pool(pool: ObservedPool, why: dict[str, str]) -> DraftPool:
    reasons = why or {"driver": "no label names it"}
    return draft_pool(pool, reasons if pool.driver is None else None)


def _draft_operator(operator: Operator) -> Draft:
    """Draft a pool for each driver without nodes; a selector may name its GPU."""
    pools, notes = [], list(operator.notes)
    for one in operator.drivers:
        product = one.selector.get(_PRODUCT_LABEL)
        why = {} if product else {"gpu": "the objects do not name it; give the nodes as well"}
        why |= {} if one.version else {"driver": one.why}
        notes += [one.note] if one.note else []
        pools.append(DraftPool(one.name.lower(), product, one.version, why=why))
    if not pools:
        nothing = "; ".join(notes) or "nothing declares a driver"
        raise BadInput(nothing, hint="give the NVIDIADriver objects, or a ClusterPolicy")
    return Draft(tuple(pools), tuple(dict.fromkeys(notes)))


def _describe_difference(declared: DeclaredDriver, node: str, has: str | None) -> str:
    return f"{declared.origin} declares driver {declared.version}, {node} has {has}"


def _add_notes(draft: Draft, snapshots: Sequence[Snapshot]) -> Draft:
    if not snapshots:
        return draft
    return Draft(draft.pools, (*draft.notes, "nodes come from the labels in the snapshot"))


def _join_drafts(drafts: Sequence[Draft]) -> Draft:
    """Join drafts of several nodes: equal nodes become one pool."""
    found: dict[str, list[DraftPool]] = {}
    for draft in drafts:
        for pool in draft.pools:
            found.setdefault(repr(pool), []).append(pool)
    notes = dict.fromkeys(note for draft in drafts for note in draft.notes)
    return Draft(tuple(replace(like[0], count=len(like)) for like in found.values()), tuple(notes))


class DraftPool(Struct, frozen=True):
    """A pool with possibly unknown properties.

    Attributes:
        gpu: product in a form that `resolve_gpu` reads; None: not known.
        driver: version; None: not known.
        os: operating system of the nodes.
        cpu: None where not known.
        count: number of nodes.
        platform: kind of machine.
        node: parts of the nodes.
        sharing: how containers share a GPU.
        why: reasons for unknown properties, by property.
    """

    name: str
    gpu: str | None = None
    driver: str | None = None
    os: str = "linux"
    cpu: str | None = None
    count: int | None = None
    why: dict[str, str] = {}
    platform: str | None = None
    node: dict[str, str] = {}
    sharing: str | None = None

    @property
    def missing(self) -> tuple[str, ...]:
        """Return the properties that a target needs and the pool lacks."""
        return tuple(name for name in ("gpu", "driver") if getattr(self, name) is None)

    def to_body(self) -> dict[str, Any]:
        """Return the pool of a request or document without unknown properties."""
        body: dict[str, Any] = {"name": self.name, "gpu": self.gpu, "driver": self.driver}
        body |= {"os": self.os, "cpu": self.cpu, "count": self.count}
        body |= {"platform": self.platform, "sharing": self.sharing, "node": self.node or None}
        return {key: value for key, value in body.items() if value is not None}


class Draft(Struct, frozen=True):
    """Drafted pools, with notes for the review.

    Attributes:
        notes: sentences about sources, contradictions and omissions.
    """

    pools: tuple[DraftPool, ...]
    notes: tuple[str, ...] = ()

    def filled(self, table: Gpus, **values: str | None) -> Draft:
        """Add a person's statements: they decide, and each contradiction becomes a note.

        Raises:
            BadInput: a value is not a GPU or not a driver version.
        """
        stated = {name: value for name, value in values.items() if value}
        if "gpu" in stated:
            resolve_gpu(stated["gpu"], table)
        if "driver" in stated:
            parse_version("driver", stated["driver"])
        notes = list(self.notes)
        for name, value in stated.items():
            known = {getattr(pool, name) for pool in self.pools} - {None, value}
            if known and name in ("gpu", "driver", "cpu"):
                notes.append(f"{name}: the files say {', '.join(sorted(known))}, {value} is stated")
        pools = tuple(replace(pool, **stated) for pool in self.pools)
        return Draft(pools, tuple(notes))


def draft_pool(pool: ObservedPool, why: dict[str, str] | None = None) -> DraftPool:
    """Draft a pool from observed nodes."""
    return DraftPool(
        pool.name,
        pool.gpu,
        pool.driver,
        pool.os,
        pool.cpu,
        pool.nodes,
        why or {},
        pool.platform,
        dict(pool.node),
        pool.sharing,
    )


def draft_target(draft: Draft, name: str, table: Gpus) -> dict[str, Any]:
    """Return the ``Target`` document without unknown properties; import refuses such a document.

    Raises:
        BadInput: the facts do not know a GPU.
    """
    pools = [replace(pool, **_product(pool, table)).to_body() for pool in draft.pools]
    spec = {"pools": pools}
    return {"apiVersion": API_VERSION, "kind": "Target", "metadata": {"name": name}, "spec": spec}


def _product(pool: DraftPool, table: Gpus) -> dict[str, Any]:
    """Add the product's name, and the processor of the product where none is known."""
    if pool.gpu is None:
        return {}
    try:
        gpu = resolve_gpu(pool.gpu, table)
    except BadInput as error:
        raise error.at(f"pools.{pool.name}") from None
    return {"gpu": gpu.sku, "cpu": pool.cpu or gpu.cpu}


_OPERATOR = "gpu-operator"


def read_recipe(body: Body) -> Draft:
    """Draft the pool of a recipe; the driver only where the recipe names one."""
    why: dict[str, str] = {}
    notes = [f"{name}: {value}" for name, value in _constraints(body) if "driver" in name.lower()]
    criteria = (
        nested_object(body, "criteria")
        or nested_object(body, "spec", "criteria")
        or nested_object(body, "request")
    )
    accelerator = scalar_text(criteria.get("accelerator") or criteria.get("gpu"))
    gpu = accelerator if accelerator not in ("", "any") else None
    if gpu is None:
        why["gpu"] = "the recipe is for any accelerator"
    declared = _recipe_driver(body)
    if declared.version is None:
        why["driver"] = declared.why
    named = "-".join(filter(None, (scalar_text(criteria.get("service")), accelerator))) or "recipe"
    pool = DraftPool(named.lower(), gpu, declared.version, why=why)
    notes.append("a recipe states the intended stack; a snapshot shows the actual one")
    return Draft((pool,), tuple(notes))


def _recipe_driver(body: Body) -> DeclaredDriver:
    """Return the driver in the operator's overrides, else (older recipes) its image or version."""
    spec = (
        nested_object(body, "spec")
        if list_objects(nested_object(body, "spec"), "componentRefs")
        else body
    )
    for component in list_objects(spec, "componentRefs"):
        if component.get("name") == _OPERATOR:
            settings = nested_object(component, "overrides", "driver")
            if "version" in settings or "enabled" in settings:
                return read_driver_settings(settings, f"override of {_OPERATOR}", _OPERATOR)
            values = scalar_text(component.get("valuesFile"))
            why = f"the recipe takes the driver's version from {values or 'the chart'}"
            return DeclaredDriver(_OPERATOR, _OPERATOR, why=f"{why}, which it does not hold")
    older = scalar_text(read_measurements(body, "K8s", "image").get("driver"))
    older = older or scalar_text(read_measurements(body, "GPU", "smi").get("driver-version"))
    if older:
        return read_driver_settings({"version": older}, "measurements of the recipe", _OPERATOR)
    return DeclaredDriver(_OPERATOR, _OPERATOR, why="the recipe names no driver")


def _constraints(body: Body) -> list[tuple[str, str]]:
    found = [
        *list_objects(body, "constraints"),
        *list_objects(nested_object(body, "spec"), "constraints"),
    ]
    return [(scalar_text(one.get("name")), scalar_text(one.get("value"))) for one in found]
