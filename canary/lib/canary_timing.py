"""Time calls: settle, clocks, repetitions and conditions. Needs only Python 3.8.

A clock has ``seconds(call, look)``: the duration of one call; ``look`` is called while the work may
still be in progress. On a GPU that is the time between two events on the GPU's own clock. If the
host's part counts (compiling, loading), it is the wall clock, with all work settled before and
after.

A value lasts at least `VALUE_SECONDS` on a GPU, so that it averages over the control loops of
clocks and power, which act within tens of milliseconds. Before the first value, batches run until
values and clock stay within `STEADY`, at most `SETTLE_SECONDS`; a metric that did not settle says
so. Calls whose operands fit into the L2 cache are timed with `TorchCache`, as Triton's ``do_bench``
does.
"""

import time
from collections import namedtuple

import canary_conditions as conditions
import canary_lines as say

VALUE_SECONDS = {"cuda": 0.2, "cpu": 0.002}
"""Least duration of one value by device; on CPUs several hundred times the clock's resolution."""
SETTLE_SECONDS = {"cuda": 15.0, "cpu": 0.0}
"""Longest warm-up of one metric; the first metric pays for the GPU, the others for themselves."""
STEADY = 0.01
"""Relative change between successive groups of values, and span of the clock, that is steady."""
_GROUP = 3
_MAX_CALLS = 100_000
_MAX_EVENTS = 256

Times = namedtuple("Times", "values warmup conditions settled", defaults=((), None))
"""Fields: seconds per call, in the order measured; ``warmup`` came before and is not judged;
``conditions`` of each value, see `canary_conditions`; ``settled``, None if that was not asked."""


class WallClock:
    """Clock that measures seconds on the host.

    Args:
        settle: called before and after, so that work on a GPU is done.
    """

    def __init__(self, settle=None):
        self._settle = settle or (lambda: None)

    def seconds(self, call, look=None):
        """Time one call."""
        self._settle()
        begin = time.perf_counter()
        call()
        self._settle()
        seconds = time.perf_counter() - begin
        if look:
            look()
        return seconds

    def apart(self, call, calls, before, look=None):
        """Time calls one by one, without what is done before each; return their sum."""
        total = 0.0
        for _ in range(calls):
            before()
            total += self.seconds(call)
        if look:
            look()
        return total


class TorchClock:
    """Clock that measures seconds between two CUDA events of PyTorch on the current stream."""

    def __init__(self, torch):
        self._torch = torch

    def seconds(self, call, look=None):
        """Time one call."""
        begin, end = self._events()
        begin.record()
        call()
        end.record()
        if look:
            look()
        end.synchronize()
        return begin.elapsed_time(end) / 1000.0

    def apart(self, call, calls, before, look=None):
        """Time calls one by one, without what is done before each; return their sum."""
        total, left = 0.0, calls
        while left:
            pairs = [self._events() for _ in range(min(left, _MAX_EVENTS))]
            for begin, end in pairs:
                before()
                begin.record()
                call()
                end.record()
            left -= len(pairs)
            if look and not left:
                look()
            pairs[-1][1].synchronize()
            total += sum(begin.elapsed_time(end) for begin, end in pairs) / 1000.0
        return total

    def _events(self):
        return [self._torch.cuda.Event(enable_timing=True) for _ in range(2)]


class TorchCache:
    """Cache of a GPU that a call empties of everything, by writing twice its size.

    A repeated call finds its operands in the L2 cache where they fit into it, which an application
    never does. The L2 cache of current GPUs is 4 to 126 MB.
    """

    _UNKNOWN = 128 << 20

    def __init__(self, torch, device):
        if device.type != "cuda":
            self._buffer = None
            return
        properties = torch.cuda.get_device_properties(device)
        size = 2 * (getattr(properties, "L2_cache_size", 0) or self._UNKNOWN)
        self._buffer = torch.empty(size, dtype=torch.int8, device=device)

    def __call__(self):
        """Write over the cache; does nothing on a CPU."""
        if self._buffer is not None:
            self._buffer.zero_()


def repeat(call, clock, options, calls=None, before=None):
    """Time a call repeatedly.

    Args:
        call: function without arguments.
        clock: a clock of this module, or a compatible one.
        options: of `canary_program`; states device and repetitions.
        calls: calls per value; None for as many as last `VALUE_SECONDS`.
        before: called before each call and not timed, `TorchCache` for one.

    Returns:
        `Times` per call.
    """
    first = [clock.seconds(call)]
    if calls is None:
        # The first call loads and compiles; the second one gives the duration.
        whole = call if before is None else lambda: (before(), call())
        calls = calls_for(clock.seconds(whole), value_seconds(options))

    def batch():
        for _ in range(calls):
            call()

    def value(look):
        if before is None:
            return clock.seconds(batch, look) / calls
        return clock.apart(call, calls, before, look) / calls

    return measure(value, options, first)


def repeat_kept(call, clock, options, before=None):
    """Time a call as `repeat` does; return the times, and what the last call returned."""
    kept = [None]

    def keep():
        kept[0] = call()

    return repeat(keep, clock, options, before=before), kept[0]


def measure(value, options, first=()):
    """Settle, then take values with their conditions.

    Args:
        value: function that measures one value in seconds, and calls its argument during the work.
        options: of `canary_program`.
        first: values that came before; part of the warm-up.

    Returns:
        `Times`.
    """
    warmup, settled = _settle(value, options)
    values, rows = [], []
    for _ in range(options.repetitions):
        values.append(value(lambda: rows.append(conditions.read())))
    return Times(values, [*first, *warmup], conditions.columns(rows), settled)


def _settle(value, options):
    """Return the values of the warm-up, and whether they settled; None if that was not asked."""
    longest = SETTLE_SECONDS[options.device] if options.warmup else 0.0
    end, values, clocks = time.monotonic() + longest, [], []

    def look():
        now = conditions.read()
        clocks.append(now and now["sm_mhz"])

    while len(values) < options.warmup or (
        longest and not is_steady(values, clocks) and time.monotonic() < end
    ):
        values.append(value(look))
    return values, is_steady(values, clocks) if longest else None


def slowest(every):
    """Return the times of the slowest of several series, value by value, with its conditions."""
    values, warmup = (
        [max(part) for part in zip(*(getattr(one, of) for one in every))]
        for of in ("values", "warmup")
    )
    longest = [max(every, key=lambda one, n=n: one.values[n]) for n in range(len(values))]
    names = set.intersection(*(set(one.conditions) for one in every))
    conditions = {
        name: [one.conditions[name][n] for n, one in enumerate(longest)] for name in names
    }
    settled = [one.settled for one in every]
    return Times(values, warmup, conditions, None if None in settled else all(settled))


def is_steady(values, clocks=()):
    """Return whether the last values stay where those before were, and the clock stands still.

    Args:
        values: in the order measured.
        clocks: clock of each value in MHz; None where it is not known.
    """
    if len(values) < 2 * _GROUP:
        return False
    before, after = (
        sorted(part)[_GROUP // 2] for part in (values[-2 * _GROUP : -_GROUP], values[-_GROUP:])
    )
    known = [clock for clock in clocks[-_GROUP:] if clock]
    still = not known or max(known) - min(known) <= STEADY * max(known)
    return still and abs(after - before) <= STEADY * before


def value_seconds(options):
    """Return the least duration of one value."""
    stated = options.value_ms
    return VALUE_SECONDS[options.device] if stated is None else stated / 1000


def calls_for(seconds, at_least):
    """Return the number of calls per value for calls of a given duration."""
    if seconds <= 0:
        return _MAX_CALLS
    return min(max(int(at_least / seconds + 0.999), 1), _MAX_CALLS)


def report(name, unit, times, convert):
    """Print times as a metric, with the conditions of each value.

    Args:
        name: name of the metric in ``workload.toml``.
        unit: unit of the metric in ``workload.toml``.
        times: of `repeat`.
        convert: function of seconds that returns the metric's value.
    """
    values, warmup = ([convert(s) for s in part] for part in (times.values, times.warmup))
    beside = dict(times.conditions or {})
    if times.settled is not None:
        beside["settled"] = times.settled
    more = {"conditions": beside} if beside else {}
    say.line("metric", name=name, unit=unit, values=values, warmup=warmup, **more)


def milliseconds(seconds):
    """Convert seconds to milliseconds, for `report`."""
    return seconds * 1e3


def microseconds(seconds):
    """Convert seconds to microseconds, for `report`."""
    return seconds * 1e6


def per_second(amount):
    """Return a converter for `report`: amount of work per second, in 10^9 units of ``amount``."""
    return lambda seconds: amount / seconds
