"""Build the objects of a job in a cluster. Pure.

A pod has as few rights as a container of the docker executor; its files are a ConfigMap.
"""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Any

from msgspec import to_builtins
from msgspec.structs import replace

from compatgate.canary.executors import (
    CHALLENGE,
    Handle,
    Job,
    PreparedJob,
    make_command,
    make_environment,
)
from compatgate.canary.hosts import VOLCANO, Kubernetes
from compatgate.canary.workload import FOLDER
from compatgate.canary.workloads.contents import PackedFile, list_container_files
from compatgate.errors import BadInput

RUN = "dev.compatgate.run"
ATTEMPT = "dev.compatgate.attempt"
STEP = "dev.compatgate.step"
GROUP = "dev.compatgate.group"
"""Label of the pods of a job with several nodes, which may contact each other."""
START = "dev.compatgate.start"
"""Annotation that identifies a start, to recognize its Job if the answer was lost."""
INDEX = "batch.kubernetes.io/job-completion-index"
"""Annotation that the job controller puts on the pods of an Indexed Job."""
_MAX_NAME = 52
"""A pod's name adds six characters to its job's, a host name adds the index: 63 in all."""
_LABEL = 63


def job_name(job: Job) -> str:
    """Return the name of the Job; a cluster refuses a second one of that name.

    A run's id and a step's name may be too long for a name, or have characters that names may not
    have; a digest then keeps names distinct.
    """
    whole = f"{job.run}-{job.attempt}-{job.step}"
    readable = re.sub(r"[^a-z0-9]+", "-", f"cg-{job.step}-{job.attempt}".lower())
    digest = hashlib.sha256(whole.encode()).hexdigest()[:10]
    return f"{readable[: _MAX_NAME - 11].rstrip('-')}-{digest}"


def job_labels(job: Job | Handle) -> dict[str, str]:
    """Return the labels of every object of the job."""
    return {RUN: job.run, ATTEMPT: str(job.attempt), STEP: _shorten_label(job.step)}


def _shorten_label(value: str) -> str:
    if len(value) <= _LABEL:
        return value
    return f"{value[: _LABEL - 11]}-{hashlib.sha256(value.encode()).hexdigest()[:10]}"


TTL_S = 6 * 3600
"""Seconds after its end until a Job is deleted, if no worker does that."""
_KUEUE = "kueue.x-k8s.io/queue-name"
_KUEUE_PRIORITY = "kueue.x-k8s.io/priority-class"
# Source: https://github.com/volcano-sh/volcano, pkg/controllers/podgroup/pg_controller_handler.go:
# the queue is an annotation of the pod, the number of pods one of the Job above them.
_VOLCANO_QUEUE = "scheduling.volcano.sh/queue-name"
_VOLCANO_MEMBERS = "scheduling.volcano.sh/group-min-member"
_NETWORKS = "k8s.v1.cni.cncf.io/networks"
_CLAIM = "gpus"
_FILES = "files"
_CHALLENGE_KEY = "challenge"


def make_job(
    job: Job, image: str, settings: Kubernetes, files: list[PackedFile], start: str
) -> dict[str, Any]:
    """Return the Job: one pod per node of the workload, none of which is ever created twice."""
    nodes = job.workload.nodes
    labels = job_labels(job)
    if settings.queue:
        labels |= {_KUEUE: settings.queue}
    if settings.priority_class:
        labels |= {_KUEUE_PRIORITY: settings.priority_class}
    annotations = {START: start}
    if settings.volcano_queue:
        annotations |= {_VOLCANO_MEMBERS: str(nodes)}
    spec: dict[str, Any] = {
        "backoffLimit": 0,
        "completions": nodes,
        "parallelism": nodes,
        "completionMode": "Indexed" if nodes > 1 else "NonIndexed",
        "activeDeadlineSeconds": settings.wait_s + PULL_S + job.workload.timeout_s,
        "ttlSecondsAfterFinished": TTL_S,
        "template": make_pod_template(job, image, settings, files),
    }
    if settings.queue:
        # Kueue starts the Job; without Kueue, it must not bypass the queue.
        spec["suspend"] = True
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": job_name(job), "labels": labels, "annotations": annotations},
        "spec": spec,
    }


def make_pair_job(
    first: PreparedJob,
    second: PreparedJob,
    settings: Kubernetes,
    files: list[PackedFile],
    start: str,
    node: str,
) -> dict[str, Any]:
    """Return the Job of a pair: one pod, whose init container is the first block.

    Scratch space is apart, because a cache that the first block fills would help the second.
    ``node`` is that of earlier pairs; "" for any.
    """
    made = make_job(first.job, first.image, settings, files, start)
    pod = made["spec"]["template"]["spec"]
    made["spec"]["activeDeadlineSeconds"] += first.job.workload.timeout_s
    pod["activeDeadlineSeconds"] += first.job.workload.timeout_s
    (before,) = pod["containers"]
    after = _container(replace(second.job, challenge=""), second.image, settings, bool(files))
    challenge = {"name": job_name(second.job), "key": _CHALLENGE_KEY}
    after["env"].append({"name": CHALLENGE, "valueFrom": {"configMapKeyRef": challenge}})
    before["name"] = FIRST
    for mount in before["volumeMounts"]:
        if mount["name"] != _FILES:
            mount["name"] = f"{FIRST}-{mount['name']}"
    for container in (before, after):
        for bound in ("limits", "requests"):
            resources = container["resources"]
            wanted = resources[bound] | {"ephemeral-storage": _disk_limit(first.job, volumes=2)}
            resources[bound] = wanted
    own = [volume for volume in pod["volumes"] if volume["name"] != _FILES]
    pod["volumes"] += [{**volume, "name": f"{FIRST}-{volume['name']}"} for volume in own]
    pod["initContainers"], pod["containers"] = [before], [after]
    return pin_to_node(made, node) if node else made


def make_challenge(job: Job) -> dict[str, Any]:
    """Return the ConfigMap that lets the second block of a pair begin."""
    return _make_config_map(job, data={_CHALLENGE_KEY: job.challenge})


def pin_to_node(made: dict[str, Any], node: str) -> dict[str, Any]:
    """Return a Job whose pod goes to a node; the scheduler still checks that it fits there."""
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    made["spec"]["template"]["spec"]["affinity"] = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    }
    return made


def make_service(job: Job) -> dict[str, Any]:
    """Return the headless service that gives a job's nodes their names before they are ready."""
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
FIRST = "first"
"""Container of the first block in the pod of a pair; the second is in `CONTAINER`."""
PORT = 29500
"""Port on which a job's nodes find each other; each pod has its own address."""
PULL_S = 1800
"""Seconds for the node to pull the image, part of the pod's deadline."""
_NOBODY_UID = 65534
_LOG_RATIO = 2
"""Ratio of the log's disk space on the node to the stored output; the node's files come first."""
_AWAY_S = 60
_NO_GPU_VARIABLES = {"NVIDIA_VISIBLE_DEVICES": "void"}


def make_pod_template(
    job: Job, image: str, settings: Kubernetes, files: list[PackedFile]
) -> dict[str, Any]:
    """Return the pod template of a job."""
    labels = job_labels(job) | ({GROUP: "nodes"} if job.workload.nodes > 1 else {})
    annotations = {}
    if settings.volcano_queue:
        annotations[_VOLCANO_QUEUE] = settings.volcano_queue
    if settings.networks and job.gpu_slots:
        annotations[_NETWORKS] = ",".join(settings.networks)
    metadata = {"labels": labels} | ({"annotations": annotations} if annotations else {})
    context: dict[str, Any] = {"seccompProfile": {"type": "RuntimeDefault"}}
    if job.workload.user == "nobody":
        context |= {"runAsNonRoot": True, "runAsUser": _NOBODY_UID, "runAsGroup": _NOBODY_UID}
    limits = job.workload.limits
    volumes: list[dict[str, Any]] = [
        {"name": "tmp", "emptyDir": {"sizeLimit": str(limits.tmp)}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": str(limits.shm)}},
    ]
    if files:  # readable for everybody
        items = [
            {"key": _file_key(n), "path": file.path, "mode": 0o555 if file.executable else 0o444}
            for n, file in enumerate(files)
        ]
        volumes.append({"name": _FILES, "configMap": {"name": job_name(job), "items": items}})
    return {
        "metadata": metadata,
        "spec": {
            "restartPolicy": "Never",
            "activeDeadlineSeconds": PULL_S + job.workload.timeout_s,
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "hostNetwork": False,
            "hostPID": False,
            "hostIPC": False,
            "securityContext": context,
            "containers": [_container(job, image, settings, bool(files))],
            "volumes": volumes,
            **_placement(job, settings),
        },
    }


def _claim_template(job: Job, settings: Kubernetes) -> str | None:
    """Return the ResourceClaimTemplate of the job's GPUs; None if a device plugin gives them."""
    if not settings.claims or not job.gpu_slots:
        return None
    number = str(len(job.gpu_slots))
    if number not in settings.claims:
        raise BadInput(
            f"no ResourceClaimTemplate is named for {number} GPUs",
            field="kubernetes.claims",
            value=number,
            hint=f'configured: {", ".join(settings.claims)}; add {number} = "TEMPLATE"',
        )
    return settings.claims[number]


def _placement(job: Job, settings: Kubernetes) -> dict[str, Any]:
    tolerations: list[dict[str, Any]] = to_builtins(list(settings.tolerations))
    # A node that is down for a minute has lost the job; Kubernetes waits for five by default.
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
    if scheduler := VOLCANO if settings.volcano_queue else settings.scheduler:
        placing["schedulerName"] = scheduler
    if template := _claim_template(job, settings):
        placing["resourceClaims"] = [{"name": _CLAIM, "resourceClaimTemplateName": template}]
    if settings.runtime_class:
        placing["runtimeClassName"] = settings.runtime_class
    if job.workload.nodes > 1:
        placing["subdomain"] = job_name(job)
        if job.gpu_slots:
            term = {
                "labelSelector": {"matchLabels": job_labels(job)},
                "topologyKey": "kubernetes.io/hostname",
            }
            placing["affinity"] = {
                "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
            }
    return placing


def _container(job: Job, image: str, settings: Kubernetes, has_files: bool) -> dict[str, Any]:
    mounts: list[dict[str, Any]] = [
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
        {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108
    ]
    if has_files:
        mounts.append({"name": _FILES, "mountPath": FOLDER, "readOnly": True})
    limits = {"memory": str(job.workload.limits.memory), "ephemeral-storage": _disk_limit(job)}
    if cpus := job.workload.limits.cpus:
        limits["cpu"] = f"{round(cpus * 1000)}m"
    if job.gpu_slots:
        if not settings.claims:
            limits[settings.resource] = str(len(job.gpu_slots))
        limits |= {name: str(number) for name, number in settings.devices.items()}
    # Requests equal limits, so that other pods do not affect the measurement.
    resources: dict[str, Any] = {"limits": limits, "requests": limits}
    if _claim_template(job, settings):
        resources["claims"] = [{"name": _CLAIM}]
    return {
        "name": CONTAINER,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": [_escape(part) for part in make_command(job)],
        "args": [],
        "workingDir": FOLDER,
        "env": _environment(job),
        "resources": resources,
        "volumeMounts": mounts,
        "terminationMessagePolicy": "File",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "privileged": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def _disk_limit(job: Job, volumes: int = 1) -> str:
    """Return the limit of a pod's disk space, with as many volumes for scratch files and logs."""
    limits = job.workload.limits
    return str(volumes * (limits.tmp + _LOG_RATIO * limits.output) + (64 << 20))


def _environment(job: Job) -> list[dict[str, Any]]:
    more = {} if job.gpu_slots else _NO_GPU_VARIABLES
    nodes = job.workload.nodes
    if nodes > 1:
        name = job_name(job)
        more = more | {
            "COMPATGATE_NODES": str(nodes),
            "MASTER_ADDR": f"{name}-0.{name}",
            "MASTER_PORT": str(PORT),
        }
    values = make_environment(job, "/tmp", more)  # noqa: S108
    results: list[dict[str, Any]] = [
        {"name": name, "value": _escape(value)} for name, value in values.items()
    ]
    if nodes > 1:
        index = {"fieldRef": {"fieldPath": f"metadata.annotations['{INDEX}']"}}
        results.append({"name": "COMPATGATE_NODE", "valueFrom": index})
    return results


def _escape(text: str) -> str:
    """Escape ``$``: Kubernetes replaces ``$(NAME)`` and reads ``$$`` as ``$``."""
    return text.replace("$", "$$")


MAX_BYTES = 1 << 20
"""Maximum size of a ConfigMap's values and keys (Kubernetes, ``MaxSecretSize``)."""


def read_job_files(job: Job) -> list[PackedFile]:
    """Return the files to copy; none for a workload whose image has them."""
    if job.workload.folder is None:
        return []
    files = list_container_files(job.workload)
    size = sum(len(file.content) + len(_file_key(number)) for number, file in enumerate(files))
    if size > MAX_BYTES:
        raise BadInput(
            f"the files of {job.workload.name} are {size} bytes, more than {MAX_BYTES}",
            field=job.workload.name,
            value=size,
            hint="put large files into the image",
        )
    return files


def make_config_map(job: Job, files: list[PackedFile]) -> dict[str, Any]:
    """Return the ConfigMap with the files, numbered because keys cannot contain ``/``."""
    contents = (base64.b64encode(file.content).decode() for file in files)
    data = {_file_key(number): content for number, content in enumerate(contents)}
    return _make_config_map(job, binaryData=data)


def _make_config_map(job: Job, **data: dict[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": job_name(job), "labels": job_labels(job)},
        "immutable": True,
        **data,
    }


def _file_key(number: int) -> str:
    return f"f{number}"
