"""A target as other projects' files describe it: to be reviewed, then imported."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.facts import Gpus
from compatgate.core.gpus import resolve_gpu
from compatgate.core.versions import parse_version
from compatgate.discovery.observed import ObservedPool
from compatgate.documents.specs import API_VERSION
from compatgate.errors import BadInput


class DraftPool(Struct, frozen=True):
    """A pool of which something may not be known.

    Attributes:
        gpu: product in a form that `resolve_gpu` reads; None: not known.
        driver: version; None: not known.
        os: of the nodes.
        cpu: None where nothing says it.
        count: nodes.
        why: by property, why it is not known.
    """

    name: str
    gpu: str | None = None
    driver: str | None = None
    os: str = "linux"
    cpu: str | None = None
    count: int | None = None
    why: dict[str, str] = {}

    @property
    def missing(self) -> tuple[str, ...]:
        """What a target needs and this does not have."""
        return tuple(name for name in ("gpu", "driver") if getattr(self, name) is None)

    def to_body(self) -> dict[str, Any]:
        """The pool of a request or document; what is not known is left out."""
        body: dict[str, Any] = {"name": self.name, "gpu": self.gpu, "driver": self.driver}
        body |= {"os": self.os, "cpu": self.cpu, "count": self.count}
        return {key: value for key, value in body.items() if value is not None}


class Draft(Struct, frozen=True):
    """Pools, and what is to be known about them before they are believed.

    Attributes:
        notes: in sentences: where it is from, what contradicts, what was left out.
    """

    pools: tuple[DraftPool, ...]
    notes: tuple[str, ...] = ()

    def filled(self, table: Gpus, **values: str | None) -> Draft:
        """With what a person states: it decides, and what it contradicts is a note.

        Raises:
            BadInput: a value is no GPU or no driver version.
        """
        stated = {name: value for name, value in values.items() if value}
        if "gpu" in stated:
            resolve_gpu(stated["gpu"], table)
        if "driver" in stated:
            parse_version("driver", stated["driver"])
        notes = list(self.notes)
        for name, value in stated.items():
            known = {getattr(pool, name) for pool in self.pools} - {None, value}
            if known and name in ("gpu", "driver", "cpu"):
                notes.append(f"{name}: the files say {', '.join(sorted(known))}, {value} is stated")
        pools = tuple(replace(pool, **stated) for pool in self.pools)
        return Draft(pools, tuple(notes))


def of_observed(pool: ObservedPool, why: dict[str, str] | None = None) -> DraftPool:
    """A pool that was observed on nodes."""
    return DraftPool(pool.name, pool.gpu, pool.driver, pool.os, pool.cpu, pool.nodes, why or {})


def draft_target(draft: Draft, name: str, table: Gpus) -> dict[str, Any]:
    """The ``Target`` document; a property that is not known is left out, and import refuses it.

    Raises:
        BadInput: a GPU is none that the facts know.
    """
    pools = [replace(pool, **_product(pool, table)).to_body() for pool in draft.pools]
    spec = {"pools": pools}
    return {"apiVersion": API_VERSION, "kind": "Target", "metadata": {"name": name}, "spec": spec}


def _product(pool: DraftPool, table: Gpus) -> dict[str, Any]:
    """The product's own name, and the processor that it comes with where nothing tells it."""
    if pool.gpu is None:
        return {}
    try:
        gpu = resolve_gpu(pool.gpu, table)
    except BadInput as error:
        raise error.at(f"pools.{pool.name}") from None
    return {"gpu": gpu.sku, "cpu": pool.cpu or gpu.cpu}
