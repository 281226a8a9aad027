"""Compare the hosts of a fleet by what one suite measured on each, and by their stacks. Pure.

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

from collections import Counter
from collections.abc import Iterable, Sequence
from math import comb, inf
from statistics import median

from msgspec import Struct

from compatgate.canary.judge.noise import find_t_quantile
from compatgate.canary.run import Env
from compatgate.canary.workload import Better
from compatgate.core.components import COMPONENTS
from compatgate.core.versions import Version, parse_version
from compatgate.errors import BadInput

FALSE_ALARMS = 0.01
LEAST_HOSTS = 4
_MAD_TO_SD = 1.4826
_DF_SHARE = 0.4
_COVERAGE = 0.95

GPU, TRANSPORT = "gpu", "transport"
_IMPRECISE_COMPONENTS = ("cuda", "python")
"""Components that some sources state less precisely (the driver API knows 12.4, not the update)."""


class HostValues(Struct, frozen=True):
    """Values of one metric (``gemm-0/time``) in one run."""

    host: str
    metric: str
    unit: str
    better: Better
    tolerance: float
    values: tuple[float, ...]


class Deviation(Struct, frozen=True):
    """A host's deviation from the fleet in one metric; positive is worse.

    Attributes:
        value: median of the host's values; ``fleet`` is that of the hosts' medians.
        share: deviation as a share of the fleet's value.
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


class HostStack(Struct, frozen=True):
    """Components measured on one host, with several values where its measurements disagree."""

    host: str
    values: dict[str, tuple[str, ...]]
    run: str | None = None


class ComponentDrift(Struct, frozen=True):
    """Values of one component on all hosts: that of most, if one is, and hosts that ``differ``.

    The ``silent`` hosts did not measure the component: neither agreement nor difference.
    """

    component: str
    majority: str | None
    agree: tuple[str, ...]
    differ: dict[str, str]
    silent: tuple[str, ...]


def host_stack(host: str, envs: Iterable[Env], run: str | None = None) -> HostStack:
    """Return the stack of a host from the env lines that were printed there."""
    results: dict[str, dict[str, None]] = {}
    for env in envs:
        for component, version in env.versions.items():
            results.setdefault(component, {})[version] = None
        if env.driver:
            results.setdefault("driver", {})[env.driver] = None
        if env.gpus:
            names = Counter(
                f"{gpu.name} MIG {gpu.mig}" if gpu.mig and gpu.mig not in gpu.name else gpu.name
                for gpu in env.gpus
            )
            gpus = " + ".join(f"{count} x {name}" for name, count in sorted(names.items()))
            results.setdefault(GPU, {})[gpus] = None
        transports = env.other.get("transports")
        if isinstance(transports, dict) and transports:
            results.setdefault(TRANSPORT, {})[", ".join(sorted(map(str, transports)))] = None
    return HostStack(host, {name: tuple(values) for name, values in results.items()}, run)


def compare_hosts(stacks: Sequence[HostStack]) -> list[ComponentDrift]:
    """Compare hosts, component by component.

    If a host is named twice, the first entry counts.
    """
    hosts = {stack.host: stack for stack in reversed(stacks)}
    names = {name for stack in hosts.values() for name in stack.values}
    order = [GPU, *COMPONENTS, TRANSPORT]
    return [_compare_component(name, hosts) for name in order if name in names]


def _compare_component(name: str, hosts: dict[str, HostStack]) -> ComponentDrift:
    stated = {host: stack.values[name] for host, stack in hosts.items() if name in stack.values}
    joined = {host: " and ".join(values) for host, values in stated.items()}
    keys = _comparison_keys(name, stated)
    counted = Counter(keys.values()).most_common()
    tied = len(counted) > 1 and counted[0][1] == counted[1][1]
    most = None if tied else counted[0][0]
    agree = tuple(sorted(host for host, key in keys.items() if key == most))
    return ComponentDrift(
        component=name,
        majority=joined[agree[0]] if agree else None,
        agree=agree,
        differ={host: joined[host] for host in sorted(keys) if host not in agree},
        silent=tuple(sorted(set(hosts) - set(stated))),
    )


def _comparison_keys(name: str, stated: dict[str, tuple[str, ...]]) -> dict[str, frozenset[object]]:
    """Return keys that are equal if two hosts have equal values, however versions are written."""

    def parse(text: str) -> Version | str:
        try:
            return parse_version(name, text) if name in COMPONENTS else text
        except BadInput:
            return text

    parsed = {host: [parse(text) for text in texts] for host, texts in stated.items()}
    versions = [v for values in parsed.values() for v in values if isinstance(v, Version)]
    places = min((len(version.parts) for version in versions), default=0)

    def key(value: Version | str) -> object:
        if isinstance(value, str):
            return value
        return value.at(places) if name in _IMPRECISE_COMPONENTS else value.key

    return {host: frozenset(map(key, values)) for host, values in parsed.items()}
