"""Read the nodes of a cluster as reports.

Nodes come live, or as ``kubectl get nodes -o json`` printed them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from compatgate.errors import BadInput, quote_error
from compatgate.kit.cluster_api import ClusterApi
from compatgate.kit.kubernetes import (
    UNREPORTED_LABELS,
    read_labels,
    read_list,
    read_mapping,
    read_text,
)
from compatgate.service.cluster.admission.kinds import shipped_kinds
from compatgate.service.cluster.admission.matching import TARGET
from compatgate.service.nodes.reports import schemas as report
from compatgate.strict_json import DECODE_ERRORS

_LARGEST_REPORT = 512 * 1024
"""Maximum size of a report in bytes; a server accepts 1 MiB by default."""
_FIRST_LABELS = (
    "nvidia.com/",
    "compatgate.dev/",
    "kubernetes.io/",
    "node.kubernetes.io/",
    "topology.kubernetes.io/",
)
"""Prefixes of labels that a report keeps first if a node has too many."""
_KEY, _VALUE = re.compile(report.KEY_PATTERN), re.compile(report.VALUE_PATTERN)
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_MAX_TAINTS = 64
_NAME, _TARGET = re.compile(report.NAME_PATTERN), re.compile(report.TARGET_PATTERN)


class ClusterNode(Struct, frozen=True):
    """The relevant fields of a Node object.

    Attributes:
        allocatable: resources that the kubelet hands out; None: not reported.
        version: ``resourceVersion``; the server refuses a change made from an older one.
    """

    name: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    allocatable: Mapping[str, int] | None
    taints: tuple[Mapping[str, Any], ...] = ()
    version: str = ""

    @property
    def has_gpus(self) -> bool:
        """Return whether labels or resources show an NVIDIA GPU."""
        return bool(self.allocatable) or any(key.startswith("nvidia.com/") for key in self.labels)

    def to_report(self) -> dict[str, Any]:
        """Convert the node to a `compatgate.service.nodes.reports.schemas.NodeReport`."""
        labels = {key: value for key, value in self.labels.items() if _is_label(key, value)}
        body: dict[str, Any] = {
            "name": self.name,
            "labels": dict(sorted(labels.items(), key=_rank)[: report.MAX_LABELS]),
        }
        taints = [taint for raw in self.taints if (taint := _taint(raw))]
        body["taints"] = taints[:_MAX_TAINTS]
        if self.allocatable is not None:
            body["allocatable"] = dict(self.allocatable)
        named = self.annotations.get(TARGET, "").strip()
        if _TARGET.fullmatch(named):
            body["target"] = named
        return body


def list_nodes(api: ClusterApi) -> list[ClusterNode]:
    """Return the nodes of a cluster; raise as `Api.ask`."""
    return api.listed("core", "list_node", keep=node_of)


def parse_nodes(raw: bytes, origin: str) -> list[ClusterNode]:
    """Parse the output of ``kubectl get nodes -o json``, or one of its nodes."""
    hint = "use the output of kubectl get nodes -o json"
    try:
        document = msgspec.json.decode(raw)
    except DECODE_ERRORS as error:
        raise BadInput(f"is not JSON: {quote_error(error)}", field=origin, hint=hint) from None
    whole = read_mapping(document)
    listed = read_list(whole.get("items")) if "items" in whole else [whole]
    found = [node for item in listed if (node := node_of(read_mapping(item)))]
    if not found:
        raise BadInput("contains no node", field=origin, hint=hint)
    return found


def node_of(body: Mapping[str, Any]) -> ClusterNode | None:
    """Read a Node object; None: it is not a node, or has no valid name."""
    metadata, spec = read_mapping(body.get("metadata")), read_mapping(body.get("spec"))
    name = read_text(metadata.get("name"))
    if body.get("kind", "Node") != "Node" or not _NAME.fullmatch(name):
        return None
    allocatable = read_mapping(body.get("status")).get("allocatable")
    return ClusterNode(
        name,
        read_labels(metadata.get("labels")),
        read_labels(metadata.get("annotations")),
        dict(_resources(allocatable)) if isinstance(allocatable, dict) else None,
        tuple(read_mapping(taint) for taint in read_list(spec.get("taints"))),
        read_text(metadata.get("resourceVersion")),
    )


def make_reports(nodes: Iterable[ClusterNode], cluster: str) -> Iterator[dict[str, Any]]:
    """Split nodes into reports that are small enough to send."""
    batch: list[dict[str, Any]] = []
    size = 0
    for node in nodes:
        body = node.to_report()
        length = len(msgspec.json.encode(body))
        if batch and (len(batch) >= report.MAX_NODES or size + length > _LARGEST_REPORT):
            yield {"cluster": cluster, "nodes": batch}
            batch, size = [], 0
        batch.append(body)
        size += length
    if batch:
        yield {"cluster": cluster, "nodes": batch}


def _resources(stated: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    for name, count in stated.items():
        if shipped_kinds().is_gpu(name) and str(count).isascii() and str(count).isdecimal():
            yield name, min(int(str(count)[:6]), 65536)


def _taint(raw: Mapping[str, Any]) -> dict[str, str] | None:
    """Return a taint for a report; None: it is malformed."""
    key, effect, value = (read_text(raw.get(name)) for name in ("key", "effect", "value"))
    well_formed = _KEY.fullmatch(key) and _VALUE.fullmatch(value) and effect in _EFFECTS
    return {"key": key, "effect": effect, "value": value} if well_formed else None


def _is_label(key: str, value: str) -> bool:
    return (
        not UNREPORTED_LABELS.match(key)
        and _KEY.fullmatch(key) is not None
        and _VALUE.fullmatch(value) is not None
    )


def _rank(label: tuple[str, str]) -> tuple[bool, str]:
    return (not label[0].startswith(_FIRST_LABELS), label[0])
