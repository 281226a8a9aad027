"""How often the paired judge errs, and what it costs, by simulation; beside other methods.

`judge.py` prints the figures.

Noise is hierarchical: a node, a session on it, a process of the session, a sample of the process.
The paired judge sees both arms in turns, in one session. The present judge, Mann-Whitney, Welch and
a threshold see what a stored baseline gives: five earlier sessions, and one of the candidate.
Mann-Whitney and Welch also get the samples of the pairs.
"""

from __future__ import annotations

import math
import random
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from statistics import NormalDist, fmean, median, variance
from typing import NamedTuple

from compatgate.canary.judge.metric import judge_metric
from compatgate.canary.judge.paired.blocks import Pair, PairedSamples, compute_log_ratios
from compatgate.canary.judge.paired.courses import RatioCourse
from compatgate.canary.judge.paired.design import STANDARD, USUAL_PAIRS, list_looks
from compatgate.canary.judge.paired.history import NoisePrior, compute_t_tail, learn_noise
from compatgate.canary.judge.paired.rule import Rule
from compatgate.canary.judge.result import Samples
from compatgate.canary.judge.statistics import rank_values
from compatgate.canary.workload import MetricSpec

SUITES = 400
"""Suites that are simulated for a row."""
METRICS = 52
SAMPLES = 6
"""Samples of a block."""
ALPHA = 0.01
SPEC = MetricSpec("ms", "lower", tolerance=0.05, repetitions=30)
SECONDS_A_SAMPLE = 0.2
SECONDS_A_PROCESS = 10.0
"""Start of a process, and warm-up until clocks settle."""
METRICS_A_PROCESS = 4


class Noise(NamedTuple):
    """Noise of a metric; standard deviations are relative.

    Attributes:
        session: of sessions; ``clocks`` is the distance of two clocks that a session may have.
        process: of processes; ``states`` is the distance of two clocks that a process may have.
        sample: of samples; ``alike`` is the correlation of neighbours.
        outliers: share of samples that take 1.1 to 3 times as long.
        disturbed: share of blocks that take 1.1 to 1.4 times as long.
        drift: change over fifteen pairs.
        step: relative step of the clock that measures.
        nodes: standard deviation, as a logarithm, of the noise of one session over another's.
    """

    session: float = 0.02
    clocks: float = 0.0
    process: float = 0.005
    states: float = 0.0
    sample: float = 0.01
    alike: float = 0.0
    outliers: float = 0.0
    disturbed: float = 0.0
    drift: float = 0.0
    step: float = 0.0
    nodes: float = 0.0


Draw = random.Random
Run = Sequence[float]


def start_session(rng: Draw, noise: Noise) -> tuple[float, Noise]:
    """Return the level of a session, as a logarithm, and its noise."""
    level = rng.gauss(0, noise.session) + (noise.clocks if rng.random() < 0.5 else 0.0)
    if noise.nodes:
        factor = math.exp(rng.gauss(0, noise.nodes))
        noise = noise._replace(process=noise.process * factor, sample=noise.sample * factor)
    return level, noise


def run_process(rng: Draw, noise: Noise, level: float, count: int) -> tuple[float, ...]:
    """Return the samples of a process at a level."""
    gauss, uniform = rng.gauss, rng.random
    level += gauss(0, noise.process) + (noise.states if uniform() < 0.5 else 0.0)
    if noise.disturbed and uniform() < noise.disturbed:
        level += math.log(rng.uniform(1.1, 1.4))
    found, before = [], gauss(0, 1)
    for _ in range(count):
        fresh = gauss(0, 1)
        before = noise.alike * before + math.sqrt(1 - noise.alike**2) * fresh
        value = 10 * math.exp(level + noise.sample * before)
        if noise.outliers and uniform() < noise.outliers:
            value *= rng.uniform(1.1, 3)
        if noise.step:
            value = max(round(value / (10 * noise.step)), 1) * 10 * noise.step
        found.append(value)
    return tuple(found)


def run_pairs(rng: Draw, noise: Noise, pairs: int, shift: float = 0.0) -> PairedSamples:
    """Return pairs of a session in the order ABBA, the candidate slower by ``shift``."""
    level, noise = start_session(rng, noise)
    by, found = math.log1p(shift), []
    for pair in range(pairs):
        places = (2 * pair, 2 * pair + 1) if pair % 2 == 0 else (2 * pair + 1, 2 * pair)
        a, b = (level + noise.drift * place / (2 * USUAL_PAIRS) for place in places)
        reference = run_process(rng, noise, a, SAMPLES)
        found.append(Pair(pair + 1, (reference,), (run_process(rng, noise, b + by, SAMPLES),)))
    return PairedSamples("m", SPEC.unit, tuple(found))


def learn(rng: Draw, noise: Noise, sessions: int) -> NoisePrior | None:
    """Return the prior from earlier sessions of five pairs with nothing changed."""
    return learn_noise([compute_log_ratios(run_pairs(rng, noise, 5)) for _ in range(sessions)])


class Row(NamedTuple):
    """A row of the table.

    Attributes:
        sessions: earlier sessions of the history.
        least: least degrees of freedom of the histories that count.
    """

    name: str
    noise: Noise
    sessions: int = 0
    least: float = 0.0


class Trial(NamedTuple):
    """End of a suite.

    Attributes:
        outcome: ``passed``, ``failed`` or ``inconclusive``, after a number of pairs.
        found: the shifted metric is a regression.
        needed: further pairs that an inconclusive suite names.
    """

    outcome: str
    pairs: int
    found: bool
    needed: int


PROCESSES = 14
"""First row of processes that differ by 2 %."""
ROWS = (
    Row("quiet: processes 0.3 %, samples 0.5 %", Noise(process=0.003, sample=0.005)),
    Row("sessions 2 %, processes 0.5 %, samples 1 %", Noise()),
    Row("the same, 2 % outliers", Noise(outliers=0.02)),
    Row("clocks 4 % apart a session, processes 0.5 %", Noise(clocks=0.04)),
    Row("the same, 2 % outliers", Noise(clocks=0.04, outliers=0.02)),
    Row("drift of 3 % over fifteen pairs", Noise(drift=0.03)),
    Row("neighbouring samples alike (0.5)", Noise(alike=0.5)),
    Row("ties: a clock with steps of 1 %", Noise(step=0.01)),
    Row("one block in 200 disturbed by 10 to 40 %", Noise(disturbed=0.005)),
    Row("nodes whose noise differs (x 1.6)", Noise(nodes=0.5)),
    Row("nodes whose noise differs (x 1.6)", Noise(nodes=0.5), 12),
    Row("noisy: processes 1 %, samples 2 %", Noise(process=0.01, sample=0.02)),
    Row("noisy: processes 1 %, samples 2 %", Noise(process=0.01, sample=0.02), 12),
    Row("clocks 4 % apart a process", Noise(states=0.04)),
    Row("processes 2 %", Noise(process=0.02)),
    Row("processes 2 %", Noise(process=0.02), 6),
    Row("processes 2 %, history of 20 or more", Noise(process=0.02), 24, STANDARD.reliable),
)
SIZES = {1: (0.01, 0.02, 0.03, 0.08, 0.12), PROCESSES: (0.08, 0.12, 0.2)}
"""Changes of other sizes that are tried, by row."""
COMPARED = (1, 2, 3, 11, 14)
"""Rows on which other methods are tried as well."""
PAGE = """### Pairs

`bench/judge.py`: {suites} simulated suites a figure, each of {metrics} metrics, {samples} samples a
block, one block an arm and pair, tolerance 5 %. Figures are per cent of the suites; 0.0 means less
than {least} with 95 % confidence. "Same": nothing changed. "5 %": one metric is 5 % slower.
"History": degrees of freedom that earlier sessions of five pairs are worth. "Further": pairs that
inconclusive suites ask for, beyond fifteen. Goals: at most 1 % false failures; at least 95 % found
in rows 2 to 5; where processes differ by 2 % and history is worth fewer than 20 degrees of freedom,
a 5 % regression is inconclusive and names the pairs still needed; a median of at most 5 pairs on
quiet and 10 on noisy hosts with nothing changed (a regression takes more, as it is confirmed).

| noise | history | same: failed | inconclusive | pairs | 5 %: found | passed | inconclusive | pairs | further |
|---|---|---|---|---|---|---|---|---|---|
{rows}

Changes of other sizes, without history:

| noise | one metric slower by | found | passed | inconclusive | pairs |
|---|---|---|---|---|---|
{sizes}

Other methods, on {compared} suites. "Stored": a baseline of five sessions of thirty samples, and
one session of the candidate. "Pairs": all samples of five pairs, without regard to their blocks.
Mann-Whitney and Welch at 1 % for the suite (Holm), the threshold at a median 5 % higher. Each cell:
false suite failures / 5 % regressions found, in per cent.

| noise | paired | present judge, stored | Mann-Whitney, stored | Welch, stored | threshold, stored | Mann-Whitney, pairs | Welch, pairs |
|---|---|---|---|---|---|---|---|
{methods}

Cost of a suite of {metrics} metrics, {each} in each of {processes} processes an arm: {start:g} s for
a process to start and settle, {sample:g} s a sample.

| host | end | pairs (median) | samples | minutes |
|---|---|---|---|---|
{costs}
"""  # noqa: E501


def judge_suite(
    rng: Draw, noise: Noise, shift: float, priors: Sequence[NoisePrior | None]
) -> Trial:
    """Run pairs of a suite as the sequential rule asks for them; the first metric is shifted."""
    courses, reliable = {}, []
    for i in range(METRICS):
        prior = rng.choice(priors)
        drawn = run_pairs(rng, noise, USUAL_PAIRS, shift if i == 0 else 0.0)
        courses[str(i)] = RatioCourse(SPEC, compute_log_ratios(drawn), prior)
        if prior and prior.df >= STANDARD.reliable:
            reliable.append(str(i))
    rule = Rule(METRICS, courses, reliable)
    for pairs in list_looks(USUAL_PAIRS):
        decisions = {name: rule.decide(name, pairs) for name in courses}
        if "regression" in decisions.values():
            return Trial("failed", pairs, decisions["0"] == "regression", 0)
        if all(d == "ok" for d in decisions.values()):
            return Trial("passed", pairs, False, 0)
    waiting = [name for name, d in decisions.items() if d != "ok"]
    noise_of = {n: rule.estimate_noise(n, USUAL_PAIRS) for n in waiting}
    needed = max(courses[n].count_needed(rule.level, noise_of[n]) for n in waiting) - USUAL_PAIRS
    return Trial("inconclusive", USUAL_PAIRS, False, needed)


def try_row(row: Row, shift: float, suites: int) -> tuple[list[Trial], float]:
    """Return the trials of a row, and the median degrees of freedom of its history."""
    rng = random.Random(f"{row} {shift}")
    learned = [learn(rng, row.noise, row.sessions) for _ in range(100 if row.sessions else 1)]
    priors = [prior for prior in learned if not row.least or (prior and prior.df >= row.least)]
    df = median([prior.df if prior else 0.0 for prior in priors])
    return [judge_suite(rng, row.noise, shift, priors) for _ in range(suites)], df


def percent(trials: Sequence[Trial], outcome: str) -> str:
    """Return the share of an outcome."""
    return f"{100 * fmean(t.outcome == outcome for t in trials):.1f}"


def format_row(row: Row, suites: int) -> tuple[str, float, float]:
    """Return a row of the table, and the median pairs of both kinds."""
    (same, df), (slow, _) = (try_row(row, shift, suites) for shift in (0.0, 0.05))
    open_ones = [t.needed for t in (*same, *slow) if t.outcome == "inconclusive"]
    further = median(open_ones) if open_ones else 0
    cells = [
        row.name,
        f"{df:.0f}" if df else "none",
        percent(same, "failed"),
        percent(same, "inconclusive"),
        f"{median(t.pairs for t in same):g}",
        f"{100 * fmean(t.found for t in slow):.1f}",
        percent(slow, "passed"),
        percent(slow, "inconclusive"),
        f"{median(t.pairs for t in slow):g}",
        f"{further:g}" if open_ones else "",
    ]
    pairs = [median(t.pairs for t in trials) for trials in (same, slow)]
    return f"| {' | '.join(cells)} |", pairs[0], pairs[1]


def format_size(row: Row, shift: float, suites: int) -> str:
    """Return the row of a change of another size."""
    trials, _ = try_row(row, shift, suites)
    found = f"{100 * fmean(t.found for t in trials):.1f}"
    pairs = f"{median(t.pairs for t in trials):g}"
    kinds = [percent(trials, outcome) for outcome in ("passed", "inconclusive")]
    return f"| {row.name} | {100 * shift:g} % | {found} | {' | '.join(kinds)} | {pairs} |"


def compare_mann_whitney(a: Run, b: Run) -> bool:
    """Return whether b is larger, at 1 % for the suite; normal approximation with ties."""
    ranks = rank_values([*a, *b])
    n, m = len(a), len(b)
    ties = sum(c**3 - c for c in Counter(ranks).values())
    deviation = math.sqrt(n * m / 12 * (n + m + 1 - ties / ((n + m) * (n + m - 1))))
    surplus = sum(ranks[n:]) - m * (n + m + 1) / 2 - 0.5
    return bool(deviation) and NormalDist().cdf(-surplus / deviation) <= ALPHA / METRICS


def compare_welch(a: Run, b: Run) -> bool:
    """Return whether b is larger, at 1 % for the suite, by logarithms."""
    x, y = ([math.log(v) for v in side] for side in (a, b))
    p, q = variance(x) / len(x), variance(y) / len(y)
    if p + q == 0:
        return fmean(y) > fmean(x)
    df = (p + q) ** 2 / (p**2 / (len(x) - 1) + q**2 / (len(y) - 1))
    return compute_t_tail((fmean(y) - fmean(x)) / math.sqrt(p + q), df) <= ALPHA / METRICS


def compare_stored(a: Sequence[Run], b: Run) -> bool:
    """Return whether the judge of stored baselines calls b a regression."""
    sides = [Samples("m", SPEC.unit, tuple(runs)) for runs in (a, (b,))]
    return judge_metric("m", SPEC, *sides).outcome == "regression"


def try_methods(rng: Draw, noise: Noise, shift: float) -> list[bool]:
    """Return what six methods say of one metric."""
    runs = []
    for _ in range(6):
        level, now = start_session(rng, noise)
        level += math.log1p(shift) if len(runs) == 5 else 0.0
        runs.append(run_process(rng, now, level, 30))
    stored, candidate = [v for run in runs[:5] for v in run], runs[5]
    pairs = run_pairs(rng, noise, 5, shift).pairs
    a, b = ([v for p in pairs for v in getattr(p, arm)[0]] for arm in ("reference", "candidate"))
    return [
        compare_stored(runs[:5], candidate),
        compare_mann_whitney(stored, candidate),
        compare_welch(stored, candidate),
        median(candidate) >= 1.05 * median(stored),
        compare_mann_whitney(a, b),
        compare_welch(a, b),
    ]


def format_methods(row: Row, cells: list[str], suites: int) -> str:
    """Return false failures and regressions found of each method."""
    rng = random.Random(f"methods {row}")
    same = [
        [
            any(said)
            for said in zip(
                *(try_methods(rng, row.noise, 0.0) for _ in range(METRICS)), strict=True
            )
        ]
        for _ in range(suites)
    ]
    slow = [try_methods(rng, row.noise, 0.05) for _ in range(5 * suites)]
    columns = zip(zip(*same, strict=True), zip(*slow, strict=True), strict=True)
    for false, found in columns:
        cells.append(f"{100 * fmean(false):.0f} / {100 * fmean(found):.0f}")
    return f"| {' | '.join(cells)} |"


def format_cost(host: str, end: str, pairs: float) -> str:
    """Return the cost of a suite after a number of pairs."""
    processes = math.ceil(METRICS / METRICS_A_PROCESS)
    samples = 2 * pairs * METRICS * SAMPLES
    seconds = 2 * pairs * processes * SECONDS_A_PROCESS + samples * SECONDS_A_SAMPLE
    return f"| {host} | {end} | {pairs:g} | {samples:,.0f} | {seconds / 60:.0f} |"


def main(suites: int = SUITES) -> str:
    """Simulate; return the section."""
    with ProcessPoolExecutor() as pool:
        rows = list(pool.map(format_row, ROWS, [suites] * len(ROWS)))
        print("\n".join(row for row, *_ in rows), file=sys.stderr, flush=True)
        asked = [(ROWS[place], shift) for place, shifts in SIZES.items() for shift in shifts]
        sizes = list(pool.map(format_size, *zip(*asked, strict=True), [suites] * len(asked)))
        few = max(suites // 5, 1)
        heads = []
        for i in COMPARED:
            cells = [cell.strip() for cell in rows[i][0].split("|")]
            heads.append([cells[1], f"{float(cells[3]):.0f} / {float(cells[6]):.0f}"])
        methods = list(
            pool.map(format_methods, [ROWS[i] for i in COMPARED], heads, [few] * len(COMPARED))
        )
    hosts = {"quiet": 0, "sessions 2 %": 1, "noisy": 11, "noisy, with history": 12}
    costs = [
        format_cost(host, end, rows[i][place])
        for host, i in hosts.items()
        for place, end in ((1, "nothing changed"), (2, "5 % slower"))
    ]
    return PAGE.format(
        suites=suites,
        metrics=METRICS,
        samples=SAMPLES,
        least=f"{min(300 / suites, 100):.1f} %",
        rows="\n".join(row for row, *_ in rows),
        sizes="\n".join(sizes),
        compared=few,
        methods="\n".join(methods),
        each=METRICS_A_PROCESS,
        processes=math.ceil(METRICS / METRICS_A_PROCESS),
        start=SECONDS_A_PROCESS,
        sample=SECONDS_A_SAMPLE,
        costs="\n".join(costs),
    )
