"""What stands for an entry on a pool: what was measured there, and the ends of what it allows."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from compatgate.core.facts import Facts
from compatgate.core.matrix import Entry, Evidence, Matrix
from compatgate.core.representative import represent
from compatgate.core.stack import Stack
from compatgate.core.target import Pool

_MOST_RUNS = 256
"""Of a SKU, newest first; what was measured longer ago stands for nothing better."""


class Samples:
    """Gives the stacks of entries.

    Args:
        facts: which versions there are.
        matrix: its evidence is what was measured.
    """

    def __init__(self, facts: Facts, matrix: Matrix) -> None:
        self._facts = facts
        self._runs: dict[str, list[Evidence]] = {}
        for run in matrix.evidence:
            if run.outcome == "passed":
                self._runs.setdefault(run.sku, []).append(run)
        for sku, runs in self._runs.items():
            runs.sort(key=lambda run: run.finished, reverse=True)
            self._runs[sku] = runs[:_MOST_RUNS]

    def of(self, entry: Entry, pools: Sequence[Pool]) -> tuple[list[list[Stack]], tuple[str, ...]]:
        """The stacks of an entry on each of some pools, and what it leaves open.

        The first stack of a pool is what the newest passed canary run there measured, if it is one
        that the entry allows; then come the newest and the oldest that it allows.
        """
        represented = represent(entry, self._facts)
        found = [[*self._measured(entry, pool), *represented.stacks] for pool in pools]
        return found, represented.open

    def _measured(self, entry: Entry, pool: Pool) -> Sequence[Stack]:
        for run in self._runs.get(pool.gpu.sku, ()) if pool.gpu else ():
            stack = Stack({name: v for name, v in run.components.items() if name != "driver"})
            if stack.components and entry.matches(stack, replace(pool, driver=run.driver)):
                return (stack,)
        return ()
