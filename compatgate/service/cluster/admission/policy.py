"""Make the ValidatingAdmissionPolicy: what an API server decides about a GPU pod by itself.

It needs no gate, so it holds while none answers. It refuses a malformed annotation and a
contradiction, which the gate refuses or warns about too, and a mounted device file of a GPU, which
the gate does not see. Which stack may run where stays the gate's business.

Sources: Kubernetes, "Validating Admission Policy" (v1 since 1.30) and "CEL in Kubernetes";
NVIDIA/nvidia-container-toolkit, see `compatgate.service.cluster.admission.pods`.
"""

from __future__ import annotations

import json
from typing import Any

from compatgate.documents.specs import NAME_PATTERN
from compatgate.service.cluster.admission.kinds import Kinds
from compatgate.service.cluster.admission.matching import TARGET
from compatgate.service.cluster.admission.pods import (
    FOLDER,
    GPU_ANNOTATION,
    NO_DEVICES,
    VISIBLE_DEVICES,
)
from compatgate.service.cluster.admission.questions import STACK_ANNOTATION

_LISTS = ("containers", "initContainers", "ephemeralContainers")
_WORD = r"(?i)^\s*(true|false)?\s*$"
_FALSE = r"(?i)^\s*false\s*$"
_NAME = NAME_PATTERN.removeprefix("^").removesuffix(r"$(?!\n)")
_NAME_OR_NOTHING = rf"^\s*({_NAME})?\s*$"
_ITEM = r"(\s*|[^,=]*[^,=\s][^,=]*=[^,]*[^,=\s][^,]*)"
_STACK = rf"^{_ITEM}(,{_ITEM})*$"
_DEVICE_FILE = r"^/+(\./+)*dev/+(\./+)*nvidia"
Object = dict[str, Any]


def asked_policy(kinds: Kinds, uses_gpus: str) -> Object:
    """Return what the policy covers, checks and does, without namespaces.

    ``warn`` tells the author and the audit log of the cluster, ``deny`` refuses.
    """
    condition = f"{uses_gpus} || {_mounts_device_file()}"
    return {
        "resourceRules": [_rule("pods", "CREATE"), _rule("pods/ephemeralcontainers", "UPDATE")],
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


def _rule(resource: str, operation: str) -> Object:
    """Return a rule; updates of a pod are left alone: they change none of what is checked."""
    return {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "resources": [resource],
        "operations": [operation],
        "scope": "Namespaced",
    }


def _validations(kinds: Kinds) -> list[Object]:
    return [
        _well_formed(GPU_ANNOTATION, _WORD, "say true, or leave it out"),
        _well_formed(TARGET, _NAME_OR_NOTHING, "name a target of the gate"),
        _well_formed(STACK_ANNOTATION, _STACK, "write name=version, like cuda=12.4,cudnn=9.1.0"),
        {
            "expression": f"!({_declines()}) || !({_asks(kinds)})",
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
        "expression": f"!({_has(annotation)}) || {value}.matches({_text(pattern)})",
        "message": f"compatgate: the annotation {annotation} is malformed; fix: {fix}",
        "reason": "Invalid",
    }


def _has(annotation: str) -> str:
    return f"has(object.metadata.annotations) && '{annotation}' in object.metadata.annotations"


def _declines() -> str:
    value = f"object.metadata.annotations['{GPU_ANNOTATION}']"
    return f"{_has(GPU_ANNOTATION)} && {value}.matches({_text(_FALSE)})"


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
    one = f"(has(c.resources) && ({stated})) || {variable} || {mount}"
    return " || ".join(
        f"(has(object.spec.{name}) && object.spec.{name}.exists(c, {one}))" for name in _LISTS
    )


def _mounts_device_file() -> str:
    device = f"has(v.hostPath) && v.hostPath.path.matches({_text(_DEVICE_FILE)})"
    return f"(has(object.spec.volumes) && object.spec.volumes.exists(v, {device}))"


def _text(value: str) -> str:
    """Return a CEL literal."""
    return json.dumps(value)
