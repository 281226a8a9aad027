"""Decide over all metrics of a suite, at any number of pairs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Literal

from compatgate.canary.judge.paired.courses import Course
from compatgate.canary.judge.paired.design import (
    FIRST_LOOK,
    STANDARD,
    Design,
    estimate_deviation,
    failing_share,
    find_typical_variance,
    list_looks,
)

Decision = Literal["regression", "ok", "imprecise", "suspected", "open"]
_LEAST_SUSPICIOUS = 3


class Rule:
    """The sequential rule for the metrics of one suite."""

    def __init__(
        self,
        metrics: int,
        courses: Mapping[str, Course],
        reliable: Collection[str] = (),
        design: Design = STANDARD,
    ) -> None:
        """Take the courses of metrics."""
        self.design = design
        self.metrics = max(metrics, len(courses), 1)
        self.courses = courses
        self._reliable = frozenset(reliable)
        self._first = design.least_pairs(self.metrics)
        self._rejected = cache(self._correct)
        self._typical = cache(self._find_typical)

    def decide(self, name: str, pairs: int) -> Decision:
        """Return what the first pairs say of a metric.

        ``suspected`` awaits confirmation; ``imprecise`` is confirmed as a change for the worse, but
        may be one below the tolerance that noise exaggerates.
        """
        looks = list_looks(pairs)
        if not looks:
            return "open"
        course, last = self.courses[name], looks[-1]
        if course.excludes(last):
            return "ok"
        if not any(name in self._rejected(look) for look in looks):
            return "suspected" if course.tail(last) <= self.level(self._first) else "open"
        if not self._is_confirmed(course, last):
            return "suspected"
        # History or the pairs must know the noise of a metric well enough.
        settled = name in self._reliable or course.settles(last, self.estimate_noise(name, last))
        return "regression" if settled else "imprecise"

    def first_look(self, name: str) -> int:
        """Return the first number of pairs at which a metric may regress."""
        return FIRST_LOOK if name in self._reliable else self._first

    def level(self, pairs: int) -> float:
        """Return the strictest level of a metric at a look."""
        share = failing_share(max(pairs, self._first), self._first)
        return self.design.alarm * share / self.metrics

    def estimate_noise(self, name: str, pairs: int) -> float:
        """Return the standard deviation of a metric's log-ratio; 0 where it has no ratio."""
        own, typical = self.courses[name].spread(pairs), self._typical(pairs)
        return estimate_deviation(own, typical) if own and typical else 0.0

    def _find_typical(self, pairs: int) -> float | None:
        results = [c.spread(pairs) for c in self.courses.values() if c.pairs >= pairs]
        spreads = [spread for spread in results if spread]
        return find_typical_variance(spreads) if spreads else None

    def _is_confirmed(self, course: Course, last: int) -> bool:
        return any(
            course.tail(since) <= self.design.suspicion and course.repeats(since, last)
            for since in range(_LEAST_SUSPICIOUS, last - self.design.confirming + 1)
        )

    def _correct(self, pairs: int) -> frozenset[str]:
        """Return the metrics whose first pairs reject "nothing changed" at a look."""
        tails = sorted(
            (course.tail(min(pairs, course.pairs)) / share, name)
            for name, course in self.courses.items()
            if course.pairs >= FIRST_LOOK and (share := failing_share(pairs, self.first_look(name)))
        )
        correct = _holm if self.design.correction == "holm" else _benjamini_hochberg
        count = correct([tail for tail, _ in tails], self.design.alarm, self.metrics)
        return frozenset(name for _, name in tails[:count])


def _holm(tails: Sequence[float], level: float, metrics: int) -> int:
    """Return how many of the ascending tails are rejected."""
    for place, tail in enumerate(tails):
        if tail > level / (metrics - place):
            return place
    return len(tails)


def _benjamini_hochberg(tails: Sequence[float], level: float, metrics: int) -> int:
    places = [i for i, tail in enumerate(tails, 1) if tail <= level * i / metrics]
    return max(places, default=0)
