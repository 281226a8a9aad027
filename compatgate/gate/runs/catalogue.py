"""Which suites and workloads can be run, and what each suite needs."""

from __future__ import annotations

from msgspec import Struct

from compatgate.canary.workload import Suite, Workload
from compatgate.documents.names import did_you_mean
from compatgate.errors import NotFound


class Catalogue(Struct, frozen=True):
    """Suites and workloads by name."""

    suites: dict[str, Suite] = {}
    workloads: dict[str, Workload] = {}

    def suite(self, name: str) -> Suite:
        """A suite by name.

        Raises:
            NotFound: there is none; names near ones.
        """
        if found := self.suites.get(name):
            return found
        hint = did_you_mean(name, self.suites)
        raise NotFound(f"there is no suite {name!r}", field="suite", value=name, hint=hint)

    def gpus(self, suite: str) -> int:
        """GPUs that a suite needs: those of the workload that needs most; 0: none.

        Raises:
            NotFound: there is no such suite.
        """
        found = self.suite(suite)
        return max((self.workloads[name].gpus for name in found.workloads), default=0)


def shipped() -> Catalogue:
    """What this program brings along."""
    return Catalogue()
