"""Make what the chart's webhook asks about, from the kinds of workloads that the gate knows.

Two webhooks: one for pods, which protects the nodes, and one for the objects that make pods,
which tells developers early. The first is asked about GPU pods alone (``matchConditions``).

The ValidatingAdmissionPolicy is what an API server decides about a GPU pod by itself.
It needs no gate, so it holds while none answers. It refuses a malformed annotation and a
contradiction, which the gate refuses or warns about too, and a mounted device file of a GPU, which
the gate does not see. Which stack may run where stays the gate's business.

Sources: Kubernetes, "Validating Admission Policy" (v1 since 1.30) and "CEL in Kubernetes";
NVIDIA/nvidia-container-toolkit, see `compatgate.service.cluster.pods`.
"""

from __future__ import annotations

import json
import posixpath
from typing import Any

from compatgate.documents.specs import NAME_PATTERN
from compatgate.service.cluster.kinds import CLASS_RESOURCE, Kinds, PodKind
from compatgate.service.cluster.matching import TARGET
from compatgate.service.cluster.pods import (
    FOLDER,
    GPU_ANNOTATION,
    NO_DEVICES,
    VISIBLE_DEVICES,
)
from compatgate.service.cluster.questions import STACK_ANNOTATION

_GATE_REASON = "the gate itself; where it is refused, nothing can be decided"
_DEVICES = posixpath.basename(FOLDER)
Object = dict[str, Any]
_LISTS = ("containers", "initContainers", "ephemeralContainers")
_WORD = r"(?i)^\s*(true|false)?\s*$"
_FALSE = r"(?i)^\s*false\s*$"
_NAME = NAME_PATTERN.removeprefix("^").removesuffix(r"$(?!\n)")
_NAME_OR_NOTHING = rf"^\s*({_NAME})?\s*$"
_ITEM = r"(\s*|[^,=]*[^,=\s][^,=]*=[^,]*[^,=\s][^,]*)"
_STACK = rf"^{_ITEM}(,{_ITEM})*$"
_DEVICE_FILE = r"^/+(\./+)*dev/+(\./+)*nvidia"


def asked_policy(kinds: Kinds, uses_gpus: str) -> Object:
    """Return what the policy covers, checks and does, without namespaces.

    ``warn`` tells the author and the audit log of the cluster, ``deny`` refuses.
    """
    condition = f"{uses_gpus} || {_mounts_device_file()}"
    return {
        "resourceRules": [
            _policy_rule("pods", "CREATE"),
            _policy_rule("pods/ephemeralcontainers", "UPDATE"),
        ],
        "matchConditions": [{"name": "uses-gpus", "expression": condition}],
        "validations": _validations(kinds),
        "actions": {"warn": ["Warn", "Audit"], "deny": ["Deny", "Audit"]},
    }


def gpu_resource(kinds: Kinds) -> str:
    """Return the CEL expression for a resource ``r`` that is known as a GPU, or starts as one."""
    names: list[str] = []
    starts: dict[str, None] = {}
    for glob in kinds.gpu_resources:
        literal = glob.partition("*")[0].partition("?")[0].partition("[")[0]
        if literal == glob:
            names.append(glob)
        else:
            starts[f"r.startsWith({json.dumps(literal)})"] = None
    named = [f"r in {json.dumps(names)}"] if names else []
    return " || ".join([*named, *starts]) or "false"


def _policy_rule(resource: str, operation: str) -> Object:
    """Return a rule; updates of a pod are left alone: they change none of what is checked."""
    return {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "resources": [resource],
        "operations": [operation],
        "scope": "Namespaced",
    }


def _validations(kinds: Kinds) -> list[Object]:
    value = f"object.metadata.annotations['{GPU_ANNOTATION}']"
    declines = f"{_has(GPU_ANNOTATION)} && {value}.matches({json.dumps(_FALSE)})"
    return [
        _well_formed(GPU_ANNOTATION, _WORD, "say true, or leave it out"),
        _well_formed(TARGET, _NAME_OR_NOTHING, "name a target of the gate"),
        _well_formed(STACK_ANNOTATION, _STACK, "write name=version, like cuda=12.4,cudnn=9.1.0"),
        {
            "expression": f"!({declines}) || !({_asks(kinds)})",
            "message": f'compatgate: {GPU_ANNOTATION} is "false", but a container requests GPUs; '
            "fix: remove the annotation, or the request",
            "reason": "Forbidden",
        },
        {
            "expression": f"!{_mounts_device_file()}",
            "message": "compatgate: a volume is a GPU device file of the node (/dev/nvidia*), past "
            "the scheduler and the gate; fix: request nvidia.com/gpu instead",
            "reason": "Forbidden",
        },
    ]


def _well_formed(annotation: str, pattern: str, fix: str) -> Object:
    value = f"object.metadata.annotations['{annotation}']"
    return {
        "expression": f"!({_has(annotation)}) || {value}.matches({json.dumps(pattern)})",
        "message": f"compatgate: the annotation {annotation} is malformed; fix: {fix}",
        "reason": "Invalid",
    }


def _has(annotation: str) -> str:
    return f"has(object.metadata.annotations) && '{annotation}' in object.metadata.annotations"


def _any_container(condition: str) -> str:
    return " || ".join(
        f"(has(object.spec.{name}) && object.spec.{name}.exists(c, {condition}))" for name in _LISTS
    )


def _asks(kinds: Kinds) -> str:
    """Return the expression for a container that asks for GPUs beyond doubt."""
    stated = " || ".join(
        f"(has(c.resources.{part}) && c.resources.{part}.exists(r, "
        f"({gpu_resource(kinds)}) && string(c.resources.{part}[r]) != '0'))"
        for part in ("limits", "requests")
    )
    named = f"(has(e.valueFrom) || (has(e.value) && !(e.value in {json.dumps(NO_DEVICES)})))"
    variable = f"(has(c.env) && c.env.exists(e, e.name == '{VISIBLE_DEVICES}' && {named}))"
    null = "v.name == m.name && has(v.hostPath) && v.hostPath.path == '/dev/null'"
    mount = (
        f"(has(c.volumeMounts) && c.volumeMounts.exists(m, m.mountPath.startsWith('{FOLDER}/') && "
        f"!m.mountPath.startsWith('{FOLDER}/imex/') && has(object.spec.volumes) && "
        f"object.spec.volumes.exists(v, {null})))"
    )
    return _any_container(f"(has(c.resources) && ({stated})) || {variable} || {mount}")


def _mounts_device_file() -> str:
    device = f"has(v.hostPath) && v.hostPath.path.matches({json.dumps(_DEVICE_FILE)})"
    return f"(has(object.spec.volumes) && object.spec.volumes.exists(v, {device}))"


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
    lists = _any_container(f"(has(c.resources) && ({stated})) || {variable} || {mount}")
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
