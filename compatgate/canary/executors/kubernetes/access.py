"""Build the objects that define what a worker may do in its namespace. Pure.

Network policies define whom the worker's jobs may contact.
"""

from __future__ import annotations

from typing import Any

from compatgate.canary.executors.kubernetes.objects import GROUP, RUN

WORKER = "compatgate-worker"
_LABELS = {"app.kubernetes.io/name": "compatgate", "app.kubernetes.io/component": "worker"}
_RBAC = "rbac.authorization.k8s.io"
_RULES = (
    ("batch", ("jobs",), ("create", "get", "list", "delete")),
    ("", ("pods",), ("get", "list", "watch", "delete")),
    ("", ("pods/log",), ("get",)),
    ("", ("configmaps", "services"), ("create", "list", "delete")),
)
_DNS = 53


def worker_objects(namespace: str) -> list[dict[str, Any]]:
    """Return the worker's service account, role and binding, and the network policies of its jobs.

    All objects are limited to the namespace, and none lets the worker read a secret.
    """
    return [
        _object("v1", "ServiceAccount", WORKER, namespace),
        _object(f"{_RBAC}/v1", "Role", WORKER, namespace)
        | {
            "rules": [
                {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}
                for group, resources, verbs in _RULES
            ]
        },
        _object(f"{_RBAC}/v1", "RoleBinding", WORKER, namespace)
        | {
            "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": WORKER},
            "subjects": [{"kind": "ServiceAccount", "name": WORKER, "namespace": namespace}],
        },
        _policy("compatgate-canary-alone", namespace, RUN, {}),
        _policy("compatgate-canary-nodes", namespace, GROUP, _peer_traffic()),
    ]


def _policy(name: str, namespace: str, label: str, allowed: dict[str, Any]) -> dict[str, Any]:
    """Return the network policy of pods with a label; policies for the same pod add up."""
    spec = {"podSelector": _with(label), "policyTypes": ["Ingress", "Egress"], **allowed}
    return _object("networking.k8s.io/v1", "NetworkPolicy", name, namespace) | {"spec": spec}


def _peer_traffic() -> dict[str, Any]:
    """Return the rules for the nodes of a job, which find each other by name through DNS."""
    peers = [{"podSelector": _with(GROUP)}]
    names = [{"protocol": protocol, "port": _DNS} for protocol in ("UDP", "TCP")]
    return {
        "ingress": [{"from": peers}],
        "egress": [{"to": peers}, {"to": [{"namespaceSelector": {}}], "ports": names}],
    }


def _with(label: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": label, "operator": "Exists"}]}


def _object(version: str, kind: str, name: str, namespace: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "labels": dict(_LABELS)}
    return {"apiVersion": version, "kind": kind, "metadata": metadata}
