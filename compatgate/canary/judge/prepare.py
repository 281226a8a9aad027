"""Prepare measured samples for comparison as logarithms, or say why that is impossible.

Units of the same dimension convert into each other; an unknown unit is its own dimension.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import chain
from math import ceil, expm1, isfinite, log

from msgspec import Struct
from msgspec.structs import replace

from compatgate.canary.judge.result import Aspect, Samples
from compatgate.canary.judge.statistics import count_warmup, estimate_dependence, median
from compatgate.canary.workload import Better, MetricSpec


class Unit(Struct, frozen=True):
    """A unit as written.

    Attributes:
        dimension: units of the same dimension convert into each other.
        better: direction that is usually better; None if it depends.
    """

    text: str
    dimension: str
    factor: float
    better: Better | None = None


_TIME = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "sec": 1.0,
    "second": 1.0,
    "seconds": 1.0,
    "min": 60.0,
    "minutes": 60.0,
    "h": 3600.0,
}
_PREFIXES = {
    "": 1.0,
    "k": 1e3,
    "K": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
    "Ki": 2.0**10,
    "Mi": 2.0**20,
    "Gi": 2.0**30,
    "Ti": 2.0**40,
}
_PREFIXED: dict[str, tuple[str, float, Better | None]] = {
    "B": ("bytes", 1.0, "lower"),
    "bytes": ("bytes", 1.0, "lower"),
    "B/s": ("bytes/s", 1.0, "higher"),
    "bit/s": ("bytes/s", 0.125, "higher"),
    "bps": ("bytes/s", 0.125, "higher"),
    "b/s": ("bytes/s", 0.125, "higher"),
    "FLOP/s": ("flop/s", 1.0, "higher"),
    "FLOPS": ("flop/s", 1.0, "higher"),
    "flop/s": ("flop/s", 1.0, "higher"),
    "flops": ("flop/s", 1.0, "higher"),
    "OP/s": ("op/s", 1.0, "higher"),
    "OPS": ("op/s", 1.0, "higher"),
    "Hz": ("frequency", 1.0, "higher"),
}
_PLAIN: dict[str, tuple[str, float, Better | None]] = {
    "": ("", 1.0, None),
    "1": ("number", 1.0, None),
    "%": ("number", 0.01, None),
    "ratio": ("number", 1.0, None),
    "count": ("count", 1.0, "lower"),
    "errors": ("count", 1.0, "lower"),
    "events": ("count", 1.0, "lower"),
    "W": ("power", 1.0, "lower"),
    "mW": ("power", 1e-3, "lower"),
    "kW": ("power", 1e3, "lower"),
    "J": ("energy", 1.0, "lower"),
    "mJ": ("energy", 1e-3, "lower"),
    "kJ": ("energy", 1e3, "lower"),
}
_PER = {"s": 1.0, "sec": 1.0, "second": 1.0, "min": 1 / 60, "minute": 1 / 60, "h": 1 / 3600}
_RATE = re.compile(r"([A-Za-z_]+)\s*(?:/|\bper\b)\s*([a-z]+)")
_ONE_NAME = {"it": "iteration", "its": "iteration", "iter": "iteration", "req": "request"}


@lru_cache(maxsize=256)
def parse_unit(text: str) -> Unit:
    """Read a unit.

    Case matters (``MB`` are bytes, ``Mb/s`` bits). An unknown unit is its own dimension, comparable
    only with itself.
    """
    name = text.strip()
    if name in _TIME:
        return Unit(name, "time", _TIME[name], "lower")
    if name in _PLAIN:
        return Unit(name, *_PLAIN[name])
    for end, (dimension, factor, better) in _PREFIXED.items():
        prefix = name.removesuffix(end)
        if prefix != name and prefix in _PREFIXES:
            return Unit(name, dimension, factor * _PREFIXES[prefix], better)
    rate = _RATE.fullmatch(name)
    if rate and rate[2] in _PER:
        things = rate[1].lower()
        things = _ONE_NAME.get(things, things.removesuffix("s"))
        return Unit(name, f"{things}/s", _PER[rate[2]], "higher")
    return Unit(name, f"'{name.casefold()}'", 1.0)


def find_conversion(source: str, target: str) -> float | None:
    """Return the factor from one unit to another; None if they do not convert."""
    one, other = parse_unit(source), parse_unit(target)
    if one.dimension != other.dimension:
        return None
    return 1.0 if one.factor == other.factor else one.factor / other.factor


_CLEARLY_ALIKE = 1.4
"""Ratio above which lasting states also cast doubt on a change of the spread."""


class PreparedSamples(Struct, frozen=True):
    """Two comparable samples.

    Attributes:
        baseline, candidate: natural logarithms in the baseline's unit, without warm-up.
        widen: factor for dependence between neighbouring values, at least 1.
        widen_spread: the same factor for the spread, from distances to the run's median.
        dropped: number of leading values removed from each run.
        sign: -1 once the values were turned, so that smaller ones are worse.
    """

    baseline: tuple[float, ...]
    candidate: tuple[float, ...]
    widen: float
    widen_spread: float
    dropped: int
    sign: int = 1

    def turn(self, sign: int) -> PreparedSamples:
        """Return the samples in a direction in which higher is worse."""
        baseline, candidate = (
            tuple(sign * value for value in side) for side in (self.baseline, self.candidate)
        )
        return replace(self, baseline=baseline, candidate=candidate, sign=sign)

    def describe(self, shift: float) -> str:
        """Format a shift, candidate over baseline, such as ``12.1 % higher``."""
        return describe_movement(self.sign * shift)


def percent(share: float) -> str:
    """Format a share with as many digits as are significant; a large one as a factor."""
    if share >= 10:
        return f"{share:.3g} x"
    return f"{100 * share:.0f} %" if share >= 0.995 else f"{100 * share:.1f} %"


def describe_movement(shift: float) -> str:
    """Format a shift of logarithms, such as ``12.1 % higher``."""
    change = expm1(shift)
    return f"{percent(abs(change))} {'lower' if change < 0 else 'higher'}"


def prepare_samples(spec: MetricSpec, baseline: Samples, candidate: Samples) -> PreparedSamples:
    """Convert and trim samples of which nothing is refused."""
    factor = find_conversion(candidate.unit, baseline.unit) or 1.0
    base = [tuple(map(log, run)) for run in baseline.runs if run]
    cand = [tuple(log(v * factor) for v in run) for run in candidate.runs if run]
    before = int(median([count_warmup(run) for run in base]))
    after = int(median([count_warmup(run) for run in cand]))
    dropped = ceil(1.5 * max(before, after)) if before and after else 0
    base, cand = (
        [run[min(dropped, max(len(run) - spec.repetitions, 0)) :] for run in side]
        for side in (base, cand)
    )
    runs = [*base, *cand]
    apart = [[abs(value - median(run)) for value in run] for run in runs]
    widen, spread = estimate_dependence(runs), estimate_dependence(apart)
    spread = max(spread, widen) if widen > _CLEARLY_ALIKE else spread
    return PreparedSamples(tuple(chain(*base)), tuple(chain(*cand)), widen, spread, dropped)


def find_refusal(spec: MetricSpec, baseline: Samples, candidate: Samples) -> Aspect | None:
    """Return why samples cannot be compared; None if they can."""
    if find_conversion(candidate.unit, baseline.unit) is None:
        one, other = baseline.unit, candidate.unit
        if one and other:
            reason = f"units differ: the baseline is in {one}, the candidate in {other}"
        else:
            side = "candidate" if one else "baseline"
            reason = f"the {side} states no unit, the other side is in {one or other}"
        return refuse(reason, "both sides in units that convert into each other")
    for side, samples in (("baseline", baseline), ("candidate", candidate)):
        values = samples.values
        if not values:
            needed = f"{_repetitions(spec.repetitions)} of the {side}"
            return refuse(f"the {side} has no values", needed)
        if broken := sum(not isfinite(value) for value in values):
            what = f"{broken} of the {side}'s {len(values)} values are not finite numbers"
            return refuse(what, f"a {side} with finite values only")
        if min(values) < 0:
            what = f"the {side} has negative values, so no ratio exists"
            return refuse(what, "a metric that is positive")
        if zeros := values.count(0):
            what = "every value" if zeros == len(values) else f"{zeros} of {len(values)} values"
            what = f"{what} of the {side} is 0: nothing was measured"
            return refuse(what, f"a {side} that did real work")
    for side, samples in (("baseline", baseline), ("candidate", candidate)):
        have = len(samples.values)
        if have < spec.repetitions:
            return Aspect(
                "data",
                "inconclusive",
                f"the {side} has {_repetitions(have)}, at least {spec.repetitions} are needed",
                missing=f"{spec.repetitions - have} more of the {side}",
                repetitions=spec.repetitions if side == "candidate" else None,
            )
    return None


def refuse(reason: str, missing: str) -> Aspect:
    """Return why samples cannot be compared, and the data that would allow it."""
    return Aspect("data", "inconclusive", reason, missing=missing)


def _repetitions(count: int) -> str:
    return "1 repetition" if count == 1 else f"{count} repetitions"


def is_count(samples: Samples) -> bool:
    """Return whether zero is a valid value of this metric."""
    return parse_unit(samples.unit).dimension == "count"
