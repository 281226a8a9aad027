"""Answer requests alone and next to a neighbour on the same GPU: latency, rate, right results."""

import os
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "lib"), os.path.join(HERE, os.pardir, "lib")]

import canary_clients as clients  # noqa: E402
import canary_env  # noqa: E402
import canary_lines as say  # noqa: E402
import canary_numerics as numerics  # noqa: E402
import canary_program as program  # noqa: E402
import sharing  # noqa: E402

REQUESTS = {"cuda": clients.REQUESTS, "cpu": 20}
MOST_ISOLATED = 1.25
"""Largest ratio of medians between slices: their caches and memory are apart, power is shared."""


def main():
    """Measure alone, then start the neighbour and measure next to it."""
    options = program.options(__doc__)
    mode = sharing.find_mode(options.device)
    _, device = canary_env.torch(options, sharing=mode.kind, neighbour=mode.slice)
    import answers
    from neighbour import Neighbour

    model = answers.Model(options.seed, device)
    progress = program.Steps(2)
    alone, _ = _windows(model, options)
    alone.report("alone", options.warmup)
    progress.done()
    with Neighbour(options.device, mode.slice) as neighbour:
        shared, rates = _windows(model, options, neighbour)
    shared.report("shared", options.warmup)
    progress.done()
    warmup = rates[: options.warmup]
    say.metric("neighbour-rate", "products/s", rates[options.warmup :], warmup=warmup)
    idle = sum(rate == 0 for rate in rates)
    say.check("neighbour-works", not idle, f"{idle} of {len(rates)} windows without a product")
    numerics.check_whole("neighbour-right", neighbour.share)
    error, wrong, bound = model.worst()
    say.check("answers", not wrong, f"error {error:.3g}, allowed {bound:.3g}; {wrong} exceed it")
    _check_isolation(mode, alone.medians(), shared.medians())


class Windows(clients.Windows):
    """Collector of windows that also returns their medians."""

    def __init__(self):
        super().__init__()
        self._medians = []

    def add(self, found):
        """Add the next window."""
        super().add(found)
        self._medians.append(found.p50)

    def medians(self):
        """Return the median of each window, in milliseconds."""
        return self._medians


def _windows(model, options, neighbour=None):
    """Return the windows of one client, and the neighbour's products a second during each."""
    found, rates = Windows(), []
    for _ in range(options.warmup + options.repetitions):
        before, begin = neighbour.products() if neighbour else 0, time.perf_counter()
        found.add(clients.window(model, 1, REQUESTS[options.device]))
        if neighbour:
            elapsed = time.perf_counter() - begin
            rates.append((neighbour.products() - before) / elapsed)
    return found, rates


def _check_isolation(mode, alone, shared):
    ratio = statistics.median(shared) / statistics.median(alone)
    message = f"the median is {ratio:.2f} times as long next to the neighbour ({mode.kind})"
    if mode.kind == "mig":
        say.check("isolated", ratio <= MOST_ISOLATED, f"{message}, allowed {MOST_ISOLATED}")
    else:
        say.skip("isolated", message)


if __name__ == "__main__":
    program.start(main)
