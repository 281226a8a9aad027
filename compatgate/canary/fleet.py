"""Compare the hosts of a fleet by what one suite measured on each. Pure.

The fleet's value of a metric is the median over the hosts' medians. Its spread is the median
absolute deviation (MAD) times 1.4826; less than half of the hosts cannot move either far. A host is
slow in a metric if it is worse than the fleet by more than the tolerance and by more than chance
allows: at most 1 % of fleets of equal hosts get a slow one, over all hosts and metrics. For normal
values the ratio to a MAD of n hosts exceeds a bound about as often as Student's t with 0.4 (n - 1)
degrees of freedom: simulated, 0.03 % of fleets of 4 hosts and 0.9 % of 64 got a slow one.

Source: Leys et al., "Detecting outliers: do not use standard deviation around the mean, use
absolute deviation around the median", 2013.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import comb, inf
from statistics import median

from msgspec import Struct

from compatgate.canary.judge.noise import find_t_quantile
from compatgate.canary.workload import Better

FALSE_ALARMS = 0.01
LEAST_HOSTS = 4
_MAD_TO_SD = 1.4826
_DF_SHARE = 0.4
_COVERAGE = 0.95


class HostValues(Struct, frozen=True):
    """Values of one metric (``gemm-0/time``) in one run."""

    host: str
    metric: str
    unit: str
    better: Better
    tolerance: float
    values: tuple[float, ...]


class Deviation(Struct, frozen=True):
    """A host's deviation from the fleet in one metric, as a share of its value; positive is worse.

    Attributes:
        value: median of the host's values; ``fleet`` is that of the hosts' medians.
        low, high: interval of ``share`` from the host's own values, of 95 % coverage where the host
            has at least six values, else from the smallest to the largest.
        limit: share from which on a host is slow.
        sds: deviation in robust standard deviations; None if the hosts agree exactly.
    """

    host: str
    metric: str
    unit: str
    value: float
    fleet: float
    share: float
    low: float
    high: float
    limit: float
    sds: float | None

    @property
    def slow(self) -> bool:
        """Return whether the host is slow in this metric; the whole interval must be worse."""
        return self.share > self.limit and self.low > 0


class RankedHost(Struct, frozen=True):
    """A host with its deviations, the worst first."""

    host: str
    slow: bool
    deviations: tuple[Deviation, ...]


def rank_hosts(found: Iterable[HostValues]) -> list[RankedHost]:
    """Return the hosts, the slowest first; metrics of fewer than `LEAST_HOSTS` hosts are left out.

    A metric whose fleet value is 0 has no shares and is left out, too.
    """
    metrics: dict[str, list[HostValues]] = {}
    for one in found:
        if one.values:
            metrics.setdefault(one.metric, []).append(one)
    usable = {
        name: values
        for name, values in metrics.items()
        if len({one.host for one in values}) >= LEAST_HOSTS
        and median(median(one.values) for one in values) != 0
    }
    hosts: dict[str, list[Deviation]] = {}
    for values in usable.values():
        for deviation in _deviations(values, len(usable)):
            hosts.setdefault(deviation.host, []).append(deviation)

    def excess(one: Deviation) -> float:
        return one.share / one.limit if one.limit else 0.0

    ranked = []
    for host, deviations in hosts.items():
        worst = sorted(deviations, key=excess, reverse=True)
        ranked.append(RankedHost(host, any(one.slow for one in worst), tuple(worst)))
    return sorted(ranked, key=lambda one: (-one.slow, -excess(one.deviations[0]), one.host))


def _deviations(values: Sequence[HostValues], metrics: int) -> Iterable[Deviation]:
    medians = [median(one.values) for one in values]
    fleet = median(medians)
    spread = _MAD_TO_SD * median(abs(value - fleet) for value in medians)
    number = len(values)
    sides = 2 if values[0].better == "either" else 1
    tail = FALSE_ALARMS / (number * metrics * sides)
    chance = find_t_quantile(tail, _DF_SHARE * (number - 1)) * spread / abs(fleet)
    for one, value in zip(values, medians, strict=True):
        changes = [(each - fleet) / abs(fleet) for each in (value, *median_interval(one.values))]
        if one.better == "higher" or (one.better == "either" and changes[0] < 0):
            changes = [-change for change in changes]
        share, *ends = changes
        yield Deviation(
            host=one.host,
            metric=one.metric,
            unit=one.unit,
            value=value,
            fleet=fleet,
            share=share,
            low=min(ends),
            high=max(ends),
            limit=max(one.tolerance, chance),
            sds=share * abs(fleet) / spread if spread else None,
        )


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return an interval of the median by order statistics, of at least 95 % coverage.

    With fewer than six values there is none of that coverage; it is the range then.
    """
    ordered = sorted(values)
    n, outside, cut = len(ordered), 0.0, 0
    while cut < n // 2:
        outside += 2 * comb(n, cut) / 2**n if n < 1000 else inf
        if outside > 1 - _COVERAGE:
            break
        cut += 1
    if n >= 1000:  # the normal approximation of the binomial distribution
        cut = max(1, int(n / 2 - 0.98 * n**0.5))
    first = max(cut - 1, 0)
    return ordered[first], ordered[n - 1 - first]
