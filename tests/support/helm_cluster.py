"""As much of an API server as ``helm template --dry-run=server`` asks: versions and objects.

A chart's ``lookup`` finds what was `Cluster.apply`-ed before, as after an installation.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Object = dict[str, Any]
NAMESPACE = "gate"
"""Of the release."""
_RESOURCES = {
    "v1": {
        "secrets": ("Secret", True),
        "services": ("Service", True),
        "serviceaccounts": ("ServiceAccount", True),
        "persistentvolumeclaims": ("PersistentVolumeClaim", True),
    },
    "apps/v1": {"deployments": ("Deployment", True)},
    "batch/v1": {"jobs": ("Job", True)},
    "networking.k8s.io/v1": {"networkpolicies": ("NetworkPolicy", True)},
    "policy/v1": {"poddisruptionbudgets": ("PodDisruptionBudget", True)},
    "rbac.authorization.k8s.io/v1": {
        "clusterroles": ("ClusterRole", False),
        "clusterrolebindings": ("ClusterRoleBinding", False),
    },
    "cert-manager.io/v1": {
        "certificates": ("Certificate", True),
        "issuers": ("Issuer", True),
    },
    "admissionregistration.k8s.io/v1": {
        "validatingwebhookconfigurations": ("ValidatingWebhookConfiguration", False)
    },
}
"""Version to resources: kind, and whether it is in a namespace."""
_PATH = re.compile(r"/(?:api|apis)/(.+?)(?:/namespaces/([^/]+))?/([a-z]+)/([^/?]+)")


@dataclass
class Cluster:
    """What the cluster has, by kind, namespace and name.

    Attributes:
        asked: paths of objects that were asked for.
    """

    objects: dict[tuple[str, str, str], Object] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    url: str = ""

    def apply(self, found: list[Object]) -> None:
        """Keep what a release rendered, as its own; a lookup finds it."""
        for one in found:
            metadata = one["metadata"]
            if "helm.sh/hook" in (metadata.get("annotations") or {}):
                continue
            metadata["annotations"] = {
                **(metadata.get("annotations") or {}),
                "meta.helm.sh/release-name": metadata["labels"]["app.kubernetes.io/instance"],
                "meta.helm.sh/release-namespace": NAMESPACE,
            }
            key = (one["kind"], metadata.get("namespace", ""), metadata["name"])
            self.objects[key] = one

    def kubeconfig(self, folder: Path) -> str:
        """Write a file that leads here."""
        path = folder / "kubeconfig"
        config = {
            "apiVersion": "v1", "kind": "Config", "current-context": "here",
            "clusters": [{"name": "here", "cluster": {"server": self.url}}],
            "users": [{"name": "here", "user": {}}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "here"}}],
        }  # fmt: skip
        path.write_text(json.dumps(config))
        return str(path)

    def answer(self, path: str) -> Object | None:
        """What is at a path; None: nothing."""
        if path == "/version":
            return {"major": "1", "minor": "33", "gitVersion": "v1.33.0"}
        if path == "/api":
            return {"kind": "APIVersions", "versions": ["v1"]}
        if path == "/apis":
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(version)
                    for version in _RESOURCES if "/" in version]}  # fmt: skip
        version = path.removeprefix("/apis/").removeprefix("/api/")
        if version in _RESOURCES:
            return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version,
                    "resources": [
                        {"name": name, "kind": kind, "namespaced": inside, "singularName": "",
                         "verbs": ["get", "list"]}
                        for name, (kind, inside) in _RESOURCES[version].items()]}  # fmt: skip
        if match := _PATH.fullmatch(path):
            version, namespace, resource, name = match.groups()
            kind, _ = _RESOURCES[version][resource]
            self.asked.append(path)
            return self.objects.get((kind, namespace or "", name))
        return None


@contextmanager
def serving(cluster: Cluster) -> Iterator[Cluster]:
    """Serve the cluster."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args: Any) -> None:
            pass

        def do_GET(self) -> None:
            found = cluster.answer(self.path.partition("?")[0])
            missing = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404,
                       "reason": "NotFound", "message": f"{self.path} not found"}  # fmt: skip
            data = json.dumps(missing if found is None else found).encode()
            self.send_response(404 if found is None else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    cluster.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield cluster
    finally:
        server.shutdown()
        server.server_close()


def _group(version: str) -> Object:
    group, _, name = version.partition("/")
    versions = [{"groupVersion": version, "version": name}]
    return {"name": group, "versions": versions, "preferredVersion": versions[0]}
