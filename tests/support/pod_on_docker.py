"""Runs a container of a pod's spec in a Docker engine, as a kubelet would: user, mounts, probes.

What the engine has no word for is left out: service accounts, spreading, the sleep before a stop.
"""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docker import APIClient

Object = dict[str, Any]
_ASK = """
import http.client, json, ssl, sys
path, host, port, ca, body, headers = json.loads(sys.argv[1])
context = ssl.create_default_context(cafile=ca) if ca else ssl._create_unverified_context()
class Here(http.client.HTTPSConnection):
    def connect(self):
        http.client.HTTPConnection.connect(self)
        self.sock = context.wrap_socket(self.sock, server_hostname=host)
here = Here("127.0.0.1", port, timeout=5)
here.request("POST" if body else "GET", path, body, headers)
answer = here.getresponse()
print(json.dumps([answer.status, answer.read().decode()]))
"""


@dataclass
class Running:
    """A container that runs.

    Attributes:
        spec: of the container in the pod.
    """

    api: APIClient
    id: str
    spec: Object

    def run(self, *command: str) -> tuple[int, str]:
        """Run a command in the container: exit status and output."""
        made = self.api.exec_create(self.id, list(command))
        output = self.api.exec_start(made["Id"]).decode()
        return self.api.exec_inspect(made["Id"])["ExitCode"], output

    def ask(
        self, path: str, port: int, *, host: str = "localhost", ca: str = "", body: str = ""
    ) -> tuple[int, str]:
        """Ask over TLS from within: status and body; status 0 where nothing answers.

        Args:
            path: of the URL.
            port: of the container.
            host: name that the certificate must have.
            ca: file in the container with the authority; empty: any certificate will do.
            body: to post as JSON.
        """
        words = json.dumps([path, host, port, ca, body, {"Content-Type": "application/json"}])
        status, output = self.run("/usr/local/bin/python3", "-c", _ASK, words)
        return tuple(json.loads(output)) if status == 0 else (0, output)

    def probe(self, name: str) -> None:
        """Probe until it passes; fails as the kubelet would, but with twice the patience."""
        probe = self.spec[name]
        target = probe["httpGet"]
        assert target["scheme"] == "HTTPS"
        (port,) = [p["containerPort"] for p in self.spec["ports"] if p["name"] == target["port"]]
        for _ in range(2 * probe["failureThreshold"]):
            assert self.api.inspect_container(self.id)["State"]["Running"], self.logs()
            status, answer = self.ask(target["path"], port)
            if 200 <= status < 400:
                return
            time.sleep(min(probe["periodSeconds"], 0.5))
        raise AssertionError(f"{name}: {status} {answer}\n{self.logs()}")

    def logs(self) -> str:
        return str(self.api.logs(self.id).decode(errors="replace"))


@contextmanager
def running(
    api: APIClient, pod: Object, name: str, around: list[Object], folder: Path
) -> Iterator[Running]:
    """Run the container of this name of a pod.

    Args:
        api: of the engine.
        pod: its spec.
        name: of the container.
        around: the Secrets and ConfigMaps that it names.
        folder: for volumes, on the engine's machine.
    """
    (spec,) = [c for c in pod["containers"] if c["name"] == name]
    security, group = spec["securityContext"], pod["securityContext"]["fsGroup"]
    made = {v["name"]: _volume(v, around, folder, group) for v in pod["volumes"]}
    config = api.create_host_config(
        binds=[
            f"{made[m['name']]}:{m['mountPath']}:{'ro' if m.get('readOnly') else 'rw'}"
            for m in spec["volumeMounts"]
        ],
        read_only=security["readOnlyRootFilesystem"],
        cap_drop=security["capabilities"]["drop"],
        security_opt=[] if security["allowPrivilegeEscalation"] else ["no-new-privileges:true"],
        group_add=[group],
        network_mode="none",
    )
    user = f"{pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}"
    environment = {e["name"]: _value(e, around) for e in spec.get("env", [])}
    container = api.create_container(
        spec["image"], spec["args"], user=user, environment=environment, host_config=config
    )
    try:
        api.start(container["Id"])
        yield Running(api, container["Id"], spec)
    finally:
        api.remove_container(container["Id"], force=True, v=True)


def _volume(volume: Object, around: list[Object], folder: Path, group: int) -> Path:
    """Make a volume's folder: writable ones belong to the group, as ``fsGroup`` says."""
    path = folder / volume["name"]
    path.mkdir()
    os.chown(path, 0, group)
    if "emptyDir" in volume or "persistentVolumeClaim" in volume:
        path.chmod(0o2770)
        return path
    secret = volume.get("secret")
    kind, name = ("Secret", secret["secretName"]) if secret else (
        "ConfigMap", volume["configMap"]["name"])  # fmt: skip
    body = _named(around, kind, name)
    for key, text in body["data"].items():
        file = path / key
        file.write_bytes(base64.b64decode(text) if secret else text.encode())
        os.chown(file, 0, group)
        file.chmod((secret or volume["configMap"]).get("defaultMode", 0o644))
    path.chmod(0o755)
    return path


def _value(variable: Object, around: list[Object]) -> str:
    if "value" in variable:
        return str(variable["value"])
    key = variable["valueFrom"]["secretKeyRef"]
    secret = _named(around, "Secret", key["name"])
    if key["key"] in secret.get("stringData", {}):
        return str(secret["stringData"][key["key"]])
    return base64.b64decode(secret["data"][key["key"]]).decode()


def _named(around: list[Object], kind: str, name: str) -> Object:
    (one,) = [o for o in around if (o["kind"], o["metadata"]["name"]) == (kind, name)]
    return one
