"""Nodes of a cluster, live or as ``kubectl get nodes -o json`` printed them, as reports."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from compatgate.errors import BadInput
from compatgate.gate.admission.bound import TARGET
from compatgate.gate.admission.loose import items, mapping, text, texts
from compatgate.gate.cluster.connect import Api
from compatgate.not_json import NOT_JSON
from compatgate.wire import node_reports as report

_LARGEST_REPORT = 512 * 1024
"""Bytes; a server takes 1 MiB unless it is told otherwise."""
_GPU = re.compile(r"nvidia\.com/(gpu|mig-[A-Za-z0-9.-]+)(\.shared)?")
_LEFT_OUT = re.compile(r"feature\.node\.kubernetes\.io/(?!pci-|rdma|network)|beta\.kubernetes\.io/")
"""What NFD says of processor and kernel: a hundred labels that nothing here reads."""
_FIRST = ("nvidia.com/", "compatgate.dev/", "kubernetes.io/", "topology.kubernetes.io/")
"""Kept before all others where a node has more labels than a report takes."""
_KEY, _VALUE = re.compile(report.KEY_PATTERN), re.compile(report.VALUE_PATTERN)
_NAME, _TARGET = re.compile(report.NAME_PATTERN), re.compile(report.TARGET_PATTERN)


class ClusterNode(Struct, frozen=True):
    """What is read of a Node object.

    Attributes:
        allocatable: what the kubelet hands out; None: it says nothing.
        version: ``resourceVersion``; a change made from it is refused once there is a later one.
        taints: as they stand.
    """

    name: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    allocatable: Mapping[str, int] | None
    taints: tuple[Mapping[str, Any], ...] = ()
    version: str = ""

    @property
    def has_gpus(self) -> bool:
        """Whether anything says that there is an NVIDIA GPU."""
        return bool(self.allocatable) or any(key.startswith("nvidia.com/") for key in self.labels)

    def to_report(self) -> dict[str, Any]:
        """The node as `compatgate.wire.node_reports.NodeReport` reads it."""
        labels = {key: value for key, value in self.labels.items() if _is_label(key, value)}
        body: dict[str, Any] = {
            "name": self.name,
            "labels": dict(sorted(labels.items(), key=_rank)[: report.MOST_LABELS]),
        }
        if self.allocatable is not None:
            body["allocatable"] = dict(self.allocatable)
        named = self.annotations.get(TARGET, "").strip()
        if _TARGET.fullmatch(named):
            body["target"] = named
        return body


def live_nodes(api: Api) -> list[ClusterNode]:
    """The nodes of a cluster; raises as `Api.ask`."""
    return api.listed("core", "list_node", keep=node_of)


def printed_nodes(raw: bytes, origin: str) -> list[ClusterNode]:
    """Nodes as ``kubectl get nodes -o json`` prints them, or one of them.

    Raises:
        BadInput: it is no JSON, or holds no node.
    """
    hint = "give what kubectl get nodes -o json prints"
    try:
        document = msgspec.json.decode(raw)
    except NOT_JSON as error:
        raise BadInput(f"is not JSON: {error}", field=origin, hint=hint) from None
    whole = mapping(document)
    listed = items(whole.get("items")) if "items" in whole else [whole]
    found = [node for item in listed if (node := node_of(mapping(item)))]
    if not found:
        raise BadInput("holds no node", field=origin, hint=hint)
    return found


def node_of(body: Mapping[str, Any]) -> ClusterNode | None:
    """What is read of a Node object; None: it is none, or has no name that could be reported."""
    metadata, spec = mapping(body.get("metadata")), mapping(body.get("spec"))
    name = text(metadata.get("name"))
    if body.get("kind", "Node") != "Node" or not _NAME.fullmatch(name):
        return None
    allocatable = mapping(body.get("status")).get("allocatable")
    return ClusterNode(
        name,
        texts(metadata.get("labels")),
        texts(metadata.get("annotations")),
        dict(_resources(allocatable)) if isinstance(allocatable, dict) else None,
        tuple(mapping(taint) for taint in items(spec.get("taints"))),
        text(metadata.get("resourceVersion")),
    )


def reports(nodes: Iterable[ClusterNode], cluster: str) -> Iterator[dict[str, Any]]:
    """Reports of nodes, each small enough to be sent."""
    batch: list[dict[str, Any]] = []
    size = 0
    for node in nodes:
        body = node.to_report()
        length = len(msgspec.json.encode(body))
        if batch and (len(batch) >= report.MOST_NODES or size + length > _LARGEST_REPORT):
            yield {"cluster": cluster, "nodes": batch}
            batch, size = [], 0
        batch.append(body)
        size += length
    if batch:
        yield {"cluster": cluster, "nodes": batch}


def _resources(stated: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    for name, count in stated.items():
        if _GPU.fullmatch(name) and str(count).isascii() and str(count).isdecimal():
            yield name, min(int(str(count)[:6]), 65536)


def _is_label(key: str, value: str) -> bool:
    return (
        not _LEFT_OUT.match(key)
        and _KEY.fullmatch(key) is not None
        and _VALUE.fullmatch(value) is not None
    )


def _rank(label: tuple[str, str]) -> tuple[bool, str]:
    return (not label[0].startswith(_FIRST), label[0])
