"""Read node reports: what each source (labels, kubelet, driver) says, and which source counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.facts import Facts
from compatgate.core.gpus import resolve_gpu
from compatgate.core.node import NODE_COMPONENTS, read_node, read_platform
from compatgate.core.versions import parse_version
from compatgate.discovery.machine.platforms import read_label_parts
from compatgate.discovery.node_labels import describe_node, label_platform
from compatgate.discovery.nvidia_smi.report import Report as SmiReport
from compatgate.discovery.nvidia_smi.report import find_disagreements, group_pools
from compatgate.discovery.observations import NodeParts
from compatgate.errors import BadInput
from compatgate.kit import clock
from compatgate.kit.clock import iso
from compatgate.service.admission.kinds import shipped_kinds
from compatgate.service.nodes.schemas import DriverReport, NodeReport, SeenGpus

SourceKind = Literal["labels", "kubelet", "driver"]
_GPU = "nvidia.com/gpu"
_MIG = "nvidia.com/mig-"


class GpuCount(Struct, frozen=True, order=True):
    """GPUs of one SKU on a node; ``gpu`` is unchanged if the facts do not know it."""

    gpu: str
    count: int


class SourceReport(Struct, frozen=True):
    """The report of one source about a node.

    Attributes:
        gpus: sorted; each MIG profile is a separate SKU.
        platform: kind of machine; None: not known.
        node: seen parts of the node, by name of `NODE_COMPONENTS`.
        resources: GPU resources by name: as handed out (kubelet), as to be expected (labels).
        remarks: contradictions within the report.
    """

    witness: SourceKind
    seen_at: datetime
    driver: str | None = None
    cuda: str | None = None
    gpus: tuple[GpuCount, ...] = ()
    platform: str | None = None
    node: dict[str, str] = {}
    resources: dict[str, int] = {}
    remarks: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return plain data without missing members."""
        body: dict[str, Any] = msgspec.to_builtins(self)
        body["seen_at"] = iso(self.seen_at)
        return {key: value for key, value in body.items() if value not in (None, (), {})}


def source_reports(node: NodeReport, at: datetime, facts: Facts) -> dict[SourceKind, SourceReport]:
    """Return the sources of a report.

    Args:
        node: the node as sent.
        at: time of the report.
        facts: resolve GPUs in any spelling.
    """
    found: dict[SourceKind, SourceReport] = {}
    if node.labels is not None:
        found["labels"] = _of_labels(node.labels, at, facts)
    if node.allocatable is not None:
        resources = {k: v for k, v in node.allocatable.items() if shipped_kinds().is_gpu(k)}
        found["kubelet"] = SourceReport("kubelet", at, resources=resources)
    if node.probe is not None:
        found["driver"] = _of_driver(node.probe, at, facts)
    return found


def _of_labels(labels: Mapping[str, str], at: datetime, facts: Facts) -> SourceReport:
    described = describe_node(labels)
    remarks = [described.note] if described.note else []
    report = described.report
    found = SourceReport(
        "labels",
        at,
        platform=label_platform(labels, report, facts),
        node=read_label_parts(labels),
    )
    if report is None:
        return replace(found, remarks=tuple(remarks))
    kinds = _kinds(report, facts, remarks)
    remarks += [conflict.message for conflict in find_disagreements(report, facts)]
    return replace(
        found,
        driver=report.driver,
        cuda=report.cuda,
        gpus=kinds,
        resources=_expected_resources(labels, report),
        remarks=tuple(remarks),
    )


def _kinds(report: SmiReport, facts: Facts, remarks: list[str]) -> tuple[GpuCount, ...]:
    try:
        found = group_pools(report, facts.gpus)
    except BadInput as error:
        remarks.append(error.problem)
        return ()
    remarks += found.notes
    return count_gpus((SeenGpus(pool.gpu, pool.devices) for pool in found.pools), facts)


def _of_driver(probe: DriverReport, at: datetime, facts: Facts) -> SourceReport:
    return SourceReport(
        "driver",
        at,
        probe.driver,
        probe.cuda,
        count_gpus(probe.gpus, facts),
        read_platform(probe.platform, "platform") if probe.platform else None,
        read_node(probe.node, "node"),
    )


def count_gpus(seen: Iterable[SeenGpus], facts: Facts) -> tuple[GpuCount, ...]:
    """Add up GPUs of the same SKU, sorted by SKU."""
    counts: dict[str, int] = {}
    for one in seen:
        sku = sku_of(one.gpu, facts)
        counts[sku] = counts.get(sku, 0) + one.count
    return tuple(sorted(GpuCount(sku, count) for sku, count in counts.items()))


def sku_of(text: str, facts: Facts) -> str:
    """Return the SKU of a spelling, or the spelling itself if the facts do not know it."""
    try:
        return resolve_gpu(text, facts.gpus).sku
    except BadInput:
        return text


def _expected_resources(labels: Mapping[str, str], report: SmiReport) -> dict[str, int]:
    """Return the resources that a device plugin derives from the labels, with sharing."""
    found: dict[str, int] = {}
    mixed = {
        name.removeprefix("nvidia.com/").partition(".count")[0]
        for name in labels
        if name.startswith(_MIG) and name.endswith(".count")
    }
    for resource in sorted(mixed):
        stem = f"nvidia.com/{resource}"
        found[stem] = _number(labels.get(f"{stem}.count")) * _replicas(labels, stem)
    if not mixed and report.devices:
        found[_GPU] = len(report.devices) * _replicas(labels, _GPU)
    return found


def _replicas(labels: Mapping[str, str], stem: str) -> int:
    return max(1, _number(labels.get(f"{stem}.replicas")))


def _number(text: str | None) -> int:
    return min(int(text), 65536) if text and text.isascii() and text.isdecimal() else 0


OUTDATED_AFTER = timedelta(days=1)
"""Age difference up to which a driver's report overrides the labels."""
SHARED_SUFFIX = ".shared"
"""Suffix of a resource that several containers share."""


class NodeConclusion(Struct, frozen=True):
    """The deciding values of a node.

    Attributes:
        driver: None: no source reports it.
        gpus: kinds; empty: no source reports any.
        disagreements: sentences, each with the deciding source.
    """

    driver: str | None
    gpus: tuple[GpuCount, ...]
    disagreements: tuple[str, ...]


def weigh_sources(witnesses: Mapping[SourceKind, SourceReport]) -> NodeConclusion:
    """Weigh sources: the driver's own report decides, unless it is out of date."""
    labels, own = witnesses.get("labels"), witnesses.get("driver")
    ordered = rank_sources(witnesses)
    said: list[str] = []
    if labels and own:
        decides = _deciding_text(own, outdated=ordered[0] is labels)
        said += _drivers(labels, own, decides)
        said += _gpus(labels, own, decides)
        said += _parts(labels, own, decides)
    if labels and (kubelet := witnesses.get("kubelet")):
        said += _resources(labels, kubelet)
    said += [remark for witness in witnesses.values() for remark in witness.remarks]
    driver = next((w.driver for w in ordered if w.driver), None)
    gpus = next((w.gpus for w in ordered if w.gpus), ())
    return NodeConclusion(driver, gpus, tuple(dict.fromkeys(said)))


def rank_sources(witnesses: Mapping[SourceKind, SourceReport]) -> tuple[SourceReport, ...]:
    """Rank the sources of driver and GPUs; the first one decides."""
    labels, own = witnesses.get("labels"), witnesses.get("driver")
    outdated = bool(labels and own and labels.seen_at - own.seen_at > OUTDATED_AFTER)
    return tuple(one for one in ((labels, own) if outdated else (own, labels)) if one)


def mismatched_resources(labels: SourceReport, kubelet: SourceReport) -> dict[str, tuple[int, int]]:
    """Return the resources whose number differs between kubelet and labels, by name."""
    found = {}
    for name, expected in labels.resources.items():
        given = kubelet.resources.get(name, 0) + kubelet.resources.get(f"{name}{SHARED_SUFFIX}", 0)
        if given != expected:
            found[name] = (expected, given)
    return found


def is_same_driver(one: str, other: str) -> bool:
    """Return whether two spellings are the same driver, like ``535.54.03`` and ``535.54.3``."""
    try:
        return parse_version("driver", one) == parse_version("driver", other)
    except BadInput:
        return one == other


def format_gpus(gpus: Iterable[GpuCount]) -> str:
    """Format GPUs as ``8 x A100-SXM4-80GB``."""
    return ", ".join(f"{kind.count} x {kind.gpu}" for kind in gpus) or "no GPU"


def _deciding_text(own: SourceReport, *, outdated: bool) -> str:
    if outdated:
        when = clock.readable(own.seen_at)
        return f"the driver's own report is of {when}, long before the labels, which decide"
    return "the driver's own report decides"


def _drivers(labels: SourceReport, own: SourceReport, decides: str) -> list[str]:
    if not labels.driver or not own.driver or is_same_driver(labels.driver, own.driver):
        return []
    return [f"the labels say driver {labels.driver}, the driver itself {own.driver}: {decides}"]


def _gpus(labels: SourceReport, own: SourceReport, decides: str) -> list[str]:
    if not labels.gpus or not own.gpus or labels.gpus == own.gpus:
        return []
    theirs, its = format_gpus(labels.gpus), format_gpus(own.gpus)
    return [f"the labels say {theirs}, the driver itself {its}: {decides}"]


def _parts(labels: SourceReport, own: SourceReport, decides: str) -> list[str]:
    """Return differences in the platform and in parts of the node."""
    theirs, its = labels.node | _platform_part(labels), own.node | _platform_part(own)
    return [
        f"the labels say {name} {value}, the node itself {its[name]}: {decides}"
        for name, value in theirs.items()
        if name in its and its[name] != value
    ]


def _platform_part(source: SourceReport) -> dict[str, str]:
    return {"platform": source.platform} if source.platform else {}


class SeenNode(Struct, frozen=True):
    """The parts of a node that count, in addition to its driver.

    Attributes:
        platform: None: no source reports it.
        node: parts in the order of `NODE_COMPONENTS`; hashable, to be compared once.
    """

    platform: str | None = None
    node: NodeParts = ()


NOTHING_SEEN = SeenNode()


def seen_node(witnesses: Mapping[str, Mapping[str, Any]]) -> SeenNode:
    """Conclude platform and parts of a node from the stored reports of its sources.

    It is on a hot path, and reads the reports as they are stored.
    """
    own, labels = witnesses.get("driver", {}), witnesses.get("labels", {})
    if not own.get("platform") and not own.get("node"):
        return _seen(labels) if labels else NOTHING_SEEN
    if not labels.get("platform") and not labels.get("node"):
        return _seen(own)
    first, second = (labels, own) if _is_outdated(own, labels) else (own, labels)
    stated = {**second.get("node", {}), **first.get("node", {})}
    platform = first.get("platform") or second.get("platform")
    return SeenNode(platform, tuple((n, stated[n]) for n in NODE_COMPONENTS if n in stated))


class _StoredSource(TypedDict, total=False):
    """The part of a stored report that `seen_node` reads; the rest is not decoded."""

    seen_at: str
    platform: str | None
    node: dict[str, str]


_decode_sources = msgspec.json.Decoder(dict[str, _StoredSource]).decode


def read_seen_node(stored: str) -> SeenNode:
    """Return `seen_node` of reports as the database holds them: JSON."""
    return seen_node(_decode_sources(stored))


def _seen(source: Mapping[str, Any]) -> SeenNode:
    return SeenNode(source.get("platform"), tuple(source.get("node", {}).items()))


def _is_outdated(own: Mapping[str, Any], labels: Mapping[str, Any]) -> bool:
    times = [datetime.fromisoformat(one["seen_at"]) for one in (own, labels)]
    return times[1] - times[0] > OUTDATED_AFTER


def _resources(labels: SourceReport, kubelet: SourceReport) -> list[str]:
    """Yield differences between the kubelet's resources and the labels."""
    return [
        f"the labels make {expected} of {name}, the kubelet hands out {given}"
        for name, (expected, given) in mismatched_resources(labels, kubelet).items()
    ]
