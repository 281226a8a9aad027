"""Estimate the changes of all metrics of a suite together, from blocks.

A block is one process, and counts once. Blocks of a candidate are compared with those of a
reference: in pairs, where each pair gives one log-ratio, or with the runs of a history, where each
run gives the centre of its logarithms. Both are the same computation with other blocks.

Values far from the median are pulled in, so that one disturbed block moves no estimate far.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from math import exp, fsum, log, sqrt

from msgspec import Struct

from compatgate.canary.judge.noise import (
    Noise,
    compute_t_tail,
    count_degrees,
    digamma,
    find_t_quantile,
    fit_noise,
    shrink,
)
from compatgate.canary.judge.statistics import ROUNDING_SLACK, median, scale

_CLIP = 4.0
_CLIPPED_FROM, _ALONE_FROM, _MANY = 5, 10, 4
"""Blocks from which it is known which of them are far, in suites of many metrics, and of fewer."""
_REPEATS_KNOWN = 20
"""Degrees of freedom from which the noise of repeats in one session is known."""


class Contrast(Struct, frozen=True):
    """Blocks of one metric, as logarithms.

    Attributes:
        candidate: of each block; log-ratios to the reference where blocks are paired.
        reference: of each block of the history; () where blocks are paired.
        floor: variance that rounded samples hide.
        earlier: noise in earlier sessions; None if there were none.
        borrows: its noise is like that of other metrics; false for counters.
    """

    candidate: tuple[float, ...]
    reference: tuple[float, ...] = ()
    floor: float = 0.0
    earlier: Noise | None = None
    borrows: bool = True

    @property
    def groups(self) -> tuple[tuple[float, ...], ...]:
        """Return the blocks that vary around one mean each."""
        return (self.reference, self.candidate) if self.reference else (self.candidate,)


class Change(Struct, frozen=True):
    """A change, candidate over reference, as a logarithm.

    Attributes:
        error: standard error, with ``df`` degrees of freedom.
        cautious_df: degrees of freedom if metrics that moved together show noise that they share.
        deviation: standard deviation of a block, or of the log-ratio of a pair.
        borrowed: degrees of freedom that came from other metrics and sessions.
    """

    centre: float
    error: float
    df: float
    cautious_df: float
    deviation: float
    borrowed: float

    def tail(self, distance: float) -> float:
        """Return the chance of an estimate so far out, at most one half."""
        return compute_t_tail(distance / self.error, self.df) if distance > 0 else 0.5

    def excludes(self, distance: float, level: float) -> bool:
        """Return whether a change so far from the estimate has at most the chance ``level``."""
        return distance >= self.reach(level)

    def reach(self, level: float) -> float:
        """Return half the width of the interval that excludes ``level`` on each side."""
        return self.error * find_t_quantile(min(level, 0.5), round(self.cautious_df, 1))


class _Residuals(Struct, frozen=True):
    """Differences of the blocks from the mean of their group, and these means."""

    means: tuple[float, ...]
    groups: tuple[tuple[float, ...], ...]


def estimate_changes(contrasts: Mapping[str, Contrast]) -> dict[str, Change]:
    """Return the change of each metric; each has two blocks of one kind at least."""
    rough = {
        name: max(*map(scale, contrast.groups), sqrt(contrast.floor), 0.0)
        for name, contrast in contrasts.items()
    }
    alike = [rough[name] for name, contrast in contrasts.items() if contrast.borrows]
    typical = median(alike) if alike else 0.0
    least = _CLIPPED_FROM if len(alike) >= _MANY else _ALONE_FROM
    centred = {
        name: _centre(contrast, max(rough[name], typical if contrast.borrows else 0.0), least)
        for name, contrast in contrasts.items()
    }
    repeats = _measure_repeats(centred.values())
    own = {name: _measure(contrasts[name], centred[name], repeats) for name in contrasts}
    lending = {name: own[name] for name, contrast in contrasts.items() if contrast.borrows}
    expected = fit_noise(lending.values())
    moved = {name: centred[name].means[-1] - sum(centred[name].means[:-1]) for name in contrasts}
    shares = {name: _count_share(contrast, repeats) for name, contrast in contrasts.items()}
    rows = {n: (*centred[n].groups[0], moved[n] / sqrt(shares[n])) for n in lending}
    degrees = _count_degrees([row[:-1] for row in rows.values()], 0)
    common = min(degrees, _count_degrees(list(rows.values()), 1))
    results = {}
    for name, contrast in contrasts.items():
        known = noise = shrink(own[name], contrast.earlier)
        cautious = known.df
        if contrast.borrows and expected:
            lent, sure = (max(min(expected.df, df - own[name].df), 0.0) for df in (degrees, common))
            noise = shrink(known, Noise(expected.variance, lent))
            cautious = min(noise.df, known.df + sure)
        results[name] = Change(
            centre=moved[name],
            error=sqrt(noise.variance * shares[name]),
            df=max(noise.df, 1.0),
            cautious_df=max(cautious, 1.0),
            deviation=sqrt(noise.variance),
            borrowed=noise.df - own[name].df,
        )
    return results


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
    """
    logs, known = [], 0
    for one in results:
        if len(one.groups) == 2 and min(map(len, one.groups)) > 1:
            a, b = (
                log(_square(g) / (len(g) - 1)) - digamma((len(g) - 1) / 2) + log((len(g) - 1) / 2)
                for g in one.groups
            )
            logs.append(b - a)
            known += len(one.groups[1]) - 1
    return exp(fsum(logs) / len(logs)) if known >= _REPEATS_KNOWN else None


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
