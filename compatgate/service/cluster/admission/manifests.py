"""Make what the chart's webhook asks about, from the kinds of workloads that the gate knows.

Two webhooks: one for pods, which protects the nodes, and one for the objects that make pods,
which tells developers early. The first is asked about GPU pods alone (``matchConditions``).
"""

from __future__ import annotations

import json
import posixpath
from typing import Any

from compatgate.service.cluster.admission.kinds import CLASS_RESOURCE, Kinds, PodKind
from compatgate.service.cluster.admission.pods import FOLDER, GPU_ANNOTATION
from compatgate.service.cluster.admission.policy import asked_policy, gpu_resource

_GATE_REASON = "the gate itself; where it is refused, nothing can be decided"
_DEVICES = posixpath.basename(FOLDER)
Object = dict[str, Any]


def asked_objects(kinds: Kinds) -> Object:
    """Return rules, conditions and excluded namespaces, as the chart's values ``webhook.asked``."""
    excluded = kinds.file.excluded_namespaces
    condition = uses_gpus(kinds)
    return {
        "matchConditions": [{"name": "uses-gpus", "expression": condition}],
        "pods": [_rule(kind, ("/ephemeralcontainers",)) for kind in kinds.file.kinds if kind.pod],
        "workloads": [_rule(kind) for kind in kinds.file.kinds if not kind.pod],
        "excluded": [
            {"name": one.name, "reason": one.reason} for one in excluded if not one.operator
        ],
        "reasons": {
            "gate": _GATE_REASON,
            "operator": next((one.reason for one in excluded if one.operator), ""),
        },
        "policy": asked_policy(kinds, condition),
    }


def uses_gpus(kinds: Kinds) -> str:
    """Return the CEL expression for pods that may use GPUs; it covers every pod the hook reads."""
    names = f"{gpu_resource(kinds)} || r.startsWith({json.dumps(CLASS_RESOURCE)})"
    stated = " || ".join(
        f"(has(c.resources.{part}) && c.resources.{part}.exists(r, {names}))"
        for part in ("limits", "requests")
    )
    variable = "(has(c.env) && c.env.exists(e, e.name == 'NVIDIA_VISIBLE_DEVICES'))"
    mount = f"(has(c.volumeMounts) && c.volumeMounts.exists(m, m.mountPath.contains('{_DEVICES}')))"
    one = f"(has(c.resources) && ({stated})) || {variable} || {mount}"
    lists = " || ".join(
        f"(has(object.spec.{name}) && object.spec.{name}.exists(c, {one}))"
        for name in ("containers", "initContainers", "ephemeralContainers")
    )
    names_of_annotations = (GPU_ANNOTATION, *(one.name for one in kinds.file.shared.annotations))
    either = " || ".join(
        f"{json.dumps(name)} in object.metadata.annotations" for name in names_of_annotations
    )
    annotated = f"(has(object.metadata.annotations) && ({either}))"
    classes = json.dumps(kinds.runtime_classes)
    by_class = f"(has(object.spec.runtimeClassName) && object.spec.runtimeClassName in {classes})"
    return f"{lists} || has(object.spec.resourceClaims) || {by_class} || {annotated}"


def _rule(kind: PodKind, subresources: tuple[str, ...] = ()) -> Object:
    return {
        "apiGroups": [kind.group],
        "apiVersions": ["*"],
        "resources": [kind.resource, *(kind.resource + sub for sub in subresources)],
        "operations": ["CREATE", "UPDATE"],
        "scope": kind.scope,
    }
