"""Learn baselines: the accepted distribution of a metric for a workload, a SKU and a stack family.

A family is the CUDA release, the cuDNN and NCCL majors, and the minor release of each framework.
Patches of these stay in the family, so that what they do to a metric is seen; a new minor of CUDA
or of a framework is another program, for which a baseline of its own is accepted. The driver is
never part of it: a driver is rolled out below stacks that stay, and its effect must show.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import expm1, log, log1p
from typing import Any, Self

from msgspec import Struct, convert, to_builtins

from compatgate.canary.judge.prepare import is_count
from compatgate.canary.judge.result import Samples
from compatgate.canary.judge.statistics import median, quantile
from compatgate.canary.judge.units import conversion
from compatgate.canary.workload import Better, MetricSpec
from compatgate.core.components import in_order, is_framework, resolve_component
from compatgate.core.versions import Version, parse_version
from compatgate.errors import BadInput

KEPT_RUNS = 10
"""The latest accepted runs that a baseline keeps."""
GOOD_RUNS = 3
"""From so many runs on it is known how far runs differ, and one that stands apart is seen."""
_BINS = 20
_LEAST, _MOST = 1e-100, 1e100
"""Beyond these nothing was measured, and ratios of values leave what a float can hold."""


class SampleSource(Struct, frozen=True):
    """Where a sample was measured: what a person asks before letting it stand for a GPU.

    Attributes:
        measured_at: ISO time.
        versions: component to version, as the process had them loaded.
    """

    measured_at: str
    driver: str | None
    versions: dict[str, str]
    note: str = ""


class RunValues(Struct, frozen=True, omit_defaults=True):
    """Values of one run, in the order measured.

    Attributes:
        sample: set where they came as a sample (see `compatgate.canary.samples`), measured
            wherever whoever contributed it has such a GPU.
    """

    run: str
    values: tuple[float, ...]
    sample: SampleSource | None = None


class DiscardedRun(Struct, frozen=True):
    """A run that was offered and not kept, with the reason."""

    run: str
    reason: str


class Baseline(Struct, frozen=True):
    """What is normal for a metric.

    Attributes:
        sku: as runs name it, the MIG profile included.
        family: stack family (see `compatgate.canary.judge.baseline`).
        runs: that it was learnt from, oldest first.
        discarded: runs that were offered and not kept.
        version: of this baseline, from 1; a new one is proposed and approved, never changed.
        approved_by: None until a person has accepted it; only then it is judged against.
        approved_at: ISO time.
        source: where it was imported from, in words; "" where it was learnt from runs here.
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

    @property
    def samples(self) -> Samples:
        """As the judge takes it."""
        return Samples(self.metric, self.unit, tuple(run.values for run in self.runs))

    @property
    def thin(self) -> bool:
        """Return whether it rests on too few runs to know how far runs differ."""
        return len(self.runs) < GOOD_RUNS

    @property
    def starting(self) -> bool:
        """Return whether it rests on samples alone, and on nothing that was measured here."""
        return bool(self.runs) and all(run.sample is not None for run in self.runs)

    def to_json(self) -> dict[str, Any]:
        """Return plain data, to be stored."""
        body: dict[str, Any] = to_builtins(self)
        return body

    @classmethod
    def from_json(cls, body: object) -> Self:
        """Back from plain data."""
        return convert(body, cls)


class Bin(Struct, frozen=True):
    """A bar of a histogram: values from ``low`` (and, in the last bar, at ``high``) to below."""

    low: float
    high: float
    count: int


class Distribution(Struct, frozen=True):
    """What a person looks at before approving."""

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
    sources: Mapping[str, SampleSource] | None = None,
) -> Baseline:
    """Propose a baseline from accepted runs.

    Args:
        workload: that measured.
        sku: it ran on.
        family: of the stacks.
        metric: its name.
        spec: as the workload declares it; values are kept in its unit.
        accepted: run and its samples, oldest first; the latest `KEPT_RUNS` usable ones are kept.
        version: of the baseline.
        sources: of those runs that came as samples.

    Raises:
        BadInput: no run can be used; says why for each.
    """
    kept: list[RunValues] = []
    discarded: list[DiscardedRun] = []
    for run, samples in accepted:
        reason = learning_problem(samples, spec)
        factor = conversion(samples.unit, spec.unit)
        if reason or factor is None:
            discarded.append(DiscardedRun(run, reason or "its unit does not convert"))
        else:
            values = tuple(value * factor for value in samples.values)
            kept.append(RunValues(run, values, (sources or {}).get(run)))
    kept, apart = _discard_strangers(kept, spec.tolerance)
    older = [DiscardedRun(r.run, f"the latest {KEPT_RUNS} are kept") for r in kept[:-KEPT_RUNS]]
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
        tuple(kept[-KEPT_RUNS:]), (*discarded, *apart, *older), version,
    )  # fmt: skip


def distribution(baseline: Baseline) -> Distribution:
    """Return its quantiles and a histogram of twenty bars from the least to the greatest value."""
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


def learning_problem(samples: Samples, spec: MetricSpec) -> str:
    """Return why nothing can be learnt from a run's values; "" where something can."""
    values = samples.values
    if len(values) < spec.repetitions:
        return f"{len(values)} values, {spec.repetitions} are needed"
    least = 0 if is_count(samples) else _LEAST
    if not all(least <= value <= _MOST for value in values):
        return "values that are not finite and positive"
    if conversion(samples.unit, spec.unit) is None:
        return f"its unit {samples.unit or 'none'} does not convert into {spec.unit or 'none'}"
    return ""


def _discard_strangers(
    runs: list[RunValues], tolerance: float
) -> tuple[list[RunValues], list[DiscardedRun]]:
    """Leave out runs whose centre is off the others' by more than the tolerance.

    Where one is off, of two runs nobody can say which; three or more are asked.
    """
    if len(runs) < GOOD_RUNS or any(0 in run.values for run in runs):
        return runs, []
    centres = {run.run: median([log(v) for v in run.values]) for run in runs}
    middle = median(list(centres.values()))
    off = {name: centre - middle for name, centre in centres.items()}
    strangers = {name for name, by in off.items() if abs(by) > log1p(tolerance)}
    return [r for r in runs if r.run not in strangers], [
        DiscardedRun(
            r.run, f"its median is off the other runs' by {100 * expm1(off[r.run]):+.1f} %"
        )
        for r in runs
        if r.run in strangers
    ]


_PLACES = {"cuda": 2, "cudnn": 1, "nccl": 1, "tensorrt": 1}
_FRAMEWORK_PLACES = 2


def family_of(versions: Mapping[str, str]) -> str:
    """The family's key, such as ``cuda-12.4+cudnn-9+torch-2.4``; ``none`` where nothing counts.

    Args:
        versions: component (or an alias) to version as measured in the process.

    Raises:
        BadInput: a component or version that is none.
    """
    found: dict[str, Version] = {}
    for name, text in versions.items():
        canonical = resolve_component(name).component.name
        found[canonical] = parse_version(canonical, text)
    parts = [
        f"{name}-{'.'.join(map(str, found[name].at(places)))}"
        for name in in_order(found)
        if (places := _places(name))
    ]
    return "+".join(parts) or "none"


def nearest_family(wanted: str, known: Iterable[str]) -> str | None:
    """Return the known family that shares the most components, to compare with for information.

    Nothing is ever judged against another family: it tells whoever approves the first baseline of
    a new one what has changed. None where no component is shared.
    """
    own = set(wanted.split("+"))
    shared = {family: len(own & set(family.split("+"))) for family in known}
    best = max(shared.values(), default=0)
    return min((f for f, count in shared.items() if count == best), default=None) if best else None


def _places(component: str) -> int:
    if component in _PLACES:
        return _PLACES[component]
    return _FRAMEWORK_PLACES if is_framework(component) else 0
