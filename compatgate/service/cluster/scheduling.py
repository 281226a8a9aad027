"""Find the known nodes that a pod may land on, by the predicates of the Kubernetes scheduler.

Sources: Kubernetes documentation, "Assigning Pods to Nodes" and "Taints and Tolerations";
kubernetes/kubernetes ``staging/src/k8s.io/component-helpers/scheduling/corev1``; the admission
plugin ExtendedResourceToleration, which lets a pod tolerate the taint named after a resource that
it requests. What cannot be told counts as landing: a pod is rather judged on too many pools.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from compatgate.kit.kubernetes import (
    UNREPORTED_LABELS,
    read_labels,
    read_list,
    read_mapping,
    read_text,
)
from compatgate.service.cluster.node_index import NodeIndex, Nodes, Taint, decode_taint

HOSTNAME = "kubernetes.io/hostname"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_KEEPS_OUT = ("NoSchedule", "NoExecute")
_PASSING = re.compile(r"node\.(cloudprovider\.)?kubernetes\.io/|compatgate\.dev/")
"""Taints that come and go with the state of a node: they keep a pod away for a time only."""


def landing_nodes(index: NodeIndex, spec: Mapping[str, Any], requested: Collection[str]) -> Nodes:
    """Return the nodes whose labels and taints let a pod in."""
    nodes = index.alive & _selected(index, spec)
    name = read_text(spec.get("nodeName"))
    if name:  # no scheduler is asked, so no taint keeps it away
        return nodes & index.with_fact("name", name)
    return nodes & ~_kept_out(index, read_list(spec.get("tolerations")), requested)


def _selected(index: NodeIndex, spec: Mapping[str, Any]) -> Nodes:
    nodes = index.alive
    for key, value in read_labels(spec.get("nodeSelector")).items():
        nodes &= _labelled(index, key, (value,))
    affinity = read_mapping(read_mapping(spec.get("affinity")).get("nodeAffinity"))
    stated = read_list(read_mapping(affinity.get(_REQUIRED)).get("nodeSelectorTerms"))
    if not stated:
        return nodes
    either = 0
    for term in map(read_mapping, stated):
        if term.get("matchExpressions") or term.get("matchFields"):  # an empty one selects no node
            either |= _match_term(index, term)
    return nodes & either


def _match_term(index: NodeIndex, term: Mapping[str, Any]) -> Nodes:
    nodes = index.alive
    for raw in read_list(term.get("matchExpressions")):
        nodes &= _match_expression(index, read_mapping(raw))
    for raw in read_list(term.get("matchFields")):
        nodes &= _match_field(index, read_mapping(raw))
    return nodes


def _match_expression(index: NodeIndex, expression: Mapping[str, Any]) -> Nodes:
    key = read_text(expression.get("key"))
    values = [v for v in read_list(expression.get("values")) if isinstance(v, str)]
    match expression.get("operator"):
        case "In":
            return _labelled(index, key, values)
        case "NotIn":
            return index.alive & ~_labelled(index, key, values, surely=True)
        case "Exists":
            return index.with_label(key) | _unknown(index, key)
        case "DoesNotExist":
            return index.alive & ~index.with_label(key)
        case "Gt":
            return _compared(index, key, values, lambda have, bound: have > bound)
        case "Lt":
            return _compared(index, key, values, lambda have, bound: have < bound)
        case _:
            return index.alive


def _match_field(index: NodeIndex, expression: Mapping[str, Any]) -> Nodes:
    if expression.get("key") != "metadata.name":
        return index.alive
    named = 0
    for value in read_list(expression.get("values")):
        named |= index.with_fact("name", value) if isinstance(value, str) else 0
    match expression.get("operator"):
        case "In":
            return named
        case "NotIn":
            return index.alive & ~named
        case _:
            return index.alive


def _labelled(index: NodeIndex, key: str, values: Iterable[str], *, surely: bool = False) -> Nodes:
    """Return the nodes that have one of the values, or may have it unless ``surely``."""
    nodes = 0 if surely else _unknown(index, key)
    for value in values:
        nodes |= index.labelled(key, value)
    return nodes


def _unknown(index: NodeIndex, key: str) -> Nodes:
    """Return the nodes of which it is not known whether they have a label."""
    if UNREPORTED_LABELS.match(key):
        return index.alive
    cut = index.cut
    return cut & ~index.with_label(key) if cut else 0


def _compared(
    index: NodeIndex, key: str, values: list[str], holds: Callable[[int, int], bool]
) -> Nodes:
    nodes = _unknown(index, key)
    bound = _integer(values[0]) if len(values) == 1 else None
    if bound is None:
        return nodes
    for value in index.label_values(key):
        have = _integer(value)
        if have is not None and holds(have, bound):
            nodes |= index.labelled(key, value)
    return nodes


def _integer(text: str) -> int | None:
    return int(text) if re.fullmatch(r"-?[0-9]{1,18}", text) else None


def _kept_out(index: NodeIndex, stated: Iterable[Any], requested: Collection[str]) -> Nodes:
    tolerations = [read_mapping(one) for one in stated]
    nodes = 0
    for text in index.fact_values("taint"):
        taint = decode_taint(text)
        if taint.effect not in _KEEPS_OUT or _PASSING.match(taint.key) or taint.key in requested:
            continue
        if not any(_tolerates(one, taint) for one in tolerations):
            nodes |= index.with_fact("taint", text)
    return nodes


def _tolerates(toleration: Mapping[str, Any], taint: Taint) -> bool:
    key, effect = read_text(toleration.get("key")), read_text(toleration.get("effect"))
    if effect and effect != taint.effect:
        return False
    operator = toleration.get("operator") or "Equal"
    if not key:
        return bool(operator == "Exists")
    if key != taint.key:
        return False
    if operator == "Equal":
        return read_text(toleration.get("value")) == taint.value
    return True  # Exists; or an operator that is newer than this
