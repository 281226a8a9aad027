"""Removes what a run left in a cluster, and nothing else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from compatgate.canary.executors.kubernetes.connect import Cluster
from compatgate.canary.executors.kubernetes.names import RUN, of_run
from compatgate.canary.executors.kubernetes.standing import condition
from compatgate.errors import Infrastructure
from compatgate.kubernetes.errors import Missing

KINDS = (
    ("batch", "job"),
    ("core", "pod"),
    ("core", "service"),
    ("core", "config_map"),
)
"""Jobs first: they would make their pods anew."""
_PATIENCE_S = 60.0
_AWAY_S = 15.0
_POLL_S = 0.5


def clean(cluster: Cluster, run: str) -> int:
    """Delete the jobs, pods, services and config maps that carry the run's label; wait for it.

    Returns:
        How many there were.

    Raises:
        Infrastructure: something would not go, or the cluster does not answer.
    """
    removed: set[tuple[str, str]] = set()
    began = time.monotonic()
    while left := list(_labelled(cluster, of_run(run))):
        for kind, thing in left:
            removed.add((kind, thing["metadata"]["name"]))
            _delete(cluster, kind, thing, forced=time.monotonic() - began > _AWAY_S)
        if time.monotonic() - began > _PATIENCE_S:
            names = ", ".join(f"{kind} {thing['metadata']['name']}" for kind, thing in left)
            raise Infrastructure(f"the cluster of {cluster.where} does not remove {names}")
        time.sleep(_POLL_S)
    return len(removed)


def runs(cluster: Cluster) -> set[str]:
    """Ids of the runs whose label something in the namespace carries."""
    return {thing["metadata"]["labels"][RUN] for _, thing in _labelled(cluster, RUN)}


def _labelled(cluster: Cluster, selector: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for api, kind in KINDS:
        listed = cluster.ask(api, f"list_namespaced_{kind}", label_selector=selector)
        for thing in listed["items"]:
            yield kind, thing


def _delete(cluster: Cluster, kind: str, thing: dict[str, Any], *, forced: bool) -> None:
    api = next(api for api, each in KINDS if each == kind)
    params: dict[str, Any] = {"propagation_policy": "Foreground"}
    if kind == "pod" and forced and _is_away(thing):
        # No kubelet is there to say that it has ended; its GPU is out of reach with its node.
        params["grace_period_seconds"] = 0
    elif "deletionTimestamp" in thing["metadata"]:
        return
    with suppress(Missing):
        cluster.ask(api, f"delete_namespaced_{kind}", thing["metadata"]["name"], **params)


def _is_away(pod: dict[str, Any]) -> bool:
    """Whether the cluster has given up the pod's node."""
    disruption = condition(pod, "DisruptionTarget") or {}
    reasons = (pod.get("status", {}).get("reason"), disruption.get("reason"))
    return "NodeLost" in reasons or "DeletionByTaintManager" in reasons
