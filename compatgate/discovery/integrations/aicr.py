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

from compatgate.discovery.integrations.objects import Body, is_true, items, part, text_of
from compatgate.discovery.node_labels import Node
from compatgate.discovery.nvidia_smi.report import Device, Report

_GROUPS = ("aicr.run", "aicr.nvidia.com", "cns.nvidia.com")
_OLD_GROUP = ".dgxc.io"
_MORE_NODES = re.compile(r"\(\+\d+ more\)$")
_PREFIXES = ("nvidia.com/", "kubernetes.io/", "feature.node.kubernetes.io/pci-")


class Snapshot(Struct, frozen=True):
    """What AICR saw of a node and its cluster.

    Attributes:
        node: that the snapshot was taken on; empty where it does not say.
        report: of the node's GPUs; None where nvidia-smi did not answer there; ``why`` says more.
        sku: token of the GPU's PCI device, ``h100``, which needs no driver.
        nodes: of the cluster with their labels; empty where they are not all there.
        policy: the ``driver`` of the ClusterPolicy; empty without one.
        notes: what it does not tell.
    """

    node: str
    report: Report | None
    why: str
    sku: str
    nodes: tuple[Node, ...]
    policy: Body
    notes: tuple[str, ...]


def is_aicr(body: Body, kind: str) -> bool:
    """Return whether an object is one of AICR's, of this kind or (a recipe) its result."""
    group = text_of(body.get("apiVersion")).partition("/")[0]
    ours = group in _GROUPS or group.endswith(_OLD_GROUP)
    if body.get("kind") in (kind, f"{kind}Result"):
        return ours
    # Test snapshots of AICR's own have no kind: measurements are their mark.
    return kind == "Snapshot" and "kind" not in body and bool(items(body, "measurements"))


def read_snapshot(body: Body) -> Snapshot:
    """Read a snapshot."""
    notes: list[str] = []
    smi, hardware = measurements_of(body, "GPU", "smi"), measurements_of(body, "GPU", "hardware")
    seen_on = text_of(part(body, "metadata").get("source-node"))
    node = text_of(measurements_of(body, "K8s", "node").get("source-node")) or seen_on
    report = _report(smi, notes)
    return Snapshot(
        node,
        report,
        "" if report else _why_no_gpu(hardware),
        text_of(hardware.get("model")),
        tuple(_nodes(body, notes)),
        unflattened(measurements_of(body, "K8s", "policy"), "driver"),
        tuple(notes),
    )


def measurements_of(body: Body, kind: str, subtype: str) -> Body:
    """Return the data of a measurement; empty where it was not made."""
    return part(_subtype(body, kind, subtype), "data")


def unflattened(flat: Body, under: str) -> Body:
    """Return values that are written as ``driver.version``, without what they are under."""
    prefix = f"{under}."
    return {key[len(prefix) :]: value for key, value in flat.items() if key.startswith(prefix)}


def _subtype(body: Body, kind: str, name: str) -> Body:
    for one in items(body, "measurements"):
        if one.get("type") == kind:
            for inner in items(one, "subtypes"):
                if inner.get("subtype") == name:
                    return inner
    return {}


def _report(smi: Body, notes: list[str]) -> Report | None:
    """Return the node's GPUs: AICR keeps the first one's name and how many there are."""
    product = text_of(smi.get("gpu.model"))
    if not product:
        return None
    count = _count(smi.get("gpu-count"))
    if count > 1:
        notes.append(f"AICR keeps the name of the first of {count} GPUs; all are taken to be alike")
    notes.append("AICR does not keep MIG devices; the GPU is taken to be whole")
    return Report(
        "AICR snapshot",
        driver=text_of(smi.get("driver") or smi.get("driver-version")) or None,
        cuda=text_of(smi.get("cuda-version")) or None,
        os="linux",
        devices=(Device(product),) * count,
    )


def _why_no_gpu(hardware: Body) -> str:
    if not hardware:
        return "the snapshot has no measurement of a GPU"
    if not is_true(hardware.get("gpu-present"), default=True):
        return "the node has no NVIDIA GPU"
    if not is_true(hardware.get("driver-loaded"), default=True):
        return "no driver was loaded on the node"
    return "nvidia-smi did not answer on the node"


def _nodes(body: Body, notes: list[str]) -> Iterator[Node]:
    """Yield the cluster's nodes with the labels that matter, where every list of nodes is whole."""
    labels = _subtype(body, "NodeTopology", "label")
    readings = list(_readings(labels))
    if any(_MORE_NODES.search(nodes) for _, _, nodes in readings):
        notes.append("the lists of nodes are cut off; the cluster's nodes are not told by it")
        return
    found: dict[str, dict[str, str]] = {}
    for key, value, nodes in readings:
        for name in filter(None, nodes.split(",")):
            found.setdefault(name.strip(), {})[key] = value
    for name, known in found.items():
        if any(key.startswith("nvidia.com/gpu") for key in known):
            yield Node(name, known)


def _readings(labels: Body) -> Iterator[tuple[str, str, str]]:
    """Key, value and nodes of each label; older snapshots fold the value into the key."""
    entries = items(labels, "items")
    for entry in entries:
        key = text_of(part(entry, "context").get("key"))
        if key.startswith(_PREFIXES):
            value = text_of(part(entry, "context").get("value"))
            yield key, value, text_of(part(entry, "data").get("node-list"))
    if entries:
        return
    for folded, reading in part(labels, "data").items():
        value, _, nodes = text_of(reading).partition("|")
        if folded.startswith(_PREFIXES):
            yield _unfolded(folded, value), value, nodes


def _unfolded(key: str, value: str) -> str:
    """Return the label's own key; ``nvidia.com/gpu.present.true`` is the folded ``...present``."""
    suffix = f".{value}"
    return key.removesuffix(suffix) if value and key.endswith(suffix) else key


def _count(value: object) -> int:
    text = text_of(value)
    return min(int(text), 1024) if text.isascii() and text.isdecimal() and int(text) else 1
