"""Warm-up, clocks and repetitions. Python 3.8 or newer, nothing else.

A clock has ``seconds(call)``: how long one call takes. On a GPU that is the time between two events
around it on the GPU's own clock; where the host's part counts (compiling, loading), it is the wall
clock with everything settled before and after.
"""

import time
from collections import namedtuple

import canary_lines as say

LONG_ENOUGH = 0.002
"""Seconds that one value should span: several hundred times what events and clocks resolve."""
_MOST_CALLS = 1000

Times = namedtuple("Times", "values warmup")
"""Seconds per call, in the order measured; ``warmup`` came before and is not judged."""


class WallClock:
    """Seconds on the host's clock.

    Args:
        settle: called before and after, so that work handed to a GPU is done.
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
    """Seconds between two CUDA events of PyTorch on the current stream."""

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
    """Time a call again and again.

    Args:
        call: takes no argument.
        clock: one of this module, or alike.
        options: of `canary_program`; says how often.
        calls: calls that make up one value; None: as many as last `LONG_ENOUGH`.

    Returns:
        `Times` per call.
    """
    first = [clock.seconds(call)]
    if calls is None:
        # The very first call loads and compiles; the second one says how long the work is.
        calls = calls_for(clock.seconds(call))

    def batch():
        for _ in range(calls):
            call()

    every = [clock.seconds(batch) / calls for _ in range(options.warmup + options.repetitions)]
    return Times(every[options.warmup :], first + every[: options.warmup])


def calls_for(seconds, at_least=LONG_ENOUGH):
    """How many calls of a length make up one value."""
    if seconds <= 0:
        return _MOST_CALLS
    return min(max(int(at_least / seconds + 0.999), 1), _MOST_CALLS)


def report(name, unit, times, convert):
    """Print times as a metric.

    Args:
        name: as ``workload.toml`` declares it.
        unit: likewise.
        times: of `repeat`.
        convert: seconds to the metric's value.
    """
    values, warmup = ([convert(seconds) for seconds in part] for part in times)
    say.metric(name, unit, values, warmup=warmup)


def milliseconds(seconds):
    """For `report`."""
    return seconds * 1e3


def microseconds(seconds):
    """For `report`."""
    return seconds * 1e6


def per_second(amount):
    """For `report`: an amount of work per second, in units of 10^9 where ``amount`` is."""
    return lambda seconds: amount / seconds
