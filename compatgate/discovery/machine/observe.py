"""Observe a machine: every part of the node that can be seen, and its platform.

What is not seen is not stated, and nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from compatgate.core.facts import Facts
from compatgate.core.node import NODE_COMPONENTS
from compatgate.discovery.machine.files import observe_files, read_machine_texts
from compatgate.discovery.machine.platforms import recognise_platform
from compatgate.discovery.machine.programs import (
    Run,
    observe_packages,
    observe_programs,
    run_program,
)
from compatgate.discovery.machine.root import Root
from compatgate.discovery.nvidia_smi.node_parts import keep_valid
from compatgate.discovery.observations import NodeParts, Observation, ObservedPool


class ObservedMachine(Struct, frozen=True):
    """A machine as seen.

    Attributes:
        node: parts by name, in the order of `NODE_COMPONENTS`.
        platform: None where the facts do not know the machine.
        observations: each part with its witness; the first witness of a part decides.
        notes: sentences about what cannot be told.
    """

    node: dict[str, str] = {}
    platform: str | None = None
    observations: tuple[Observation, ...] = ()
    notes: tuple[str, ...] = ()


def observe_machine(
    facts: Facts, gpus: Iterable[str], *, root: str = "/", run: Run | None = None
) -> ObservedMachine:
    """Observe the machine whose root folder is given.

    Args:
        facts: the table of machines.
        gpus: its GPUs, in any spelling.
        root: its root folder; another than ``/`` is only read, no program of it is run.
        run: runs a program; None: on this machine, if ``root`` is its root folder.
    """
    place = Root(root)
    ask = run or (run_program if place.is_here else None)
    notes: list[str] = []
    seen = [
        *observe_files(place, notes),
        *(observe_programs(ask, notes) if ask else ()),
        *observe_packages(place, notes),
    ]
    valid = [one for one in seen if keep_valid({one.component: one.version})]
    notes += [f"{o.component} {o.version!r} of {o.origin} is no value of it" for o in seen
              if o not in valid]  # fmt: skip
    notes += _disagreements(valid)
    stated = {one.component: one.version for one in reversed(valid)}
    platform = recognise_platform(read_machine_texts(place), gpus, facts)
    return ObservedMachine(keep_valid(stated), platform, tuple(valid), tuple(notes))


def _disagreements(seen: Iterable[Observation]) -> list[str]:
    """Return a sentence for each part of which two witnesses report different versions."""
    first: dict[str, Observation] = {}
    said = []
    for one in seen:
        other = first.setdefault(one.component, one)
        if other.version != one.version:
            said.append(
                f"{other.origin} says {one.component} {other.version}, {one.origin} "
                f"{one.version}: the first decides"
            )
    return said


def add_machine(pool: ObservedPool, node: Mapping[str, str], platform: str | None) -> ObservedPool:
    """Return the pool with the parts of its machine; what the pool states itself decides."""
    from msgspec.structs import replace

    stated = {**node, **dict(pool.node)}
    parts: NodeParts = tuple((name, stated[name]) for name in NODE_COMPONENTS if name in stated)
    return replace(pool, platform=pool.platform or platform, node=parts)
