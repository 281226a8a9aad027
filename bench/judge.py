"""How often the judges err, by simulation: false alarms, and regressions of 5 % that they find.

`judge_pairs.py` does the same for pairs; this prints both. ``python bench/judge.py pairs 100``
prints pairs alone, with 100 suites a figure.

Every noise is one that GPU benches show: log-normal with outliers, a warm-up that decays, clocks
that switch between two states and stay there, neighbours that are alike, runs that differ.
"""

from __future__ import annotations

import math
import random
import sys
import time
from collections import Counter
from collections.abc import Callable

import judge_pairs

from compatgate.canary.judge.metric import judge_metric
from compatgate.canary.judge.result import MetricJudgement, Samples
from compatgate.canary.workload import MetricSpec

TRIALS = 2000
SPEC = MetricSpec("ms", "lower", repetitions=10)
HEAD = (
    "| noise | n | same: regression | same: inconclusive | 3 %: regression "
    "| 5 %: regression | 5 %: inconclusive | tail: regression | tail: inconclusive "
    "| spread: regression | spread: inconclusive |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|"
)
PAGE = (
    """`bench/judge.py`: {trials} simulated comparisons a figure, in per cent, tolerance 5 %. "n" is
repetitions of the baseline (runs x repetitions) / of the candidate; 30 a run is the default, 10 the
least that is judged. "same": nothing changed, every regression is a false alarm (goal: at most 1 %
at the default). "5 %": every value is 5 % longer (goal: at least 95 % found at the default). "3 %"
is within the tolerance. "tail": one value in five is 1.5 to 3 times as long. "spread": three times
the noise around the same centre (for noise of 0.5 % that is just about what counts).

Noise that the default is made for:

"""
    + HEAD
    + """
{made_for}

Noise beyond it: states that outlast several repetitions, runs that differ, more than 30 repetitions
can settle. A baseline of one run cannot know the first two: it misses up to one 5 % regression in
six, and false alarms reach 2 %. A baseline of five runs makes most of these inconclusive instead.

"""
    + HEAD
    + """
{harder}

A suite of 20 metrics x 30 repetitions against baselines of five runs is judged in {suite} ms (goal:
under 1,000)."""
)
Run = list[float]
Noise = Callable[[random.Random, int], Run]


def lognormal(sigma: float, outliers: float = 0.0) -> Noise:
    """Log-normal, with a share of outliers 1.1 to 3 times as long."""

    def run(rng: random.Random, n: int) -> Run:
        values = [10 * rng.lognormvariate(0, sigma) for _ in range(n)]
        return [v * rng.uniform(1.1, 3) if rng.random() < outliers else v for v in values]

    return run


def warming(rng: random.Random, n: int) -> Run:
    """The first repetitions are up to 60 % longer, which decays within some repetitions."""
    extra, decay = rng.uniform(0.2, 0.6), rng.uniform(1, 4)
    steady = lognormal(0.02, 0.02)(rng, n)
    return [v * (1 + extra * math.exp(-i / decay)) for i, v in enumerate(steady)]


def clocks(apart: float, share: float, stay: float) -> Noise:
    """Two clocks; a repetition keeps its neighbour's with a probability, else draws anew."""

    def run(rng: random.Random, n: int) -> Run:
        slow, values = rng.random() < share, []
        for value in lognormal(0.01)(rng, n):
            if rng.random() >= stay:
                slow = rng.random() < share
            values.append(value * (1 + apart) if slow else value)
        return values

    return run


def alike(rng: random.Random, n: int) -> Run:
    """First-order autoregressive, correlation 0.5, 2 %."""
    state, values = rng.gauss(0, 0.02), []
    for _ in range(n):
        state = 0.5 * state + rng.gauss(0, 0.02 * math.sqrt(0.75))
        values.append(10 * math.exp(state))
    return values


def differing(rng: random.Random, n: int) -> Run:
    """Runs differ by 1 %, repetitions by 2 %."""
    run = rng.lognormvariate(0, 0.01)
    return [v * run for v in lognormal(0.02, 0.02)(rng, n)]


MADE_FOR: dict[str, Noise] = {
    "log-normal 0.5 %": lognormal(0.005),
    "log-normal 2 %, 3 % outliers": lognormal(0.02, 0.03),
    "log-normal 3 %, 5 % outliers": lognormal(0.03, 0.05),
    "warm-up drift over log-normal 2 %, 2 % outliers": warming,
    "two clocks 4 % apart, half each": clocks(0.04, 0.5, 0.0),
    "two clocks 8 % apart, 15 % slow": clocks(0.08, 0.15, 0.0),
}
HARDER: dict[str, Noise] = {
    "two clocks 2 % apart that last": clocks(0.02, 0.3, 0.8),
    "log-normal 4 %": lognormal(0.04),
    "two clocks 4 % apart that last": clocks(0.04, 0.3, 0.8),
    "neighbours alike (0.5), 2 %": alike,
    "runs differ by 1 %, repetitions by 2 %": differing,
    "log-normal 10 %": lognormal(0.10),
}
SIZES = {"30 / 30": (1, 30, 30), "5 x 30 / 30": (5, 30, 30), "10 / 10": (1, 10, 10)}
KINDS = {
    "same": ("regression", "inconclusive"),
    "3 %": ("regression",),
    "5 %": ("regression", "inconclusive"),
    "tail": ("regression", "inconclusive"),
    "spread": ("regression", "inconclusive"),
}
"""What is done to the candidate, and the outcomes that are shown of it."""


def shifted(values: Run, factor: float) -> Run:
    """Every value longer."""
    return [v * factor for v in values]


def heavier(rng: random.Random, values: Run) -> Run:
    """One value in five is 1.5 to 3 times as long."""
    return [v * rng.uniform(1.5, 3) if rng.random() < 0.2 else v for v in values]


def wider(values: Run) -> Run:
    """Three times the spread around the same centre."""
    return [10 * (v / 10) ** 3 for v in values]


def judged(baseline: list[Run], candidate: Run) -> MetricJudgement:
    """The judge's word."""
    base = Samples("step_time", "ms", tuple(tuple(run) for run in baseline))
    return judge_metric("step_time", SPEC, base, Samples("step_time", "ms", (tuple(candidate),)))


def outcomes(noise: Noise, size: tuple[int, int, int], kind: str) -> Counter[str]:
    """Outcomes of all trials of one kind."""
    runs, n, m = size
    rng = random.Random(f"{kind} {size}")  # the simulation's noise; the judge has no randomness
    change: dict[str, Callable[[Run], Run]] = {
        "same": lambda v: v,
        "3 %": lambda v: shifted(v, 1.03),
        "5 %": lambda v: shifted(v, 1.05),
        "tail": lambda v: heavier(rng, v),
        "spread": wider,
    }
    return Counter(
        judged([noise(rng, n) for _ in range(runs)], change[kind](noise(rng, m))).outcome
        for _ in range(TRIALS)
    )


def main() -> str:
    """The section's tables, the time of a suite, and the tables of pairs."""
    stored = PAGE.format(
        trials=f"{TRIALS:,}",
        made_for="\n".join(rows(MADE_FOR)),
        harder="\n".join(rows(HARDER)),
        suite=f"{suite_ms():.0f}",
    )
    return f"{stored}\n\n{judge_pairs.main()}"


def rows(noises: dict[str, Noise]) -> list[str]:
    """Markdown rows, in per cent of the trials."""
    found = []
    for size_name, size in SIZES.items():
        for name, noise in noises.items():
            cells = []
            for kind, shown in KINDS.items():
                counted = outcomes(noise, size, kind)
                cells += [share(counted, outcome) for outcome in shown]
            found.append(f"| {name} | {size_name} | " + " | ".join(cells) + " |")
            print(found[-1], file=sys.stderr, flush=True)
    return found


def share(found: Counter[str], outcome: str) -> str:
    """Per cent of the trials."""
    return f"{100 * found[outcome] / found.total():.1f}"


def suite_ms() -> float:
    """Milliseconds to judge 20 metrics of 30 repetitions against baselines of five runs."""
    rng = random.Random(7)
    noise = MADE_FOR["log-normal 2 %, 3 % outliers"]
    pairs = [([noise(rng, 30) for _ in range(5)], noise(rng, 30)) for _ in range(20)]
    start = time.perf_counter()
    for baseline, candidate in pairs:
        judged(baseline, candidate)
    return (time.perf_counter() - start) * 1e3


if __name__ == "__main__":
    if sys.argv[1:2] == ["pairs"]:
        print(judge_pairs.main(*map(int, sys.argv[2:3])))
    else:
        print(main())
