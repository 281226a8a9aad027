"""Read the labels of Kubernetes nodes, and group the nodes into pools.

GPU Feature Discovery (GFD) writes which GPUs and which driver a node has, Node Feature Discovery
(NFD) its kernel and distribution, and whether it has an NVIDIA device.

Source: NVIDIA/k8s-device-plugin ``docs/gpu-feature-discovery`` and ``internal/lm`` (which labels
exist, with and without MIG strategy and sharing).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from compatgate.core.facts import Facts
from compatgate.discovery.nvidia_smi.report import (
    NODE_LABELS,
    Device,
    Report,
    find_disagreements,
    group_pools,
)
from compatgate.discovery.observations import Conflict, ObservedPool
from compatgate.discovery.platforms import (
    add_vgpu_labels,
    read_label_parts,
    read_label_sharing,
    read_label_texts,
    recognise_platform,
)
from compatgate.errors import BadInput, quote_error

LARGEST = 512 * 1024 * 1024
"""Bytes of the largest accepted file; 5,000 nodes with their images are 150 MB of JSON."""
_MAX_LEVELS = 64
"""Nesting of a YAML text."""
LARGEST_YAML = 32 * 1024 * 1024
MAX_NODES = 100_000
_LONGEST_VALUE = 256
_MAX_NAMES = 5
_GPU = "nvidia.com/gpu"
_MIG = re.compile(r"nvidia\.com/(?P<resource>mig-(?P<profile>\d[\w.]*))\.(?:product|count)")
_CPUS = {"amd64": "x86_64", "arm64": "aarch64"}
_MAX_GPUS = 1024
_INVALID = "MIG-INVALID"
_PRESENT = (
    "nvidia.com/gpu.present",
    "feature.node.kubernetes.io/pci-10de.present",
    "feature.node.kubernetes.io/pci-0300_10de.present",
    "feature.node.kubernetes.io/pci-0302_10de.present",
)
"""Labels of the operator and of NFD that show an NVIDIA device, whether GFD ran or not."""
_HINT = "give kubectl get nodes -o json, or labels as key=value or key: value, one a line"
_PAIR = re.compile(r"(?P<key>[A-Za-z0-9][\w./-]*)\s*=\s*(?P<value>[\w.-]*)")


class Node(Struct, frozen=True):
    """A node: its name (empty where the text holds labels alone) and its labels.

    ``target`` is that of the annotation ``compatgate.dev/target``; empty without one.
    """

    name: str
    labels: dict[str, str]
    target: str = ""


class _Annotations(Struct):
    target: str = field(name="compatgate.dev/target", default="")


class _Metadata(Struct):
    name: str | None = None
    labels: dict[str, str] | None = None
    annotations: _Annotations | None = None


class _Object(Struct):
    """A node or a list of nodes; other fields are ignored."""

    kind: str | None = None
    metadata: _Metadata | None = None
    items: list[_Object] | None = None


def read_nodes(text: str, *, origin: str = "node labels") -> tuple[Node, ...]:
    """Read the nodes in a text.

    The text is a Node, a list of nodes, in JSON or YAML (several documents too), or labels alone: a
    mapping, or ``key=value`` separated by lines or commas.
    """
    clean = text.lstrip("\ufeff").strip()
    if not clean:
        raise BadInput("is empty", field=origin, hint=_HINT)
    if clean.startswith(("{", "[")):
        try:
            try:
                nodes = _nodes(msgspec.json.decode(clean, type=_Object), origin)
            except msgspec.ValidationError:
                nodes = tuple(_parse_document(msgspec.json.decode(clean), origin))
        except (msgspec.DecodeError, RecursionError) as error:
            what = f"is not JSON: {quote_error(error)}"
            raise BadInput(what, field=origin, hint=_HINT) from None
    else:
        nodes = _parse_pairs(clean) or tuple(
            node
            for document in parse_yaml(clean, origin, "is neither YAML nor labels", _HINT)
            for node in _parse_document(document, origin)
        )
    if not nodes:
        raise BadInput("has neither nodes nor labels", field=origin, hint=_HINT)
    if len(nodes) > MAX_NODES:
        raise BadInput(f"names more than {MAX_NODES} nodes", field=origin)
    return nodes


def _nodes(found: _Object, origin: str) -> tuple[Node, ...]:
    if found.items is not None:
        return tuple(node for item in found.items for node in _nodes(item, origin))
    if found.kind not in (None, "Node"):
        raise BadInput(f"is a {found.kind}, not a Node", field=origin, hint=_HINT)
    if found.metadata is None:
        raise msgspec.ValidationError("no metadata")
    about = found.metadata
    target = about.annotations.target.strip() if about.annotations else ""
    return (Node(about.name or "", about.labels or {}, target),)


def parse_yaml(text: str, origin: str, problem: str, hint: str) -> list[Any]:
    """Return the documents of a YAML text, each scalar as text: 550.10 is not the number 550.1."""
    import yaml

    if len(text) > LARGEST_YAML:
        raise BadInput("is too long for YAML", field=origin, hint="give JSON")
    loader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    depth = 0
    try:
        for event in yaml.parse(text, Loader=loader):
            if isinstance(event, yaml.AliasEvent):
                raise ValueError("aliases are not supported")
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > _MAX_LEVELS:
                raise ValueError("nested too deeply")
        return list(yaml.load_all(text, Loader=loader))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise BadInput(f"{problem}: {quote_error(error)}", field=origin, hint=hint) from None


def _parse_document(document: Any, origin: str) -> Iterator[Node]:
    if document is None or document == "":
        return
    if isinstance(document, list):
        for item in document:
            yield from _parse_document(item, origin)
        return
    if not isinstance(document, Mapping):
        raise BadInput("is neither a node nor labels", field=origin, hint=_HINT)
    if "items" in document or "metadata" in document:
        try:
            yield from _nodes(msgspec.convert(document, _Object, strict=False), origin)
        except (msgspec.ValidationError, RecursionError) as error:
            raise BadInput(
                f"is not a node: {quote_error(error)}", field=origin, hint=_HINT
            ) from None
        return
    stated = document.get("labels", document)
    labels: dict[str, str] = {}
    for key, value in stated.items() if isinstance(stated, Mapping) else (("", None),):
        if not isinstance(value, (str, int)) or len(str(value)) > _LONGEST_VALUE:
            raise BadInput("is neither a node nor labels", field=origin, hint=_HINT)
        labels[str(key)] = str(value).lower() if isinstance(value, bool) else str(value)
    yield Node("", labels)


def _parse_pairs(text: str) -> tuple[Node, ...]:
    """Read ``key=value`` on lines or between commas; return ``{}`` for other text."""
    labels: dict[str, str] = {}
    for line in text.splitlines():
        clean = line.strip().removeprefix("Labels:").strip()
        if not clean or clean.startswith("#"):
            continue
        for item in filter(None, (part.strip() for part in clean.split(","))):
            match = _PAIR.fullmatch(item)
            if match is None:
                return ()
            labels[match["key"]] = match["value"]
    return (Node("", labels),) if labels else ()


class NodeDescription(Struct, frozen=True):
    """The GPUs and CPU of one node, as its labels tell them; a note on missing or contrary ones."""

    report: Report | None
    cpu: str | None = None
    note: str = ""


def describe_node(labels: Mapping[str, str]) -> NodeDescription:
    """Read the labels of a node."""
    devices, note = _devices(labels)
    cpu = _CPUS.get(labels.get("kubernetes.io/arch", labels.get("beta.kubernetes.io/arch", "")))
    if not devices:
        return NodeDescription(None, cpu, note)
    system = labels.get("kubernetes.io/os", labels.get("beta.kubernetes.io/os", "linux"))
    report = Report(
        NODE_LABELS,
        driver=_driver(labels),
        # GFD calls the newest CUDA that the driver supports the runtime
        cuda=_major_minor(labels, "nvidia.com/cuda.runtime-version")
        or _major_minor(labels, "nvidia.com/cuda.runtime"),
        os="windows" if system == "windows" else "linux",
        devices=devices,
        node=read_label_parts(labels),
    )
    return NodeDescription(add_vgpu_labels(report, labels), cpu, note)


def label_platform(labels: Mapping[str, str], report: Report | None, facts: Facts) -> str | None:
    """Return the platform of a node by its labels; None where the facts do not know it."""
    gpus = [device.name for device in report.devices] if report else []
    return recognise_platform(read_label_texts(labels), gpus, facts)


def _devices(labels: Mapping[str, str]) -> tuple[tuple[Device, ...], str]:
    product = labels.get(f"{_GPU}.product", "")
    capability = _major_minor(labels, f"{_GPU}.compute")
    slices: tuple[Device, ...] = ()  # MIG strategy ``mixed``: each kind has labels of its own
    resources = {match["resource"] for name in labels if (match := _MIG.fullmatch(name))}
    for resource in sorted(resources):
        profile = resource.removeprefix("mig-")
        named = labels.get(f"nvidia.com/{resource}.product") or f"{product}-MIG-{profile}"
        device = Device(named.removesuffix("-SHARED"), capability=capability)
        slices += (device,) * _count(labels.get(f"nvidia.com/{resource}.count"))
    if product.endswith((_INVALID, f"{_INVALID}-SHARED")):
        return (
            slices,
            "the node's MIG devices do not fit the strategy 'single', so GFD labels none of them",
        )
    whole: tuple[Device, ...] = ()
    # GFD, replicas 0: every GPU of this product is in MIG mode, none is allocated whole
    if (product or capability) and not (slices and labels.get(f"{_GPU}.replicas") == "0"):
        name = product.removesuffix("-SHARED") or str(capability)
        memory = labels.get(f"{_GPU}.memory", "")
        mib = int(memory) if _number(memory) else 0
        device = Device(name, memory_mib=mib or None, capability=capability)
        whole = (device,) * _count(labels.get(f"{_GPU}.count"))
    note = ""
    if not whole and not slices and any(labels.get(name) == "true" for name in _PRESENT):
        note = "the node has an NVIDIA device that no label of GPU Feature Discovery names"
    return (*whole, *slices), note


def _driver(labels: Mapping[str, str]) -> str | None:
    """Return the driver's version from one label or from its parts; older GFD wrote parts alone."""
    full = labels.get("nvidia.com/cuda.driver-version.full")
    if full:
        return full
    for prefix, last in (("driver-version", "revision"), ("driver", "rev")):
        names = (f"nvidia.com/cuda.{prefix}.{part}" for part in ("major", "minor", last))
        parts = [labels.get(name, "") for name in names]
        if parts[0] and parts[1]:
            return ".".join(filter(None, parts))
    return None


def _major_minor(labels: Mapping[str, str], prefix: str) -> str | None:
    major, minor = labels.get(f"{prefix}.major"), labels.get(f"{prefix}.minor")
    return f"{major}.{minor}" if _number(major) and _number(minor) else None


def _number(text: str | None) -> bool:
    return bool(text and text.isascii() and text.isdecimal())


def _count(text: str | None) -> int:
    """Return a count: 1 where the label is missing, 0 where it says 0."""
    return min(int(text), _MAX_GPUS) if text and _number(text) else 1


class NodePools(Struct, frozen=True):
    """Pools of nodes, with notes (on nodes without a pool and missing labels) and conflicts.

    There is one per GPU product, driver, system, kind of CPU, platform, kernel and distribution.
    """

    pools: tuple[ObservedPool, ...]
    notes: tuple[str, ...]
    conflicts: tuple[Conflict, ...]


def group_nodes(nodes: Iterable[Node], facts: Facts, *, origin: str = "node labels") -> NodePools:
    """Group nodes by their GPUs, driver, system, CPU, platform, kernel and distribution."""
    pools: Counter[ObservedPool] = Counter()
    without: list[str] = []
    notes: dict[str, list[str]] = {}
    conflicts: dict[Conflict, None] = {}
    for node in nodes:
        described = describe_node(node.labels)
        if described.note:
            notes.setdefault(described.note, []).append(node.name)
        elif described.report is None:
            without.append(node.name)
        pools.update(_pools(node, described, facts, notes, conflicts))
    if pools and without:
        notes["no label names a GPU"] = without
    sentences: list[str] = []
    for note, names in notes.items():
        shown = [name for name in names if name]  # a text may hold labels alone
        listed = ", ".join(shown[:_MAX_NAMES]) + (", ..." if len(shown) > _MAX_NAMES else "")
        plural = "s" if len(shown) > 1 else ""
        sentences.append(f"{len(shown)} node{plural} ({listed}): {note}" if shown else note)
    if not pools:
        raise BadInput(
            "no node is labelled with a GPU" + (f": {'; '.join(sentences)}" if sentences else ""),
            field=origin,
            hint="GPU Feature Discovery writes nvidia.com/gpu.product and its companions",
        )
    counted = []
    taken: Counter[str] = Counter()
    for pool, count in pools.items():  # those of one GPU get distinct names
        taken[pool.name] += 1
        name = f"{pool.name}-{taken[pool.name]}" if taken[pool.name] > 1 else pool.name
        counted.append(replace(pool, nodes=count, name=name))
    return NodePools(tuple(counted), tuple(sentences), tuple(conflicts))


def _pools(
    node: Node,
    described: NodeDescription,
    facts: Facts,
    notes: dict[str, list[str]],
    conflicts: dict[Conflict, None],
) -> list[ObservedPool]:
    if described.report is None:
        return []
    platform = label_platform(node.labels, described.report, facts)
    sharing = read_label_sharing(node.labels)
    pools = group_pools(described.report, facts.gpus)
    for note in pools.notes:
        notes.setdefault(note, []).append(node.name)
    conflicts |= dict.fromkeys(find_disagreements(described.report, facts))
    # A pool may have 8 GPUs on one node and 4 on another.
    common = {"cpu": described.cpu, "devices": 1, "sharing": sharing}
    return [replace(pool, platform=platform or pool.platform, **common) for pool in pools.pools]
