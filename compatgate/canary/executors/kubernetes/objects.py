"""Build the objects that a job is made of in a cluster. Pure.

A pod may do as little as a container of the docker executor. The workload's folder is a ConfigMap,
mounted read-only. Labels and names say which run, attempt and step an object belongs to, so that it
is found again and never made twice.
"""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Any

from compatgate.canary.executors.interface import Job
from compatgate.canary.executors.jobs import job_command, job_environment
from compatgate.canary.hosts import Kubernetes, Toleration
from compatgate.canary.workload import FOLDER
from compatgate.canary.workloads.pack import Packed, container_files
from compatgate.errors import BadInput

RUN = "dev.compatgate.run"
ATTEMPT = "dev.compatgate.attempt"
STEP = "dev.compatgate.step"
GROUP = "dev.compatgate.group"
"""On the pods of a job of several nodes, which may talk to each other."""
START = "dev.compatgate.start"
"""Annotation that tells a start whose answer was lost from another start of the same job."""
INDEX = "batch.kubernetes.io/job-completion-index"
"""Annotation that the job controller puts on the pods of an Indexed Job."""
_LONGEST = 52
"""A pod's name is its job's and six characters, its host name the job's and its index: 63."""
_LABEL = 63


def job_name(job: Job) -> str:
    """Name of the job's Job; a cluster refuses a second one of that name.

    A run's id and a step's name may be too long for one, or have letters that names have not; the
    digest keeps two of them apart then.
    """
    whole = f"{job.run}-{job.attempt}-{job.step}"
    readable = re.sub(r"[^a-z0-9]+", "-", f"cg-{job.step}-{job.attempt}".lower())
    digest = hashlib.sha256(whole.encode()).hexdigest()[:10]
    return f"{readable[: _LONGEST - 11].rstrip('-')}-{digest}"


def job_labels(job: Job) -> dict[str, str]:
    """Return the labels of everything that is made for the job."""
    return {RUN: job.run, ATTEMPT: str(job.attempt), STEP: _label(job.step)}


def run_selector(run: str) -> str:
    """Selector of everything of a run, whatever the attempt."""
    return f"{RUN}={run}"


def job_selector(run: str, attempt: int, step: str) -> str:
    """Selector of everything of one job."""
    return f"{RUN}={run},{ATTEMPT}={attempt},{STEP}={_label(step)}"


def _label(value: str) -> str:
    """Return a value that is short enough for a label."""
    if len(value) <= _LABEL:
        return value
    return f"{value[: _LABEL - 11]}-{hashlib.sha256(value.encode()).hexdigest()[:10]}"


KEPT_S = 6 * 3600
"""Seconds after its end that a Job stays if no worker removes it."""
_KUEUE = "kueue.x-k8s.io/queue-name"


def job_object(
    job: Job, image: str, settings: Kubernetes, files: list[Packed], start: str
) -> dict[str, Any]:
    """The Job: one pod, or one for each node of the workload, none of them ever a second time.

    Args:
        job: what is run.
        image: by digest.
        settings: of the host.
        files: of the workload.
        start: what tells this start from another.
    """
    nodes = job.workload.nodes
    labels = job_labels(job)
    if settings.queue:
        labels |= {_KUEUE: settings.queue}
    spec: dict[str, Any] = {
        "backoffLimit": 0,
        "completions": nodes,
        "parallelism": nodes,
        "completionMode": "Indexed" if nodes > 1 else "NonIndexed",
        "activeDeadlineSeconds": settings.wait_s + PULL_S + job.workload.timeout_s,
        "ttlSecondsAfterFinished": KEPT_S,
        "template": pod_template(job, image, settings, files),
    }
    if settings.queue:
        # Kueue lets it go on; where there is no Kueue it must not pass the queue by.
        spec["suspend"] = True
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": job_name(job), "labels": labels, "annotations": {START: start}},
        "spec": spec,
    }


def service_object(job: Job) -> dict[str, Any]:
    """The headless service that gives the nodes of a job their names, before they are ready."""
    labels = job_labels(job)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": job_name(job), "labels": labels},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": labels,
            "ports": [{"name": "rendezvous", "port": PORT, "protocol": "TCP"}],
        },
    }


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


def pod_template(job: Job, image: str, settings: Kubernetes, files: list[Packed]) -> dict[str, Any]:
    """Return the pod template of a job.

    Args:
        job: what is run.
        image: by digest.
        settings: of the host.
        files: of the workload; () where the image has them.
    """
    labels = job_labels(job) | ({GROUP: "nodes"} if job.workload.nodes > 1 else {})
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
        placing["subdomain"] = job_name(job)
        if job.gpu_slots:
            placing["affinity"] = _apart(job)
    return placing


def _apart(job: Job) -> dict[str, Any]:
    """Return one pod a node: else a cluster may put several of a job's nodes on one machine."""
    term = {
        "labelSelector": {"matchLabels": job_labels(job)},
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
        "command": [_literal(part) for part in job_command(job)],
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
        name = job_name(job)
        more = more | {
            "COMPATGATE_NODES": str(nodes),
            "MASTER_ADDR": f"{name}-0.{name}",
            "MASTER_PORT": str(PORT),
        }
    values = job_environment(job, "/tmp", more)  # noqa: S108
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
    return [*found, files_volume(job, files)] if files else found


MAX_BYTES = 1 << 20
"""Of the values and keys of a ConfigMap (Kubernetes, ``MaxSecretSize``)."""


def job_files(job: Job) -> list[Packed]:
    """Return the files that travel; none for a workload whose image has them.

    Raises:
        BadInput: they are more than fits, or no plain files.
    """
    if job.workload.folder is None:
        return []
    files = container_files(job.workload)
    size = sum(len(file.content) + len(_key(number)) for number, file in enumerate(files))
    if size > MAX_BYTES:
        raise BadInput(
            f"the files of {job.workload.name} are {size} bytes, and a cluster takes {MAX_BYTES}",
            field=job.workload.name,
            value=size,
            hint="have the image bring what is large",
        )
    return files


def config_map(job: Job, files: list[Packed]) -> dict[str, Any]:
    """The object that carries the files; numbered, since keys cannot have the ``/`` of a path."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": job_name(job), "labels": job_labels(job)},
        "immutable": True,
        "binaryData": {
            _key(number): base64.b64encode(file.content).decode()
            for number, file in enumerate(files)
        },
    }


def files_volume(job: Job, files: list[Packed]) -> dict[str, Any]:
    """Return the files at their paths, readable for everybody."""
    items = [
        {"key": _key(number), "path": file.path, "mode": 0o555 if file.executable else 0o444}
        for number, file in enumerate(files)
    ]
    return {"name": "files", "configMap": {"name": job_name(job), "items": items}}


def _key(number: int) -> str:
    return f"f{number}"
