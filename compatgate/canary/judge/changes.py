"""Estimate the changes of all metrics of a suite together, from blocks.

A block is one process, and counts once. Blocks of a candidate are compared with those of a
reference: in pairs, where each pair gives one log-ratio, or with the runs of a history, where each
run gives the centre of its logarithms. Both are the same computation with other blocks.

What moves all metrics from run to run, such as a clock, pairs cancel. Against a history it is
estimated and taken out of the noise of each metric, but not out of its change.

Values far from the median are pulled in, so that one disturbed block moves no estimate far.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from math import exp, fsum, hypot, log, sqrt

from msgspec import Struct
from msgspec.structs import replace

from compatgate.canary.judge.noise import (
    Noise,
    compute_f_tail,
    compute_t_tail,
    count_degrees,
    digamma,
    find_t_quantile,
    fit_noise,
    shrink,
    trigamma,
)
from compatgate.canary.judge.statistics import ROUNDING_SLACK, median, scale

_CLIP = 4.0
_CLIPPED_FROM, _ALONE_FROM, _MANY = 5, 10, 4
"""Blocks from which it is known which of them are far, in suites of many metrics, and of fewer."""
_REPEATS_KNOWN = 20
"""Degrees of freedom from which the noise of repeats in one session is known."""
_SHARING = 8
"""Number of metrics from which it is known what moves all of them."""
_SESSION = 16.0
"""Factor by which what all metrics share varies more from session to session than in one."""
_EVIDENT = 0.01
"""Chance of a movement of all metrics at or below which it is not theirs by chance."""
_TRIMMED = 1.2
"""Variance of the mean of the middle half over that of the mean, for normal noise."""
_DOUBT = 0.4
"""Chance that a suite has improved less than is allowed for."""


class Contrast(Struct, frozen=True):
    """Blocks of one metric, as logarithms.

    Attributes:
        candidate: of each block; log-ratios to the reference where blocks are paired.
        reference: of each block of the history; () where blocks are paired.
        floor: variance that rounded samples hide.
        earlier: noise in earlier sessions; None if there were none.
        borrows: its noise is like that of other metrics; false for counters.
        sign: 1 where greater is worse, -1 where smaller is, 0 where any change is.
    """

    candidate: tuple[float, ...]
    reference: tuple[float, ...] = ()
    floor: float = 0.0
    earlier: Noise | None = None
    borrows: bool = True
    sign: int = 1

    @property
    def groups(self) -> tuple[tuple[float, ...], ...]:
        """Return the blocks that vary around one mean each."""
        return (self.reference, self.candidate) if self.reference else (self.candidate,)


class Shift(Struct, frozen=True):
    """A change, candidate over reference, as a logarithm.

    Attributes:
        error: standard error, with ``df`` degrees of freedom.
        deviation: standard deviation of a block, or of the log-ratio of a pair.
    """

    centre: float = 0.0
    error: float = 0.0
    df: float = 1.0
    deviation: float = 0.0

    def tail(self, distance: float) -> float:
        """Return the chance of an estimate so far out, at most one half."""
        return compute_t_tail(distance / self.error, self.df) if distance > 0 else 0.5

    def reach(self, level: float) -> float:
        """Return half the width of the interval that excludes ``level`` on each side."""
        return self.error * find_t_quantile(min(level, 0.5), round(self.df, 1))


class Change(Struct, frozen=True):
    """The change of a metric.

    Attributes:
        own: the change, with the noise that the metric does not share with all others.
        cautious: the same, with fewer degrees of freedom if metrics move together.
        shared: the part of the change that all metrics of the suite have in common.
        borrowed: degrees of freedom that came from other metrics and sessions.
        blocks: of the candidate, over the reference, without what moves all metrics between them.
    """

    own: Shift
    cautious: Shift
    shared: Shift
    borrowed: float
    blocks: tuple[float, ...]

    @property
    def centre(self) -> float:
        """Return the estimate."""
        return self.own.centre

    @property
    def deviation(self) -> float:
        """Return the standard deviation of a block, or of the log-ratio of a pair."""
        return hypot(self.own.deviation, self.shared.deviation)

    def tail(self, sign: int, beyond: float = 0.0) -> float:
        """Return the chance of a change so far out, of the metric alone or of all metrics.

        Alone, it is less what the suite has surely gained: it need not keep up with others.
        """
        suite = sign * self.shared.centre
        gain = min(suite + self.shared.reach(_DOUBT), 0.0)
        alone = self.own.tail(sign * self.centre - suite + gain - beyond)
        return min(alone, self.shared.tail(suite - beyond))

    def excludes(self, distance: float, level: float) -> bool:
        """Return whether a change so far from the estimate has at most the chance ``level``."""
        return distance >= self.reach(level)

    def reach(self, level: float) -> float:
        """Return half the width of the interval that excludes ``level`` on each side."""
        return hypot(self.cautious.reach(level), self.shared.reach(level))

    def foresee(self, share: float, more: int, *, calm: bool = False) -> Change:
        """Return the change after ``more`` blocks that leave a share of its variance.

        ``calm`` is the best case: these blocks do not differ, so the noise is less than it seems.
        """
        cautious, shared = (
            replace(
                one,
                error=one.error * sqrt(share * (one.df / (one.df + more) if calm else 1.0)),
                df=one.df + more,
            )
            for one in (self.cautious, self.shared)
        )
        return replace(self, cautious=cautious, shared=shared)


class _Residuals(Struct, frozen=True):
    """Differences of the blocks from the mean of their group, and these means."""

    means: tuple[float, ...]
    groups: tuple[tuple[float, ...], ...]

    @property
    def moved(self) -> float:
        """Return the change, candidate over reference."""
        return self.means[-1] - sum(self.means[:-1])


def estimate_changes(contrasts: Mapping[str, Contrast]) -> dict[str, Change]:
    """Return the change of each metric; each has two blocks of one kind at least."""
    common = _find_common(contrasts.values())
    signs = {name: common.get_sign(one) if common else 0 for name, one in contrasts.items()}
    if common:
        contrasts = {n: common.steady(one) if signs[n] else one for n, one in contrasts.items()}
    centred = _centre_all(contrasts)
    repeats = _measure_repeats(centred.values())
    own = {name: _measure(contrasts[name], centred[name], repeats) for name in contrasts}
    lending = {name: own[name] for name, contrast in contrasts.items() if contrast.borrows}
    expected = fit_noise(lending.values())
    moved = {name: one.moved for name, one in centred.items()}
    shared = common.measure(repeats, expected) if common and expected else Shift()
    shares = {name: _count_share(contrast, repeats) for name, contrast in contrasts.items()}
    rows = {
        n: (*centred[n].groups[0], (moved[n] - signs[n] * shared.centre) / sqrt(shares[n]))
        for n in lending
    }
    degrees = _count_degrees([row[:-1] for row in rows.values()], 0)
    joint = min(degrees, _count_degrees(list(rows.values()), 1))
    results = {}
    for name, contrast in contrasts.items():
        known = noise = shrink(own[name], contrast.earlier)
        cautious = known.df
        if contrast.borrows and expected:
            lent, sure = (max(min(expected.df, df - own[name].df), 0.0) for df in (degrees, joint))
            noise = shrink(known, Noise(expected.variance, lent))
            cautious = min(noise.df, known.df + sure)
        change = Shift(
            moved[name],
            sqrt(noise.variance * shares[name]),
            max(noise.df, 1.0),
            sqrt(noise.variance),
        )
        base = median(contrast.reference) if contrast.reference else 0.0
        results[name] = Change(
            own=change,
            cautious=replace(change, df=max(cautious, 1.0)),
            shared=replace(shared, centre=signs[name] * shared.centre) if signs[name] else Shift(),
            borrowed=noise.df - own[name].df,
            blocks=tuple(value - base for value in contrast.candidate),
        )
    return results


class _Common(Struct, frozen=True):
    """The movement that all metrics of a suite share from run to run, greater where it is worse.

    Attributes:
        blocks: mean of the middle half of the metrics.
        metrics: number of them.
    """

    blocks: Contrast
    metrics: int

    def get_sign(self, contrast: Contrast) -> int:
        """Return the direction in which a metric shares it; 0 if it does not."""
        lengths = [tuple(map(len, one.groups)) for one in (contrast, self.blocks)]
        return contrast.sign if contrast.borrows and lengths[0] == lengths[1] else 0

    def steady(self, contrast: Contrast) -> Contrast:
        """Return the blocks of a metric without it."""
        candidate, reference = (
            tuple(
                value - contrast.sign * (movement - fsum(common) / len(common))
                for value, movement in zip(own, common, strict=True)
            )
            for own, common in (
                (contrast.candidate, self.blocks.candidate),
                (contrast.reference, self.blocks.reference),
            )
        )
        return replace(contrast, candidate=candidate, reference=reference)

    def measure(self, repeats: float | None, expected: Noise) -> Shift:
        """Return how all metrics moved, with the noise of that movement.

        Metrics that have nothing in common move it by chance. It is taken for that unless it is
        surely more. Where the repeats of a session move it no more than chance does, but sessions
        do, the repeats count as one.
        """
        blocks = self.blocks
        centred = _centre(blocks, 0.0, len(blocks.reference) + len(blocks.candidate) + 1)
        chance = Noise(_TRIMMED * expected.variance / self.metrics, expected.df)
        history, session = (
            Noise(_square(group) / max(len(group) - 1, 1), len(group) - 1)
            for group in centred.groups
        )
        apart = session.variance * _SESSION < history.variance
        if apart and session.df and not _is_evident(session, chance):
            repeats = None
        noise = _measure(blocks, centred, repeats)
        if not _is_evident(noise, chance):
            noise = chance
        error = sqrt(noise.variance * _count_share(blocks, repeats))
        return Shift(centred.moved, error, max(noise.df, 1.0), sqrt(noise.variance))


def _is_evident(noise: Noise, chance: Noise) -> bool:
    """Return whether a movement of all metrics is surely more than chance makes it."""
    return compute_f_tail(noise.variance / chance.variance, noise.df, chance.df) <= _EVIDENT


def _find_common(contrasts: Iterable[Contrast]) -> _Common | None:
    """Return what moves all metrics of a suite; None in small suites, and in pairs."""
    shapes: dict[tuple[int, ...], list[Contrast]] = {}
    for contrast in contrasts:
        if contrast.reference and contrast.borrows and contrast.sign:
            shapes.setdefault(tuple(map(len, contrast.groups)), []).append(contrast)
    alike = max(shapes.values(), key=len, default=[])
    if len(alike) < _SHARING:
        return None
    levels = [fsum(one.reference) / len(one.reference) for one in alike]
    cut = len(alike) // 4

    def average(blocks: Sequence[float]) -> float:
        rows = zip(alike, blocks, levels, strict=True)
        ordered = sorted(one.sign * (value - level) for one, value, level in rows)
        return fsum(ordered[cut : len(ordered) - cut]) / (len(ordered) - 2 * cut)

    candidate, reference = (
        tuple(map(average, zip(*blocks, strict=True)))
        for blocks in ([one.candidate for one in alike], [one.reference for one in alike])
    )
    return _Common(Contrast(candidate, reference), len(alike))


def _centre_all(contrasts: Mapping[str, Contrast]) -> dict[str, _Residuals]:
    """Return the residuals of each metric; the suite tells which of its blocks are far."""
    rough = {
        name: max(*map(scale, contrast.groups), sqrt(contrast.floor), 0.0)
        for name, contrast in contrasts.items()
    }
    alike = [rough[name] for name, contrast in contrasts.items() if contrast.borrows]
    typical = median(alike) if alike else 0.0
    least = _CLIPPED_FROM if len(alike) >= _MANY else _ALONE_FROM
    return {
        name: _centre(contrast, max(rough[name], typical if contrast.borrows else 0.0), least)
        for name, contrast in contrasts.items()
    }


def _centre(contrast: Contrast, deviation: float, least: int) -> _Residuals:
    """Return the means and residuals, with values far from the median pulled in."""
    means, groups = [], []
    for group in contrast.groups:
        kept: Sequence[float] = group
        if len(group) >= least:
            middle, far = median(group), _CLIP * deviation
            kept = [min(max(value, middle - far), middle + far) for value in group]
        mean = fsum(kept) / len(kept)
        means.append(mean)
        groups.append(tuple(value - mean for value in kept))
    return _Residuals(tuple(means), tuple(groups))


def _square(group: Sequence[float]) -> float:
    return max(fsum(r * r for r in group), ROUNDING_SLACK**2)


def _measure_repeats(results: Iterable[_Residuals]) -> float | None:
    """Return the variance of a candidate's runs over that of the history's; None: not known.

    Runs of one session may differ less than sessions do: then they say less than as many sessions.
    What chance makes of the ratio is taken out by shrinking it towards 1 (James and Stein, 1961).
    """
    logs, known, chance = [], 0, 0.0
    for one in results:
        if len(one.groups) == 2 and min(map(len, one.groups)) > 1:
            a, b = (
                log(_square(g) / (len(g) - 1)) - digamma((len(g) - 1) / 2) + log((len(g) - 1) / 2)
                for g in one.groups
            )
            logs.append(b - a)
            known += len(one.groups[1]) - 1
            chance += fsum(trigamma((len(g) - 1) / 2) for g in one.groups)
    if known < _REPEATS_KNOWN:
        return None
    mean = fsum(logs) / len(logs)
    return exp(mean * max(1 - chance / len(logs) ** 2 / mean**2, 0.0)) if mean else 1.0


def _measure(contrast: Contrast, centred: _Residuals, repeats: float | None) -> Noise:
    first, *rest = centred.groups
    squares, df = _square(first), len(first) - 1
    for group in rest:
        if repeats and len(group) > 1:
            squares += _square(group) / repeats
            df += len(group) - 1
    variance = max(squares / df, contrast.floor) if df else 0.0
    return Noise(variance, df)


def _count_share(contrast: Contrast, repeats: float | None) -> float:
    """Return the variance of the change over that of a block."""
    many = len(contrast.candidate)
    if not contrast.reference:
        return 1 / many
    if repeats is None or many < 2:
        return 1 / len(contrast.reference) + 1
    return 1 / len(contrast.reference) + max(1 - repeats, 0.0) + repeats / many


def _count_degrees(rows: Sequence[tuple[float, ...]], moved: int) -> float:
    """Return the degrees of freedom of the metrics with the same number of blocks, at most.

    Rows in ``moved`` have values that are no residuals of blocks, but show what metrics share.
    """
    most = 0.0
    for length, alike in groupby(sorted(filter(any, rows), key=len), key=len):
        each = length - moved - 1
        most = max(most, count_degrees(list(alike), each, each + moved))
    return most
