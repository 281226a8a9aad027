"""Decide over all metrics of a suite, after any number of blocks.

A metric is ok when a change by the tolerance is excluded. It regresses when "nothing changed" is
rejected, corrected for the number of metrics and of looks (Holm, Bonferroni), when the earlier and
the later blocks each show the change by themselves, and when a change by the tolerance is not
excluded. Otherwise it is open, and more blocks may decide.

The looks share the permitted error rates. By Bonferroni's inequality the rates hold however the
looks depend on each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from math import ceil, log, log1p
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from compatgate.canary.judge.changes import Change, Contrast, estimate_changes
from compatgate.canary.judge.statistics import ROUNDING_SLACK, compute_tail_chance
from compatgate.canary.workload import Better, MetricSpec

Correction = Literal["holm", "benjamini-hochberg"]
Decision = Literal["regression", "ok", "suspected", "open"]
SIGNS: dict[Better, tuple[int, ...]] = {"lower": (1,), "higher": (-1,), "either": (1, -1)}
"""Signs that make a worse candidate positive."""
UNSUSPICIOUS = 0.05
"""Chance of a counter's events above which they raise no suspicion."""
ALARM = 0.01
"""Chance that a suite fails with nothing changed, over all metrics and looks."""
_NOISY = 3.0
"""Factor of what a regression surely exceeds, where blocks differ by half the tolerance."""
MAX_NEEDED = 200
"""Number of blocks beyond which more blocks are no advice."""
_EVENTS_PRIOR = (0.5, 4.5)
"""Expectation of blocks with events: one in ten, with the weight of five blocks."""


class Plan(Struct, frozen=True):
    """The looks of a comparison, and their shares of the error rates.

    Attributes:
        most: number of blocks after which the judge gives up; more are judged if they were run.
        alarms: number of blocks from which a metric may regress.
        passing: chances that the first look, each later look, the last one, and all beyond it
            overlook a change of the tolerance.
        beyond: share of the tolerance that a regression surely exceeds.
        clocks: a regression needs as many blocks as rule out agreement of clocks by chance.
    """

    first: int
    most: int
    alarms: int
    passing: tuple[float, float, float, float]
    beyond: float = 0.0
    clocks: bool = False

    def list_looks(self, blocks: int) -> tuple[int, ...]:
        """Return the numbers of blocks at which the judge looks, up to ``blocks``."""
        return (*range(self.first, min(blocks, self.most) + 1), *range(20, blocks + 1, 10))

    def find_next(self, blocks: int) -> int:
        """Return the next number of blocks, above ``blocks``, at which the judge looks."""
        if blocks < self.most:
            return max(blocks + 1, self.first)
        return 20 if blocks < 20 else blocks // 10 * 10 + 10

    def find_alarms(self, metrics: int) -> int:
        """Return the number of blocks from which a metric of so many may regress.

        A process may settle on one of two clocks. Then one pair in four has the slow clock on the
        side of the candidate, and so have all of n pairs with a chance of 4**-n.
        """
        if not self.clocks:
            return self.alarms
        wanted = ceil(log(metrics / ALARM, 4) - 1e-9)
        return min(max(self.alarms, wanted), self.most)

    def failing_share(self, blocks: int, alarms: int) -> float:
        """Return a look's share of the false alarms; all looks together have less than 1."""
        if blocks < alarms:
            return 0.0
        if blocks == alarms:
            return 0.5
        if blocks <= self.most:
            return 0.42 / (self.most - alarms)
        return 0.08 * _share_late(blocks)

    def passing_level(self, blocks: int) -> float:
        """Return the chance that a look overlooks a change of the tolerance."""
        first, later, last, beyond = self.passing
        if blocks > self.most:
            return beyond * _share_late(blocks)
        return last if blocks == self.most else first if blocks <= self.first else later


def _share_late(blocks: int) -> float:
    """Return the share of a look at 20, 30 and so on in what is kept for them: 1/2, 1/6..."""
    place = blocks // 10 - 1
    return 1 / (place * (place + 1))


PAIRS = Plan(5, 15, 5, (0.004, 0.0006, 0.002, 0.001), clocks=True)
"""Pairs of candidate and reference: 1.2 % of changes by the tolerance pass up to fifteen pairs."""
RUNS = Plan(1, 3, 2, (0.001, 0.001, 0.012, 0.0), beyond=0.5)
"""Runs of the candidate against a history: 1.4 % of changes by the tolerance pass.

Of 1,000 suites whose sessions differ by 0.5 %, 1.9 % with a change of 5 % passed, and 2.8 % with
1.65 % at the last look. Days differ, so a regression must surely exceed half the tolerance. Pairs
can show less.
"""


def measure_limit(tolerance: float, sign: int) -> float:
    """Return a tolerance as a logarithm: ``x 1.05`` upwards, ``x 0.95`` downwards."""
    return log1p(tolerance) if sign > 0 else -log1p(-tolerance)


class RatioCourse:
    """Blocks of a metric with ratios.

    Args:
        contrast: all blocks; a look is at the candidate's first ones.
        beyond: share of the tolerance that a regression surely exceeds.
    """

    def __init__(self, spec: MetricSpec, contrast: Contrast, beyond: float = 0.0) -> None:
        self.spec = spec
        self.beyond = beyond
        self.contrast = contrast
        self._signs = SIGNS[spec.better]

    @property
    def blocks(self) -> int:
        """Return the number of the candidate's blocks, or of pairs."""
        return len(self.contrast.candidate)

    @property
    def limit(self) -> float:
        """Return the least tolerance of a direction that is worse, as a logarithm."""
        return min(measure_limit(self.spec.tolerance, sign) for sign in self._signs)

    def tail(self, blocks: int, change: Change | None) -> float:
        """Return the chance of what the first blocks show, or worse, with nothing changed."""
        assert change is not None  # noqa: S101 - a ratio has a change
        tails = []
        for sign in self._signs:
            sure = self.beyond * measure_limit(self.spec.tolerance, sign)
            if change.own.deviation > self.limit / 2:
                sure *= _NOISY  # the history may have hidden its worst runs
            tails.append(change.tail(sign, sure))
        return min(1.0, min(tails) * len(tails))

    def excludes(self, blocks: int, change: Change | None, level: float) -> bool:
        """Return whether a change by the tolerance is excluded on each side that is worse.

        Events have no tolerance: they are ok if they raise no suspicion.
        """
        assert change is not None  # noqa: S101 - a ratio has a change
        if not self.contrast.borrows and self.tail(blocks, change) > UNSUSPICIOUS:
            return True
        return all(
            change.excludes(measure_limit(self.spec.tolerance, sign) - sign * change.centre, level)
            for sign in self._signs
        )

    def is_better(self, change: Change, level: float) -> bool:
        """Return whether a change for the better is real and beyond the tolerance."""
        if self.spec.better == "either":
            return False
        sign = -self._signs[0]
        beyond = sign * change.centre >= measure_limit(self.spec.tolerance, sign)
        return beyond and change.tail(sign) <= level

    def repeats(self, blocks: int, change: Change | None) -> bool:
        """Return whether most of the earlier, and of the later blocks show half the tolerance."""
        assert change is not None  # noqa: S101 - a ratio has a change
        sign = max(self._signs, key=lambda one: one * change.centre)
        values = [sign * value for value in change.blocks]
        limit = measure_limit(self.spec.tolerance, sign) / 2 - ROUNDING_SLACK
        halves = [values[: blocks // 2], values[blocks // 2 :]]
        return all(sorted(half)[(len(half) - 1) // 2] >= limit for half in halves if half)


class CountCourse:
    """Blocks with rare events, such as errors.

    Events come in bursts, so a block with events counts once. The number of such blocks of the
    candidate is predicted from those of the reference and a weak expectation (beta-binomial).

    Args:
        marks: for each look of the candidate, blocks with events and all blocks of the reference,
            and the same of the candidate; increments from look to look.
    """

    def __init__(self, better: Better, marks: Sequence[tuple[int, int, int, int]]) -> None:
        self._better = better
        self._marks = marks

    @property
    def blocks(self) -> int:
        """Return the number of looks' blocks."""
        return len(self._marks)

    def count(self, blocks: int, start: int = 0) -> tuple[int, int, int, int]:
        """Return blocks with events and all blocks, of the reference and of the candidate."""
        a, of_a, b, of_b = map(sum, zip(*self._marks[start:blocks], strict=True))
        return a, of_a, b, of_b

    def tail(self, blocks: int, change: Change | None = None) -> float:
        """Return the chance of so many blocks with events, or more."""
        a, of_a, b, of_b = self.count(blocks)
        more = compute_tail_chance(a, of_a, b, of_b, _EVENTS_PRIOR)
        fewer = compute_tail_chance(b, of_b, a, of_a, _EVENTS_PRIOR)
        return choose_tail(self._better, more, fewer)

    def excludes(self, blocks: int, change: Change | None, level: float) -> bool:
        """Return whether the candidate's events are not suspicious."""
        return self.tail(blocks) > UNSUSPICIOUS

    def repeats(self, blocks: int, change: Change | None) -> bool:
        """Return whether the later half alone has more events than the reference."""
        a, of_a, b, of_b = self.count(blocks, blocks // 2)
        rise = b * of_a - a * of_b
        return {"lower": rise > 0, "higher": rise < 0, "either": rise != 0}[self._better]


def choose_tail(better: Better, more: float, fewer: float) -> float:
    """Return the chance of what is worse, of the chances of more and of fewer events."""
    return {"lower": more, "higher": fewer, "either": min(1.0, 2 * min(more, fewer))}[better]


Course = RatioCourse | CountCourse
"""The blocks of one metric."""


class Rule:
    """The sequential rule for the metrics of one suite.

    Args:
        metrics: number of metrics that count in the correction, at least those of the courses.
    """

    def __init__(
        self,
        metrics: int,
        courses: Mapping[str, Course],
        plan: Plan,
        correction: Correction = "holm",
    ) -> None:
        self.plan = plan
        self.metrics = max(metrics, len(courses), 1)
        self.courses = courses
        self.alarms = plan.find_alarms(self.metrics)
        self._correction = correction
        self.changes = cache(self._estimate)
        self._rejected = cache(self._reject)

    def decide(self, name: str, blocks: int) -> Decision:
        """Return what the first blocks say of a metric; ``suspected`` awaits confirmation."""
        looks = self.plan.list_looks(blocks)
        if not looks:
            return "open"
        course, last = self.courses[name], looks[-1]
        change = self.changes(last).get(name)
        if course.excludes(last, change, self.plan.passing_level(last)):
            return "ok"
        if name in self._rejected(last) and course.repeats(last, change):
            return "regression"
        return "suspected" if course.tail(last, change) <= self.level(last) else "open"

    def level(self, blocks: int) -> float:
        """Return the strictest level of a metric at a look."""
        share = self.plan.failing_share(max(blocks, self.alarms), self.alarms)
        return ALARM * share / self.metrics

    def needs_luck(self, name: str, blocks: int, more: int) -> bool:
        """Return whether a metric might stay open after ``more`` blocks in place of ``blocks``."""
        course, change = self.courses[name], self.changes(blocks)[name]
        assert isinstance(course, RatioCourse)  # noqa: S101 - events have no change
        later = change.foresee(blocks / more, more - blocks)
        levels = self.plan.passing_level(more), self.level(more)
        return sum(map(later.reach, levels)) > course.limit

    def is_hopeless(self, blocks: int) -> bool:
        """Return whether further runs of the candidate cost more than they are likely to save.

        If the suite passes they save pairs, of two runs each. The chance of that assumes the least
        noise that they can leave. A metric that may be worse is worth another run in every case.
        """
        more, level = self.plan.most - blocks, self.plan.passing_level(self.plan.most)
        changes, chance = self.changes(blocks), 1.0
        ratios = {n: one for n, one in self.courses.items() if isinstance(one, RatioCourse)}
        if any(one.tail(blocks, changes[name]) <= ALARM for name, one in ratios.items()):
            return False
        for name, course in ratios.items():
            if course.contrast.borrows:
                known = 1 / len(course.contrast.reference)
                share = (known + 1 / self.plan.most) / (known + 1)
                later = changes[name].foresee(share, more, calm=True)
                room = course.limit - later.reach(level)
                chance *= 1 - later.cautious.tail(room) if room > 0 else 0.0
        return chance < more / (2 * PAIRS.first)

    def count_needed(self, name: str, blocks: int) -> int:
        """Return the number of blocks that settles a metric without luck, or `MAX_NEEDED` + 1."""
        more = max(blocks, self.alarms - 1)
        while (more := self.plan.find_next(more)) <= MAX_NEEDED:
            if isinstance(self.courses[name], CountCourse) or not self.needs_luck(
                name, blocks, more
            ):
                return more
        return MAX_NEEDED + 1

    def _estimate(self, blocks: int) -> dict[str, Change]:
        contrasts = {
            name: replace(
                course.contrast,
                candidate=course.contrast.candidate[:blocks],
                sign=sum(SIGNS[course.spec.better]),
            )
            for name, course in self.courses.items()
            if isinstance(course, RatioCourse)
            and (len(course.contrast.candidate) > 1 or bool(course.contrast.reference))
        }
        return estimate_changes(contrasts)

    def _reject(self, blocks: int) -> frozenset[str]:
        """Return the metrics whose first blocks reject "nothing changed" at a look."""
        tails = []
        for name, course in self.courses.items():
            mine = min(blocks, course.blocks)
            share = self.plan.failing_share(mine, self.alarms)
            if share:
                tails.append((course.tail(mine, self.changes(blocks).get(name)) / share, name))
        tails.sort()
        if self._correction == "holm":
            levels = [ALARM / (self.metrics - place) for place in range(len(tails))]
            kept = [i for i, (tail, _) in enumerate(tails) if tail > levels[i]]
            count = min(kept, default=len(tails))
        else:
            levels = [ALARM * place / self.metrics for place in range(1, len(tails) + 1)]
            count = max((i for i, (t, _) in enumerate(tails, 1) if t <= levels[i - 1]), default=0)
        return frozenset(name for _, name in tails[:count])
