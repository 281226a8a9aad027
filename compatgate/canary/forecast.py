"""Expect how long a run takes, from how long its processes took before. Pure.

The name of a process is that of its step: both arms of a pair count for one name. Without an
earlier process of a name there is no expectation, only a share of the processes that have ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from compatgate.canary.judge.paired.blocks import FIRST_LOOK, PairsState
from compatgate.canary.workload import Workload
from compatgate.documents.quantities import describe_seconds

_EARLY = 0.1
"""Progress of a program before which its own speed says little."""


class Forecast:
    """Expectation of one run while it goes on.

    ``planned`` counts processes still to run, ``known`` holds the seconds that they took in earlier
    runs, both by name.
    """

    def __init__(self, planned: Mapping[str, int], known: Mapping[str, float]) -> None:
        self._planned = dict(planned)
        self._known = known
        self._lengths: dict[str, list[float]] = {}
        self._spent = 0.0
        self._ended = 0

    def plan(self, planned: Mapping[str, int]) -> None:
        """Replace the number of processes still to run."""
        self._planned = dict(planned)

    def end(self, name: str, seconds: float) -> None:
        """Note that a process has ended."""
        self._lengths.setdefault(name, []).append(seconds)
        self._planned[name] = max(self._planned.get(name, 0) - 1, 0)
        self._spent += seconds
        self._ended += 1

    def left_s(
        self, name: str = "", elapsed: float = 0.0, done: float | None = None
    ) -> float | None:
        """Return the seconds until the end of the run; None: not known.

        ``done`` is the share of the running process's work by its own account; None: it printed
        none.
        """
        others = dict(self._planned)
        own: float | None = 0.0
        if name:
            others[name] = max(others.get(name, 0) - 1, 0)
            length = self._length(name)
            if done is not None and (done >= _EARLY or length is None):
                own = elapsed * (1 - done) / done if done > 0 else None
            else:
                own = None if length is None else max(length - elapsed, 0.0)
        total = own
        for one, count in others.items():
            length = self._length(one) if count else 0.0
            total = None if total is None or length is None else total + count * length
        return total

    def share(self, name: str = "", elapsed: float = 0.0, done: float | None = None) -> float:
        """Return the share of the run that is done, from 0 to 0.99."""
        left = self.left_s(name, elapsed, done)
        if left is not None:
            spent = self._spent + elapsed
            return min(spent / (spent + left), 0.99) if spent + left else 0.0
        total = self._ended + sum(self._planned.values())
        return min((self._ended + (done or 0.0)) / total, 0.99) if total else 0.0

    def _length(self, name: str) -> float | None:
        return median(self._lengths[name]) if name in self._lengths else self._known.get(name)


def expect_pairs(workloads: Iterable[Workload], earlier: Iterable[PairsState]) -> int:
    """Return how many pairs a suite takes: as many as in earlier runs, else until the first look.

    One pair decides about a suite without metrics. An earlier run that a failure cut short tells
    nothing.
    """
    least = FIRST_LOOK if any(workload.metrics for workload in workloads) else 1
    done = [state.done for state in earlier if state.outcome and state.done >= least]
    return round(median(done)) if done else least


def plan_processes(workloads: Iterable[Workload], pairs: int) -> dict[str, int]:
    """Return the number of processes by the name of their step.

    With no ``pairs`` the candidate runs alone.
    """
    return {
        f"{workload.name}-{seed}": 2 * pairs if pairs and workload.paired else 1
        for workload in workloads
        for seed in workload.seeds
    }


def limit_run(workloads: Sequence[Workload], planned: Mapping[str, int]) -> float:
    """Return the seconds after which every process would have been stopped."""
    return sum(
        workload.timeout_s * planned[f"{workload.name}-{seed}"]
        for workload in workloads
        for seed in workload.seeds
    )


def describe_left(seconds: float | None) -> str:
    """Return the time until the end for people, such as ``about 12 min left``; "" if unknown."""
    return "" if seconds is None else f"about {describe_seconds(seconds)} left"
