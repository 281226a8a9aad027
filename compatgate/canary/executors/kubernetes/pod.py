"""What a pod may do: as little as a container of the docker executor. Pure."""

from __future__ import annotations

from typing import Any

from compatgate.canary.executors.command import command_of, environment_of
from compatgate.canary.executors.interface import Job
from compatgate.canary.executors.kubernetes.files import volume
from compatgate.canary.executors.kubernetes.names import GROUP, INDEX, labels_of, name_of
from compatgate.canary.hosts import Kubernetes, Toleration
from compatgate.canary.workload import FOLDER
from compatgate.canary.workloads.pack import Packed

CONTAINER = "canary"
PORT = 29500
"""Where the nodes of a job meet; each pod has an address of its own."""
PULL_S = 1800
"""Seconds that a node may take to pull the image, within the pod's deadline."""
_NOBODY = 65534
_LOG = 2
"""Room on the node's disk for the log, in what is kept of it; the node's own files come first."""
_AWAY_S = 60
_WITHOUT_GPU = {"NVIDIA_VISIBLE_DEVICES": "void"}


def template(job: Job, image: str, settings: Kubernetes, files: list[Packed]) -> dict[str, Any]:
    """The pod template of a job.

    Args:
        job: what is run.
        image: by digest.
        settings: of the host.
        files: of the workload; () where the image has them.
    """
    labels = labels_of(job) | ({GROUP: "nodes"} if job.workload.nodes > 1 else {})
    return {
        "metadata": {"labels": labels},
        "spec": {
            "restartPolicy": "Never",
            "activeDeadlineSeconds": PULL_S + job.workload.timeout_s,
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "hostNetwork": False,
            "hostPID": False,
            "hostIPC": False,
            "securityContext": _pod_security(job),
            "containers": [_container(job, image, settings, bool(files))],
            "volumes": _volumes(job, files),
            **_placing(job, settings),
        },
    }


def _placing(job: Job, settings: Kubernetes) -> dict[str, Any]:
    tolerations = [_toleration(each) for each in settings.tolerations]
    # A node that is away for a minute has lost the job; Kubernetes itself would wait for five.
    for taint in ("not-ready", "unreachable"):
        tolerations.append({
            "key": f"node.kubernetes.io/{taint}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": _AWAY_S,
        })  # fmt: skip
    placing: dict[str, Any] = {"tolerations": tolerations}
    if settings.node_selector:
        placing["nodeSelector"] = dict(settings.node_selector)
    if settings.image_pull_secrets:
        placing["imagePullSecrets"] = [{"name": name} for name in settings.image_pull_secrets]
    if settings.service_account:
        placing["serviceAccountName"] = settings.service_account
    if settings.runtime_class:
        placing["runtimeClassName"] = settings.runtime_class
    if job.workload.nodes > 1:
        placing["subdomain"] = name_of(job)
        if job.gpu_slots:
            placing["affinity"] = _apart(job)
    return placing


def _apart(job: Job) -> dict[str, Any]:
    """One pod a node: else a cluster may put several of a job's nodes on one machine."""
    term = {
        "labelSelector": {"matchLabels": labels_of(job)},
        "topologyKey": "kubernetes.io/hostname",
    }
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def _toleration(toleration: Toleration) -> dict[str, Any]:
    fields = {
        "key": toleration.key,
        "operator": toleration.operator,
        "value": toleration.value,
        "effect": toleration.effect,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _pod_security(job: Job) -> dict[str, Any]:
    context: dict[str, Any] = {"seccompProfile": {"type": "RuntimeDefault"}}
    if job.workload.user == "nobody":
        context |= {"runAsNonRoot": True, "runAsUser": _NOBODY, "runAsGroup": _NOBODY}
    return context


def _container(job: Job, image: str, settings: Kubernetes, has_files: bool) -> dict[str, Any]:
    mounts: list[dict[str, Any]] = [
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
        {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108
    ]
    if has_files:
        mounts.append({"name": "files", "mountPath": FOLDER, "readOnly": True})
    limits = _limits(job, settings)
    return {
        "name": CONTAINER,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": [_literal(part) for part in command_of(job)],
        "args": [],
        "workingDir": FOLDER,
        "env": _environment(job),
        "resources": {"limits": limits, "requests": limits},
        "volumeMounts": mounts,
        "terminationMessagePolicy": "File",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "privileged": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def _limits(job: Job, settings: Kubernetes) -> dict[str, str]:
    """Asked for and allowed alike: a pod that gets what it asks for is measured on its own."""
    limits = job.workload.limits
    found = {
        "memory": str(limits.memory),
        "ephemeral-storage": str(limits.tmp + _LOG * limits.output + (64 << 20)),
    }
    if limits.cpus:
        found["cpu"] = f"{round(limits.cpus * 1000)}m"
    if job.gpu_slots:
        found[settings.resource] = str(len(job.gpu_slots))
    return found


def _environment(job: Job) -> list[dict[str, Any]]:
    more = {} if job.gpu_slots else _WITHOUT_GPU
    nodes = job.workload.nodes
    if nodes > 1:
        name = name_of(job)
        more = more | {
            "COMPATGATE_NODES": str(nodes),
            "MASTER_ADDR": f"{name}-0.{name}",
            "MASTER_PORT": str(PORT),
        }
    values = environment_of(job, "/tmp", more)  # noqa: S108
    found: list[dict[str, Any]] = [
        {"name": name, "value": _literal(value)} for name, value in values.items()
    ]
    if nodes > 1:
        index = {"fieldRef": {"fieldPath": f"metadata.annotations['{INDEX}']"}}
        found.append({"name": "COMPATGATE_NODE", "valueFrom": index})
    return found


def _literal(text: str) -> str:
    """Text that Kubernetes leaves as it is: it replaces ``$(NAME)``, and reads ``$$`` as ``$``."""
    return text.replace("$", "$$")


def _volumes(job: Job, files: list[Packed]) -> list[dict[str, Any]]:
    limits = job.workload.limits
    found = [
        {"name": "tmp", "emptyDir": {"sizeLimit": str(limits.tmp)}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": str(limits.shm)}},
    ]
    return [*found, volume(job, files)] if files else found
