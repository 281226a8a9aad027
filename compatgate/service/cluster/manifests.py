"""Make the objects that let a cluster report its nodes and audit its running pods. Pure.

Accounts may do what their command does and nothing else: read nodes; with ``taint`` also change
them, which Kubernetes cannot narrow down to labels and taints; for the audit read pods and
write policy reports.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from compatgate.service.admission.claims import GROUP as CLAIMS
from compatgate.service.admission.manifests import NAME, SECRET, url
from compatgate.service.cluster.labels import TAINT
from compatgate.service.cluster.policy_reports import GROUP

Object = dict[str, Any]
TOKEN_SECRET = "compatgate-token"  # noqa: S105 - the name of an object
_RBAC = "rbac.authorization.k8s.io"
_READ, _CHANGE = ["get", "list"], ["get", "list", "patch"]
_WRITE = ["get", "list", "create", "update", "delete"]
_GPU_TAINT = "nvidia.com/gpu"
_CA = "/gate"
_USER = 10001
"""User id of ``deploy/compose/Dockerfile``; a kubelet accepts only a number as not root."""


class WatchOptions(Struct, frozen=True):
    """The options of the printed objects.

    Attributes:
        namespace: of the commands.
        cluster: name of the cluster.
        image: image with compatgate; None: print only accounts and roles.
        gate: URL; None: the Service that the webhook's manifests make, in the same namespace.
        taint: nodes are labelled and tainted, not only reported.
        own: what the driver of each node says of itself is reported too.
        every: minutes between two looks.
        excluded: namespaces that the audit leaves out, besides the cluster's and the gate's own:
            the GPU Operator's and others.
    """

    namespace: str = NAME
    cluster: str = "default"
    image: str | None = None
    gate: str | None = None
    taint: bool = False
    own: bool = False
    every: int = 10
    excluded: tuple[str, ...] = ()


def node_objects(options: WatchOptions) -> list[Object]:
    """Return the objects of ``k8s nodes --report``; with ``taint`` of ``k8s reconcile``."""
    name = f"{NAME}-nodes"
    rules = [_rule("", ["nodes"], _CHANGE if options.taint else _READ)]
    found = _account(name, options, rules)
    if options.image:
        commands = [("report", ["nodes", "--report"])]
        if options.taint:
            commands.append(("reconcile", ["reconcile", "--apply"]))
        found += [_cron_job(f"{name}-{what}", name, args, options) for what, args in commands]
        if options.own:
            found.append(_daemon_set(f"{name}-driver", options))
    return found


def audit_objects(options: WatchOptions) -> list[Object]:
    """Return the objects of ``compatgate k8s audit --write --nodes``."""
    name = f"{NAME}-audit"
    rules = [
        _rule("", ["nodes", "pods"], ["list"]),
        _rule(CLAIMS, ["resourceclaims", "resourceclaimtemplates"], ["get"]),
        _rule(GROUP, ["policyreports", "clusterpolicyreports"], _WRITE),
    ]
    found = _account(name, options, rules)
    if options.image:
        args = ["audit", "--write", "--nodes"]
        for left_out in dict.fromkeys((options.namespace, *options.excluded)):
            args += ["--exclude-namespace", left_out]
        found.append(_cron_job(name, name, args, options))
    return found


def _account(name: str, options: WatchOptions, rules: list[Object]) -> list[Object]:
    subject = {"kind": "ServiceAccount", "name": name, "namespace": options.namespace}
    role = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": name}
    return [
        _object("v1", "ServiceAccount", name, options.namespace),
        _object(f"{_RBAC}/v1", "ClusterRole", name, None) | {"rules": rules},
        _object(f"{_RBAC}/v1", "ClusterRoleBinding", name, None)
        | {"roleRef": role, "subjects": [subject]},
    ]


def _rule(group: str, resources: list[str], verbs: list[str]) -> Object:
    return {"apiGroups": [group], "resources": resources, "verbs": list(verbs)}


def _daemon_set(name: str, options: WatchOptions) -> Object:
    """Return the DaemonSet that asks each node's driver through NVIDIA's runtime, without a GPU.

    Source: NVIDIA Container Toolkit, "Specialized Configurations with Docker":
    ``NVIDIA_DRIVER_CAPABILITIES=utility`` brings NVML; Kubernetes, "Downward API".
    """
    args = ["nodes", "report", "--name", "$(NODE_NAME)", "--cluster", options.cluster]
    pod = _pod([*args, "--every", f"{options.every}m"], options)
    pod["automountServiceAccountToken"] = False
    pod["nodeSelector"] = {"nvidia.com/gpu.present": "true"}
    pod["tolerations"] = [
        {"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in (_GPU_TAINT, TAINT)
    ]
    pod["containers"][0]["env"] += [
        {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
        {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "utility"},
    ]
    spec = {
        "selector": {"matchLabels": _labels(name)},
        "template": {"metadata": {"labels": _labels(name)}, "spec": pod},
    }
    return _object("apps/v1", "DaemonSet", name, options.namespace) | {"spec": spec}


def _cron_job(name: str, account: str, args: list[str], options: WatchOptions) -> Object:
    whole = ["k8s", *args, "--in-cluster", "--cluster", options.cluster]
    pod = {"serviceAccountName": account, "restartPolicy": "Never", **_pod(whole, options)}
    job = {
        "backoffLimit": 0,
        "activeDeadlineSeconds": 60 * options.every,
        "template": {"metadata": {"labels": _labels(name)}, "spec": pod},
    }
    spec = {
        "schedule": f"*/{options.every} * * * *",
        "concurrencyPolicy": "Forbid",
        "successfulJobsHistoryLimit": 1,
        "failedJobsHistoryLimit": 3,
        "jobTemplate": {"spec": job},
    }
    return _object("batch/v1", "CronJob", name, options.namespace) | {"spec": spec}


def _pod(args: list[str], options: WatchOptions) -> Object:
    """Return the spec of a pod that runs a command."""
    pod: Object = {
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(args, options)],
    }
    if options.gate is None:
        items = [{"key": "ca.crt", "path": "ca.crt"}]
        pod["volumes"] = [{"name": "ca", "secret": {"secretName": SECRET, "items": items}}]
    return pod


def _container(args: list[str], options: WatchOptions) -> Object:
    secret = {"name": TOKEN_SECRET, "key": "token"}
    env: list[Object] = [
        {"name": "COMPATGATE_SERVER", "value": options.gate or url(options.namespace)},
        {"name": "COMPATGATE_TOKEN", "valueFrom": {"secretKeyRef": secret}},
    ]
    container: Object = {
        "name": NAME,
        "image": options.image,
        "args": args,
        "env": env,
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    if options.gate is None:
        env.append({"name": "SSL_CERT_FILE", "value": f"{_CA}/ca.crt"})
        container["volumeMounts"] = [{"name": "ca", "mountPath": _CA, "readOnly": True}]
    return container


def _labels(component: str) -> dict[str, str]:
    """Return labels without the gate's name, so that its Service does not select these pods."""
    return {"app.kubernetes.io/name": component, "app.kubernetes.io/part-of": NAME}


def _object(version: str, kind: str, name: str, namespace: str | None) -> Object:
    where = {"namespace": namespace} if namespace else {}
    metadata = {"name": name, **where, "labels": _labels(name)}
    return {"apiVersion": version, "kind": kind, "metadata": metadata}
