"""Learn baselines: the accepted distribution of a metric for a workload, a SKU and a stack family.

A family is the CUDA release, the cuDNN and NCCL majors, and the minor release of each framework.
Patches stay in the family, so that their effect on a metric is seen. A new minor release of CUDA
or of a framework is another program and gets its own baseline. The driver is never part of a
family: it changes below unchanged stacks, and its effect must show.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import expm1, log, log1p

from msgspec import Struct

from compatgate.canary.judge.prepare import find_conversion, is_count
from compatgate.canary.judge.result import Samples
from compatgate.canary.judge.statistics import median, quantile
from compatgate.canary.workload import Better, MetricSpec
from compatgate.core.components import is_framework, resolve_component, sort_components
from compatgate.core.versions import Version, parse_version
from compatgate.errors import BadInput

MAX_RUNS = 10
"""Maximum number of accepted runs in a baseline, the latest."""
RELIABLE_RUNS = 3
"""Number of runs that show how far runs differ, and reveal an outlier."""
_BINS = 20
LEAST, MOST = 1e-100, 1e100
"""Limits of plausible values; ratios of values beyond them do not fit a float."""


class SampleSource(Struct, frozen=True):
    """The origin of a sample, which an approver needs before the sample counts for a GPU.

    Attributes:
        versions: component to version, as the process had them loaded.
    """

    measured_at: str
    driver: str | None
    versions: dict[str, str]
    note: str = ""


class RunValues(Struct, frozen=True, omit_defaults=True):
    """Values of one run, in the order measured.

    Attributes:
        sample: set for values that somebody measured elsewhere, in baselines of earlier releases.
    """

    run: str
    values: tuple[float, ...]
    sample: SampleSource | None = None


class DiscardedRun(Struct, frozen=True):
    """A run that was offered and rejected, with the reason."""

    run: str
    reason: str


class Baseline(Struct, frozen=True):
    """Accepted values of a metric.

    Attributes:
        sku: as in runs, including the MIG profile.
        family: stack family (see `compatgate.canary.judge.baseline`).
        discarded: runs that were offered and rejected.
        version: of this baseline, from 1; a change is a new version, proposed and approved.
        approved_by: None until a person approves it; only then is it used.
        approved_at: ISO time.
        source: description of where it was imported from; "" if it was learned from runs here.
        explained: why a person accepts improbably good values; "" if they are ordinary.
    """

    workload: str
    sku: str
    family: str
    metric: str
    unit: str
    better: Better
    tolerance: float
    runs: tuple[RunValues, ...]
    discarded: tuple[DiscardedRun, ...] = ()
    version: int = 1
    approved_by: str | None = None
    approved_at: str | None = None
    source: str = ""
    explained: str = ""

    @property
    def samples(self) -> Samples:
        """Return the values as the judge takes them."""
        runs = tuple(run.values for run in self.runs)
        return Samples(self.metric, self.unit, runs, explained=self.explained)

    @property
    def thin(self) -> bool:
        """Return whether the runs are too few to know how far runs differ."""
        return len(self.runs) < RELIABLE_RUNS

    @property
    def starting(self) -> bool:
        """Return whether it contains samples alone, and no run of this gate."""
        return bool(self.runs) and all(run.sample is not None for run in self.runs)


class Bin(Struct, frozen=True):
    """Bar of a histogram: ``low`` <= value < ``high``; the last bar includes ``high``."""

    low: float
    high: float
    count: int


class Distribution(Struct, frozen=True):
    """Distribution that an approver looks at."""

    n: int
    runs: int
    min: float
    median: float
    p95: float
    p99: float
    max: float
    bins: tuple[Bin, ...]


def learn(
    workload: str,
    sku: str,
    family: str,
    metric: str,
    spec: MetricSpec,
    accepted: Sequence[tuple[str, Samples]],
    *,
    version: int = 1,
) -> Baseline:
    """Propose a baseline from accepted runs.

    Runs are oldest first; only the latest usable ones count. Values are stored in the unit of
    ``spec``.
    """
    kept: list[RunValues] = []
    discarded: list[DiscardedRun] = []
    for run, samples in accepted:
        reason = find_learning_problem(samples, spec)
        factor = find_conversion(samples.unit, spec.unit)
        if reason or factor is None:
            discarded.append(DiscardedRun(run, reason or "its unit does not convert"))
        else:
            values = tuple(value * factor for value in samples.values)
            kept.append(RunValues(run, values))
    kept, apart = _discard_outliers(kept, spec.tolerance)
    older = [
        DiscardedRun(r.run, f"only the latest {MAX_RUNS} runs are used") for r in kept[:-MAX_RUNS]
    ]
    if not kept:
        why = "; ".join(f"{d.run}: {d.reason}" for d in discarded) or "none was accepted"
        raise BadInput(
            f"no run gives a baseline of {metric}",
            field="runs",
            value=[run for run, _ in accepted],
            hint=why,
        )
    return Baseline(
        workload, sku, family, metric, spec.unit, spec.better, spec.tolerance,
        tuple(kept[-MAX_RUNS:]), (*discarded, *apart, *older), version,
    )  # fmt: skip


def describe_distribution(baseline: Baseline) -> Distribution:
    """Return quantiles, and a histogram of twenty bars from the least to the greatest value."""
    ordered = sorted(baseline.samples.values)
    least, most = ordered[0], ordered[-1]
    edges = [least + (most - least) * i / _BINS for i in range(_BINS)] + [most]
    if least == most:
        edges = [least, most]
    counts = [0] * (len(edges) - 1)
    for value in ordered:
        place = int((value - least) / (most - least) * _BINS) if most > least else 0
        counts[min(place, len(counts) - 1)] += 1
    return Distribution(
        n=len(ordered),
        runs=len(baseline.runs),
        min=least,
        median=quantile(ordered, 0.5),
        p95=quantile(ordered, 0.95),
        p99=quantile(ordered, 0.99),
        max=most,
        bins=tuple(
            Bin(low, high, count)
            for low, high, count in zip(edges, edges[1:], counts, strict=False)
        ),
    )


def find_learning_problem(samples: Samples, spec: MetricSpec) -> str:
    """Return why nothing can be learned from a run's values; "" if they can be used."""
    values = samples.values
    if len(values) < spec.repetitions:
        return f"it has {len(values)} values, {spec.repetitions} are needed"
    least = 0 if is_count(samples) else LEAST
    if not all(least <= value <= MOST for value in values):
        return "it has values that are not finite and positive"
    if find_conversion(samples.unit, spec.unit) is None:
        return f"its unit {samples.unit or 'none'} does not convert into {spec.unit or 'none'}"
    return ""


def _discard_outliers(
    runs: list[RunValues], tolerance: float
) -> tuple[list[RunValues], list[DiscardedRun]]:
    """Remove runs whose centre differs from the others' by more than the tolerance.

    At least three runs are needed: of two runs, neither can be called the outlier.
    """
    if len(runs) < RELIABLE_RUNS or any(0 in run.values for run in runs):
        return runs, []
    centres = {run.run: median([log(v) for v in run.values]) for run in runs}
    middle = median(list(centres.values()))
    off = {name: centre - middle for name, centre in centres.items()}
    strangers = {name for name, by in off.items() if abs(by) > log1p(tolerance)}
    return [r for r in runs if r.run not in strangers], [
        DiscardedRun(
            r.run, f"its median differs from the other runs' by {100 * expm1(off[r.run]):+.1f} %"
        )
        for r in runs
        if r.run in strangers
    ]


_PLACES = {"cuda": 2, "cudnn": 1, "nccl": 1, "tensorrt": 1}
_FRAMEWORK_PLACES = 2


def find_family(versions: Mapping[str, str]) -> str:
    """Return the family's key, such as ``cuda-12.4+cudnn-9+torch-2.4``; ``none`` if empty."""
    found: dict[str, Version] = {}
    for name, text in versions.items():
        canonical = resolve_component(name).component.name
        found[canonical] = parse_version(canonical, text)
    parts = [
        f"{name}-{'.'.join(map(str, found[name].at(places)))}"
        for name in sort_components(found)
        if (places := _PLACES.get(name, _FRAMEWORK_PLACES if is_framework(name) else 0))
    ]
    return "+".join(parts) or "none"


def find_nearest_family(wanted: str, known: Iterable[str]) -> str | None:
    """Return the known family that shares the most components, to compare with for information.

    Only for information: values are never judged against another family. The approver of a new
    family's first baseline sees what has changed. None if no component is shared.
    """
    own = set(wanted.split("+"))
    shared = {family: len(own & set(family.split("+"))) for family in known}
    best = max(shared.values(), default=0)
    return min((f for f, count in shared.items() if count == best), default=None) if best else None
