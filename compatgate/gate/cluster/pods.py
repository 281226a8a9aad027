"""Pods that run on a cluster and ask for GPUs, as the questions that decide about them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from msgspec import Struct

from compatgate.errors import BadInput
from compatgate.gate.admission.kinds import Kinds, PodKind
from compatgate.gate.admission.loose import items, mapping, text, texts
from compatgate.gate.admission.pods import gpu_containers, pods_of
from compatgate.gate.cluster.connect import Api

POD = PodKind("Pod", "pods", pod=True)
_OVER = ("Succeeded", "Failed")
_SELECTOR = ",".join(f"status.phase!={phase}" for phase in _OVER)
_PULLED = re.compile(r"(?:[a-z-]+://)?([^@\s]+@sha256:[0-9a-f]{64})")
_ABSENT = "\0"
"""No label has this value."""
_KEPT = ("nodeSelector", "affinity", "resourceClaims", "runtimeClassName", "volumes")
_LISTS = {
    "containers": "containerStatuses",
    "initContainers": "initContainerStatuses",
    "ephemeralContainers": "ephemeralContainerStatuses",
}


class RunningPod(Struct, frozen=True):
    """A pod that has a node and asks for GPUs.

    Attributes:
        document: metadata's annotations and the spec, images as they were pulled.
    """

    namespace: str
    name: str
    uid: str
    node: str
    document: Mapping[str, Any]


def running_pods(
    api: Api, kinds: Kinds, namespace: str | None = None, excluded: Collection[str] = ()
) -> list[RunningPod]:
    """The GPU pods of a cluster, or of one namespace, by namespace and name.

    Args:
        api: of the cluster.
        kinds: which resources are GPUs.
        namespace: only this one, whether it is excluded or not.
        excluded: namespaces that are left out.

    Raises:
        CompatgateError: as `Api.ask`; then nothing is known of the rest either.
    """

    def keep(body: dict[str, Any]) -> RunningPod | None:
        found = pod_of(body, kinds)
        return None if found and not namespace and found.namespace in excluded else found

    operation = "list_namespaced_pod" if namespace else "list_pod_for_all_namespaces"
    args = (namespace,) if namespace else ()
    found = api.listed("core", operation, *args, keep=keep, field_selector=_SELECTOR)
    return sorted(found, key=lambda pod: (pod.namespace, pod.name))


def pod_of(body: Mapping[str, Any], kinds: Kinds) -> RunningPod | None:
    """What is kept of a Pod object; None: it does not run, or uses no GPU."""
    metadata, spec = mapping(body.get("metadata")), mapping(body.get("spec"))
    status, node = mapping(body.get("status")), text(spec.get("nodeName"))
    if not node or status.get("phase") in _OVER:
        return None
    document = {
        "metadata": {"annotations": texts(metadata.get("annotations"))},
        "spec": _pulled(spec, status),
    }
    if not _uses_gpus(document, kinds):
        return None
    namespace, name, uid = (text(metadata.get(key)) for key in ("namespace", "name", "uid"))
    return RunningPod(namespace, name, uid, node, document)


def _uses_gpus(document: Mapping[str, Any], kinds: Kinds) -> bool:
    try:
        return any(True for pod in pods_of(document, POD) for _ in gpu_containers(pod, kinds))
    except BadInput:  # what its annotation means is not known; the audit says so
        return True


def placed(
    pod: RunningPod, labels: Mapping[str, str] | None, keys: Iterable[str]
) -> Mapping[str, Any]:
    """The pod as bound for the node that it runs on, whatever it once selected.

    Args:
        pod: that runs.
        labels: of its node; None: they are not known, and the pod's own selection counts.
        keys: of labels by which targets are told; one that the node has not excludes them.
    """
    if labels is None:
        return pod.document
    selected = {key: labels.get(key, _ABSENT) for key in keys}
    spec = {**pod.document["spec"], "nodeSelector": selected, "affinity": {}}
    return {**pod.document, "spec": spec}


def _pulled(spec: Mapping[str, Any], status: Mapping[str, Any]) -> dict[str, Any]:
    """The spec with the images that run, by digest, where the node tells them."""
    whole = {key: spec[key] for key in _KEPT if key in spec}
    for part, told in _LISTS.items():
        pulled = {
            text(one.get("name")): found[1]
            for one in map(mapping, items(status.get(told)))
            if (found := _PULLED.fullmatch(text(one.get("imageID"))))
        }
        containers = [mapping(container) for container in items(spec.get(part))]
        whole[part] = [
            {**c, "image": pulled.get(text(c.get("name")), text(c.get("image")))}
            for c in containers
        ]
    return whole
