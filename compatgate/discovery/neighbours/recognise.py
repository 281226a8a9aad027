"""Any of these files, or several together: nodes say what is, the operator what is meant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from compatgate.core.facts import Facts
from compatgate.discovery.neighbours.aicr import Snapshot, is_aicr, read_snapshot
from compatgate.discovery.neighbours.draft import Draft, DraftPool, of_observed
from compatgate.discovery.neighbours.objects import Body, part, read_objects, text_of
from compatgate.discovery.neighbours.operator import (
    Declared,
    Operator,
    is_operator,
    of_settings,
    read_operator,
)
from compatgate.discovery.neighbours.recipe import read_recipe
from compatgate.discovery.node_labels import pools_of_nodes
from compatgate.discovery.node_labels.read import Node
from compatgate.discovery.nvidia_smi.pools import disagreements, observed_pools
from compatgate.discovery.observed import ObservedPool
from compatgate.errors import BadInput

_DRIVER_LABEL = "nvidia.com/cuda.driver-version.full"
_PRODUCT_LABEL = "nvidia.com/gpu.product"
_KNOWN = "AICR snapshots and recipes, ClusterPolicy, NVIDIADriver, Node"


def read_neighbours(texts: Iterable[tuple[str, str]], facts: Facts) -> Draft:
    """Read files together.

    Args:
        texts: origin (a file's name) and content of each.
        facts: to resolve GPUs by.

    Raises:
        BadInput: a text is none of the known kinds, or they contradict each other in kind.
    """
    snapshots: list[Snapshot] = []
    recipes: list[Body] = []
    operators: list[Body] = []
    nodes: list[Node] = []
    for origin, text in texts:
        for body in read_objects(text, origin):
            if is_aicr(body, "Snapshot"):
                snapshots.append(read_snapshot(body))
            elif is_aicr(body, "Recipe"):
                recipes.append(body)
            elif is_operator(body):
                operators.append(body)
            elif body.get("kind") == "Node":
                nodes.append(_node(body))
            else:
                kind = text_of(body.get("kind")) or "something without a kind"
                group = text_of(body.get("apiVersion"))
                raise BadInput(f"is {kind} {group}".strip(), field=origin, hint=f"read: {_KNOWN}")
    if recipes and (snapshots or operators or nodes or len(recipes) > 1):
        raise BadInput("a recipe is read alone", hint="snapshots and objects say what is there")
    if recipes:
        return read_recipe(recipes[0])
    nodes += [node for snapshot in snapshots for node in snapshot.nodes]
    operator = read_operator(operators) if operators else _of_snapshots(snapshots)
    if nodes:
        return _with_notes(_of_nodes(nodes, operator, facts), snapshots)
    if snapshots:
        return _joined([_of_snapshot(one, operator, facts) for one in snapshots])
    return _of_operator(operator)


def read_snapshot_pools(text: str, facts: Facts, *, origin: str) -> Draft | None:
    """The node that an AICR snapshot was taken on; None where the text is something else.

    Raises:
        BadInput: the text is neither YAML nor JSON.
    """
    bodies = read_objects(text, origin)
    if len(bodies) != 1 or not is_aicr(bodies[0], "Snapshot"):
        return None
    draft = _of_snapshot(read_snapshot(bodies[0]), Operator(), facts)
    return Draft(tuple(pool for pool in draft.pools if pool.gpu), draft.notes)


def _node(body: Body) -> Node:
    metadata = part(body, "metadata")
    labels = {str(key): text_of(value) for key, value in part(metadata, "labels").items()}
    return Node(text_of(metadata.get("name")), labels)


def _of_snapshots(snapshots: Sequence[Snapshot]) -> Operator:
    """What the ClusterPolicy of the cluster says that a snapshot was taken of."""
    found = [of_settings(one.policy, "ClusterPolicy", "cluster-policy")
             for one in snapshots if one.policy]  # fmt: skip
    return Operator(tuple(found[:1]))


def _of_snapshot(snapshot: Snapshot, operator: Operator, facts: Facts) -> Draft:
    """The node that a snapshot was taken on; its own driver decides."""
    notes = list(snapshot.notes)
    if snapshot.report is None:
        why = {"driver": snapshot.why, **({} if snapshot.sku else {"gpu": snapshot.why})}
        pool = DraftPool(snapshot.sku or "node", snapshot.sku or None, why=why)
        return Draft((pool,), tuple(notes))
    found = observed_pools(snapshot.report, facts.gpus)
    notes += [*found.notes, *(one.message for one in disagreements(snapshot.report, facts))]
    declared = operator.for_node({}) if operator.drivers else None
    if declared and declared.version and declared.version != snapshot.report.driver:
        notes.append(_differs(declared, snapshot.node or "the node", snapshot.report.driver))
    pools = tuple(of_observed(replace(pool, devices=1)) for pool in found.pools)
    if snapshot.report.driver is None:
        pools = tuple(replace(p, why={"driver": "nvidia-smi named no driver"}) for p in pools)
    return Draft(pools, (*operator.notes, *notes))


def _of_nodes(nodes: Sequence[Node], operator: Operator, facts: Facts) -> Draft:
    """Nodes grouped by what they have and what the operator is told to give them."""
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
            notes.append(_differs(declared, node.name, has))
        meant.append(Node(node.name, {**node.labels, _DRIVER_LABEL: declared.version}))
    found = pools_of_nodes(meant, facts)
    notes += [*found.notes, *(conflict.message for conflict in found.conflicts)]
    pools = tuple(_labelled(pool, why) for pool in found.pools)
    return Draft(pools, tuple(dict.fromkeys(notes)))


def _labelled(pool: ObservedPool, why: dict[str, str]) -> DraftPool:
    reasons = why or {"driver": "no label names it"}
    return of_observed(pool, reasons if pool.driver is None else None)


def _of_operator(operator: Operator) -> Draft:
    """Without nodes: a pool for each driver, its GPU by the selector where that names one."""
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


def _differs(declared: Declared, node: str, has: str | None) -> str:
    return f"{declared.origin} declares driver {declared.version}, {node} has {has}"


def _with_notes(draft: Draft, snapshots: Sequence[Snapshot]) -> Draft:
    if not snapshots:
        return draft
    return Draft(draft.pools, (*draft.notes, "nodes are told by the labels in the snapshot"))


def _joined(drafts: Sequence[Draft]) -> Draft:
    """Snapshots of several nodes: nodes that are alike are one pool."""
    found: dict[str, list[DraftPool]] = {}
    for draft in drafts:
        for pool in draft.pools:
            found.setdefault(repr(pool), []).append(pool)
    notes = dict.fromkeys(note for draft in drafts for note in draft.notes)
    return Draft(tuple(replace(like[0], count=len(like)) for like in found.values()), tuple(notes))
