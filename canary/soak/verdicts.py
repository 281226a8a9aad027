"""Report the observations as checks. Values that were not available are not reported."""

import canary_lines as say
import canary_numerics as numerics
import canary_watch

DRIFT = 0.05
"""Largest slowdown of the last quarter against the first one."""
WARM = 0.1
"""Share of windows in which memory may still grow."""
MIB = 2**20
TENSORS, GPU, HOST = 1 * MIB, 256 * MIB, 64 * MIB
"""Largest growth after that: tensors of PyTorch, the whole GPU, the process."""


def report(times, watching, shared=False):
    """Print all checks.

    Args:
        times: load to milliseconds of each window.
        watching: observations of `watch`.
        shared: others may use the device, so that a slowdown says nothing.
    """
    if shared:
        say.skip("steady", "a CPU is shared")
    else:
        _drift(times)
    _leak("host-memory", [("the process", watching.resident, HOST)])
    if watching.used:
        parts = [("tensors", watching.allocated, TENSORS), ("the GPU", watching.used, GPU)]
        _leak("device-memory", parts)
    numerics.check_same("same-bits", watching.fingerprints, "windows")
    canary_watch.report(watching)


def growth(values):
    """Return the growth after warm-up, between the medians of the first and the last quarter."""
    warm = values[int(len(values) * WARM) :]
    quarter = max(len(warm) // 4, 1)
    return median(warm[-quarter:]) - median(warm[:quarter])


def median(values):
    """Return the median, the upper of two middle values."""
    return sorted(values)[len(values) // 2]


def _drift(times):
    slower = []
    for name, values in times.items():
        quarter = max(len(values) // 4, 1)
        change = median(values[-quarter:]) / median(values[:quarter]) - 1
        slower.append((change, name))
    change, name = max(slower)
    said = f"{name}: last quarter {100 * change:+.1f} % to the first, allowed {100 * DRIFT:.0f} %"
    say.check("steady", change <= DRIFT, said)


def _leak(name, parts):
    grown = [(what, growth(values), allowed) for what, values, allowed in parts]
    said = "; ".join(
        f"{what} {by / MIB:+.1f} MiB, allowed {most // MIB}" for what, by, most in grown
    )
    say.check(name, all(by <= allowed for _, by, allowed in grown), said)
