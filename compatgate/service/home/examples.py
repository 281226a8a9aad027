"""Load an example fleet into an empty gate, and remove exactly that again.

Its documents belong to a sync of their own (`compatgate.service.matrix.sync`), its nodes to a
cluster of their own. A removal goes by both names, so it takes nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from compatgate.documents.ownership import owner_of
from compatgate.documents.sources import read_paths
from compatgate.errors import Conflict
from compatgate.kit.database.tables import pages
from compatgate.resources import matrix_dir
from compatgate.service.matrix.service import Authorship
from compatgate.service.matrix.sync import SyncOptions
from compatgate.service.nodes.schemas import NodeReport, Report

if TYPE_CHECKING:
    from compatgate.service.gate.service import Gate


OWNER = "example-fleet"
"""The sync of the documents, and the cluster of the nodes."""
_DRIVER = "nvidia.com/cuda.driver-version.full"
_PRODUCT, _COUNT = "nvidia.com/gpu.product", "nvidia.com/gpu.count"
_MACHINES = (
    ("a100", "NVIDIA-A100-SXM4-80GB", 8, "535.183.01", 4),
    ("l4", "NVIDIA-L4", 4, "580.95.05", 2),
)
"""Beginning of the names, GPU, GPUs of each, driver, number of nodes."""
_DRIFTED = ("example-a100-04", "550.54.15")
"""A node whose driver was changed by hand, so that the page of drift has something to show."""


class ExampleState(Struct, frozen=True):
    """The state of the example: it may be loaded, or it is loaded."""

    may_load: bool
    loaded: bool


def example_state(gate: Gate) -> ExampleState:
    """Return whether the matrix is empty, or has documents of the example."""
    snapshot = gate.snapshot()
    if not snapshot.documents and not snapshot.entries:
        return ExampleState(may_load=True, loaded=False)
    targets = snapshot.documents.values()
    return ExampleState(may_load=False, loaded=any(owner_of(one) == OWNER for one in targets))


def load_example(gate: Gate, by: Authorship) -> int:
    """Load the example fleet; return the number of its documents.

    Args:
        gate: without targets and entries.
        by: author and reason.

    Raises:
        Conflict: the matrix is not empty.
        AccessRefused: the author may not bless.
    """
    if not example_state(gate).may_load:
        hint = "an example is only for an empty gate"
        raise Conflict("the matrix is not empty", field="matrix", hint=hint)
    sources = read_paths([matrix_dir() / "examples"])
    made = gate.matrix.sync(sources, SyncOptions(OWNER), by)
    gate.nodes.report(Report(tuple(_example_nodes()), OWNER), by=by.author)
    return len(made.changes)


def _example_nodes() -> list[NodeReport]:
    found = []
    for begin, product, gpus, driver, count in _MACHINES:
        for number in range(1, count + 1):
            name = f"example-{begin}-{number:02}"
            own = _DRIFTED[1] if name == _DRIFTED[0] else driver
            node = {
                "name": name,
                "labels": {_PRODUCT: product, _COUNT: str(gpus), _DRIVER: own},
                "allocatable": {"nvidia.com/gpu": gpus},
            }
            found.append(msgspec.convert(node, NodeReport))
    return found


def remove_example(gate: Gate, by: Authorship) -> tuple[int, int]:
    """Remove the example fleet; return the numbers of removed documents and nodes.

    Decisions and revisions stay: the log of what was asked and changed never shrinks.

    Args:
        gate: with the example, and maybe with other documents.
        by: author and reason.

    Raises:
        Conflict: a document that is not of the example names one of its targets.
        AccessRefused: the author may not bless.
    """
    removed = gate.matrix.sync([], SyncOptions(OWNER, prune=True), by)
    names = [node.row.name for part in pages(gate.nodes.list, cluster=OWNER) for node in part.items]
    for name in names:
        gate.nodes.remove(name, by, OWNER)
    return len(removed.changes), len(names)
