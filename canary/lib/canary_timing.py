"""Time calls: warm-up, clocks and repetitions. Needs only Python 3.8.

A clock has ``seconds(call)``: the duration of one call. On a GPU that is the time between two
events on the GPU's own clock. If the host's part counts (compiling, loading), it is the wall clock,
with all work settled before and after.
"""

import time
from collections import namedtuple

import canary_lines as say

LONG_ENOUGH = 0.002
"""Seconds of one value: several hundred times the resolution of events and clocks."""
_MOST_CALLS = 1000

Times = namedtuple("Times", "values warmup")
"""Fields: seconds per call, in the order measured; ``warmup`` came before and is not judged."""


class WallClock:
    """Clock that measures seconds on the host.

    Args:
        settle: called before and after, so that work on a GPU is done.
    """

    def __init__(self, settle=None):
        self._settle = settle or (lambda: None)

    def seconds(self, call):
        """Time one call."""
        self._settle()
        begin = time.perf_counter()
        call()
        self._settle()
        return time.perf_counter() - begin


class TorchClock:
    """Clock that measures seconds between two CUDA events of PyTorch on the current stream."""

    def __init__(self, torch):
        self._torch = torch

    def seconds(self, call):
        """Time one call."""
        begin, end = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1000.0


def repeat(call, clock, options, calls=None):
    """Time a call repeatedly.

    Args:
        call: function without arguments.
        clock: a clock of this module, or a compatible one.
        options: of `canary_program`; states the repetitions.
        calls: calls per value; None for as many as last `LONG_ENOUGH`.

    Returns:
        `Times` per call.
    """
    first = [clock.seconds(call)]
    if calls is None:
        # The first call loads and compiles; the second one gives the duration.
        calls = calls_for(clock.seconds(call))

    def batch():
        for _ in range(calls):
            call()

    every = [clock.seconds(batch) / calls for _ in range(options.warmup + options.repetitions)]
    return Times(every[options.warmup :], first + every[: options.warmup])


def calls_for(seconds, at_least=LONG_ENOUGH):
    """Return the number of calls per value for calls of a given duration."""
    if seconds <= 0:
        return _MOST_CALLS
    return min(max(int(at_least / seconds + 0.999), 1), _MOST_CALLS)


def report(name, unit, times, convert):
    """Print times as a metric.

    Args:
        name: name of the metric in ``workload.toml``.
        unit: unit of the metric in ``workload.toml``.
        times: of `repeat`.
        convert: function of seconds that returns the metric's value.
    """
    values, warmup = ([convert(seconds) for seconds in part] for part in times)
    say.metric(name, unit, values, warmup=warmup)


def milliseconds(seconds):
    """Convert seconds to milliseconds, for `report`."""
    return seconds * 1e3


def microseconds(seconds):
    """Convert seconds to microseconds, for `report`."""
    return seconds * 1e6


def per_second(amount):
    """Return a converter for `report`: amount of work per second, in 10^9 units of ``amount``."""
    return lambda seconds: amount / seconds
