"""Read node reports: what each source (labels, kubelet, driver) says, and which source counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, TypedDict

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.facts import Facts
from compatgate.core.gpus import find_gpu
from compatgate.core.node import NODE_COMPONENTS, read_node, read_platform
from compatgate.core.versions import parse_version
from compatgate.discovery.node_labels import describe_node, label_platform
from compatgate.discovery.nvidia_smi.report import Report as SmiReport
from compatgate.discovery.nvidia_smi.report import find_disagreements, group_pools
from compatgate.discovery.observations import NodeParts
from compatgate.discovery.platforms import read_label_parts
from compatgate.errors import BadInput
from compatgate.kit import clock
from compatgate.service.cluster.kinds import shipped_kinds
from compatgate.service.nodes.schemas import (
    GpusBody,
    NodeReport,
    SeenGpus,
    SourceKind,
    WitnessBody,
)

OUTDATED_AFTER = timedelta(days=1)
"""Age difference up to which a driver's report overrides the labels."""
SHARED_SUFFIX = ".shared"
"""Suffix of a resource that several containers share."""
_GPU = "nvidia.com/gpu"
_MIG = "nvidia.com/mig-"


def source_reports(node: NodeReport, at: datetime, facts: Facts) -> dict[SourceKind, WitnessBody]:
    """Return the sources of a report of a time."""
    sources: dict[SourceKind, WitnessBody] = {}
    if node.labels is not None:
        sources["labels"] = _read_labels(node.labels, at, facts)
    if node.allocatable is not None:
        resources = {k: v for k, v in node.allocatable.items() if shipped_kinds().is_gpu(k)}
        sources["kubelet"] = WitnessBody("kubelet", at, resources=resources)
    if (probe := node.probe) is not None:
        sources["driver"] = WitnessBody(
            "driver",
            at,
            probe.driver,
            probe.cuda,
            count_gpus(probe.gpus, facts),
            read_platform(probe.platform, "platform") if probe.platform else None,
            read_node(probe.node, "node"),
        )
    return sources


def _read_labels(labels: Mapping[str, str], at: datetime, facts: Facts) -> WitnessBody:
    described = describe_node(labels)
    report = described.report
    remarks = [described.note] if described.note else []
    platform = label_platform(labels, report, facts)
    source = WitnessBody("labels", at, platform=platform, node=read_label_parts(labels))
    if report is None:
        return replace(source, remarks=remarks)
    gpus: list[GpusBody] = []
    try:
        grouped = group_pools(report, facts.gpus)
    except BadInput as error:
        remarks.append(error.problem)
    else:
        remarks += grouped.notes
        gpus = count_gpus((SeenGpus(pool.gpu, pool.devices) for pool in grouped.pools), facts)
    remarks += [conflict.message for conflict in find_disagreements(report, facts)]
    return replace(
        source,
        driver=report.driver,
        cuda=report.cuda,
        gpus=gpus,
        resources=_expected_resources(labels, report),
        remarks=remarks,
    )


def count_gpus(kinds: Iterable[SeenGpus], facts: Facts) -> list[GpusBody]:
    """Add up GPUs of the same SKU, sorted by SKU."""
    counts: dict[str, int] = {}
    for one in kinds:
        sku = sku_of(one.gpu, facts)
        counts[sku] = counts.get(sku, 0) + one.count
    return sorted(GpusBody(sku, count) for sku, count in counts.items())


def sku_of(text: str, facts: Facts) -> str:
    """Return the SKU of a spelling, or the spelling itself if the facts do not know it."""
    gpu = find_gpu(text, facts.gpus)
    return gpu.sku if gpu else text


def _expected_resources(labels: Mapping[str, str], report: SmiReport) -> dict[str, int]:
    """Return the resources that a device plugin derives from the labels, with sharing."""

    def number(name: str) -> int:
        text = labels.get(name, "")
        return min(int(text), 65536) if text.isascii() and text.isdecimal() else 0

    mixed = {
        name.partition(".count")[0]
        for name in labels
        if name.startswith(_MIG) and name.endswith(".count")
    }
    resources = {one: number(f"{one}.count") for one in sorted(mixed)}
    if not mixed and report.devices:
        resources[_GPU] = len(report.devices)
    return {name: count * max(1, number(f"{name}.replicas")) for name, count in resources.items()}


class NodeConclusion(Struct, frozen=True):
    """The deciding driver and GPUs of a node; each disagreement names the deciding source."""

    driver: str | None
    gpus: tuple[GpusBody, ...]
    disagreements: tuple[str, ...]


def weigh_sources(witnesses: Mapping[SourceKind, WitnessBody]) -> NodeConclusion:
    """Weigh sources: the driver's own report decides, unless it is out of date."""
    labels, own = witnesses.get("labels"), witnesses.get("driver")
    ordered = rank_sources(witnesses)
    texts: list[str] = []
    if labels and own:
        decides = "the driver's own report decides"
        if ordered[0] is labels:
            when = clock.readable(own.seen_at)
            decides = f"the driver's own report is of {when}, long before the labels, which decide"
        texts += [f"{text}: {decides}" for text in _find_disagreements(labels, own)]
    if labels and (kubelet := witnesses.get("kubelet")):
        texts += [
            f"the labels make {expected} of {name}, the kubelet hands out {given}"
            for name, (expected, given) in mismatched_resources(labels, kubelet).items()
        ]
    texts += [remark for witness in witnesses.values() for remark in witness.remarks]
    driver = next((one.driver for one in ordered if one.driver), None)
    gpus = next((one.gpus for one in ordered if one.gpus), [])
    return NodeConclusion(driver, tuple(gpus), tuple(dict.fromkeys(texts)))


def _find_disagreements(labels: WitnessBody, own: WitnessBody) -> Iterator[str]:
    if labels.driver and own.driver and not is_same_driver(labels.driver, own.driver):
        yield f"the labels say driver {labels.driver}, the driver itself {own.driver}"
    if labels.gpus and own.gpus and labels.gpus != own.gpus:
        texts = format_gpus(labels.gpus), format_gpus(own.gpus)
        yield f"the labels say {texts[0]}, the driver itself {texts[1]}"
    parts, others = ({**one.node, "platform": one.platform} for one in (labels, own))
    for name, value in parts.items():
        if value and (other := others.get(name)) and other != value:
            yield f"the labels say {name} {value}, the node itself {other}"


def rank_sources(witnesses: Mapping[SourceKind, WitnessBody]) -> tuple[WitnessBody, ...]:
    """Rank the sources of driver and GPUs; the first one decides."""
    labels, own = witnesses.get("labels"), witnesses.get("driver")
    outdated = bool(labels and own and labels.seen_at - own.seen_at > OUTDATED_AFTER)
    return tuple(one for one in ((labels, own) if outdated else (own, labels)) if one)


def mismatched_resources(labels: WitnessBody, kubelet: WitnessBody) -> dict[str, tuple[int, int]]:
    """Return the expected and the actual number of resources, where they differ, by name."""
    actual = kubelet.resources
    counts = {
        name: (expected, actual.get(name, 0) + actual.get(f"{name}{SHARED_SUFFIX}", 0))
        for name, expected in labels.resources.items()
    }
    return {name: both for name, both in counts.items() if both[0] != both[1]}


def is_same_driver(one: str, other: str) -> bool:
    """Return whether two spellings are the same driver, like ``535.54.03`` and ``535.54.3``."""
    try:
        return parse_version("driver", one) == parse_version("driver", other)
    except BadInput:
        return one == other


def format_gpus(gpus: Iterable[GpusBody]) -> str:
    """Format GPUs as ``8 x A100-SXM4-80GB``."""
    return ", ".join(f"{kind.count} x {kind.gpu}" for kind in gpus) or "no GPU"


class SeenNode(Struct, frozen=True):
    """The platform and the parts of a node that count, in the order of `NODE_COMPONENTS`."""

    platform: str | None = None
    node: NodeParts = ()


NOTHING_SEEN = SeenNode()


class _StoredSource(TypedDict, total=False):
    """The part of a stored report that `seen_node` reads; the rest is not decoded."""

    seen_at: str
    platform: str | None
    node: dict[str, str]


_decode_sources = msgspec.json.Decoder(dict[str, _StoredSource]).decode


def read_seen_node(stored: str) -> SeenNode:
    """Return `seen_node` of reports as the database holds them: JSON."""
    return seen_node(_decode_sources(stored))


def seen_node(witnesses: Mapping[str, Mapping[str, Any]]) -> SeenNode:
    """Conclude platform and parts of a node from stored reports; it is on a hot path."""
    stating = [
        source
        for name in ("driver", "labels")
        if (source := witnesses.get(name)) and (source.get("platform") or source.get("node"))
    ]
    if not stating:
        return NOTHING_SEEN
    if len(stating) == 2:
        own, labels = (datetime.fromisoformat(one["seen_at"]) for one in stating)
        if labels - own > OUTDATED_AFTER:
            stating.reverse()
    first, second = stating[0], stating[-1]
    parts = {**second.get("node", {}), **first.get("node", {})}
    platform = first.get("platform") or second.get("platform")
    # JSON has no order of its own, and equal nodes are compared once.
    return SeenNode(platform, tuple((n, parts[n]) for n in NODE_COMPONENTS if n in parts))
