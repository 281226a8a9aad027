"""Describe one node: its sources side by side, and its targets' pools."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct

from compatgate.core.gpus import find_gpu
from compatgate.core.node import NODE_COMPONENTS
from compatgate.core.request import Pool
from compatgate.kit import clock
from compatgate.service.cluster.landing import driver_version
from compatgate.service.cluster.matching import TARGET
from compatgate.service.matrix.snapshots.snapshot import Snapshot
from compatgate.service.nodes.comparison import NodeView, pools_with_gpu
from compatgate.service.nodes.reports import (
    SHARED_SUFFIX,
    format_gpus,
    is_same_driver,
    mismatched_resources,
    rank_sources,
)
from compatgate.service.nodes.repository import NodeRow
from compatgate.service.nodes.schemas import SourceKind, WitnessBody

ORDER: tuple[SourceKind, ...] = ("driver", "labels", "kubelet")
_SINGLE_SOURCE_TEXT = {
    "labels": "Only the labels report",
    "driver": "Only the driver itself reports",
}
_NO_SOURCE_TEXT = {"labels": "The labels say nothing", "driver": "The driver's report says nothing"}


class SourceLine(Struct, frozen=True):
    """One property, as each source reports it; without a deciding source it is information only."""

    name: str
    said: dict[SourceKind, str]
    decides: SourceKind | None = None
    differ: bool = False


class SourceComparison(Struct, frozen=True):
    """The sources of a node, the driver itself first; ``why`` says which one decides."""

    witnesses: tuple[WitnessBody, ...]
    lines: tuple[SourceLine, ...]
    why: tuple[str, ...]


def compare_sources(row: NodeRow) -> SourceComparison:
    """Compare the reports of a node's sources."""
    sources = msgspec.convert(row.witnesses, dict[SourceKind, WitnessBody])
    lines = (*_compare_parts(sources), *_compare_resources(sources))
    return SourceComparison(
        tuple(sources[kind] for kind in ORDER if kind in sources),
        tuple(line for line in lines if line.said),
        tuple(_explain_sources(rank_sources(sources))),
    )


def _compare_parts(sources: Mapping[SourceKind, WitnessBody]) -> Iterator[SourceLine]:
    getters: list[tuple[str, Callable[[WitnessBody], str | None]]] = [
        ("Driver", lambda one: one.driver),
        ("GPUs", lambda one: format_gpus(one.gpus) if one.gpus else None),
        ("CUDA, at most", lambda one: one.cuda),
        ("Platform", lambda one: one.platform),
    ]
    getters += [
        (component.title, lambda one, name=name: one.node.get(name))  # type: ignore[misc]
        for name, component in NODE_COMPONENTS.items()
    ]
    for title, get in getters:
        values = {kind: value for kind, one in sources.items() if (value := get(one))}
        if title == "CUDA, at most":
            yield SourceLine(title, values)
            continue
        decides = next((o.witness for o in rank_sources(sources) if o.witness in values), None)
        differ = len(set(values.values())) > 1
        if title == "Driver":
            differ = differ and not is_same_driver(*values.values())
        yield SourceLine(title, values, decides, differ)


def _compare_resources(sources: Mapping[SourceKind, WitnessBody]) -> Iterator[SourceLine]:
    labels, kubelet = sources.get("labels"), sources.get("kubelet")
    wrong = mismatched_resources(labels, kubelet) if labels and kubelet else {}
    reported = [name for one in (labels, kubelet) if one for name in one.resources]
    for name in sorted({name.removesuffix(SHARED_SUFFIX) for name in reported}):
        values: dict[SourceKind, str] = {}
        if labels and name in labels.resources:
            values["labels"] = f"{labels.resources[name]} expected"
        if kubelet:
            whole = kubelet.resources.get(name, 0)
            shared = kubelet.resources.get(f"{name}{SHARED_SUFFIX}")
            how = "" if shared is None else ", by sharing"
            values["kubelet"] = f"{whole + (shared or 0)} handed out{how}"
        yield SourceLine(name, values, differ=name in wrong)


def _explain_sources(order: Sequence[WitnessBody]) -> Iterator[str]:
    if not any(one.driver or one.gpus for one in order):
        yield "No source reports its driver and GPUs; the kubelet's resources do not decide."
        return
    first, second = order[0], order[1] if len(order) > 1 else None
    if second is None:
        yield f"{_SINGLE_SOURCE_TEXT[first.witness]} its driver and GPUs."
        return
    if first.witness == "driver":
        yield "The driver's own report decides about driver and GPUs."
    else:
        when = clock.readable(second.seen_at)
        yield (
            f"The driver's own report is of {when}, more than a day older than the labels: "
            "the labels decide, since the driver may have been replaced."
        )
    missing = ["the driver"] if second.driver and not first.driver else []
    missing += ["GPUs"] if second.gpus and not first.gpus else []
    if missing:
        silent = _NO_SOURCE_TEXT[first.witness]
        yield f"{silent} of {' and '.join(missing)}: the other source decides."


class TargetMatch(Struct, frozen=True):
    """A target of a node, and why it belongs there; a target that is named may not exist."""

    target: str
    why: str
    is_there: bool = True


class PoolComparison(Struct, frozen=True):
    """A pool compared with the node, and which of its GPUs the pool declares."""

    target: str
    pool: Pool
    gpus: tuple[str, ...]
    same_driver: bool | None

    @property
    def fits(self) -> bool:
        """Return whether the node fits this pool."""
        return bool(self.gpus) and bool(self.same_driver)


class GpuKind(Struct, frozen=True):
    """GPUs of one SKU on a node: the product without its MIG profile, or the type of a vGPU."""

    product: str
    profile: str | None
    count: int
    is_known: bool


def target_matches(view: NodeView, snapshot: Snapshot) -> tuple[TargetMatch, ...]:
    """Return the targets that a node belongs to, and why."""
    named = (view.row.target or view.row.labels.get(TARGET, "")).strip()
    if named:
        what = "annotation" if view.row.target else "label"
        why = f"its {what} {TARGET} names it"
        return (TargetMatch(named, why, named in snapshot.documents),)
    found = []
    for name in view.standing.targets:
        labels = snapshot.documents[name].spec.match.node_labels
        listed = ", ".join(f"{key}={value}" for key, value in labels.items())
        found.append(TargetMatch(name, f"it has the target's labels {listed}"))
    return tuple(found)


def compare_pools(view: NodeView, snapshot: Snapshot) -> tuple[PoolComparison, ...]:
    """Compare the node with each pool of its targets; pools with its GPUs come first."""
    version = driver_version(view.row.driver)
    kinds = {kind["gpu"]: find_gpu(kind["gpu"], snapshot.facts.gpus) for kind in view.row.gpus}
    compared = []
    for target in (snapshot.targets[t] for t in view.standing.targets if t in snapshot.targets):
        having = {gpu: pools_with_gpu(target, kind, snapshot) for gpu, kind in kinds.items()}
        for pool in target.pools:
            gpus = tuple(gpu for gpu, pools in having.items() if pool in pools)
            same = None if version is None else pool.driver == version
            compared.append(PoolComparison(target.name, pool, gpus, same))
    return tuple(sorted(compared, key=lambda one: (not one.gpus, one.target)))


def single_pool(name: str, gpus: Iterable[str], snapshot: Snapshot) -> str | None:
    """Return the pool that the node's GPUs belong to; None: no pool or several."""
    target = snapshot.targets.get(name)
    if target is None or len(target.pools) == 1:
        return None
    kinds = [find_gpu(gpu, snapshot.facts.gpus) for gpu in gpus]
    pools = {pool.name for kind in kinds for pool in pools_with_gpu(target, kind, snapshot)}
    return pools.pop() if len(pools) == 1 else None


def gpu_kinds(view: NodeView, snapshot: Snapshot) -> tuple[GpuKind, ...]:
    """Return the GPUs of a node, with MIG slices and whole GPUs separate."""
    kinds = []
    for one in view.row.gpus:
        gpu = find_gpu(one["gpu"], snapshot.facts.gpus)
        product, profile = (gpu.vgpu or gpu.name, gpu.mig) if gpu else (one["gpu"], None)
        kinds.append(GpuKind(product, profile, one["count"], gpu is not None))
    return tuple(kinds)
