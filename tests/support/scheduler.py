"""The predicates of the Kubernetes scheduler, as its documentation states them: no code is shared.

Sources: Kubernetes documentation, "Assigning Pods to Nodes", "Taints and Tolerations", "Managing
Resources for Containers"; API reference, NodeSelectorRequirement and Toleration. Also the admission
plugin ExtendedResourceToleration: who requests a resource tolerates the taint of its name.

What the gate is not told decides nothing here either: how many GPUs of a node are free, and which
nodes publish devices of dynamic resource allocation.
"""

from __future__ import annotations

from typing import Any

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
DEVICES = ("whole", "slice")


def fits(pod: dict[str, Any], needs: set[str], node: dict[str, Any], requested: set[str]) -> bool:
    """Tell whether a pod may land on a node.

    Args:
        pod: spec.
        needs: resources that the node must hand out; ``whole`` and ``slice``: devices of a claim.
        node: a row of the fleet.
        requested: resources that the pod names, for taints.
    """
    labels = {**node["labels"], "kubernetes.io/hostname": node["name"]}
    selected = all(labels.get(k) == v for k, v in (pod.get("nodeSelector") or {}).items())
    return (
        selected
        and _affinity(pod, labels, node["name"])
        and not _kept_out(pod.get("tolerations") or [], node.get("taints") or [], requested)
        and all(_has(node, need) for need in needs)
    )


def _has(node: dict[str, Any], need: str) -> bool:
    return bool(node["devices"] == need) if need in DEVICES else need in node["hands"]


def _affinity(pod: dict[str, Any], labels: dict[str, str], name: str) -> bool:
    terms = ((pod.get("affinity") or {}).get("nodeAffinity") or {}).get(REQUIRED)
    if terms is None:
        return True
    for term in terms["nodeSelectorTerms"]:
        expressions = term.get("matchExpressions") or []
        fields = term.get("matchFields") or []
        if not expressions and not fields:
            continue  # an empty term matches no node
        if all(_holds(one, labels) for one in expressions) and all(
            _holds(one, {"metadata.name": name}) for one in fields
        ):
            return True
    return False


def _holds(requirement: dict[str, Any], labels: dict[str, str]) -> bool:
    have = labels.get(requirement["key"])
    values = requirement.get("values") or []
    operator = requirement["operator"]
    if operator == "In":
        return have in values
    if operator == "NotIn":
        return have not in values
    if operator == "Exists":
        return have is not None
    if operator == "DoesNotExist":
        return have is None
    number = int(have) if have is not None and have.isdigit() else None
    if number is None:
        return False
    return number > int(values[0]) if operator == "Gt" else number < int(values[0])


def _kept_out(
    tolerations: list[dict[str, Any]], taints: list[dict[str, Any]], requested: set[str]
) -> bool:
    hard = [one for one in taints if one["effect"] in ("NoSchedule", "NoExecute")]
    return any(
        taint["key"] not in requested and not any(_tolerates(one, taint) for one in tolerations)
        for taint in hard
    )


def _tolerates(toleration: dict[str, Any], taint: dict[str, Any]) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if not toleration.get("key"):
        return toleration.get("operator") == "Exists"
    if toleration["key"] != taint["key"]:
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return True
    return bool(toleration.get("value", "") == taint.get("value", ""))
