"""A node beside what its targets declare: why it belongs to them, and each of their pools."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from compatgate.core.target import Pool
from compatgate.gate.admission.bound import TARGET
from compatgate.gate.nodes.standing import known_gpu, pools_with, version_of
from compatgate.gate.nodes.view import NodeView
from compatgate.gate.snapshot import Snapshot


class Belonging(Struct, frozen=True):
    """A target of a node.

    Attributes:
        why: one sentence.
        is_there: such a target exists.
    """

    target: str
    why: str
    is_there: bool = True


class PoolBeside(Struct, frozen=True):
    """A pool beside the node.

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
        """Whether the node could be one of this pool."""
        return bool(self.gpus) and bool(self.same_driver)


class Kind(Struct, frozen=True):
    """GPUs of one SKU on a node.

    Attributes:
        product: without its MIG profile.
        profile: of MIG; None: whole GPUs.
        is_known: to the facts.
    """

    product: str
    profile: str | None
    count: int
    is_known: bool


def belongings(view: NodeView, snapshot: Snapshot) -> tuple[Belonging, ...]:
    """The targets that a node belongs to, and why."""
    named = (view.row.target or view.row.labels.get(TARGET, "")).strip()
    if named:
        what = "annotation" if view.row.target else "label"
        why = f"its {what} {TARGET} names it"
        return (Belonging(named, why, named in snapshot.documents),)
    return tuple(
        Belonging(name, f"it has the target's labels {_labels(name, snapshot)}")
        for name in view.standing.targets
    )


def _labels(name: str, snapshot: Snapshot) -> str:
    stated = snapshot.documents[name].spec.match.node_labels
    return ", ".join(f"{key}={value}" for key, value in stated.items())


def beside_pools(view: NodeView, snapshot: Snapshot) -> tuple[PoolBeside, ...]:
    """Each pool of its targets beside the node; those that have its GPUs first."""
    found = list(_beside(view, snapshot))
    return tuple(sorted(found, key=lambda one: (not one.gpus, one.target)))


def _beside(view: NodeView, snapshot: Snapshot) -> Iterator[PoolBeside]:
    version = version_of(view.row.driver)
    kinds = {gpu: known_gpu(gpu, snapshot) for gpu in _skus(view)}
    for target in (snapshot.targets[t] for t in view.standing.targets if t in snapshot.targets):
        having = {gpu: pools_with(target, kind, snapshot) for gpu, kind in kinds.items()}
        for pool in target.pools:
            gpus = tuple(gpu for gpu, pools in having.items() if pool in pools)
            same = None if version is None else pool.driver == version
            yield PoolBeside(target.name, pool, gpus, same)


def only_pool(name: str, gpus: Iterable[str], snapshot: Snapshot) -> str | None:
    """The pool of a target of several that GPUs of a node are in; None: it is not a single one."""
    target = snapshot.targets.get(name)
    if target is None or len(target.pools) == 1:
        return None
    kinds = [known_gpu(gpu, snapshot) for gpu in gpus]
    found = {pool.name for kind in kinds for pool in pools_with(target, kind, snapshot)}
    return found.pop() if len(found) == 1 else None


def kinds_of(view: NodeView, snapshot: Snapshot) -> tuple[Kind, ...]:
    """The GPUs of a node, MIG slices apart from whole ones."""
    return tuple(_kind(one["gpu"], one["count"], snapshot) for one in view.row.gpus)


def _kind(text: str, count: int, snapshot: Snapshot) -> Kind:
    gpu = known_gpu(text, snapshot)
    return Kind(gpu.name, gpu.mig, count, True) if gpu else Kind(text, None, count, False)


def _skus(view: NodeView) -> list[str]:
    return [kind["gpu"] for kind in view.row.gpus]
