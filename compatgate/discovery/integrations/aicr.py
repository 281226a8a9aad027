"""Read snapshots of AICR (NVIDIA AI Cluster Runtime; before that Eidos, and Cloud Native Stack).

Sources: NVIDIA/aicr ``pkg/measurement/types.go`` (form), ``pkg/collector/gpu/gpu.go`` (GPU: the
first device of ``nvidia-smi -q -x``), ``pkg/collector/k8s/policy.go`` (ClusterPolicy, flattened),
``pkg/collector/topology/topology.go`` and ``docs/integrator/measurement-api.md`` (labels of all
nodes), ``docs/design/013-aicr-run-domain-migration.md`` (API groups).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

from compatgate.discovery.integrations.gpu_operator import (
    Body,
    list_objects,
    nested_object,
    read_flag,
    scalar_text,
)
from compatgate.discovery.node_labels import Node
from compatgate.discovery.nvidia_smi.report import Device, Report

_GROUPS = ("aicr.run", "aicr.nvidia.com", "cns.nvidia.com")
_OLD_GROUP = ".dgxc.io"
_MORE_NODES = re.compile(r"\(\+\d+ more\)$")
_PREFIXES = ("nvidia.com/", "kubernetes.io/", "feature.node.kubernetes.io/pci-")


class Snapshot(Struct, frozen=True):
    """A snapshot of a node and its cluster.

    Attributes:
        node: node of the snapshot; empty where the snapshot does not name it.
        report: GPUs of the node; None where nvidia-smi did not answer; ``why`` explains.
        sku: token of the GPU's PCI device, ``h100``, which needs no driver.
        nodes: nodes of the cluster with their labels; empty where the lists are incomplete.
        policy: the ``driver`` of the ClusterPolicy; empty without one.
        notes: sentences about missing information.
    """

    node: str
    report: Report | None
    why: str
    sku: str
    nodes: tuple[Node, ...]
    policy: Body
    notes: tuple[str, ...]


def is_aicr_object(body: Body, kind: str) -> bool:
    """Return whether an object is AICR's and of this kind, or the result of a recipe."""
    group = scalar_text(body.get("apiVersion")).partition("/")[0]
    ours = group in _GROUPS or group.endswith(_OLD_GROUP)
    if body.get("kind") in (kind, f"{kind}Result"):
        return ours
    # AICR's test snapshots have no kind; measurements identify them.
    return kind == "Snapshot" and "kind" not in body and bool(list_objects(body, "measurements"))


def read_snapshot(body: Body) -> Snapshot:
    """Read a snapshot."""
    notes: list[str] = []
    smi, hardware = (
        read_measurements(body, "GPU", "smi"),
        read_measurements(body, "GPU", "hardware"),
    )
    seen_on = scalar_text(nested_object(body, "metadata").get("source-node"))
    node = scalar_text(read_measurements(body, "K8s", "node").get("source-node")) or seen_on
    report = _report(smi, notes)
    return Snapshot(
        node,
        report,
        "" if report else _why_no_gpu(hardware),
        scalar_text(hardware.get("model")),
        tuple(_nodes(body, notes)),
        unflatten(read_measurements(body, "K8s", "policy"), "driver"),
        tuple(notes),
    )


def read_measurements(body: Body, kind: str, subtype: str) -> Body:
    """Return the data of a measurement; empty where the snapshot lacks it."""
    return nested_object(_subtype(body, kind, subtype), "data")


def unflatten(flat: Body, under: str) -> Body:
    """Return values below a prefix of flattened keys (``driver.version``) without the prefix."""
    prefix = f"{under}."
    return {key[len(prefix) :]: value for key, value in flat.items() if key.startswith(prefix)}


def _subtype(body: Body, kind: str, name: str) -> Body:
    for one in list_objects(body, "measurements"):
        if one.get("type") == kind:
            for inner in list_objects(one, "subtypes"):
                if inner.get("subtype") == name:
                    return inner
    return {}


def _report(smi: Body, notes: list[str]) -> Report | None:
    """Return the node's GPUs: AICR records the first GPU's name and the count."""
    product = scalar_text(smi.get("gpu.model"))
    if not product:
        return None
    count = _count(smi.get("gpu-count"))
    if count > 1:
        notes.append(
            f"AICR records the name of the first of {count} GPUs; assuming that all are alike"
        )
    notes.append("AICR does not record MIG devices; assuming that the GPU is whole")
    return Report(
        "AICR snapshot",
        driver=scalar_text(smi.get("driver") or smi.get("driver-version")) or None,
        cuda=scalar_text(smi.get("cuda-version")) or None,
        os="linux",
        devices=(Device(product),) * count,
    )


def _why_no_gpu(hardware: Body) -> str:
    if not hardware:
        return "the snapshot has no measurement of a GPU"
    if not read_flag(hardware.get("gpu-present"), default=True):
        return "the node has no NVIDIA GPU"
    if not read_flag(hardware.get("driver-loaded"), default=True):
        return "no driver was loaded on the node"
    return "nvidia-smi did not answer on the node"


def _nodes(body: Body, notes: list[str]) -> Iterator[Node]:
    """Yield the cluster's nodes with their GPU labels, if every list of nodes is complete."""
    labels = _subtype(body, "NodeTopology", "label")
    readings = list(_readings(labels))
    if any(_MORE_NODES.search(nodes) for _, _, nodes in readings):
        notes.append(
            "the snapshot's lists of nodes are truncated; the cluster's nodes are not known"
        )
        return
    found: dict[str, dict[str, str]] = {}
    for key, value, nodes in readings:
        for name in filter(None, nodes.split(",")):
            found.setdefault(name.strip(), {})[key] = value
    for name, known in found.items():
        if any(key.startswith("nvidia.com/gpu") for key in known):
            yield Node(name, known)


def _readings(labels: Body) -> Iterator[tuple[str, str, str]]:
    """Yield key, value and nodes of each label; older snapshots fold the value into the key."""
    entries = list_objects(labels, "items")
    for entry in entries:
        key = scalar_text(nested_object(entry, "context").get("key"))
        if key.startswith(_PREFIXES):
            value = scalar_text(nested_object(entry, "context").get("value"))
            yield key, value, scalar_text(nested_object(entry, "data").get("node-list"))
    if entries:
        return
    for folded, reading in nested_object(labels, "data").items():
        value, _, nodes = scalar_text(reading).partition("|")
        if folded.startswith(_PREFIXES):
            yield _unfold_key(folded, value), value, nodes


def _unfold_key(key: str, value: str) -> str:
    """Return the key without a folded value: ``nvidia.com/gpu.present`` of ``...present.true``."""
    suffix = f".{value}"
    return key.removesuffix(suffix) if value and key.endswith(suffix) else key


def _count(value: object) -> int:
    text = scalar_text(value)
    return min(int(text), 1024) if text.isascii() and text.isdecimal() and int(text) else 1
