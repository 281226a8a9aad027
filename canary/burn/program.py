"""Load all GPUs of this process at once, and compare every result: silent corruption, slow GPUs."""

import os
import statistics
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "lib"), os.path.join(HERE, os.pardir, "lib")]

import canary_cuda  # noqa: E402
import canary_env  # noqa: E402
import canary_lines as say  # noqa: E402
import canary_numerics as numerics  # noqa: E402
import canary_program as program  # noqa: E402
import canary_watch  # noqa: E402
from canary_nvml import usable  # noqa: E402

ON_CPU = ("first", "second")
SLOWER = 0.1
"""Largest share by which a GPU may be slower than the median of all."""
PATIENCE_S = 300


def main():
    """Start a process for each GPU, watch the host meanwhile, and compare the reports."""
    parser = program.parser(__doc__)
    parser.add_argument("--for", dest="length", type=program.duration, default=300.0, metavar="5m")
    options = parser.parse_args()
    names = usable(canary_cuda.described()[0]) if options.device == "cuda" else ON_CPU
    canary_env.torch(options, loaded=list(names))
    import canary_ranks as ranks
    import gpu

    windows = [options.length / options.repetitions] * options.repetitions
    nonce = int.from_bytes(os.urandom(6), "little")  # results follow from it
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, canary_watch.HostWatch() as watching:

        def look():
            watching.look()
            if time.monotonic() - shown[0] > 1:
                shown[0] = time.monotonic()
                say.progress(min((shown[0] - begin) / options.length, 1.0))

        shown = [begin]
        arguments = names, nonce, windows, options
        patience = options.length + PATIENCE_S
        reports = ranks.reports(gpu.work, len(names), arguments, options, folder, patience, look)
        _check(names, reports)
        if options.device == "cpu":
            for name in ("xid", "ecc", "throttling"):
                say.skip(name, "there is no GPU")
        else:
            canary_watch.report(watching)
    rates = [report["rates"] for report in reports]
    say.metric("slowest", "products/s", [min(window) for window in zip(*rates)])


def _check(names, reports):
    """Tell the stack's fault, which all GPUs show, from that of one GPU."""
    numerics.check_whole("right", max(report["share"] for report in reports))
    differing = {
        name: {kind: count for kind, count in report["differing"].items() if count}
        for name, report in zip(names, reports)
    }
    bad = [name for name in names if differing[name]]
    said = "; ".join(
        f"{name}: {', '.join(f'{kind} {n} times' for kind, n in differing[name].items())}"
        for name in bad
    )
    everywhere = len(bad) == len(names) > 1
    say.check("repeatable", not everywhere, f"every GPU differs: {said}" if everywhere else "")
    say.check("sound", not bad, said or f"{len(names)} GPUs give the same bits every time")
    speeds = {name: statistics.median(report["rates"]) for name, report in zip(names, reports)}
    usual = statistics.median(speeds.values())
    slow = [
        f"{n} at {100 * s / usual:.0f} %" for n, s in speeds.items() if s < usual * (1 - SLOWER)
    ]
    if names == ON_CPU:
        say.skip("alike", "two processes share the cores")
    elif len(names) == 1:
        say.skip("alike", "there is one GPU")
    else:
        say.check("alike", not slow, f"of the median: {', '.join(slow)}" if slow else "")


if __name__ == "__main__":
    program.start(main)
