"""The objects that a job is made of in a cluster. Pure."""

from __future__ import annotations

from typing import Any

from compatgate.canary.executors.interface import Job
from compatgate.canary.executors.kubernetes.names import START, labels_of, name_of
from compatgate.canary.executors.kubernetes.pod import PORT, PULL_S, template
from compatgate.canary.hosts import Kubernetes
from compatgate.canary.workloads.pack import Packed

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
    labels = labels_of(job)
    if settings.queue:
        labels |= {_KUEUE: settings.queue}
    spec: dict[str, Any] = {
        "backoffLimit": 0,
        "completions": nodes,
        "parallelism": nodes,
        "completionMode": "Indexed" if nodes > 1 else "NonIndexed",
        "activeDeadlineSeconds": settings.wait_s + PULL_S + job.workload.timeout_s,
        "ttlSecondsAfterFinished": KEPT_S,
        "template": template(job, image, settings, files),
    }
    if settings.queue:
        # Kueue lets it go on; where there is no Kueue it must not pass the queue by.
        spec["suspend"] = True
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name_of(job), "labels": labels, "annotations": {START: start}},
        "spec": spec,
    }


def service_object(job: Job) -> dict[str, Any]:
    """The headless service that gives the nodes of a job their names, before they are ready."""
    labels = labels_of(job)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name_of(job), "labels": labels},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": labels,
            "ports": [{"name": "rendezvous", "port": PORT, "protocol": "TCP"}],
        },
    }
