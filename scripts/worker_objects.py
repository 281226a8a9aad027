"""Build what a worker needs in a cluster: its rights, and network policies of its jobs. Pure.

All rights are limited to the namespace of the jobs; the policies say whom jobs may contact.
"""

from __future__ import annotations

from typing import Any

from compatgate.canary.executors.kubernetes.objects import GROUP, RUN

WORKER_NAME = "compatgate-worker"
_WORKER_LABELS = {"app.kubernetes.io/name": "compatgate", "app.kubernetes.io/component": "worker"}
_RBAC = "rbac.authorization.k8s.io"
_WORKER_RULES = (
    ("batch", ("jobs",), ("create", "get", "list", "delete")),
    ("", ("pods",), ("get", "list", "watch", "delete")),
    ("", ("pods/log",), ("get",)),
    ("", ("configmaps", "services"), ("create", "list", "delete")),
)
_DNS = 53


def make_worker_objects(namespace: str, home: str | None = None) -> list[dict[str, Any]]:
    """Return the worker's service account, role and binding, and the network policies of its jobs.

    All rights are limited to the namespace of the jobs, and none lets the worker read a secret. The
    worker runs in the namespace ``home``; None: that of the jobs.
    """
    home = home or namespace
    # The nodes of a job find each other by name through DNS.
    peers = [{"podSelector": _label_selector(GROUP)}]
    names = [{"protocol": protocol, "port": _DNS} for protocol in ("UDP", "TCP")]
    rules = {
        "ingress": [{"from": peers}],
        "egress": [{"to": peers}, {"to": [{"namespaceSelector": {}}], "ports": names}],
    }
    return [
        _make_object("v1", "ServiceAccount", WORKER_NAME, home),
        _make_object(f"{_RBAC}/v1", "Role", WORKER_NAME, namespace)
        | {
            "rules": [
                {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}
                for group, resources, verbs in _WORKER_RULES
            ]
        },
        _make_object(f"{_RBAC}/v1", "RoleBinding", WORKER_NAME, namespace)
        | {
            "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": WORKER_NAME},
            "subjects": [{"kind": "ServiceAccount", "name": WORKER_NAME, "namespace": home}],
        },
        _make_policy("compatgate-canary-alone", namespace, RUN, {}),
        _make_policy("compatgate-canary-nodes", namespace, GROUP, rules),
    ]


def _make_policy(name: str, namespace: str, label: str, allowed: dict[str, Any]) -> dict[str, Any]:
    """Return the network policy of pods with a label; policies for the same pod add up."""
    spec = {"podSelector": _label_selector(label), "policyTypes": ["Ingress", "Egress"], **allowed}
    return _make_object("networking.k8s.io/v1", "NetworkPolicy", name, namespace) | {"spec": spec}


def _label_selector(label: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": label, "operator": "Exists"}]}


def _make_object(version: str, kind: str, name: str, namespace: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "labels": dict(_WORKER_LABELS)}
    return {"apiVersion": version, "kind": kind, "metadata": metadata}
