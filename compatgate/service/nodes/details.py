"""Describe one node: its sources side by side, its targets' pools, and what to label and taint.

The gate sees a node's labels and taints, not its annotations: it cannot tell what compatgate
has set there. It gives commands only if compatgate cannot have set anything yet, else the command
that reads the node itself.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec
from msgspec import Struct

from compatgate.core.node import NODE_COMPONENTS
from compatgate.core.request import Pool
from compatgate.kit import clock
from compatgate.service.admission.matching import TARGET
from compatgate.service.cluster.connection import ClusterNode
from compatgate.service.cluster.labels import (
    LABEL,
    NodeDecision,
    TaintLimit,
    kubectl_commands,
    plan_change,
)
from compatgate.service.gate.snapshot import Snapshot
from compatgate.service.nodes.comparison import NodeView, driver_version, find_gpu, pools_with_gpu
from compatgate.service.nodes.reports import (
    SHARED_SUFFIX,
    SourceKind,
    SourceReport,
    format_gpus,
    is_same_driver,
    mismatched_resources,
    rank_sources,
)
from compatgate.service.nodes.repository import NodeRow

ORDER: tuple[SourceKind, ...] = ("driver", "labels", "kubelet")


class SourceLine(Struct, frozen=True):
    """One property, as each source reports it.

    Attributes:
        said: value by source; silent sources are left out.
        decides: the deciding source; None: the line is information only.
        differ: the sources report different values.
    """

    name: str
    said: dict[SourceKind, str]
    decides: SourceKind | None = None
    differ: bool = False


class SourceComparison(Struct, frozen=True):
    """The sources of a node, side by side.

    Attributes:
        witnesses: the driver itself first.
        why: sentences on which source decides about driver and GPUs.
    """

    witnesses: tuple[SourceReport, ...]
    lines: tuple[SourceLine, ...]
    why: tuple[str, ...]


def compare_sources(row: NodeRow) -> SourceComparison:
    """Compare the reports of a node's sources."""
    heard = msgspec.convert(row.witnesses, dict[SourceKind, SourceReport])
    lines = (_driver(heard), _gpus(heard), _cuda(heard), *_parts(heard), *_resources(heard))
    there = tuple(line for line in lines if line.said)
    return SourceComparison(
        tuple(heard[w] for w in ORDER if w in heard), there, tuple(_explain_sources(heard))
    )


def _driver(heard: Mapping[SourceKind, SourceReport]) -> SourceLine:
    said = {who: one.driver for who, one in heard.items() if one.driver}
    labels, own = said.get("labels"), said.get("driver")
    differ = bool(labels and own and not is_same_driver(labels, own))
    return SourceLine("Driver", said, _first(heard, said), differ)


def _gpus(heard: Mapping[SourceKind, SourceReport]) -> SourceLine:
    kinds = {who: one.gpus for who, one in heard.items() if one.gpus}
    said = {who: format_gpus(gpus) for who, gpus in kinds.items()}
    differ = len(kinds) == 2 and kinds["labels"] != kinds["driver"]
    return SourceLine("GPUs", said, _first(heard, said), differ)


def _cuda(heard: Mapping[SourceKind, SourceReport]) -> SourceLine:
    said = {who: one.cuda for who, one in heard.items() if one.cuda}
    return SourceLine("CUDA, at most", said)


def _parts(heard: Mapping[SourceKind, SourceReport]) -> Iterator[SourceLine]:
    """Compare the platform and the parts of the node."""
    platforms = {who: one.platform for who, one in heard.items() if one.platform}
    yield SourceLine(
        "Platform", platforms, _first(heard, platforms), len(set(platforms.values())) > 1
    )
    for name, component in NODE_COMPONENTS.items():
        said = {who: one.node[name] for who, one in heard.items() if name in one.node}
        yield SourceLine(component.title, said, _first(heard, said), len(set(said.values())) > 1)


def _resources(heard: Mapping[SourceKind, SourceReport]) -> Iterator[SourceLine]:
    """Compare the resources expected from labels with the kubelet's."""
    labels, kubelet = heard.get("labels"), heard.get("kubelet")
    wrong = mismatched_resources(labels, kubelet) if labels and kubelet else {}
    names = {
        name.removesuffix(SHARED_SUFFIX)
        for one in (labels, kubelet)
        if one
        for name in one.resources
    }
    for name in sorted(names):
        said: dict[SourceKind, str] = {}
        if labels and name in labels.resources:
            said["labels"] = f"{labels.resources[name]} expected"
        if kubelet:
            said["kubelet"] = _allocatable_text(kubelet, name)
        yield SourceLine(name, said, differ=name in wrong)


def _allocatable_text(kubelet: SourceReport, name: str) -> str:
    whole, shared = kubelet.resources.get(name, 0), kubelet.resources.get(f"{name}{SHARED_SUFFIX}")
    return f"{whole} handed out" if shared is None else f"{whole + shared} handed out, by sharing"


def _first(
    heard: Mapping[SourceKind, SourceReport], said: Mapping[SourceKind, str]
) -> SourceKind | None:
    return next((one.witness for one in rank_sources(heard) if one.witness in said), None)


def _explain_sources(heard: Mapping[SourceKind, SourceReport]) -> Iterator[str]:
    order = rank_sources(heard)
    if not any(one.driver or one.gpus for one in order):
        yield "No source reports its driver and GPUs; the kubelet's resources do not decide."
        return
    first, second = order[0], order[1] if len(order) > 1 else None
    if second is None:
        yield f"{_SINGLE_SOURCE_TEXT[first.witness]} its driver and GPUs."
    elif first.witness == "driver":
        yield "The driver's own report decides about driver and GPUs."
    else:
        when = clock.readable(second.seen_at)
        yield (
            f"The driver's own report is of {when}, more than a day older than the labels: "
            "the labels decide, since the driver may have been replaced."
        )
    if second and (left := [name for name, of in _PARTS if not of(first) and of(second)]):
        yield f"{_NO_SOURCE_TEXT[first.witness]} of {' and '.join(left)}: the other source decides."


_SINGLE_SOURCE_TEXT = {
    "labels": "Only the labels report",
    "driver": "Only the driver itself reports",
}
_NO_SOURCE_TEXT = {"labels": "The labels say nothing", "driver": "The driver's report says nothing"}
_PARTS: tuple[tuple[str, Callable[[SourceReport], object]], ...] = (
    ("the driver", lambda one: one.driver),
    ("GPUs", lambda one: one.gpus),
)


class TargetMatch(Struct, frozen=True):
    """A target of a node.

    Attributes:
        why: one sentence.
        is_there: the target exists.
    """

    target: str
    why: str
    is_there: bool = True


class PoolComparison(Struct, frozen=True):
    """A pool compared with the node.

    Attributes:
        gpus: of the node, that this pool declares.
        same_driver: None: the node's is not known.
    """

    target: str
    pool: Pool
    gpus: tuple[str, ...]
    same_driver: bool | None

    @property
    def fits(self) -> bool:
        """Return whether the node fits this pool."""
        return bool(self.gpus) and bool(self.same_driver)


class GpuKind(Struct, frozen=True):
    """GPUs of one SKU on a node.

    Attributes:
        product: without its MIG profile; the type of a vGPU.
        profile: of MIG; None: whole GPUs.
        is_known: the facts know the GPU.
    """

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
    return tuple(
        TargetMatch(name, f"it has the target's labels {_labels(name, snapshot)}")
        for name in view.standing.targets
    )


def _labels(name: str, snapshot: Snapshot) -> str:
    stated = snapshot.documents[name].spec.match.node_labels
    return ", ".join(f"{key}={value}" for key, value in stated.items())


def compare_pools(view: NodeView, snapshot: Snapshot) -> tuple[PoolComparison, ...]:
    """Compare the node with each pool of its targets; pools with its GPUs come first."""
    found = list(_compare_pool(view, snapshot))
    return tuple(sorted(found, key=lambda one: (not one.gpus, one.target)))


def _compare_pool(view: NodeView, snapshot: Snapshot) -> Iterator[PoolComparison]:
    version = driver_version(view.row.driver)
    kinds = {gpu: find_gpu(gpu, snapshot) for gpu in _skus(view)}
    for target in (snapshot.targets[t] for t in view.standing.targets if t in snapshot.targets):
        having = {gpu: pools_with_gpu(target, kind, snapshot) for gpu, kind in kinds.items()}
        for pool in target.pools:
            gpus = tuple(gpu for gpu, pools in having.items() if pool in pools)
            same = None if version is None else pool.driver == version
            yield PoolComparison(target.name, pool, gpus, same)


def single_pool(name: str, gpus: Iterable[str], snapshot: Snapshot) -> str | None:
    """Return the pool that the node's GPUs belong to; None: no pool or several."""
    target = snapshot.targets.get(name)
    if target is None or len(target.pools) == 1:
        return None
    kinds = [find_gpu(gpu, snapshot) for gpu in gpus]
    found = {pool.name for kind in kinds for pool in pools_with_gpu(target, kind, snapshot)}
    return found.pop() if len(found) == 1 else None


def gpu_kinds(view: NodeView, snapshot: Snapshot) -> tuple[GpuKind, ...]:
    """Return the GPUs of a node, with MIG slices and whole GPUs separate."""
    return tuple(_kind(one["gpu"], one["count"], snapshot) for one in view.row.gpus)


def _kind(text: str, count: int, snapshot: Snapshot) -> GpuKind:
    gpu = find_gpu(text, snapshot)
    if gpu is None:
        return GpuKind(text, None, count, False)
    return GpuKind(gpu.vgpu or gpu.name, gpu.mig, count, True)


def _skus(view: NodeView) -> list[str]:
    return [kind["gpu"] for kind in view.row.gpus]


DEFAULT_TAINT_LIMIT = TaintLimit("10%", percent=10)
"""Default taint limit of ``compatgate k8s reconcile``."""


class TargetShare(Struct, frozen=True):
    """The share of a target's nodes whose driver is not blessed."""

    target: str
    not_blessed: int
    of: int

    @property
    def most(self) -> int:
        """Return the number of nodes that may be tainted at once."""
        return DEFAULT_TAINT_LIMIT.of(self.of)


class Advice(Struct, frozen=True):
    """Advice on the label and taint of a node.

    Attributes:
        says: present value of the node's label; None: no label, or labels not known.
        commands: kubectl commands; empty: compatgate may have set something already.
        look: command that reads the node and suggests changes.
        too_many: targets whose taint limit would be exceeded.
    """

    says: str | None
    commands: tuple[str, ...]
    look: str
    too_many: tuple[TargetShare, ...]


def count_shares(views: Iterable[NodeView], targets: Iterable[str]) -> tuple[TargetShare, ...]:
    """Count the nodes of each target that would be tainted."""
    counts = {name: [0, 0] for name in targets}
    for view in views:
        for name in counts.keys() & view.standing.targets:
            counts[name][0] += view.standing.driver == "not-blessed"
            counts[name][1] += 1
    return tuple(TargetShare(name, bad, total) for name, (bad, total) in counts.items())


def advise(view: NodeView, beside: Iterable[TargetShare]) -> Advice:
    """Advise on the label and taint of a node.

    Args:
        view: the node.
        beside: shares of its targets' other nodes.
    """
    row, standing = view.row, view.standing
    says = row.labels.get(LABEL)
    look = (
        f"kubectl get node {shlex.quote(row.name)} -o json | compatgate k8s nodes --file - "
        f"--cluster {shlex.quote(row.cluster)} --suggest --max-tainted 1"
    )
    many = tuple(one for one in beside if one.not_blessed > one.most)
    found: list[str] = []
    if "labels" in row.witnesses and says is None:
        node = ClusterNode(row.name, row.labels, {}, {})
        found = kubectl_commands(plan_change(node, _decision_on(view)))
    return Advice(says, tuple(found), look, many if standing.driver == "not-blessed" else ())


def _decision_on(view: NodeView) -> NodeDecision:
    standing = view.standing
    return NodeDecision(standing.driver, standing.why, view.row.driver, standing.targets)
