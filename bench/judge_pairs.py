"""How often the paired judge is wrong, and what it costs, by simulation; beside other methods.

Noise is hierarchical: a node, a session on it, a process of the session, a sample of the process.
The paired judge sees what `canary run --against` measures: both arms in turns in one session. The
present judge, Mann-Whitney, Welch and a threshold see what a stored baseline gives: five earlier
sessions, and one of the candidate. Mann-Whitney and Welch are also given the samples of the pairs.
"""

from __future__ import annotations

import math
import random
from typing import NamedTuple

from compatgate.canary.judge.paired.blocks import (
    Pair,
    PairedSamples,
    compute_log_ratios,
)
from compatgate.canary.judge.paired.courses import RatioCourse
from compatgate.canary.judge.paired.design import USUAL_PAIRS, Design, list_looks
from compatgate.canary.judge.paired.history import NoisePrior, learn_noise
from compatgate.canary.judge.paired.rule import Rule
from compatgate.canary.workload import MetricSpec

SUITES = 1000
"""Suites that are simulated for a row."""
METRICS = 52
SAMPLES = 6
"""Samples of a block."""
ALPHA = 0.01
SPEC = MetricSpec("ms", "lower", tolerance=0.05, repetitions=30)
SECONDS_A_SAMPLE = 0.2
SECONDS_A_PROCESS = 20.0
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


class Trial(NamedTuple):
    """End of a suite: ``passed``, ``failed`` or ``inconclusive``, after a number of pairs."""

    outcome: str
    pairs: int
    found: bool
    needed: int


def judge_suite(
    rng: Draw, noise: Noise, shift: float, sessions: int, design: Design
) -> tuple[Trial, list[PairedSamples]]:
    """Run pairs of a suite as the sequential rule asks for them; the first metric is shifted."""
    drawn = [run_pairs(rng, noise, USUAL_PAIRS, shift if i == 0 else 0.0) for i in range(METRICS)]
    priors = [learn(rng, noise, sessions) for _ in drawn]
    courses = {
        str(i): RatioCourse(SPEC, compute_log_ratios(samples), prior)
        for i, (samples, prior) in enumerate(zip(drawn, priors, strict=True))
    }
    reliable = [str(i) for i, p in enumerate(priors) if p and p.df >= design.reliable]
    rule = Rule(METRICS, courses, reliable, design)
    for pairs in list_looks(USUAL_PAIRS):
        decisions = {name: rule.decide(name, pairs) for name in courses}
        if "regression" in decisions.values():
            return Trial("failed", pairs, decisions["0"] == "regression", 0), drawn
        if all(d == "ok" for d in decisions.values()):
            return Trial("passed", pairs, False, 0), drawn
    waiting = [courses[name] for name, d in decisions.items() if d != "ok"]
    needed = max(course.count_needed(rule.level) for course in waiting) - USUAL_PAIRS
    return Trial("inconclusive", USUAL_PAIRS, False, needed), drawn
