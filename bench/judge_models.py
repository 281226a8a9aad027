"""Noise of GPU benches, as models that draw the centres of blocks of a whole suite at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]


class Noise(NamedTuple):
    """Noise of a suite; standard deviations are relative.

    Attributes:
        process: of processes, each metric for itself; ``shared`` is common to all metrics.
        session: of sessions; the pairs of a run, and the repeats of a candidate, share one.
        shared_session: of sessions, common to all metrics.
        clocks: distance of two clocks on which a process may settle.
        alike: correlation of a process with the one before it in the session.
        sample: of samples of a process.
        outliers: share of samples that take 1.1 to 3 times as long.
        disturbed: share of blocks that take 1.1 to 1.4 times as long.
        drift: change over thirty processes of a session, or from one run to the next.
        cold: the first process of a session takes so much longer.
        step: relative step of the clock that measures.
        differing: standard deviation, as a logarithm, of the noise of one metric over another's.
        tenfold: metrics differ in their noise, evenly from a third to three times.
    """

    process: float = 0.005
    shared: float = 0.0
    session: float = 0.0
    shared_session: float = 0.0
    clocks: float = 0.0
    alike: float = 0.0
    sample: float = 0.01
    outliers: float = 0.0
    disturbed: float = 0.0
    drift: float = 0.0
    cold: float = 0.0
    step: float = 0.0
    differing: float = 0.0
    tenfold: bool = False


def scale_metrics(rng: np.random.Generator, noise: Noise, metrics: int) -> Values:
    """Return the factor of each metric's noise, shape (metrics,)."""
    if not noise.tenfold:
        return np.exp(noise.differing * rng.standard_normal(metrics))
    return np.exp(rng.uniform(-0.5, 0.5, metrics) * np.log(10))


def run_session(
    rng: np.random.Generator, noise: Noise, factors: Values, processes: int, samples: int
) -> Values:
    """Return the samples of a session, as logarithms, shape (metrics, processes, samples)."""
    metrics = len(factors)
    own = rng.standard_normal((metrics, processes))
    for place in range(1, processes):
        fresh = np.sqrt(1 - noise.alike**2) * own[:, place]
        own[:, place] = noise.alike * own[:, place - 1] + fresh
    level = noise.process * own
    level = level + noise.session * rng.standard_normal((metrics, 1))
    level = level + noise.clocks * (rng.random((metrics, processes)) < 0.5)
    level = level * factors[:, None]
    level = level + noise.shared * rng.standard_normal(processes)
    if noise.shared_session:
        level = level + noise.shared_session * rng.standard_normal()
    level = level + noise.drift * np.arange(processes) / 30
    hit = rng.random((metrics, processes)) < noise.disturbed
    level = level + hit * np.log(rng.uniform(1.1, 1.4, (metrics, processes)))
    level[:, 0] += np.log1p(noise.cold)
    shape = (metrics, processes, samples)
    values = level[:, :, None] + noise.sample * factors[:, None, None] * rng.standard_normal(shape)
    far = rng.random(shape) < noise.outliers
    return values + far * np.log(rng.uniform(1.1, 3, shape))


def find_centres(values: Values, step: float) -> Values:
    """Return the mean of the middle third, as the judge takes it, shape (metrics, processes)."""
    if step:
        values = np.log(np.maximum(np.round(np.exp(values) / step), 1) * step)
    ordered = np.sort(values, axis=2)
    cut = ordered.shape[2] // 3
    result: Values = ordered[:, :, cut : ordered.shape[2] - cut].mean(axis=2)
    return result
