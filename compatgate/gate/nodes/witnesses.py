"""What each witness of a node says, in one form: labels, kubelet, driver."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Literal

import msgspec
from msgspec import Struct

from compatgate.core.facts import Facts
from compatgate.core.gpus import resolve_gpu
from compatgate.discovery.node_labels.labels import describe
from compatgate.discovery.nvidia_smi.pools import disagreements, observed_pools
from compatgate.discovery.nvidia_smi.report import Report
from compatgate.errors import BadInput
from compatgate.store.clock import iso
from compatgate.wire.node_reports import DriverReport, NodeReport, SeenGpus

Who = Literal["labels", "kubelet", "driver"]
_GPU = "nvidia.com/gpu"
_MIG = "nvidia.com/mig-"
_SHARED = ".shared"


class Gpus(Struct, frozen=True, order=True):
    """GPUs of one SKU on a node; ``gpu`` is as it was written where the facts do not know it."""

    gpu: str
    count: int


class Witness(Struct, frozen=True):
    """What one witness says of a node.

    Attributes:
        gpus: sorted; a MIG profile makes a SKU of its own.
        resources: GPU resources by name: as handed out (kubelet), as to be expected (labels).
        remarks: what does not fit within what it says.
    """

    witness: Who
    seen_at: datetime
    driver: str | None = None
    cuda: str | None = None
    gpus: tuple[Gpus, ...] = ()
    resources: dict[str, int] = {}
    remarks: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain data; what it does not say is left out."""
        body: dict[str, Any] = msgspec.to_builtins(self)
        body["seen_at"] = iso(self.seen_at)
        return {key: value for key, value in body.items() if value not in (None, (), {})}


def witnesses_of(node: NodeReport, at: datetime, facts: Facts) -> dict[Who, Witness]:
    """The witnesses that a report brings.

    Args:
        node: as it was sent.
        at: when it was looked at.
        facts: to tell GPUs by any spelling.
    """
    found: dict[Who, Witness] = {}
    if node.labels is not None:
        found["labels"] = _of_labels(node.labels, at, facts)
    if node.allocatable is not None:
        resources = {k: v for k, v in node.allocatable.items() if _is_gpu(k)}
        found["kubelet"] = Witness("kubelet", at, resources=resources)
    if node.probe is not None:
        found["driver"] = _of_driver(node.probe, at, facts)
    return found


def _of_labels(labels: Mapping[str, str], at: datetime, facts: Facts) -> Witness:
    described = describe(labels)
    remarks = [described.note] if described.note else []
    report = described.report
    if report is None:
        return Witness("labels", at, remarks=tuple(remarks))
    kinds = _kinds(report, facts, remarks)
    remarks += [conflict.message for conflict in disagreements(report, facts)]
    expected = _expected(labels, report)
    return Witness("labels", at, report.driver, report.cuda, kinds, expected, tuple(remarks))


def _kinds(report: Report, facts: Facts, remarks: list[str]) -> tuple[Gpus, ...]:
    try:
        found = observed_pools(report, facts.gpus)
    except BadInput as error:
        remarks.append(error.problem)
        return ()
    remarks += found.notes
    return counted((SeenGpus(pool.gpu, pool.devices) for pool in found.pools), facts)


def _of_driver(probe: DriverReport, at: datetime, facts: Facts) -> Witness:
    return Witness("driver", at, probe.driver, probe.cuda, counted(probe.gpus, facts))


def counted(seen: Iterable[SeenGpus], facts: Facts) -> tuple[Gpus, ...]:
    """Kinds of GPUs by SKU, each once."""
    counts: dict[str, int] = {}
    for one in seen:
        sku = sku_of(one.gpu, facts)
        counts[sku] = counts.get(sku, 0) + one.count
    return tuple(sorted(Gpus(sku, count) for sku, count in counts.items()))


def sku_of(text: str, facts: Facts) -> str:
    """The SKU of a spelling, or the spelling itself where the facts do not know it."""
    try:
        return resolve_gpu(text, facts.gpus).sku
    except BadInput:
        return text


def _expected(labels: Mapping[str, str], report: Report) -> dict[str, int]:
    """The resources that a device plugin makes of what the labels count, sharing included."""
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


def _is_gpu(resource: str) -> bool:
    return resource.removesuffix(_SHARED) == _GPU or resource.startswith(_MIG)
